//! The stacks that a program has recorded, each stored once. A program keeps a stack as its number, which takes one
//! word. `hit::intern` assigns the numbers. They count from 1: a word that was never given a stack is 0, and has none.
//!
//! A stack stays in place as long as the program exists. A CPU that passes on a number has seen or written the whole
//! stack before, and passes the number on through a table or a ring with ordering of its own. So only CPUs that add
//! stacks must synchronize, with the lock `adding`.

use alloc::boxed::Box;
use core::sync::atomic::Ordering;

use fallible::OutOfMemory;

use super::Limits;
use crate::atomic::{AtomicBool, AtomicU64, Cells, cells};

/// The stacks of a program.
#[derive(Debug)]
pub(crate) struct Stacks {
    pub(crate) frames: usize,
    /// The number of places for stacks.
    pub(crate) count: usize,
    /// For each place, the number of frames, which is 0 if the place is free, followed by the frames.
    pub(crate) cells: Box<Cells>,
    /// The lock of the CPU that adds a stack. Taken and released with interrupts masked.
    pub(crate) adding: AtomicBool,
    pub(crate) dropped: AtomicU64,
}

impl Stacks {
    /// Allocates places for stacks of `frames` frames each.
    pub fn new(frames: usize, limits: &Limits) -> Result<Self, OutOfMemory> {
        let count = limits.stacks(frames);
        let cells = cells(count * (frames + 1))?;
        Ok(Self { frames, count, cells, adding: AtomicBool::new(false), dropped: AtomicU64::new(0) })
    }

    /// Returns the number of frames, and the frames, of a place. Places count from 0.
    #[inline(always)]
    pub(crate) fn slot(&self, place: usize) -> Option<(&AtomicU64, &Cells)> {
        let length = self.frames + 1;
        self.cells.get(place * length..)?.get(..length)?.split_first()
    }

    /// Returns the frames of the stack with this number; none if there is no such stack.
    pub fn frames(&self, number: u64) -> impl Iterator<Item = u64> {
        let place = number.checked_sub(1).and_then(|place| usize::try_from(place).ok());
        let slot = place.filter(|place| *place < self.count).and_then(|place| self.slot(place));
        let frames = slot.map(|(count, frames)| frames.iter().take(count.load(Ordering::Relaxed) as usize));
        frames.into_iter().flatten().map(|frame| frame.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hit::NO_STACK;
    use alloc::vec::Vec;

    fn stack(frames: &[u64]) -> Box<Cells> {
        frames.iter().map(|&frame| AtomicU64::new(frame)).collect()
    }

    #[test]
    fn a_stack_has_one_number() {
        let usual = Limits::usual(1);
        // In Miri, a borrow of the places takes time for each of their words.
        let limits = if cfg!(miri) { Limits { stacks: 16, ..usual } } else { usual };
        let stacks = Stacks::new(4, &limits).unwrap();
        let first = stacks.number(&stack(&[1, 2, 3]));
        let second = stacks.number(&stack(&[1, 2]));
        assert_ne!(first, second);
        assert_eq!(stacks.number(&stack(&[1, 2, 3])), first);
        assert_eq!(
            (stacks.frames(first).collect(), stacks.frames(second).collect()),
            (Vec::from([1, 2, 3]), Vec::from([1, 2]))
        );
        assert_eq!(stacks.frames(stacks.number(&stack(&[]))).count(), 0);
    }

    #[test]
    fn what_has_no_place_is_counted() {
        let stacks = Stacks::new(2, &Limits { stack_bytes: 0, ..Limits::usual(1) }).unwrap();
        let many = if cfg!(miri) { 20 } else { 40 };
        let numbers: Vec<u64> = (1..=many).map(|frame| stacks.number(&stack(&[frame]))).collect();
        let lost = numbers.iter().filter(|&&number| number == NO_STACK).count();
        assert_eq!(lost as u64, many - 16);
        assert_eq!(stacks.dropped.load(Ordering::Relaxed), many - 16);
        for (frame, number) in (1..).zip(numbers).filter(|&(_, number)| number != NO_STACK) {
            assert!(stacks.frames(number).eq([frame]));
            assert_eq!(stacks.depth(number), 1);
        }
    }

    #[test]
    fn a_word_that_is_zero_is_no_stack() {
        let stacks = Stacks::new(2, &Limits { stack_bytes: 0, ..Limits::usual(1) }).unwrap();
        let mut numbers: Vec<u64> = (1..=16).map(|frame| stacks.number(&stack(&[frame]))).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(1..=16), "every place is taken");
        for number in [0, 17, u64::MAX] {
            assert_eq!((stacks.frames(number).count(), stacks.depth(number)), (0, 0), "{number}");
        }
    }
}
