//! Shows the address of an instruction as its line of source.

use core::fmt::{self, Write};

use kprobes_types::Lines;

/// The high bits of a word that holds a line instead of an address, for values that were merged for several addresses.
/// No virtual address has these bits, because the high bits of a virtual address are all equal.
const LINE: u64 = 0x5a5;
/// The bit position of [`LINE`].
const TOP: u32 = 52;
/// The bit position of the file number. The line number is below it.
const FILE: u32 = 32;

/// Returns the word that stands for the line of an instruction; `None` if the line is unknown.
pub(super) fn key(lines: &Lines<'_>, address: u64) -> Option<u64> {
    let row = lines.row(address)?;
    let file = u64::from(row.file);
    (file < 1 << (TOP - FILE)).then_some(LINE << TOP | file << FILE | u64::from(row.line))
}

/// Writes the line of an address, or the line that [`key`] encoded. Without a line, writes the number.
pub(super) fn write(lines: Option<Lines<'_>>, word: u64, out: &mut dyn Write) -> fmt::Result {
    match lines {
        Some(lines) if word >> TOP == LINE => {
            let file = lines.file((word >> FILE) as u32 & ((1 << (TOP - FILE)) - 1)).unwrap_or("?");
            write!(out, "{file}:{}", word as u32)
        }
        Some(lines) => match lines.at(word) {
            Some(line) => write!(out, "{line}"),
            None => write!(out, "{word:#x}"),
        },
        None => write!(out, "{word:#x}"),
    }
}
