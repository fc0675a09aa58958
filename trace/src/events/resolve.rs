//! Resolves definitions: names to addresses, and typed arguments to what the hit path fetches.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use fallible::OutOfMemory;
use kprobes_types::LineError;

use super::named::{self, Signature};
use crate::definition::{Argument, Base, Definition, EventKind, Expression, Origin, ProbePlace, Problem};
use crate::fetch::{Fetch, RecordedPart, Register, Source};
pub(super) use crate::recorder::EntryValue;
use crate::symbols::{Function, Symbols};

/// Why a name or a place cannot be resolved.
#[derive(Debug)]
pub struct ResolveError {
    /// The problem.
    pub problem: Problem,
    /// Details beyond the text of the problem, for readers who need them.
    pub reason: Option<String>,
}

impl ResolveError {
    /// Makes an error with a reason. If there is no memory for the reason, the problem stands alone.
    pub(super) fn new(problem: Problem, reason: impl fmt::Display) -> Self {
        Self { problem, reason: fallible::format(format_args!("{reason}")).ok() }
    }
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)?;
        self.reason.as_ref().map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

impl From<Problem> for ResolveError {
    fn from(problem: Problem) -> Self {
        Self { problem, reason: None }
    }
}

impl From<OutOfMemory> for ResolveError {
    fn from(_: OutOfMemory) -> Self {
        Problem::OutOfMemory.into()
    }
}

/// The number of registers that hold arguments (AAPCS64, section 6.8.2, stage C.9). Further arguments are on the stack,
/// if each takes a word.
const ARGUMENT_REGISTERS: u32 = 8;

/// Returns the virtual address of `place`. It may lie beyond the end of its function, also at the start of another
/// function, but not inside another function.
///
/// # Errors
///
/// Fails if no function has the name, or several have it; if the offset leads into another function, after its
/// first instruction; or if no instruction begins there.
pub fn resolve(place: &ProbePlace, symbols: &dyn Symbols) -> Result<u64, ResolveError> {
    let name = match &place.base {
        Base::Address(address) => return Ok(address.wrapping_add(place.offset)),
        Base::Line(file, line) => return self::line(file, *line, symbols),
        // `BaseEvent` has the address.
        Base::Event(..) => return Err(Problem::AttachedEvent.into()),
        Base::Symbol(name) => name,
    };
    let function = function(name, symbols)?;
    let address = function.address.wrapping_add(place.offset);
    let is_inside = |other: Function<'_>| other.address != address;
    if place.offset >= function.size && symbols.lookup(address).is_some_and(is_inside) {
        let reason = format_args!("the offset is past the end of the function, which has {:#x} bytes", function.size);
        return Err(ResolveError::new(Problem::NoFunction, reason));
    }
    if !place.offset.is_multiple_of(4) {
        let reason = "the offset is not a multiple of 4, so no instruction begins there";
        return Err(ResolveError::new(Problem::Refused, reason));
    }
    Ok(address)
}

/// Returns the virtual address of the only instruction that begins a source line.
fn line(file: &str, line: u32, symbols: &dyn Symbols) -> Result<u64, ResolveError> {
    let mut all = Vec::new();
    let mut outcome = Ok(());
    symbols
        .line(file, line, &mut |address| {
            if outcome.is_ok() {
                outcome = fallible::push(&mut all, address);
            }
        })
        .map_err(|error| ResolveError::new(Problem::NoFunction, error))?;
    outcome?;
    let place = |address: &u64| At(*address, symbols.lookup(*address));
    match all.as_slice() {
        [only] => Ok(*only),
        [one, other, ..] => {
            let (one, other, count) = (place(one), place(other), all.len());
            let reason = format_args!(
                "this line has {count} instructions of its own, such as {one} and {other}; give one of them instead"
            );
            Err(ResolveError::new(Problem::Ambiguous, reason))
        }
        [] => Err(ResolveError::new(Problem::NoFunction, LineError::NoFile)),
    }
}

