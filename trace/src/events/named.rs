//! The names in the arguments of an event: where the table of types locates their values, and which types of
//! `kprobe_events` the values get. Linux takes this from BTF. What a name fetches is what `+OFFSET(%REG)` would fetch.
//!
//! `settle` changes a definition before its event is made. `path` follows a path to a value, and `spot` turns the
//! location of the value into the reads that yield it. `scalar` decides which part of the value is recorded, and of
//! which type it is by default.

mod path;
mod scalar;
mod settle;
mod spot;

use alloc::vec::Vec;
use core::fmt;

use kprobes_types::{Argument as Passed, Function, Type as Rust, TypeId, Types, ValuePlace};

use super::ResolveError;
use super::resolve;
use crate::definition::{Argument, Definition, EventKind, Origin, Problem};
use crate::fetch::{Fetch, Source};
use crate::format::Type;
use crate::recorder::EntryValue;
use crate::symbols::Symbols;
pub(super) use settle::{put_in_place, settle};

/// The largest number of pointers and wrappers that are followed to a value. The limit is needed because a type may
/// lead to itself.
const STEPS_MAX: usize = 16;
/// The number of registers that hold arguments (AAPCS64, section 6.8.2, stage C.9). Further arguments are on the
/// caller's stack, if each takes a word. `$argN` may always name the registers, even if the function has fewer
/// arguments.
pub(super) const REGISTERS: u32 = 8;

/// Why a name is refused, and the number of characters of the expression before the cause.
#[derive(Debug)]
pub(super) struct ArgumentError {
    error: ResolveError,
    at: usize,
}

impl ArgumentError {
    fn new(problem: Problem, at: usize, reason: impl fmt::Display) -> Self {
        Self { error: ResolveError::new(problem, reason), at }
    }

    fn bare(problem: Problem, at: usize) -> Self {
        Self { error: problem.into(), at }
    }
}

impl From<ArgumentError> for ResolveError {
    fn from(error: ArgumentError) -> Self {
        error.error
    }
}

impl From<fallible::OutOfMemory> for ArgumentError {
    fn from(error: fallible::OutOfMemory) -> Self {
        Self { error: error.into(), at: 0 }
    }
}

/// The signature of a function, from the table of types.
pub(super) struct Signature<'a> {
    types: Types<'a>,
    function: Function<'a>,
    is_return: bool,
}

/// Returns what an argument by name fetches, and the type of the result.
pub(super) fn fetch(
    argument: &Argument,
    signature: Option<&Signature<'_>>,
    kept: &mut Vec<EntryValue>,
) -> Result<(Fetch, Type), ArgumentError> {
    let Origin::Named(named) = &argument.expression.origin else {
        return Err(ArgumentError::bare(Problem::Argument, 0));
    };
    let Some(signature) = signature else {
        let at = named.fields.first().filter(|_| named.argument.is_none()).map_or(named.at, |(_, at)| *at);
        return Err(ArgumentError::bare(Problem::NoSignature, at));
    };
    let value = signature.named(named, kept)?;
    let wanted = argument.has_type().then_some(argument.kind);
    signature.part(argument, named, value, wanted, kept)
}

/// Returns the source of `value`, which a call passes or returns. If it `is_kept`, it is saved at the entry of the
/// function, and added to `kept` if it is not there yet.
pub(super) fn passed(
    value: EntryValue,
    is_kept: bool,
    kept: &mut Vec<EntryValue>,
) -> Result<Source, fallible::OutOfMemory> {
    match value {
        _ if is_kept => {}
        EntryValue::Register(register) => return Ok(Source::Register(register)),
        EntryValue::Stack(offset) => return Ok(Source::Stack(offset)),
    }
    let index = kept.iter().position(|other| *other == value).unwrap_or(kept.len());
    if index == kept.len() {
        fallible::push(kept, value)?;
    }
    Ok(Source::Entry(index as u16))
}

impl<'a> Signature<'a> {
    /// Returns the signature of the probed function; `None` for an address, or if the table does not have the function.
    pub fn of(definition: &Definition, symbols: &'a dyn Symbols) -> Result<Option<Self>, ResolveError> {
        let crate::definition::Base::Symbol(_) = definition.place.base else { return Ok(None) };
        let address = resolve::resolve(&definition.place, symbols)?;
        let is_return = matches!(definition.kind, EventKind::Return { .. });
        Ok(symbols.signature(address).map(|(types, function)| Self { types, function, is_return }))
    }

    fn get(&self, of: TypeId) -> Result<Rust<'a>, ArgumentError> {
        self.types.get(of).ok_or_else(|| ArgumentError::bare(Problem::TypeInfo, 0))
    }

    /// Whether the function returns its result in memory.
    fn is_in_memory(&self) -> bool {
        self.function.returned().is_some_and(|returned| matches!(returned.place, ValuePlace::At(_)))
    }

    /// Returns the largest number of words that the arguments can take.
    fn most_words(&self) -> Result<u32, ArgumentError> {
        let mut words = REGISTERS;
        for (number, Passed { of, .. }) in self.function.arguments().enumerate() {
            // An argument takes two words at most. One with 128 bits may also skip a word for alignment.
            let most = if self.get(of)?.size > 8 { 3 } else { 1 };
            words = if number == 0 { most } else { words.saturating_add(most) };
        }
        Ok(words.max(REGISTERS))
    }
}

/// Names, displayed with commas between them.
struct Names<I>(I);

impl<'a, I: Iterator<Item = &'a str> + Clone> fmt::Display for Names<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.0.clone().filter(|name| !name.is_empty()).peekable();
        if names.peek().is_none() {
            return f.write_str("none");
        }
        for (number, name) in names.enumerate() {
            write!(f, "{}{name}", if number > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}
