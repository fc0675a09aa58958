//! Resolves the places of definitions: names to addresses.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use fallible::OutOfMemory;
use kprobes_types::LineError;

use crate::definition::{Base, ProbePlace, Problem};
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
    let place = |address: &u64| At(*address, symbols);
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

/// An address, displayed in the form in which a place is typed. It is displayed as a number if the name of its function
/// means other functions, too.
struct At<'a>(u64, &'a dyn Symbols);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self(address, symbols) = self;
        match symbols.lookup(address) {
            Some(Function { name, address: start, .. }) if function(name, symbols).is_ok() => {
                write!(f, "{name}+{:#x}", address.wrapping_sub(start))
            }
            _ => write!(f, "{address:#x}"),
        }
    }
}

/// Returns the only function of this name.
fn function<'a>(name: &str, symbols: &'a dyn Symbols) -> Result<Function<'a>, ResolveError> {
    let mut found = Matches::default();
    symbols.find(name, &mut |function| found.add(function));
    found.only(Problem::NoFunction, name, "function", &|| symbols.nearest(name))
}

/// Returns the virtual address of the only function or static of this name.
pub(super) fn symbol(name: &str, symbols: &dyn Symbols) -> Result<u64, ResolveError> {
    let mut found = Matches::default();
    symbols.find(name, &mut |function| found.add(function.address));
    symbols.find_static(name, &mut |address| found.add(address));
    let nearest = || symbols.nearest(name).or_else(|| symbols.nearest_static(name));
    found.only(Problem::NoSymbol, name, "function or static", &nearest)
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

    /// Returns the only match. If there is none, the problem is `no`, and `nearest` may suggest a name for the error.
    fn only<'a>(
        self,
        no: Problem,
        name: &str,
        noun: &str,
        nearest: &dyn Fn() -> Option<&'a str>,
    ) -> Result<T, ResolveError> {
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