/// An address, displayed in the form in which a place is typed.
struct At<'a>(u64, Option<Function<'a>>);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.1 {
            Some(function) => write!(f, "{}+{:#x}", function.name, self.0.wrapping_sub(function.address)),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

/// Returns the only function of this name.
fn function<'a>(name: &str, symbols: &'a dyn Symbols) -> Result<Function<'a>, ResolveError> {
    let mut found = Matches::default();
    symbols.find(name, &mut |function| found.add(function));
    found.only(name, "function", &|| symbols.nearest(name))
}

/// Returns the virtual address of the only function or static of this name.
fn symbol(name: &str, symbols: &dyn Symbols) -> Result<u64, ResolveError> {
    let mut found = Matches::default();
    symbols.find(name, &mut |function| found.add(function.address));
    symbols.find_static(name, &mut |address| found.add(address));
    found.only(name, "function or static", &|| symbols.nearest(name).or_else(|| symbols.nearest_static(name)))
}

/// The matches of a name: the first, and their number.
struct Matches<T>(Option<T>, usize);

impl<T> Default for Matches<T> {
    fn default() -> Self {
        Self(None, 0)
    }
}

impl<T> Matches<T> {
    fn add(&mut self, one: T) {
        self.0.get_or_insert(one);
        self.1 += 1;
    }

    /// Returns the only match. If there is none, `nearest` may suggest a name for the error.
    fn only<'a>(self, name: &str, noun: &str, nearest: &dyn Fn() -> Option<&'a str>) -> Result<T, ResolveError> {
        let no = Problem::NoFunction;
        Err(match self {
            Self(Some(one), 1) => return Ok(one),
            Self(Some(_), count) => {
                let reason = format_args!("{count} symbols have this name; give the address of one of them instead");
                ResolveError::new(Problem::Ambiguous, reason)
            }
            Self(None, _) => match nearest() {
                Some(meant) => {
                    ResolveError::new(no, format_args!("no {noun} has the name {name}; did you mean `{meant}`?"))
                }
                None => ResolveError::new(no, format_args!("no {noun} has the name {name}")),
            },
        })
    }
}

/// What the arguments of an event fetch, and the values that are saved for them at the entry of a function.
pub(super) type Arguments = (Vec<Fetch>, Vec<EntryValue>);

/// Returns what the arguments of `definition` fetch.
pub(super) fn arguments(definition: &Definition, symbols: &dyn Symbols) -> Result<Arguments, ResolveError> {
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

/// Returns the source of `value` as saved at the entry of the function, and adds it to `kept` if it is not there yet.
pub(super) fn keep(value: EntryValue, kept: &mut Vec<EntryValue>) -> Result<Source, OutOfMemory> {
    let index = kept.iter().position(|other| *other == value).unwrap_or(kept.len());
    if index == kept.len() {
        fallible::push(kept, value)?;
    }
    Ok(Source::Entry(index as u16))
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
    let plain = |number: u8| Register::x(number).map_or(EntryValue::Stack(0), EntryValue::Register);
    Ok(match origin {
        Origin::Register(register) => Source::Register(*register),
        Origin::ReturnValue => Register::x(0).map_or(Source::Immediate(0), Source::Register),
        Origin::Stack(word) => Source::Stack(8 * word),
        Origin::Immediate(number) => Source::Immediate(*number),
        Origin::TaskName => Source::TaskName,
        Origin::Text(text) => Source::Text(fallible::boxed_slice(text.iter().copied())?),
        Origin::Symbol(name, offset) => Source::Immediate(symbol(name, symbols)?.wrapping_add_signed(*offset)),
        // `settle` has replaced these, so they are unreachable.
        Origin::Named(_) | Origin::Arguments => return Err(Problem::Argument.into()),
        Origin::Argument(number) => {
            let place = match number.checked_sub(ARGUMENT_REGISTERS) {
                None => plain(*number as u8),
                Some(word) => EntryValue::Stack(8 * word),
            };
            if is_return {
                keep(place, kept)?
            } else {
                match place {
                    EntryValue::Register(register) => Source::Register(register),
                    EntryValue::Stack(offset) => Source::Stack(offset),
                }
            }
        }
    })
}
