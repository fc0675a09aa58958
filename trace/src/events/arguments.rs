//! Resolves the typed arguments of definitions to what the hit path fetches.

use alloc::vec::Vec;

use super::named::{self, REGISTERS, Signature, passed};
use super::resolve::{ResolveError, symbol};
use crate::definition::{Argument, Definition, EventKind, Expression, Origin, Problem};
use crate::fetch::{Fetch, RecordedPart, Register, Source};
use crate::recorder::EntryValue;
use crate::symbols::Symbols;

/// What the arguments of an event fetch, and the values that are saved for them at the entry of a function.
pub(super) type Arguments = (Vec<Fetch>, Vec<EntryValue>);

/// Returns what the arguments of `definition` fetch.
pub(super) fn of(definition: &Definition, symbols: &dyn Symbols) -> Result<Arguments, ResolveError> {
    let mut kept = Vec::new();
    let is_return = matches!(definition.kind, EventKind::Return { .. });
    let is_named = |argument: &Argument| matches!(argument.expression.origin, Origin::Named(_));
    let signature = match definition.arguments.iter().any(is_named) {
        true => Signature::of(definition, symbols)?,
        false => None,
    };
    let fetch = |argument: &Argument| -> Result<_, ResolveError> {
        if is_named(argument) {
            return Ok(named::fetch(argument, signature.as_ref(), &mut kept)?.0);
        }
        plain(&argument.expression, is_return, &mut kept, symbols)
    };
    let fetches = fallible::collect_results(definition.arguments.iter().map(fetch))?;
    Ok((fetches, kept))
}

/// Returns what an expression without a name fetches.
pub(super) fn plain(
    Expression { origin, reads, .. }: &Expression,
    is_return: bool,
    kept: &mut Vec<EntryValue>,
    symbols: &dyn Symbols,
) -> Result<Fetch, ResolveError> {
    let source = source(origin, is_return, kept, symbols)?;
    Ok(Fetch { source, reads: fallible::collect(reads.iter().copied())?, part: RecordedPart::Whole })
}

fn source(
    origin: &Origin,
    is_return: bool,
    kept: &mut Vec<EntryValue>,
    symbols: &dyn Symbols,
) -> Result<Source, ResolveError> {
    Ok(match origin {
        Origin::Register(register) => Source::Register(*register),
        Origin::ReturnValue => Source::Register(Register::RESULT),
        Origin::Stack(word) => Source::Stack(8 * word),
        Origin::Immediate(number) => Source::Immediate(*number),
        Origin::TaskName => Source::TaskName,
        Origin::Text(text) => Source::Text(fallible::boxed_slice(text.iter().copied())?),
        Origin::Symbol(name, offset) => Source::Immediate(symbol(name, symbols)?.wrapping_add_signed(*offset)),
        // `settle` has replaced these, so they are unreachable.
        Origin::Named(_) | Origin::Arguments => return Err(Problem::Argument.into()),
        Origin::Argument(number) => {
            let place = match number.checked_sub(REGISTERS) {
                None => Register::x(*number as u8).map_or(EntryValue::Stack(0), EntryValue::Register),
                Some(word) => EntryValue::Stack(8 * word),
            };
            passed(place, is_return, kept)?
        }
    })
}
