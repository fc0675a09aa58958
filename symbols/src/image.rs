//! The table of the image that this code is in, where `kprobes-tables.x` reserves room for it.
//!
//! A kernel finds its functions by it before it has anything else of the trace layer: for
//! [`Platform::function`](https://docs.rs/aarch64-kprobes/latest/aarch64_kprobes/platform/trait.Platform.html), and to
//! name addresses in its reports.

use core::ops::Range;
use core::slice;
use core::sync::atomic::AtomicUsize;

use spin::Once;

use crate::{SymbolError, SymbolTable};

static TABLE: Once<Result<SymbolTable<'static>, SymbolError>> = Once::new();

/// Returns the table that `cargo kprobes image` or `cargo kprobes symbols` has filled in. The first call checks it, and
/// others wait for that.
///
/// The addresses in it are those at which the image runs. If the kernel moves itself, it makes the first call after
/// that.
///
/// # Errors
///
/// Fails if the table was not filled in, or is damaged.
pub fn table() -> Result<&'static SymbolTable<'static>, SymbolError> {
    match TABLE.call_once(|| SymbolTable::parse(reserved())?.moved_by(distance_moved())) {
        Ok(table) => Ok(table),
        Err(error) => Err(*error),
    }
}

/// Returns the table if it has been checked, and never waits: for reports of faults, which may happen at any time.
#[must_use]
pub fn checked() -> Option<&'static SymbolTable<'static>> {
    TABLE.get()?.as_ref().ok()
}

/// Returns the virtual addresses of the function that contains `address`; `None` if there is no table, or no function
/// there in it.
#[must_use]
pub fn function(address: usize) -> Option<Range<usize>> {
    /// The position of the last function found. Lookups of many addresses are mostly in ascending order.
    static NEAR: AtomicUsize = AtomicUsize::new(0);
    table().ok()?.range_with_hint(address, &NEAR)
}

/// Returns whether there are data among the instructions at these virtual addresses. Without a table, none are known.
#[must_use]
pub fn has_data(addresses: Range<usize>) -> bool {
    table().is_ok_and(|table| table.has_data(addresses.start as u64..addresses.end as u64))
}

/// Returns the survey of the text that is in the table; empty if there is none.
#[must_use]
pub fn survey() -> &'static [u8] {
    table().map(SymbolTable::survey).unwrap_or_default()
}

/// Returns how far the image runs after its link address, modulo 2⁶⁴.
fn distance_moved() -> u64 {
    unsafe extern "C" {
        safe static __kprobes_tables_link_address: u64;
    }
    (reserved().as_ptr().addr() as u64).wrapping_sub(__kprobes_tables_link_address)
}

/// Returns the region that `kprobes-tables.x` reserves.
#[doc(hidden)]
#[must_use]
pub fn reserved() -> &'static [u8] {
    unsafe extern "C" {
        safe static __kprobes_tables_start: u8;
        safe static __kprobes_tables_end: u8;
    }
    let (start, end) = (&raw const __kprobes_tables_start, &raw const __kprobes_tables_end);
    // SAFETY: `kprobes-tables.x` defines both symbols, around a section of initialized bytes that nothing writes to.
    unsafe { slice::from_raw_parts(start, end.addr() - start.addr()) }
}
