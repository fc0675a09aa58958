//! Finds the load-exclusive/store-exclusive sequence that an address lies in.
//!
//! A breakpoint inside such a sequence makes it fail forever: the exception return clears the exclusive monitor, the
//! store fails, and the loop around the two returns to the breakpoint. It is not enough to look for a load-exclusive
//! among the preceding words. The load may be further away, or reach the address by a branch from below; and an address
//! after an early exit of the sequence, or after another function's last words, is outside.
//!
//! So the check follows control flow. An address is inside a sequence if some path through the function leads from a
//! load-exclusive to it, and on from it to a store-exclusive, without another load-exclusive or a CLREX. Calls are
//! assumed to return. Everything else that leaves the function, or enters an exception, ends a path: no sequence
//! survives an exception return.
//!
//! LLVM's machine outliner (opt-level "z") moves instructions without a branch among them to functions of their own, so
//! a sequence may span functions. One function shows these parts of it:
//!
//! | in the function | means |
//! |---|---|
//! | a path from a call to a store-exclusive, without a load-exclusive | the call begins the sequence |
//! | a path from the entry to a store-exclusive, without a load-exclusive or a call | a caller begins it |
//! | no branch from a load-exclusive to the end of the function | a caller ends it |
//! | a call of a function in which a store-exclusive precedes every branch and load-exclusive | the call ends it |
//!
//! A function without an exclusive may be called inside a sequence, which only its callers show: [`SequenceCallees`]
//! finds these in the whole text.
//!
//! One case is not visible: a function without an exclusive of its own that calls one function which begins a sequence
//! and another which ends it, and the functions that it calls between them.
//!
//! A load-exclusive may also lead to a WFE or WFET, as in a loop that waits for a lock. They then wait for the event
//! that comes when another CPU stores to the location, because that clears the monitor (C6.2, WFE). If a handler has
//! executed exclusives meanwhile, this event never comes. A breakpoint does no harm there, as the return from its
//! exception is an event, too. So such an instruction can be probed, but not by a branch to a stub.

mod callees;

use alloc::vec::Vec;
use core::ops::Range;

use fallible::OutOfMemory;

pub use callees::SequenceCallees;

use super::classify::classify;
use super::control::Control;
use super::op::Indirect;
use super::verdict::{Reason, Verdict};

/// The exclusive sequences of a function.
#[derive(Debug)]
pub struct Sequences {
    /// The virtual address of the function.
    start: u64,
    /// The meaning of each word.
    steps: Vec<Step>,
    /// For each word, whether a sequence contains it.
    inside: Vec<bool>,
    /// For each word, whether it lies between a load-exclusive and a WFE or WFET. Empty if the function lacks either.
    before_wait: Vec<bool>,
}

/// The meaning of an instruction for an exclusive sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Begins a sequence.
    Load,
    /// Ends the current sequence.
    Store,
    /// Ends the sequence without a store.
    End,
    /// Any other instruction.
    Other(Control),
}

impl Sequences {
    /// Finds the sequences of the function at the range of virtual addresses `function`, which consists of whole words.
    /// `read` returns the word at an address in it, as it is without probes.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory to follow the paths of the function.
    pub fn of(function: Range<u64>, read: impl Fn(u64) -> u32) -> Result<Self, OutOfMemory> {
        Self::with_callees(function, read, |_| None)
    }

    /// Finds the sequences of a function as [`of`](Self::of) does, and also looks into the functions that it calls.
    /// `outside` returns the word at an address in any function; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory to follow the paths of the function.
    pub fn with_callees(
        function: Range<u64>,
        read: impl Fn(u64) -> u32,
        outside: impl Fn(u64) -> Option<u32>,
    ) -> Result<Self, OutOfMemory> {
        let mut found = Self::read(function, &read)?;
        if found.loads().next().is_some() {
            found.end_in_callees(outside);
        }
        let mut leads = found.leading_to_a_store()?;
        let begins_outside = leads.first() == Some(&true);
        let mut is_begun_by_call = false;
        for (step, _) in found.steps.iter_mut().zip(&leads).filter(|(_, leads)| **leads) {
            if matches!(step, Step::Other(Control::Call(_) | Control::Register { kind: Indirect::Call, .. })) {
                *step = Step::Load;
                is_begun_by_call = true;
            }
        }
        if is_begun_by_call {
            leads = found.leading_to_a_store()?;
        }
        let mut inside = found.none()?;
        found.loads().try_for_each(|load| found.reach(load, &mut inside))?;
        if begins_outside && leads.first() == Some(&true) {
            inside[0] = true;
            found.reach(0, &mut inside)?;
        }
        for (index, inside) in inside.iter_mut().enumerate() {
            *inside = found.steps[index] == Step::Load || *inside && leads[index];
        }
        for load in found.loads() {
            if let Some(end) = found.straight_end(load) {
                inside[load..=end].fill(true);
            }
        }
        found.inside = inside;
        found.before_wait = found.find_before_wait(read)?;
        Ok(found)
    }

