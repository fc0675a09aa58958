//! The types of Rust and the arguments of functions, from the table that follows the symbols at the end of this image.
//!
//! The table is checked when a program or the report of a fault first needs it, and not at boot.

use alloc::string::String;
use alloc::vec::Vec;

use fallible::OutOfMemory;
use kprobes_types::{Function, Types, TypesError};
use spin::Once;

use crate::symbol;

static TABLE: Once<Result<Types<'static>, TypesError>> = Once::new();

/// Returns the table.
///
/// # Errors
///
/// There is no table, or it is damaged.
pub(crate) fn table() -> Result<&'static Types<'static>, &'static TypesError> {
    TABLE.call_once(|| Types::parse(symbol::after_table())).as_ref()
}

/// Returns the table for the report of a fault. If the table is not checked yet, checks it here: the fault may have
/// interrupted the check, so waiting for it could take forever.
pub(crate) fn for_report() -> Option<Types<'static>> {
    match TABLE.get() {
        Some(checked) => checked.as_ref().ok().copied(),
        None => Types::parse(symbol::after_table()).ok(),
    }
}

/// Returns indented lines about the function that begins at the virtual address `address`: its signature, and the place
/// of its declaration, as far as the table has them.
///
/// # Errors
///
/// There is no memory for the lines.
pub(crate) fn describe(address: u64) -> Result<Vec<String>, OutOfMemory> {
    let mut lines = Vec::new();
    let Some(function) = function(address) else { return Ok(lines) };
    fallible::push(&mut lines, fallible::format(format_args!("    {function}"))?)?;
    if let Some(line) = function.declaration().and_then(|declaration| table().ok()?.lines()?.line(declaration)) {
        fallible::push(&mut lines, fallible::format(format_args!("    at {line}"))?)?;
    }
    Ok(lines)
}

/// Returns the function that begins at the virtual address `address`, if the table has it.
pub(crate) fn function(address: u64) -> Option<Function<'static>> {
    table().ok()?.function(address)
}
