//! From a tree to code: types and bounds are checked on the way, so that what becomes code may run.
//!
//! What a map keeps is found out first, as text that reads a map may precede the text that gives it values: the program is
//! gone through, without a result, until nothing new is learnt of its maps.

mod call;
mod clause;
mod condition;
mod expression;
mod format;
mod image;
mod map;
mod shapes;
mod typed;
mod value;

use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use fallible::{OutOfMemory, TryClone};
use kprobes_types::Types;
use kprobes_vm::code::{Code, MANY_MAX, Routine, Type};

use crate::checked::{Action, Block, Checked, Known as KnownValue};
use crate::error::{Error, Problem, Span};
use crate::syntax::{Probe, Program};
use clause::Clause;
use map::Known;
use shapes::Shapes;

/// The functions of the image.
pub trait Symbols {
    /// The virtual address of the function whose demangled path is `path`, perhaps with its number behind it, as
    /// [`numbered`](crate::syntax::numbered) reads it; the lowest, if there are several. Without such a function, of the static.
    fn address(&self, path: &str) -> Option<u64>;

    /// The virtual addresses of all functions that a probe on `path` means, none twice, and what stands for one that is only in
    /// copies.
    ///
    /// # Errors
    ///
    /// That cannot be found out, or there is no memory for a list of them.
    fn functions(&self, path: &str) -> Result<Vec<Range<u64>>, Problem>;

    /// The arguments of functions, and the types of Rust; nothing if the image does not tell.
    ///
    /// # Errors
    ///
    /// The table is damaged.
    fn types(&self) -> Result<Option<&'static Types<'static>>, Problem> {
        Ok(None)
    }
}

/// Checks a program, and makes code of it.
///
/// # Errors
///
/// What is wrong, and where.
pub fn check(program: &Program, symbols: &dyn Symbols) -> Result<Checked, Error> {
    let mut checker = Checker {
        symbols,
        maps: Vec::new(),
        actions: Vec::new(),
        formats: Vec::new(),
        shapes: Shapes::default(),
        known: Vec::new(),
        images: Vec::new(),
        declared: Vec::new(),
        stack_frames: 0,
        learning: true,
        changed: true,
    };
    if program.clauses.len() > MANY_MAX {
        let span = program.clauses.get(MANY_MAX).and_then(|clause| clause.probes.first());
        return Err(span.map_or_else(Span::default, |probe| probe.span).error(Problem::Many { most: MANY_MAX }));
    }
    while core::mem::take(&mut checker.changed) {
        for clause in &program.clauses {
            // What else is wrong is found again below, and the first of it then.
            if let Err(error @ Error { problem: Problem::OutOfMemory, .. }) = Clause::compile(&mut checker, clause) {
                return Err(error);
            }
        }
    }
    checker.learning = false;
    checker.actions.clear();
    let (mut routines, mut probes) = (Vec::new(), Vec::new());
    for clause in &program.clauses {
        let ops = Clause::compile(&mut checker, clause)?;
        let runs_after_exit = clause.probes.iter().any(|probe| probe.node == Probe::End);
        fallible::push(&mut routines, Routine { ops, runs_after_exit })?;
        let where_it_runs = clause.probes.iter().map(|probe| probe.node.try_clone());
        fallible::push(&mut probes, fallible::collect_results(where_it_runs)?)?;
    }
    let maps = fallible::collect(checker.maps.into_iter().filter_map(Known::finish))?;
    let code = Code { routines, maps, actions: checker.actions.len(), stack_frames: checker.stack_frames };
    Ok(Checked {
        code,
        probes,
        actions: checker.actions,
        formats: checker.formats,
        tuples: checker.shapes.0,
        known: checker.known,
        images: checker.images,
    })
}

/// What is known of the whole program.
struct Checker<'a> {
    symbols: &'a dyn Symbols,
    maps: Vec<Known>,
    actions: Vec<Action>,
    formats: Vec<String>,
    shapes: Shapes,
    known: Vec<KnownValue>,
    images: Vec<Vec<Block>>,
    /// What variables are that are declared without a value, by where their names are.
    declared: Vec<(usize, Type)>,
    stack_frames: usize,
    /// What maps keep, and variables are that are declared, is still being found out.
    learning: bool,
    /// Something has been.
    changed: bool,
}

impl Checker<'_> {
    /// Whether what is wrong ends the check at once: not while maps are being learnt of, unless there is no memory for that.
    fn ends_with(&self, error: &Error) -> bool {
        !self.learning || error.problem == Problem::OutOfMemory
    }

    /// The number of the format of a time.
    fn format(&mut self, format: &str, span: Span) -> Result<u8, Error> {
        let number = self.formats.iter().position(|other| other == format).unwrap_or(self.formats.len());
        if number == self.formats.len() {
            fallible::push(&mut self.formats, fallible::copy(format)?)?;
        }
        u8::try_from(number).map_err(|_| span.error(Problem::Many { most: MANY_MAX }))
    }

    /// Learns that the variable that is declared at `at` has a value that is `of`.
    fn declare(&mut self, at: usize, of: Type) -> Result<(), OutOfMemory> {
        match self.declared.iter_mut().find(|(other, _)| *other == at) {
            None => {
                fallible::push(&mut self.declared, (at, of))?;
                self.changed = true;
            }
            Some((_, known)) => {
                if let Some(merged) = self.shapes.merge(*known, of)?.filter(|merged| merged != known) {
                    *known = merged;
                    self.changed = true;
                }
            }
        }
        Ok(())
    }

    /// The number of these blocks.
    fn image(&mut self, blocks: Vec<Block>, span: Span) -> Result<u8, Error> {
        let number = self.images.iter().position(|other| *other == blocks).unwrap_or(self.images.len());
        if number == self.images.len() {
            fallible::push(&mut self.images, blocks)?;
        }
        u8::try_from(number).map_err(|_| span.error(Problem::Many { most: MANY_MAX }))
    }

    /// A value that `of` says what it is, in so many words.
    fn known(&mut self, of: KnownValue, words: u8, span: Span) -> Result<Type, Error> {
        let number = self.known.iter().position(|other| *other == of).unwrap_or(self.known.len());
        if number == self.known.len() {
            fallible::push(&mut self.known, of)?;
        }
        let shape = u8::try_from(number).map_err(|_| span.error(Problem::Many { most: MANY_MAX }))?;
        Ok(Type::Known { shape, words })
    }

    /// The number of `action`.
    fn action(&mut self, action: Action, span: Span) -> Result<u8, Error> {
        let number = self.actions.iter().position(|other| *other == action).unwrap_or(self.actions.len());
        if number == self.actions.len() && !self.learning {
            fallible::push(&mut self.actions, action)?;
        }
        u8::try_from(number).map_err(|_| span.error(Problem::Many { most: MANY_MAX }))
    }
}

#[cfg(test)]
mod tests;
