//! The types of Rust and the arguments of functions, from the table that follows the symbols at the end of this image.
//!
//! The table is checked when a program first needs it, and not at boot, because no report of a fault needs it.

use kprobes_types::{Function, Types, TypesError};
use spin::Once;

use crate::symbol;

/// Returns the table.
///
/// # Errors
///
/// There is no table, or it is damaged.
pub(crate) fn table() -> Result<&'static Types<'static>, &'static TypesError> {
    static TABLE: Once<Result<Types<'static>, TypesError>> = Once::new();
    TABLE.call_once(|| Types::parse(symbol::after_table())).as_ref()
}

/// Returns the function that begins at the virtual address `address`, if the table has it.
pub(crate) fn function(address: u64) -> Option<Function<'static>> {
    table().ok()?.function(address)
}