    /// Reads the words of a function, as [`of`](Self::of) does, without looking for sequences.
    fn read(function: Range<u64>, read: impl Fn(u64) -> u32) -> Result<Self, OutOfMemory> {
        let start = function.start;
        let steps = fallible::collect(function.step_by(4).map(read).map(Step::of))?;
        Ok(Self { start, steps, inside: Vec::new(), before_wait: Vec::new() })
    }

    /// Returns for each word whether a path leads from a load-exclusive to it, and on to a WFE or WFET, or whether it
    /// is such a one itself. Returns an empty list if the function lacks either.
    fn find_before_wait(&self, read: impl Fn(u64) -> u32) -> Result<Vec<bool>, OutOfMemory> {
        let is_wait = |index| waits_for_event(read(self.address(index)));
        if self.loads().next().is_none() || !(0..self.steps.len()).any(is_wait) {
            return Ok(Vec::new());
        }
        let leads = self.leading_to(is_wait)?;
        let mut found = self.none()?;
        self.loads().try_for_each(|load| self.reach(load, &mut found))?;
        found.iter_mut().zip(leads).for_each(|(found, leads)| *found &= leads);
        Ok(found)
    }

    /// Makes calls of other functions, and branches to them, end a sequence if the other function does so. `outside`
    /// returns the word at an address in any function; `None` if there is none.
    fn end_in_callees(&mut self, outside: impl Fn(u64) -> Option<u32>) {
        let function = self.function();
        for index in 0..self.steps.len() {
            let Step::Other(Control::Call(offset) | Control::Jump(offset)) = self.steps[index] else { continue };
            let callee = self.target(index, offset);
            if !function.contains(&callee) && begins_with_store(callee, &outside) {
                self.steps[index] = Step::Store;
            }
        }
    }

    /// Returns the virtual addresses of the function.
    fn function(&self) -> Range<u64> {
        self.start..self.address(self.steps.len())
    }

    /// Returns the virtual address of the word at `index`.
    fn address(&self, index: usize) -> u64 {
        self.start + 4 * index as u64
    }

    /// Returns the virtual address that lies `offset` bytes from the word at `index`.
    fn target(&self, index: usize, offset: i32) -> u64 {
        self.address(index).wrapping_add_signed(offset.into())
    }

    /// Returns the index of the word by which control leaves the function after the word at `index`, if there is no
    /// branch, call or store-exclusive between them.
    fn straight_end(&self, index: usize) -> Option<usize> {
        (index + 1..self.steps.len()).find_map(|at| match self.steps[at] {
            Step::Other(Control::Next) => None,
            Step::Other(Control::Register { kind: Indirect::Return, .. }) => Some(Some(at)),
            Step::Other(Control::Jump(_)) if self.successors(at).next().is_none() => Some(Some(at)),
            _ => Some(None),
        })?
    }

    /// Returns a list with false for each word.
    fn none(&self) -> Result<Vec<bool>, OutOfMemory> {
        fallible::collect(self.steps.iter().map(|_| false))
    }

    /// Returns the address of the load-exclusive whose sequence contains `address`; the load-exclusive and the
    /// store-exclusive are contained. If several sequences contain it, returns the first load.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory to look for the load.
    pub fn containing(&self, address: u64) -> Result<Option<u64>, OutOfMemory> {
        let Some(index) = self.index(address).filter(|&index| self.inside.get(index) == Some(&true)) else {
            return Ok(None);
        };
        if self.steps[index] == Step::Load {
            return Ok(Some(address));
        }
        for load in self.loads() {
            let mut reached = self.none()?;
            self.reach(load, &mut reached)?;
            if reached[index] {
                return Ok(Some(self.address(load)));
            }
        }
        // The load is in a caller.
        Ok(Some(self.start))
    }

    /// Returns whether a WFE or WFET at the virtual address `address`, or to which a path leads from there, may wait for
    /// the event of the monitor that a load-exclusive of the function has set.
    #[must_use]
    pub fn is_before_wait(&self, address: u64) -> bool {
        self.index(address).is_some_and(|index| self.before_wait.get(index) == Some(&true))
    }

