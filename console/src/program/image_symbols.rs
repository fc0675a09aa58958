//! The names, the instructions and the types of the image, for the checker.

use alloc::vec::Vec;
use core::ops::Range;

use aarch64_kprobes::event::{self, Event};
use aarch64_kprobes::probe;
use kprobes_program::check::{Instruction, Symbols, VariableScope};
use kprobes_program::error::{Error, Problem};
use kprobes_program::syntax::{Probe, Spanned};
use kprobes_symbols::Symbol;
use kprobes_types::{Types, TypesError};
use kprobes_vm::ir::Routine;

use super::inlined::CopyTable;
use super::resolve::{self, ResolvedProbes};
use crate::frame::Frames;
use crate::{source_lines, symbol, types};

/// The functions and statics of the image. The field has the inlined copies.
pub(super) struct ImageSymbols<'a>(pub &'a CopyTable);

impl Symbols for ImageSymbols<'_> {
    fn address(&self, path: &str) -> Option<u64> {
        symbol::address(path)
    }

    fn functions(&self, path: &str) -> Result<Vec<Range<u64>>, Problem> {
        let range = |function: Symbol<'_>| function.address..function.address + function.size;
        let mut all = fallible::collect(resolve::functions(path).map(range))?;
        if all.is_empty() {
            fallible::extend(&mut all, self.0.find(path)?.into_iter().map(|copies| copies..copies + 1))?;
        }
        Ok(all)
    }

    fn instructions(&self, of: &Spanned<Probe>) -> Result<Vec<Instruction>, Error> {
        let routine = Routine { ops: Vec::new(), runs_after_exit: false };
        let mut all = ResolvedProbes::default();
        all.add(0, &routine, of, self.0)?;
        let mut instructions = Vec::new();
        let mut last: Option<(usize, Frames)> = None;
        for place in &all.places {
            let Range { start, end } = place.function;
            if last.as_ref().is_none_or(|(function, _)| *function != start) {
                let word = |number| probe::instruction(start + 4 * number).unwrap_or(0);
                last = Some((start, Frames::of((end - start) / 4, word)?));
            }
            let Some((_, frames)) = &last else { continue };
            let (function, address, reported) = (start as u64, place.address as u64, place.reported());
            let at = reported.wrapping_sub(start) / 4;
            let (has_frame, has_stack) = (frames.has_pointer(at), frames.has_stack(at));
            let scope = match (place.inlined, &of.node) {
                (Some(inlined), _) => VariableScope::Copy { hash: inlined.hash, first: inlined.first },
                (None, Probe::Line { .. }) => source_lines::variable_scope(function, address),
                (None, _) => VariableScope::All,
            };
            let looked_up = reported as u64;
            let instruction = Instruction { function, address, looked_up, has_frame, has_stack, scope };
            fallible::push(&mut instructions, instruction)?;
        }
        Ok(instructions)
    }

    fn each_event(&self, each: &mut dyn FnMut(&'static Event)) {
        event::all().for_each(each);
    }

    fn types(&self) -> Result<Option<&'static Types<'static>>, Problem> {
        match types::table() {
            Ok(types) => Ok(Some(types)),
            Err(TypesError::Absent) => Ok(None),
            Err(_) => Err(Problem::DamagedTypes),
        }
    }
}
