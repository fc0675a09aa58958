//! The names of functions: the table that `cargo kprobes image` fills in after the link.

use core::ops::Range;
use core::slice;

use kprobes_symbols::{Symbol, SymbolTable};
use spin::Once;

unsafe extern "C" {
    safe static __kprobes_tables_start: u8;
    safe static __kprobes_tables_end: u8;
}

static TABLE: Once<SymbolTable<'static>> = Once::new();

/// Checks the table, once.
pub fn init() {
    let (start, end) = (&raw const __kprobes_tables_start, &raw const __kprobes_tables_end);
    // SAFETY: the linker script has reserved the range, and nothing writes to it.
    let bytes = unsafe { slice::from_raw_parts(start, end as usize - start as usize) };
    TABLE.call_once(|| SymbolTable::parse(bytes).unwrap_or_else(|error| panic!("{error}")));
}

/// Returns the function that contains this address.
pub fn lookup(address: usize) -> Option<Symbol<'static>> {
    TABLE.get()?.lookup(address as u64)
}

/// Returns whether there are data among the instructions at these addresses.
pub fn has_data(addresses: Range<usize>) -> bool {
    TABLE.get().is_some_and(|table| table.has_data(addresses.start as u64..addresses.end as u64))
}
