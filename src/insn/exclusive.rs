//! Finding the load-exclusive/store-exclusive sequence that an address lies in.
//!
//! A breakpoint inside such a sequence makes it fail for ever: the exception return clears the exclusive
//! monitor, the store fails, and the loop around the two comes back to the breakpoint. Looking back a number of
//! words for a load-exclusive does not find it out. The load may be further away, or reach the address by a
//! branch from below; and an address behind an early exit of the sequence, or behind another function's last
//! words, is innocent.
//!
//! So the check follows control flow. An address is inside a sequence if some path through the function leads from
//! a load-exclusive to it, and on from it to a store-exclusive, without another load-exclusive or a CLREX.
//! Calls are taken to return. Everything else that leaves the function, or enters an exception, ends a path: no
//! sequence survives an exception return, and none is known to span functions.

use alloc::vec::Vec;
use core::ops::Range;

use fallible::OutOfMemory;

use super::classify;
use super::op::{Indirect, Op};
use super::verdict::{Reason, Verdict};

/// The exclusive sequences of a function.
#[derive(Debug)]
pub struct Sequences {
    /// The virtual address of the function.
    start: u64,
    /// What each word means.
    steps: Vec<Step>,
    /// For each word, whether a sequence contains it.
    inside: Vec<bool>,
}

/// What an instruction means to an exclusive sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It begins one.
    Load,
    /// It ends the one there is.
    Store,
    /// It leaves none, or leaves the function.
    End,
    /// It continues with the next instruction, or at an offset in bytes, or both.
    Continue { next: bool, offset: Option<i32> },
}

impl Sequences {
    /// Those of the function at the range of virtual addresses `function`, in whole words; `read` gives the word at an
    /// address in it, as it is without probes.
    ///
    /// # Errors
    ///
    /// There is no memory to follow the paths of the function.
    pub fn of(function: Range<u64>, read: impl Fn(u64) -> u32) -> Result<Self, OutOfMemory> {
        let start = function.start;
        let steps = fallible::collect(function.step_by(4).map(read).map(Step::of))?;
        let mut found = Self { start, steps, inside: Vec::new() };
        let mut reached = found.none()?;
        found.loads().try_for_each(|load| found.reach(load, &mut reached))?;
        let mut inside = found.leading_to_a_store()?;
        for (index, (inside, reached)) in inside.iter_mut().zip(reached).enumerate() {
            *inside = found.steps[index] == Step::Load || reached && *inside;
        }
        found.inside = inside;
        Ok(found)
    }

    /// For each word, no.
    fn none(&self) -> Result<Vec<bool>, OutOfMemory> {
        fallible::collect(self.steps.iter().map(|_| false))
    }

    /// The address of the load-exclusive whose sequence contains `address`, itself and the store-exclusive included.
    /// Where several sequences contain it, the first load is given.
    ///
    /// # Errors
    ///
    /// There is no memory to look for the load.
    pub fn containing(&self, address: u64) -> Result<Option<u64>, OutOfMemory> {
        let index = address.checked_sub(self.start).and_then(|offset| usize::try_from(offset / 4).ok());
        let Some(index) = index.filter(|&index| self.inside.get(index) == Some(&true)) else { return Ok(None) };
        if self.steps[index] == Step::Load {
            return Ok(Some(address));
        }
        for load in self.loads() {
            let mut reached = self.none()?;
            self.reach(load, &mut reached)?;
            if reached[index] {
                return Ok(Some(self.start + 4 * load as u64));
            }
        }
        Ok(None)
    }

    fn loads(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.steps.len()).filter(|&index| self.steps[index] == Step::Load)
    }

    /// The words in the function to which control may go from the one at `index`.
    fn successors(&self, index: usize) -> impl Iterator<Item = usize> + use<> {
        let (next, offset) = match self.steps[index] {
            Step::Load => (true, None),
            Step::Store | Step::End => (false, None),
            Step::Continue { next, offset } => (next, offset),
        };
        let next = next.then(|| index + 1);
        let target = offset.and_then(|offset| index.checked_add_signed(offset as isize / 4));
        let length = self.steps.len();
        next.into_iter().chain(target).filter(move |&successor| successor < length)
    }

    /// Marks in `reached` what paths lead to from the word at `from`, up to what begins or ends a sequence.
    fn reach(&self, from: usize, reached: &mut [bool]) -> Result<(), OutOfMemory> {
        let mut pending = fallible::collect(self.successors(from))?;
        while let Some(index) = pending.pop() {
            if !reached[index] {
                reached[index] = true;
                if matches!(self.steps[index], Step::Continue { .. }) {
                    fallible::extend(&mut pending, self.successors(index))?;
                }
            }
        }
        Ok(())
    }

    /// For each word, whether a path leads from it to a store-exclusive, before anything else that begins or ends a
    /// sequence.
    fn leading_to_a_store(&self) -> Result<Vec<bool>, OutOfMemory> {
        let mut leads = fallible::collect(self.steps.iter().map(|&step| step == Step::Store))?;
        let mut changed = true;
        // From the last word to the first: only branches backwards need another turn.
        while changed {
            changed = false;
            for index in (0..leads.len()).rev() {
                let passes = matches!(self.steps[index], Step::Continue { .. });
                if passes && !leads[index] && self.successors(index).any(|next| leads[next]) {
                    leads[index] = true;
                    changed = true;
                }
            }
        }
        Ok(leads)
    }
}

impl Step {
    fn of(word: u32) -> Self {
        /// CLREX (C6.2), without its operand in bits 11 to 8.
        const CLREX: u32 = 0xd503_305f;
        let (next, offset) = match classify(word) {
            Verdict::Reject(Reason::LoadExclusive) => return Self::Load,
            Verdict::Reject(Reason::StoreExclusive) => return Self::Store,
            Verdict::Reject(Reason::ExceptionGenerating | Reason::PermanentlyUndefined | Reason::ExceptionReturn)
            | Verdict::Simulate(
                Op::BranchRegister { kind: Indirect::Jump | Indirect::Return, .. }
                | Op::BranchAuthenticated { kind: Indirect::Jump | Indirect::Return, .. },
            ) => return Self::End,
            Verdict::Slot if word & !0xf00 == CLREX => return Self::End,
            Verdict::Simulate(Op::Branch { offset }) => (false, Some(offset)),
            Verdict::Simulate(
                Op::BranchConditional { offset, .. } | Op::CompareBranch { offset, .. } | Op::TestBranch { offset, .. },
            ) => (true, Some(offset)),
            // The offset is in bits 13 to 5 (C6.2, CB).
            Verdict::Reject(Reason::CompareAndBranch) => (true, Some((word << 18).cast_signed() >> 23 << 2)),
            _ => (true, None),
        };
        Self::Continue { next, offset }
    }
}

/// False for what is no load-exclusive, by one test: the groups of exclusives, ordered accesses and unprivileged ones
/// with o2 clear (C4.1.94). The oracle asks it of every word. A function without any has no sequences.
#[must_use]
pub const fn may_be_load(word: u32) -> bool {
    word & 0x3e80_0000 == 0x0800_0000
}

#[cfg(test)]
mod tests;
