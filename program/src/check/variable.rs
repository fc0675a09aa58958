//! Which variable a name means at the instructions of a clause's probes, and where it is there.
//!
//! At an instruction of an inlined copy, the variables of the copy come before those of the functions around it. If a
//! variable has different places at the probed instructions, it is read from its place at the instruction that was hit.

use alloc::vec::Vec;

use kprobes_types::{Argument, InlinedCopy, Source, TypeId, Types, Unknown, ValuePlace};

use super::clause::{Clause, is_on_instructions};
use super::place::Spot;
use super::rust_place::RustPlace;
use super::variable_group::VariableGroup;
use super::{Instruction, VariableScope};
use crate::error::{Error, Listed, Problem, Span};
use crate::syntax::Probe;

/// The maximum number of instructions at which a value is in different places.
const PLACES_MAX: usize = 64;

/// The register with the base of a function's frame (AAPCS64, section 6.4.6).
const FRAME_POINTER: u8 = 29;

impl Clause<'_, '_> {
    /// Returns an argument or a local by its name.
    #[inline(never)]
    pub fn variable_of_function(&mut self, group: VariableGroup, name: &str, span: Span) -> Result<RustPlace, Error> {
        self.allow(self.allowed.variables, Problem::VariableAway, span)?;
        let types = self.types(span)?;
        let find = |function: &_, at| variable_at(types, function, at, group, name);
        let (of, spot) = self.of_places(find, span)?;
        Ok(RustPlace { of, spot })
    }

