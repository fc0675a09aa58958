//! What an analysis of a whole text finds: the functions that do not keep to the procedure call standard for x9 to x17
//! and the flags.
//!
//! The analysis takes some hundred instructions for each instruction of the text. Its result depends on the text alone.
//! So a host can make it after the link, and append it to the image.
//!
//! # Format
//!
//! All words are little-endian, and have four bytes. An offset is the distance in bytes from the start of the text.
//!
//! | words | what |
//! |---|---|
//! | 2 | virtual (link) address of the start of the text |
//! | 1 | length of the text in bytes |
//! | 1 | number of functions that preserve registers, *p* |
//! | 4 *p* | each such function, in ascending order: its offset, the offset of a call, the registers that it preserves, and those that are read after the call |
//! | the rest, by 4 | each function that may have results, in ascending order: its offset, the reason (0: `Read`, 1: `Kept`, 2: `Lost`), the register, and the offset of the instruction |

use alloc::vec::Vec;
use core::ops::Range;

use super::liveness::{Bounds, Read, ScratchPreservers};
use super::results::ScratchResults;

/// The functions of a text that do not keep to the standard.
#[derive(Debug)]
pub struct Survey {
    /// The virtual addresses of the text.
    text: Range<u64>,
    pub(crate) preservers: ScratchPreservers,
    pub(crate) results: ScratchResults,
}

/// A function, and what was found out about it, as words of a table.
pub(super) type Row = [u32; 4];

impl Survey {
    /// Analyzes the text at these virtual addresses; `None` if there is no memory for the result. `read` returns the
    /// instruction at an address, and `bounds` the bounds of the function around it.
    #[must_use]
    pub fn of_text(text: Range<u64>, read: Read<'_>, bounds: Bounds<'_>) -> Option<Self> {
        let preservers = ScratchPreservers::in_text(text.clone(), read, bounds)?;
        let results = ScratchResults::in_text(text.clone(), &preservers, read, bounds)?;
        Some(Self { text, preservers, results })
    }

    /// Returns the table; `None` if there is no memory for it, or if an address is not in the 4 GiB from the start of
    /// the text.
    #[must_use]
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let Range { start, end } = self.text;
        let preservers = u32::try_from(self.preservers.rows(start).count()).ok()?;
        let mut bytes = fallible::collect(start.to_le_bytes()).ok()?;
        let mut push = |word: u32| fallible::extend(&mut bytes, word.to_le_bytes()).ok();
        push(offset(start, end)?)?;
        push(preservers)?;
        for row in self.preservers.rows(start).chain(self.results.rows(start)) {
            row?.into_iter().try_for_each(&mut push)?;
        }
        Some(bytes)
    }

    /// Reads a table; `None` if the bytes are none, if `text` is not all in its text, or if there is no memory.
    pub(crate) fn from_bytes(text: Range<u64>, bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<4>() else { return None };
        let (header, words) = words.split_first_chunk::<4>()?;
        let [low, high, length, preservers] = header.map(u32::from_le_bytes);
        let start = u64::from(low) | u64::from(high) << 32;
        let surveyed = start..start.checked_add(length.into())?;
        if text.start < surveyed.start || surveyed.end < text.end {
            return None;
        }
        let (rows, []) = words.as_chunks::<4>() else { return None };
        let (preservers, results) = rows.split_at_checked(preservers as usize)?;
        Some(Self {
            text: surveyed,
            preservers: ScratchPreservers::from_rows(start, decoded(preservers))?,
            results: ScratchResults::from_rows(start, decoded(results))?,
        })
    }
}

fn decoded(rows: &[[[u8; 4]; 4]]) -> impl Iterator<Item = Row> {
    rows.iter().map(|row| row.map(u32::from_le_bytes))
}

/// Returns the distance of an address from the start of the text, if a row can hold it.
pub(super) fn offset(start: u64, address: u64) -> Option<u32> {
    u32::try_from(address.checked_sub(start)?).ok()
}

#[cfg(test)]
mod tests;
