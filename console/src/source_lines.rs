//! Source lines, from the table that is appended to this image.

use kprobes_types::{Line, LineError, Lines};

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
pub(crate) fn places(path: &str, line: u32) -> Result<impl Iterator<Item = u64> + Clone, LineError<'static>> {
    table()?.places(path, line)
}

/// Returns the source line of the instruction at the virtual address `address`.
#[must_use]
pub fn at(address: usize) -> Option<Line<'static>> {
    table().ok()?.at(address as u64)
}