    /// Returns the index of the word at the virtual address `address`, which may lie beyond the last word.
    fn index(&self, address: u64) -> Option<usize> {
        address.checked_sub(self.start).and_then(|offset| usize::try_from(offset / 4).ok())
    }

    fn loads(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.steps.len()).filter(|&index| self.steps[index] == Step::Load)
    }

    /// Returns the words of the function to which control may go from the word at `index`.
    fn successors(&self, index: usize) -> impl Iterator<Item = usize> + use<> {
        let (next, offset) = match self.steps[index] {
            Step::Load => (true, None),
            Step::Store | Step::End => (false, None),
            Step::Other(control) => match control {
                Control::Next | Control::Call(_) | Control::Register { kind: Indirect::Call, .. } => (true, None),
                Control::Jump(offset) => (false, Some(offset)),
                Control::Either(offset) => (true, Some(offset)),
                Control::Register { kind: Indirect::Jump | Indirect::Return, .. } => (false, None),
            },
        };
        let next = next.then(|| index + 1);
        let target = offset.and_then(|offset| index.checked_add_signed(offset as isize / 4));
        let length = self.steps.len();
        next.into_iter().chain(target).filter(move |&successor| successor < length)
    }

    /// Marks in `reached` the words to which paths from the word at `from` lead, up to words that begin or end a
    /// sequence.
    fn reach(&self, from: usize, reached: &mut [bool]) -> Result<(), OutOfMemory> {
        let mut pending = fallible::collect(self.successors(from))?;
        while let Some(index) = pending.pop() {
            if !reached[index] {
                reached[index] = true;
                if self.steps[index].passes() {
                    fallible::extend(&mut pending, self.successors(index))?;
                }
            }
        }
        Ok(())
    }

    /// Returns for each word whether a path leads from it to a store-exclusive, before anything else that begins or
    /// ends a sequence.
    fn leading_to_a_store(&self) -> Result<Vec<bool>, OutOfMemory> {
        self.leading_to(|index| self.steps[index] == Step::Store)
    }

    /// Returns for each word whether it is one for whose index `is_end` is true, or a path leads from it to one, before
    /// anything that begins or ends a sequence.
    fn leading_to(&self, is_end: impl Fn(usize) -> bool) -> Result<Vec<bool>, OutOfMemory> {
        let mut leads = fallible::collect((0..self.steps.len()).map(is_end))?;
        let mut changed = true;
        // From the last word to the first, so that only backward branches need another turn.
        while changed {
            changed = false;
            for index in (0..leads.len()).rev() {
                let passes = self.steps[index].passes();
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
    /// Returns whether the instruction neither begins nor ends a sequence.
    fn passes(self) -> bool {
        matches!(self, Self::Other(_))
    }

    fn of(word: u32) -> Self {
        /// CLREX (C6.2), without its operand in bits 11 to 8.
        const CLREX: u32 = 0xd503_305f;
        let verdict = classify(word);
        match verdict {
            Verdict::Reject(Reason::LoadExclusive) => Self::Load,
            Verdict::Reject(Reason::StoreExclusive) => Self::Store,
            Verdict::Reject(Reason::ExceptionGenerating | Reason::PermanentlyUndefined | Reason::ExceptionReturn) => {
                Self::End
            }
            Verdict::Slot if word & !0xf00 == CLREX => Self::End,
            _ => Self::Other(Control::after(word, verdict)),
        }
    }
}

/// Returns whether the instruction is WFE or WFET (C6.2).
const fn waits_for_event(word: u32) -> bool {
    word == 0xd503_205f || word & !0x1f == 0xd503_1000
}

/// The largest number of words that are read of another function. Outlined functions are short.
const LONGEST: u64 = 32;

/// Returns whether the instructions from the virtual address `at` on get to a store-exclusive before anything that
/// branches or begins a sequence.
fn begins_with_store(at: u64, read: impl Fn(u64) -> Option<u32>) -> bool {
    for at in (0..LONGEST).map(|index| at.wrapping_add(4 * index)) {
        match read(at).map(Step::of) {
            Some(Step::Other(Control::Next)) => {}
            step => return step == Some(Step::Store),
        }
    }
    false
}

/// Returns true for every load-exclusive and store-exclusive, and false for most other words, by one test: the groups
/// of exclusives, ordered accesses and unprivileged accesses with o2 clear (C4.1.88). The oracle calls it for every
/// word. So a function for whose words it returns false has no sequences.
#[must_use]
pub const fn may_be_load(word: u32) -> bool {
    word & 0x3e80_0000 == 0x0800_0000
}

#[cfg(test)]
mod tests;
