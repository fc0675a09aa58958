//! Stacks that a program has met, each once: a value is the number of its stack, so that it has one word. It is
//! given its number by `hit::intern`.
//!
//! A stack stays where it is as long as the program. A CPU that passes its number on has seen, or written, all of
//! it before, through a table or a ring that orders that; so only those who add stacks need an order among them.

use alloc::boxed::Box;
use core::sync::atomic::Ordering;

use fallible::OutOfMemory;

use super::{Cells, Limits, cells};
use crate::atomic::{AtomicBool, AtomicU64};

/// The stacks of a program.
#[derive(Debug)]
pub(crate) struct Stacks {
    pub(crate) frames: usize,
    /// How many there is room for.
    pub(crate) count: usize,
    /// For each, its number of frames, 0 if there is none, and its frames.
    pub(crate) cells: Box<Cells>,
    /// Lock of the CPU that adds a stack. Changed with interrupts masked.
    pub(crate) adding: AtomicBool,
    pub(crate) dropped: AtomicU64,
}

impl Stacks {
    /// Room for stacks of `frames` frames each.
    pub fn new(frames: usize, limits: &Limits) -> Result<Self, OutOfMemory> {
        let count = limits.stacks(frames);
        let cells = cells(count * (frames + 1))?;
        Ok(Self { frames, count, cells, adding: AtomicBool::new(false), dropped: AtomicU64::new(0) })
    }

    /// The number of frames, and the frames, of the place of that number.
    #[inline(always)]
    pub(crate) fn slot(&self, number: usize) -> Option<(&AtomicU64, &Cells)> {
        let length = self.frames + 1;
        self.cells.get(number * length..)?.get(..length)?.split_first()
    }

    /// The frames of a stack; none if there is none of that number.
    pub fn frames(&self, number: u64) -> impl Iterator<Item = u64> {
        let slot =
            usize::try_from(number).ok().filter(|number| *number < self.count).and_then(|number| self.slot(number));
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
        let stacks = Stacks::new(4, &Limits::usual(1)).unwrap();
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
        let numbers: Vec<u64> = (1..=40).map(|frame| stacks.number(&stack(&[frame]))).collect();
        let lost = numbers.iter().filter(|&&number| number == NO_STACK).count();
        assert_eq!(lost, 24);
        assert_eq!(stacks.dropped.load(Ordering::Relaxed), 24);
        for (frame, number) in (1..).zip(numbers).filter(|&(_, number)| number != NO_STACK) {
            assert!(stacks.frames(number).eq([frame]));
        }
    }
}
