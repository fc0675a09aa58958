//! Lines of source, from the table that is appended to this image.

use kprobes_types::{Line, LineError, Lines};

use crate::types;

/// The lines.
///
/// # Errors
///
/// The image has none, or its table is damaged.
pub(crate) fn table() -> Result<Lines<'static>, LineError<'static>> {
    types::table().ok().and_then(|types| types.lines()).ok_or(LineError::NoLines)
}

/// The virtual addresses of the instructions that begin line `line` of the file that `path` means: one at least.
///
/// # Errors
///
/// There is no such file, or no such line.
pub(crate) fn places(path: &str, line: u32) -> Result<impl Iterator<Item = u64> + Clone, LineError<'static>> {
    table()?.places(path, line)
}

/// The line that the instruction at the virtual address `address` is from.
#[must_use]
pub fn at(address: usize) -> Option<Line<'static>> {
    table().ok()?.at(address as u64)
}
