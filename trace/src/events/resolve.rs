//! From names to addresses, and from what was typed to what is fetched.

use alloc::string::String;
use alloc::vec::Vec;

use super::because;
use crate::definition::{Base, Definition, Expression, Kind, Origin, Place, Problem};
use crate::fetch::{Fetch, Register, Source};
use crate::host::{Function, Symbols};
use crate::recorder::Kept;

/// Why a name leads nowhere.
type Refusal = (Problem, String);

/// The registers that hold arguments (AAPCS64, section 6.8.2, stage C.9). Those behind are on the stack, if each has a word.
const ARGUMENT_REGISTERS: u32 = 8;

/// The virtual address of `place`, which may be beyond the end of its function, but not in another one.
///
/// # Errors
///
/// No function, or more than one, has the name; or the offset leads to another function, or to no instruction.
pub fn resolve(place: &Place, symbols: &dyn Symbols) -> Result<u64, (Problem, String)> {
    let name = match &place.base {
        Base::Address(address) => return Ok(address.wrapping_add(place.offset)),
        Base::Symbol(name) => name,
    };
    let function = function(name, symbols)?;
    let address = function.address.wrapping_add(place.offset);
    if place.offset >= function.size && symbols.lookup(address).is_some() {
        let reason =
            because(format_args!("the offset is past the end of the function, which has {:#x} bytes", function.size));
        return Err((Problem::NoFunction, reason));
    }
    if !place.offset.is_multiple_of(4) {
        let reason = because("the offset is not a multiple of 4, so no instruction begins there");
        return Err((Problem::Refused, reason));
    }
    Ok(address)
}

/// The one function of this name.
fn function<'a>(name: &str, symbols: &'a dyn Symbols) -> Result<Function<'a>, Refusal> {
    let mut found = Vec::new();
    symbols.find(name, &mut |function| found.push(function));
    only(name, &found, "function", &|| symbols.nearest(name))
}

/// The virtual address of the one function or static of this name.
fn symbol(name: &str, symbols: &dyn Symbols) -> Result<u64, Refusal> {
    let mut found = Vec::new();
    symbols.find(name, &mut |function| found.push(function.address));
    symbols.find_static(name, &mut |address| found.push(address));
    only(name, &found, "function or static", &|| symbols.nearest(name).or_else(|| symbols.nearest_static(name)))
}

/// The one that was `found` of this name; if there is none, `nearest` may know which was meant.
fn only<'a, T: Copy>(name: &str, found: &[T], noun: &str, nearest: &dyn Fn() -> Option<&'a str>) -> Result<T, Refusal> {
    match *found {
        [] => {
            let reason = match nearest() {
                Some(meant) => because(format_args!("no {noun} has the name {name}; did you mean `{meant}`?")),
                None => because(format_args!("no {noun} has the name {name}")),
            };
            Err((Problem::NoFunction, reason))
        }
        [one] => Ok(one),
        _ => {
            let count = found.len();
            let reason =
                because(format_args!("{count} symbols have this name; give the address of one of them instead"));
            Err((Problem::Ambiguous, reason))
        }
    }
}

/// What the arguments of `definition` fetch, and what of that is kept at the entry of a function.
pub(super) fn arguments(definition: &Definition, symbols: &dyn Symbols) -> Result<(Vec<Fetch>, Vec<Kept>), Refusal> {
    let mut kept = Vec::new();
    let is_return = matches!(definition.kind, Kind::Return { .. });
    let fetches: Result<Vec<_>, Refusal> = definition
        .arguments
        .iter()
        .map(|argument| {
            let Expression { origin, reads, .. } = &argument.expression;
            let source = source(origin, is_return, &mut kept, symbols)?;
            Ok(Fetch { source, reads: reads.clone() })
        })
        .collect();
    Ok((fetches?, kept))
}

fn source(origin: &Origin, is_return: bool, kept: &mut Vec<Kept>, symbols: &dyn Symbols) -> Result<Source, Refusal> {
    let plain = |number: u8| Register::x(number).map_or(Kept::Stack(0), Kept::Register);
    Ok(match origin {
        Origin::Register(register) => Source::Register(*register),
        Origin::ReturnValue => Register::x(0).map_or(Source::Immediate(0), Source::Register),
        Origin::Stack(word) => Source::Stack(8 * word),
        Origin::Immediate(number) => Source::Immediate(*number),
        Origin::TaskName => Source::TaskName,
        Origin::Text(text) => Source::Text(text.clone()),
        Origin::Symbol(name, offset) => Source::Immediate(symbol(name, symbols)?.wrapping_add_signed(*offset)),
        Origin::Argument(number) => {
            let place = match number.checked_sub(ARGUMENT_REGISTERS) {
                None => plain(*number as u8),
                Some(word) => Kept::Stack(8 * word),
            };
            if is_return {
                let index = kept.iter().position(|other| *other == place).unwrap_or_else(|| {
                    kept.push(place);
                    kept.len() - 1
                });
                Source::Entry(index as u8)
            } else {
                match place {
                    Kept::Register(register) => Source::Register(register),
                    Kept::Stack(offset) => Source::Stack(offset),
                }
            }
        }
    })
}
