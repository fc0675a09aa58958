//! Finds the functions that run inside the load-exclusive/store-exclusive sequence of another function.
//!
//! They need not have an exclusive of their own, so only their callers show it. LLVM's machine outliner makes such
//! functions of the instructions that several sequences have in common.
//!
//! A sequence calls them by BL; or it leaves its function by B, and its caller ends it. The functions that they call
//! run inside the sequence, too. Calls through a register are not followed.

use alloc::vec::Vec;
use core::ops::Range;

use fallible::OutOfMemory;

use super::{LONGEST, Sequences, Step, begins_with_store, may_be_load};
use crate::insn::control::Control;
use crate::insn::liveness::{Bounds, Read, function_around};
use crate::insn::op::Indirect;
use crate::insn::survey::row::{Row, offset};

/// The functions of a text that run inside a sequence of another function, in ascending order.
#[derive(Debug)]
pub struct SequenceCallees(Vec<Callee>);

/// A function that runs inside a sequence. Addresses are virtual.
#[derive(Clone, Copy, Debug)]
struct Callee {
    function: u64,
    /// The address of the load-exclusive that begins the sequence, or of a call of a function that has it; or of the
    /// function with the store-exclusive, if a caller begins the sequence.
    load: u64,
}

/// The text in which functions are looked for.
struct Text<'a> {
    addresses: Range<u64>,
    read: Read<'a>,
    bounds: Bounds<'a>,
}

impl SequenceCallees {
    /// No functions.
    pub const NONE: Self = Self(Vec::new());

    /// Finds these functions in the text at these virtual addresses. `read` returns the instruction at an address, as
    /// it is without probes, and `bounds` the bounds of the function around it. If there are no such functions, the
    /// result takes no memory.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the list, or to follow the paths of a function.
    pub fn in_text(addresses: Range<u64>, read: Read<'_>, bounds: Bounds<'_>) -> Result<Self, OutOfMemory> {
        let text = Text { addresses, read, bounds };
        let mut found = Self::NONE;
        let mut next = text.addresses.start;
        for at in text.addresses.clone().step_by(4) {
            if at >= next
                && read(at).is_some_and(may_be_load)
                && let Some(function) = text.function(at)
            {
                next = function.end;
                found.add_callees(&text, function)?;
            }
        }
        found.add_their_callees(&text)?;
        Ok(found)
    }

    /// Returns a row for each of the functions in the text, in ascending order.
    pub(in crate::insn) fn rows(&self, text: &Range<u64>) -> impl Iterator<Item = Row> {
        let in_text = self.0.iter().filter(|callee| text.contains(&callee.function));
        in_text.map(|&Callee { function, load }| [offset(text.start, function), offset(text.start, load), 0, 0])
    }

    /// Makes the list from its rows; `None` if they are not in order, or if there is no memory.
    pub(in crate::insn) fn from_rows(start: u64, rows: impl Iterator<Item = Row>) -> Option<Self> {
        let callee = |[function, load, ..]: Row| Callee {
            function: start.wrapping_add(function.into()),
            load: start.wrapping_add(load.into()),
        };
        let list = fallible::collect(rows.map(callee)).ok()?;
        list.is_sorted_by(|one, next| one.function < next.function).then_some(Self(list))
    }

    /// Returns whether there are no such functions.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the address of the load-exclusive of a sequence inside which the function at these virtual addresses
    /// runs; `None` if it was not found to run inside one.
    #[must_use]
    pub fn around(&self, function: Range<u64>) -> Option<u64> {
        let index = self.0.partition_point(|callee| callee.function < function.start);
        let callee = self.0.get(index)?;
        function.contains(&callee.function).then_some(callee.load)
    }

    /// Adds the functions that the sequences of `function` call, or leave to.
    fn add_callees(&mut self, text: &Text<'_>, function: Range<u64>) -> Result<(), OutOfMemory> {
        let mut own = text.steps(function)?;
        if own.loads().next().is_some() {
            own.end_in_callees(text.read);
        }
        let mut leads = own.leading_to_a_store()?;
        if own.begin_in_callees(&leads, text.read) {
            leads = own.leading_to_a_store()?;
        }
        let calls = (0..leads.len()).filter(|&index| leads[index] && own.called(index).is_some());
        let calls = fallible::collect(calls)?;
        let begun_by_caller = (leads.first() == Some(&true)).then_some(0);
        for begin in own.loads().chain(begun_by_caller) {
            let load = own.address(begin);
            if !calls.is_empty() {
                let mut reached = own.none()?;
                reached[begin] = true;
                own.reach(begin, &mut reached)?;
                for function in calls.iter().filter(|&&index| reached[index]).filter_map(|&index| own.called(index)) {
                    self.add(text, Callee { function, load })?;
                }
            }
            if own.steps[begin] == Step::Load
                && let Some(function) = own.straight_end(begin).and_then(|end| own.left_to(end))
            {
                self.add(text, Callee { function, load })?;
            }
        }
        Ok(())
    }