    /// Applies `find` to every probed instruction, and returns the type and the place. The type must be the same at all
    /// instructions. If the places differ, the result is [`Spot::Places`].
    pub fn of_places(
        &mut self,
        find: impl Fn(&kprobes_types::Function<'static>, Instruction) -> Result<Argument<'static>, Problem>,
        span: Span,
    ) -> Result<(TypeId, Spot), Error> {
        let mut found: Vec<(u64, ValuePlace)> = Vec::new();
        let mut of = None;
        self.each_place(span, |function, at| {
            let one = find(&function, at)?;
            let is_of_type = *of.get_or_insert(one.of) == one.of;
            match found.iter().find(|(address, _)| *address == at.address) {
                Some((_, place)) if is_of_type && *place == one.place => Ok(()),
                None if is_of_type => Ok(fallible::push(&mut found, (at.address, one.place))?),
                _ => Err(Problem::Differs),
            }
        })?;
        let (Some(of), Some(&(_, first))) = (of, found.first()) else { return Err(span.error(Problem::NoSignature)) };
        if found.iter().all(|(_, place)| *place == first) {
            return Ok((of, Spot::Passed(first, 0)));
        }
        // A glob may match thousands of functions.
        if found.len() > PLACES_MAX {
            return Err(span.error(Problem::Differs));
        }
        let known = self.places.iter().position(|other| *other == found);
        let number = known.unwrap_or(self.places.len());
        if known.is_none() {
            fallible::push(&mut self.places, found)?;
        }
        Ok((of, Spot::Places(number, 0)))
    }

    /// Calls `each` with every probed instruction and its function, until there is an error. The instruction of a probe
    /// on a function is the entry.
    pub fn each_place(
        &self,
        span: Span,
        mut each: impl FnMut(kprobes_types::Function<'static>, Instruction) -> Result<(), Problem>,
    ) -> Result<(), Error> {
        let types = self.types(span)?;
        let mut visit = |at: Instruction| {
            let described = types.function(at.function).ok_or(span.error(Problem::NoSignature))?;
            each(described, at).map_err(|problem| span.error(problem))
        };
        for probe in &self.probes {
            match &probe.node {
                Probe::Kprobe { glob } | Probe::Kretprobe { glob } | Probe::Return { glob } => {
                    let functions = self.checker.symbols.functions(glob).map_err(|problem| span.error(problem))?;
                    if functions.is_empty() {
                        return Err(probe.span.error(Problem::NoMatch));
                    }
                    functions.into_iter().try_for_each(|function| visit(Instruction::entry(function.start)))?;
                }
                node if is_on_instructions(node) => {
                    let known = self.checker.instructions.take().filter(|(of, _)| *of == probe.span);
                    let found = match known {
                        Some((_, found)) => found,
                        None => self.checker.symbols.instructions(probe)?,
                    };
                    let outcome = found.iter().copied().try_for_each(&mut visit);
                    self.checker.instructions.set(Some((probe.span, found)));
                    outcome?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns the variable that `name` means at an instruction of a function.
fn variable_at(
    types: &'static Types<'static>,
    function: &kprobes_types::Function<'static>,
    at: Instruction,
    group: VariableGroup,
    name: &str,
) -> Result<Argument<'static>, Problem> {
    let (is_argument, offset) = (group == VariableGroup::Arguments, at.offset());
    let in_frame = |found: Argument<'static>| {
        let is_there = |register| match register {
            FRAME_POINTER => at.has_frame,
            Source::STACK_POINTER => at.has_stack,
            _ => true,
        };
        match bases(&found.place).all(is_there) {
            true => found,
            false => Argument { place: ValuePlace::Unknown(Unknown::Unsaid), ..found },
        }
    };
    for (number, copy) in copies_at(types, at)? {
        match copy.find(name, is_argument, offset) {
            Some(Ok(found)) => return Ok(in_frame(found)),
            Some(Err(why)) => return Err(Problem::UnknownInCopy { address: at.looked_up, why }),
            None if at.scope == VariableScope::All => {}
            None => return Err(group.none(Listed::OfCopy(types, at.function, number, is_argument))),
        }
    }
    let none = match group {
        VariableGroup::Arguments => group.none(Listed::Arguments(types, at.function)),
        VariableGroup::Locals => group.none(Listed::Locals(types, at.function)),
    };
    // At the entry, the calling convention tells more than the debugging information.
    if is_argument && at.looked_up == at.function {
        return function.arguments().find(|one| one.name == name).ok_or(none);
    }
    let variables = types.variables(at.function).ok_or(Problem::NoTypes)?;
    variables.find(name, is_argument, offset).map(in_frame).ok_or(none)
}

/// Returns the copies whose variables an instruction means, the innermost first, each with its number in the function.
/// The variables of the function are looked up after these, unless the probe means a copy.
pub(super) fn copies_at(
    types: &'static Types<'static>,
    at: Instruction,
) -> Result<Vec<(u32, InlinedCopy<'static>)>, Problem> {
    let mut all = Vec::new();
    if at.scope == VariableScope::Function || at.scope == VariableScope::All && at.address == at.function {
        return Ok(all);
    }
    let copies = types.copies(at.function).ok_or(Problem::NoTypes)?;
    for (number, copy) in (0..).zip(copies) {
        let is_meant = match at.scope {
            VariableScope::Copy { hash, first } => copy.hash == hash && copy.has(at.offset_of(first)),
            _ => copy.has(at.offset()),
        };
        if is_meant {
            fallible::push(&mut all, (number, copy))?;
        }
    }
    // A copy comes after those that contain it.
    all.reverse();
    match at.scope {
        VariableScope::Unknown => Err(Problem::InCopy),
        // Copies of one function, one within another, cannot be told apart. A copy that begins with a loop is entered
        // at an instruction before it.
        VariableScope::Copy { .. } if all.len() != 1 || all.iter().any(|(_, copy)| !copy.has(at.offset())) => {
            Err(Problem::InCopy)
        }
        VariableScope::Innermost => {
            all.truncate(1);
            Ok(all)
        }
        _ => Ok(all),
    }
}

/// Returns the base registers of a value: of its memory, and of a sum that is the value or its address.
fn bases(place: &ValuePlace) -> impl Iterator<Item = u8> {
    let base = |source: Source| match source {
        Source::Memory { register, .. } | Source::Sum { register, .. } => Some(register),
        _ => None,
    };
    let all = match *place {
        ValuePlace::Words { first, second } => [base(first.source), second.and_then(|second| base(second.source))],
        ValuePlace::At(source) => [base(source), None],
        ValuePlace::Memory { register, .. } => [Some(register), None],
        _ => [None; 2],
    };
    all.into_iter().flatten()
}
