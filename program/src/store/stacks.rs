//! Stacks that a program has met, each once: a value is the number of its stack, so that it has one word.
//!
//! A stack stays where it is as long as the program. Whoever has its number has it from a CPU that has seen, or written, all of
//! it before, through a table or a ring that orders that; so only those who add stacks need an order among them.

use alloc::boxed::Box;
use core::sync::atomic::Ordering;

use fallible::OutOfMemory;

use super::{Cells, Limits, cells};
use crate::atomic::{AtomicBool, AtomicU64, spin_loop};

/// The stacks of a program.
#[derive(Debug)]
pub(crate) struct Stacks {
    frames: usize,
    /// How many there is room for.
    count: usize,
    /// For each, its number of frames, 0 if there is none, and its frames.
    cells: Box<Cells>,
    /// Changed with interrupts masked, by whoever adds a stack.
    adding: AtomicBool,
    pub dropped: AtomicU64,
}

/// Where the stack of these frames wants to be.
#[inline]
fn hash(frames: impl Iterator<Item = u64>) -> u64 {
    frames.fold(0, |hash, frame| {
        let product = (hash ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ product >> 32
    })
}

/// In how many places a stack may lie, from where its hash wants it to be; a model tries all orders of looking at each.
const REACH: usize = if cfg!(all(test, loom)) { 2 } else { 32 };

/// The number of a stack that has found no place.
const NO_STACK: u64 = u64::MAX;

impl Stacks {
    /// Room for stacks of `frames` frames each.
    pub fn new(frames: usize, limits: &Limits) -> Result<Self, OutOfMemory> {
        let count = limits.stacks(frames);
        let cells = cells(count * (frames + 1))?;
        Ok(Self { frames, count, cells, adding: AtomicBool::new(false), dropped: AtomicU64::new(0) })
    }

    #[inline]
    fn slot(&self, number: usize) -> Option<(&AtomicU64, &Cells)> {
        let length = self.frames + 1;
        self.cells.get(number * length..)?.get(..length)?.split_first()
    }

    /// The number of `stack`, which is added if it is new. Called with interrupts masked.
    #[inline]
    pub fn number(&self, stack: &Cells) -> u64 {
        if stack.is_empty() || self.count == 0 {
            return NO_STACK;
        }
        let hash = hash(stack.iter().map(|frame| frame.load(Ordering::Relaxed)));
        let places = (0..REACH).map(|away| hash.wrapping_add(away as u64) as usize & self.count.wrapping_sub(1));
        if let Some(number) = places.clone().find(|&number| self.is(number, stack)) {
            return number as u64;
        }
        while self.adding.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spin_loop();
        }
        let number = self.add(places, stack);
        self.adding.store(false, Ordering::Release);
        number
    }

    /// Whether the stack of that number is `stack`.
    #[inline]
    fn is(&self, number: usize, stack: &Cells) -> bool {
        let Some((count, frames)) = self.slot(number) else { return false };
        count.load(Ordering::Relaxed) == stack.len() as u64
            && stack.len() <= frames.len()
            && frames.iter().zip(stack).all(|(has, frame)| has.load(Ordering::Relaxed) == frame.load(Ordering::Relaxed))
    }

    #[inline]
    fn add(&self, places: impl Iterator<Item = usize>, stack: &Cells) -> u64 {
        for number in places {
            if self.is(number, stack) {
                return number as u64;
            }
            let Some((count, frames)) = self.slot(number) else { break };
            if count.load(Ordering::Relaxed) == 0 {
                frames
                    .iter()
                    .zip(stack)
                    .for_each(|(to, frame)| to.store(frame.load(Ordering::Relaxed), Ordering::Relaxed));
                count.store(stack.len() as u64, Ordering::Relaxed);
                return number as u64;
            }
        }
        self.dropped.store(self.dropped.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        NO_STACK
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
