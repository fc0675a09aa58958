//! Register allocation: for each value of a clause, a register or its word of the frame.
//!
//! Control only goes forward, so one pass over the ops in their order is enough. A word is *live* after an op if an op
//! that can be reached from there, by falling through or by a jump over it, reads its present contents. Consecutive ops
//! after which a word is live are a *live range*. A range has one allocation, and no value goes from one range to
//! another. Registers are assigned to ranges in the order in which they begin; if there are not enough, the range that
//! ends last is in the frame.
//!
//! Strings are in the frame. A value in a register also has its word in the frame, where it is stored for a call.

use alloc::vec::Vec;
use core::iter;
use core::ops::RangeInclusive;

use fallible::OutOfMemory;

use crate::ir::{Code, FRAME_WORDS, Op};

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allocation {
    /// A register, by its number.
    Register(u8),
    /// The word of the frame.
    Memory,
    /// Nowhere: the value is never read.
    Nowhere,
}

/// A live range: a word, the ops after which it is live, and its allocation.
#[derive(Debug)]
struct LiveRange {
    word: usize,
    /// The number of the op that writes the word, and of the last op after which it is live.
    first: usize,
    last: usize,
    allocation: Allocation,
}

/// The allocations of all values.
#[derive(Debug)]
pub(super) struct Allocations {
    ranges: Vec<LiveRange>,
    /// For each word, the numbers of its ranges, in their order.
    of: Vec<Vec<usize>>,
}

/// A set of words.
#[derive(Clone, Copy, Default)]
struct Words([u64; FRAME_WORDS / 64]);

impl Words {
    fn insert(&mut self, word: usize) {
        if let Some(bits) = self.0.get_mut(word / 64) {
            *bits |= 1 << (word % 64);
        }
    }

    fn remove(&mut self, word: usize) {
        if let Some(bits) = self.0.get_mut(word / 64) {
            *bits &= !(1 << (word % 64));
        }
    }

    fn join(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(bits, others)| *bits |= others);
    }

    fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(index, bits)| {
            // Each step removes the lowest bit.
            let rests = iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)));
            rests.take_while(|bits| *bits != 0).map(move |bits| 64 * index + bits.trailing_zeros() as usize)
        })
    }
}

impl Allocations {
    /// Allocates the values of `ops`, which are part of `code` and keep the rules of the form, to `registers` and the
    /// frame.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the allocations.
    pub fn new(code: &Code, ops: &[Op], registers: RangeInclusive<u8>) -> Result<Self, OutOfMemory> {
        let of = fallible::collect((0..FRAME_WORDS).map(|_| Vec::new()))?;
        let mut allocations = Self { ranges: Vec::new(), of };
        allocations.find(code, ops)?;
        allocations.assign(registers)?;
        Ok(allocations)
    }

    /// Finds the live ranges.
    fn find(&mut self, code: &Code, ops: &[Op]) -> Result<(), OutOfMemory> {
        let mut needed = fallible::collect((0..=ops.len()).map(|_| Words::default()))?;
        for (number, op) in ops.iter().enumerate().rev() {
            let Ok(touched) = code.touched(*op) else { continue };
            let (target, falls) = op.successors();
            let mut words = Words::default();
            let next = target.into_iter().chain(falls.then_some(number + 1));
            next.filter_map(|next| needed.get(next)).for_each(|others| words.join(*others));
            touched.written().for_each(|word| words.remove(word));
            touched.read().for_each(|word| words.insert(word));
            if let Some(place) = needed.get_mut(number) {
                *place = words;
            }
        }
        // For each word, the last op to which a jump carries a value of the word; and the last of all words.
        let (mut until, mut last) = (fallible::collect((0..FRAME_WORDS).map(|_| 0))?, 0);
        for (number, op) in ops.iter().enumerate() {
            let Ok(touched) = code.touched(*op) else { continue };
            let (target, falls) = op.successors();
            let of = |next: usize| needed.get(next).copied().unwrap_or_default();
            for word in target.into_iter().flat_map(|target| of(target).iter()) {
                if let Some(until) = until.get_mut(word) {
                    *until = target.unwrap_or(0).max(*until);
                    last = last.max(*until);
                }
            }
            let mut behind = if falls { of(number + 1) } else { Words::default() };
            if last > number {
                let carried = until.iter().enumerate().filter(|(_, until)| **until > number);
                carried.for_each(|(word, _)| behind.insert(word));
            }
            let text = touched.written().count() > 1;
            for word in behind.iter() {
                self.extend(word, number, text && touched.written().any(|written| written == word))?;
            }
        }
        Ok(())
    }

