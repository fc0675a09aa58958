//! Lines of source, which the addresses of their instructions stand for.

use core::fmt::{self, Write};

use kprobes_types::Lines;

/// The highest bits of a word that is a line, of what has been put together for several addresses: no virtual address has them, whose
/// highest bits are all the same.
const LINE: u64 = 0x5a5;
/// How many bits precede them.
const TOP: u32 = 52;
/// How many bits precede the number of the file, which has the number of the line below it.
const FILE: u32 = 32;

/// The word that stands for the line of an instruction.
pub(super) fn key(lines: &Lines<'_>, address: u64) -> Option<u64> {
    let row = lines.row(address)?;
    let file = u64::from(row.file);
    (file < 1 << (TOP - FILE)).then_some(LINE << TOP | file << FILE | u64::from(row.line))
}

/// Writes a line that an address stands for, or a word of [`key`]; the number where there is none.
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
