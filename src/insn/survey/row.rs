//! The rows of a survey's table.

/// A function, and what was found out about it, as words of a table.
pub type Row = [u32; 4];

/// Returns the distance of an address from the start of the text, modulo 4 GiB.
pub const fn offset(start: u64, address: u64) -> u32 {
    address.wrapping_sub(start) as u32
}