    /// Notes that a word is live after an op, in memory if `in_memory`.
    fn extend(&mut self, word: usize, op: usize, in_memory: bool) -> Result<(), OutOfMemory> {
        let Some(of) = self.of.get_mut(word) else { return Ok(()) };
        let known = of.last().and_then(|&last| self.ranges.get_mut(last)).filter(|range| range.last + 1 == op);
        let range = match known {
            Some(range) => {
                range.last = op;
                range
            }
            None => {
                fallible::push(of, self.ranges.len())?;
                fallible::push(
                    &mut self.ranges,
                    LiveRange { word, first: op, last: op, allocation: Allocation::Nowhere },
                )?;
                let Some(range) = self.ranges.last_mut() else { return Ok(()) };
                range
            }
        };
        if in_memory {
            range.allocation = Allocation::Memory;
        }
        Ok(())
    }

    /// Assigns registers to ranges, which are in the order in which they begin.
    fn assign(&mut self, registers: RangeInclusive<u8>) -> Result<(), OutOfMemory> {
        // Each register is in one of these two lists, and each list has room for all registers.
        let mut free = fallible::collect(registers.rev())?;
        let mut active: Vec<(usize, u8)> = Vec::new();
        active.try_reserve_exact(free.len())?;
        for number in 0..self.ranges.len() {
            let Some(&LiveRange { first, last, allocation, .. }) = self.ranges.get(number) else { continue };
            active.retain(|&(other, register)| {
                let stays = self.ranges.get(other).is_some_and(|other| other.last >= first);
                if !stays {
                    free.push(register);
                }
                stays
            });
            if allocation == Allocation::Memory {
                continue;
            }
            let register = free.pop().or_else(|| {
                let ends = |&(other, _): &(usize, u8)| self.ranges.get(other).map_or(0, |other| other.last);
                let (at, &(other, register)) = active.iter().enumerate().max_by_key(|(_, one)| ends(one))?;
                let longest = self.ranges.get_mut(other).filter(|other| other.last > last)?;
                longest.allocation = Allocation::Memory;
                active.swap_remove(at);
                Some(register)
            });
            active.extend(register.map(|register| (number, register)));
            if let Some(range) = self.ranges.get_mut(number) {
                range.allocation = register.map_or(Allocation::Memory, Allocation::Register);
            }
        }
        Ok(())
    }

    fn behind(&self, word: usize, op: usize) -> Option<&LiveRange> {
        let ranges = self.of.get(word)?.iter().filter_map(|&number| self.ranges.get(number));
        ranges.take_while(|range| range.first <= op).find(|range| op <= range.last)
    }

    /// Returns where op `number` finds `word`.
    pub fn before(&self, word: usize, number: usize) -> Allocation {
        number.checked_sub(1).and_then(|op| self.behind(word, op)).map_or(Allocation::Nowhere, |range| range.allocation)
    }

    /// Returns where op `number` puts `word`.
    pub fn after(&self, word: usize, number: usize) -> Allocation {
        self.behind(word, number).map_or(Allocation::Nowhere, |range| range.allocation)
    }

    /// Returns the last op after which the value of `word` that op `number` writes is live.
    pub fn last(&self, word: usize, number: usize) -> usize {
        self.behind(word, number).map_or(number, |range| range.last)
    }

    /// Returns whether `register` never holds a value.
    pub fn has_no_value_in(&self, register: u8) -> bool {
        self.ranges.iter().all(|range| range.allocation != Allocation::Register(register))
    }

    /// Returns the words in registers that are live both before and after op `number`.
    pub fn across(&self, number: usize) -> impl Iterator<Item = (usize, u8)> {
        let ranges = self.ranges.iter().filter(move |range| range.first < number && number <= range.last);
        ranges.filter_map(|range| match range.allocation {
            Allocation::Register(register) => Some((range.word, register)),
            _ => None,
        })
    }
}
