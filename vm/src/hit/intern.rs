//! Interning stacks: returning the number of a stack, which is added if it is new.

use core::sync::atomic::Ordering;

use super::{all_pairs, copy_cells};
use crate::atomic::{Cells, spin_loop};
use crate::maps::Stacks;

/// Returns the hash of these frames, which decides the preferred place of the stack.
#[inline]
pub(crate) fn hash(frames: impl Iterator<Item = u64>) -> u64 {
    frames.fold(0, |hash, frame| {
        let product = (hash ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ product >> 32
    })
}

/// The number of places that a stack may be in, from its preferred one on. It is small in models, which try all orders
/// for each place.
const REACH: usize = if cfg!(all(test, loom)) { 2 } else { 32 };

/// The number that stands for a stack without a place, and for one that was never given.
pub(crate) const NO_STACK: u64 = 0;

/// Returns the number of the stack at this place.
#[inline(always)]
fn number_at(place: usize) -> u64 {
    (place as u64).wrapping_add(1)
}

impl Stacks {
    /// Returns the number of frames of the stack with this number; 0 if there is none.
    #[inline]
    pub fn depth(&self, number: u64) -> u64 {
        let place = number.wrapping_sub(1);
        let is_one = place < self.count as u64;
        let slot = if is_one { self.slot(place as usize) } else { None };
        slot.map_or(0, |(frames, _)| frames.load(Ordering::Relaxed))
    }

    /// Returns the number of `stack`, which is added if it is new; [`NO_STACK`] if it has no place. Called with
    /// interrupts masked.
    #[inline]
    pub fn number(&self, stack: &Cells) -> u64 {
        if stack.is_empty() || self.count == 0 {
            return NO_STACK;
        }
        let hash = hash(stack.iter().map(|frame| frame.load(Ordering::Relaxed)));
        for away in 0..REACH {
            let place = self.place(hash, away);
            if self.is(place, stack) {
                return number_at(place);
            }
        }
        while self.adding.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            spin_loop();
        }
        let number = self.add(hash, stack);
        self.adding.store(false, Ordering::Release);
        number
    }

    /// Returns the place at this distance from the preferred one.
    #[inline(always)]
    fn place(&self, hash: u64, away: usize) -> usize {
        hash.wrapping_add(away as u64) as usize & self.count.wrapping_sub(1)
    }

    /// Returns whether the stack at this place is `stack`.
    #[inline]
    fn is(&self, place: usize, stack: &Cells) -> bool {
        let Some((count, frames)) = self.slot(place) else { return false };
        count.load(Ordering::Relaxed) == stack.len() as u64
            && stack.len() <= frames.len()
            && all_pairs(frames, stack, |has, frame| has.load(Ordering::Relaxed) == frame.load(Ordering::Relaxed))
    }

    #[inline]
    fn add(&self, hash: u64, stack: &Cells) -> u64 {
        for away in 0..REACH {
            let place = self.place(hash, away);
            if self.is(place, stack) {
                return number_at(place);
            }
            let Some((count, frames)) = self.slot(place) else { break };
            if count.load(Ordering::Relaxed) == 0 {
                copy_cells(frames, stack);
                count.store(stack.len() as u64, Ordering::Relaxed);
                return number_at(place);
            }
        }
        self.dropped.store(self.dropped.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        NO_STACK
    }
}
