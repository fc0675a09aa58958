//! Source lines, from the table that is appended to this image.

use kprobes_program::check::VariableScope;
use kprobes_symbols::Symbol;
use kprobes_types::{LineError, Lines, SourceLine};

use crate::types;

/// Returns the table of source lines.
///
/// # Errors
///
/// The image has no such table, or the table is damaged.
pub(crate) fn table() -> Result<Lines<'static>, LineError<'static>> {
    types::table().ok().and_then(|types| types.lines()).ok_or(LineError::NoLines)
}

/// Returns the virtual addresses of the instructions that begin line `line` of the file that `path` names; there is at
/// least one.
///
/// # Errors
///
/// The image has no such table, no file or several files have this path, or no instruction begins the line.
pub(crate) fn addresses(path: &str, line: u32) -> Result<impl Iterator<Item = u64> + Clone, LineError<'static>> {
    table()?.places(path, line)
}

/// Returns the first line from `wanted` on that instructions of `function` begin, and the virtual addresses of these
/// instructions. Lines are counted from the declaration of the function. Line 0 is the entry.
///
/// # Errors
///
/// The image has no table of lines, the place of the declaration is unknown, or the function has no such line.
pub(crate) fn addresses_in(
    function: &Symbol<'_>,
    wanted: u32,
) -> Result<(u32, impl Iterator<Item = u64> + Clone), LineError<'static>> {
    let start = function.address;
    if wanted == 0 {
        return Ok((0, LineAddresses::Entry(Some(start))));
    }
    let declaration = types::function(start).and_then(|function| function.declaration());
    let declaration = declaration.ok_or(LineError::NoDeclaration)?;
    let (line, addresses) = table()?.of_function(declaration, start..start + function.size, wanted)?;
    Ok((line, LineAddresses::OfLine(addresses)))
}

/// Returns the variables that a probe on a line of a file means at the virtual address `address`, in the function at
/// `function`: those of the source function that contains the line, which may be inlined there.
pub(crate) fn variable_scope(function: u64, address: u64) -> VariableScope {
    /// The beginning of the path of a file of Rust's own crates. The table of types does not describe copies of their
    /// functions.
    const OF_RUST: &str = "library/";
    let Some(row) = table().ok().and_then(|lines| lines.row(address)) else { return VariableScope::Unknown };
    let declaration = types::function(function).and_then(|function| function.declaration());
    let is_of_function = declaration.is_some_and(|of| row.file == of.file && of.count(row.line).is_some());
    let is_of_rust = at(address as usize).is_none_or(|line| line.file.starts_with(OF_RUST));
    let offset = u32::try_from(address.wrapping_sub(function)).unwrap_or(u32::MAX);
    let is_in_copy = || {
        let copies = types::table().ok().and_then(|types| types.copies(function));
        copies.is_some_and(|mut all| all.any(|copy| copy.has(offset)))
    };
    match (is_of_function, is_of_rust) {
        (true, true) => VariableScope::Function,
        (true, false) => VariableScope::Innermost,
        (false, false) if is_in_copy() => VariableScope::Innermost,
        (false, _) => VariableScope::Unknown,
    }
}

/// The virtual addresses of the instructions that begin a line in a function. An adapter of iterators would hold the
/// state of both variants.
#[derive(Clone)]
enum LineAddresses<I> {
    Entry(Option<u64>),
    OfLine(I),
}

impl<I: Iterator<Item = u64>> Iterator for LineAddresses<I> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        match self {
            Self::Entry(entry) => entry.take(),
            Self::OfLine(addresses) => addresses.next(),
        }
    }
}

/// Returns the source line of the instruction at the virtual address `address`.
#[must_use]
pub fn at(address: usize) -> Option<SourceLine<'static>> {
    table().ok()?.at(address as u64)
}

/// Checks the table, if that has not been done. [`for_report`] returns at once after that.
pub fn check() {
    _ = types::table();
}

/// Returns the table for the report of a fault, without waiting for a lock. Checks the table if that has not been done.
#[must_use]
pub fn for_report() -> Option<Lines<'static>> {
    types::for_report()?.lines()
}
