//! The arguments of functions and the types of Rust, from the table that is appended to this image behind the symbols.
//!
//! The table is checked when a program first asks for it, and not at boot: no report of a fault needs it.

use kprobes_types::{Function, Types, TypesError};
use spin::Once;

use crate::symbol;

/// The table.
///
/// # Errors
///
/// There is none, or it is damaged.
pub(crate) fn table() -> Result<&'static Types<'static>, &'static TypesError> {
    static TABLE: Once<Result<Types<'static>, TypesError>> = Once::new();
    TABLE.call_once(|| Types::parse(symbol::behind())).as_ref()
}

/// The function that begins at the virtual address `address`, if the table has it.
pub(crate) fn function(address: u64) -> Option<Function<'static>> {
    table().ok()?.function(address)
}