    /// Adds the functions that the functions so far call, or leave to, while the sequence has not ended.
    fn add_their_callees(&mut self, text: &Text<'_>) -> Result<(), OutOfMemory> {
        let mut pending = fallible::collect(self.0.iter().copied())?;
        while let Some(Callee { function: entry, load }) = pending.pop() {
            let unknown = entry..entry.saturating_add(4 * LONGEST).min(text.addresses.end);
            let mut own = text.steps(text.function(entry).unwrap_or(unknown))?;
            own.end_in_callees(text.read);
            let first = ((entry - own.start) / 4) as usize;
            let mut reached = own.none()?;
            reached[first] = true;
            if own.steps[first].passes() {
                own.reach(first, &mut reached)?;
            }
            for index in (0..reached.len()).filter(|&index| reached[index]) {
                let Some(function) = own.called(index).or_else(|| own.left_to(index)) else { continue };
                let callee = Callee { function, load };
                if self.add(text, callee)? {
                    fallible::push(&mut pending, callee)?;
                }
            }
        }
        Ok(())
    }

    /// Adds a function of the text. Returns whether it is new. Data that looks like a call leads anywhere.
    fn add(&mut self, text: &Text<'_>, callee: Callee) -> Result<bool, OutOfMemory> {
        if !text.addresses.contains(&callee.function) {
            return Ok(false);
        }
        match self.0.binary_search_by_key(&callee.function, |known| known.function) {
            Ok(_) => Ok(false),
            Err(index) => {
                self.0.try_reserve(1)?;
                self.0.insert(index, callee);
                Ok(true)
            }
        }
    }
}

impl Text<'_> {
    /// Returns the bounds of the function around `at`, if it consists of whole words of the text.
    fn function(&self, at: u64) -> Option<Range<u64>> {
        function_around(at, &self.addresses, self.bounds)
    }

    /// Returns the meaning of each word of a function.
    fn steps(&self, function: Range<u64>) -> Result<Sequences, OutOfMemory> {
        /// UDF #0 (C6.2), which ends a sequence.
        const UNDEFINED: u32 = 0;
        Sequences::read(function, |at| (self.read)(at).unwrap_or(UNDEFINED))
    }
}

impl Sequences {
    /// Makes the calls among those words that lead to a store-exclusive begin a sequence, if the called function leaves
    /// one open. Returns whether there are any.
    fn begin_in_callees(&mut self, leads: &[bool], outside: Read<'_>) -> bool {
        let mut has_begun = false;
        for index in (0..leads.len()).filter(|&index| leads[index]) {
            if self.called(index).is_some_and(|function| leaves_open(function, outside)) {
                self.steps[index] = Step::Load;
                has_begun = true;
            }
        }
        has_begun
    }

    /// Returns the function that the word at `index` calls, if it is known.
    fn called(&self, index: usize) -> Option<u64> {
        match self.steps[index] {
            Step::Other(Control::Call(offset)) => Some(self.target(index, offset)),
            _ => None,
        }
    }

    /// Returns the address outside of the function to which the word at `index` branches, if it does.
    fn left_to(&self, index: usize) -> Option<u64> {
        let Step::Other(control) = self.steps[index] else { return None };
        let target = self.target(index, control.branch_offset()?);
        (!self.function().contains(&target)).then_some(target)
    }
}

/// Returns whether the instructions from the virtual address `at` on get from a load-exclusive to a return, or to a
/// branch that does not lead to a store-exclusive, without a call, a store-exclusive or a conditional branch.
fn leaves_open(at: u64, read: Read<'_>) -> bool {
    let mut has_load = false;
    for at in (0..LONGEST).map(|index| at.wrapping_add(4 * index)) {
        match read(at).map(Step::of) {
            Some(Step::Load) => has_load = true,
            Some(Step::Other(Control::Next)) => {}
            Some(Step::Other(Control::Register { kind: Indirect::Return, .. })) => return has_load,
            Some(Step::Other(Control::Jump(offset))) => {
                return has_load && !begins_with_store(at.wrapping_add_signed(offset.into()), read);
            }
            _ => return false,
        }
    }
    false
}
