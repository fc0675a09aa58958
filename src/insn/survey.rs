//! What an analysis of a whole text finds: the functions that do not keep to the procedure call standard for x9 to x17
//! and the flags, and those that run between a load-exclusive and its store-exclusive.
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
//! | 2 | virtual (link) address of the start of the text, a multiple of 4 |
//! | 1 | length of the text in bytes, a multiple of 4 |
//! | 1 | offset of `__kprobes_text_start`, by which an image is known that does not run at its link address |
//! | 1 | number of functions that preserve registers, *p* |
//! | 1 | number of functions that run inside sequences of others, *s* |
//! | 4 *p* | each function that preserves registers, in ascending order: its offset, the offset of a call, the registers that it preserves, and those that are read after calls of it |
//! | 4 *s* | each function that runs inside a sequence, in ascending order: its offset, that of the load-exclusive or of a function or call with it, and two words of 0 |
//! | the rest, by 4 | each function that may have results, in ascending order: its offset, the reason (0: `Read`, 1: `Kept`, 2: `Lost`), the register, and the offset of the instruction |

pub(super) mod row;

use alloc::vec::Vec;
use core::ops::Range;

use super::exclusive::SequenceCallees;
use super::liveness::{Bounds, Read, ScratchPreservers};
use super::results::ScratchResults;
use row::{Row, offset};

/// The functions of a text that do not keep to the standard, or run inside sequences of others.
#[derive(Debug)]
pub struct Survey {
    /// The virtual addresses of the text.
    text: Range<u64>,
    pub(crate) preservers: ScratchPreservers,
    sequence_callees: SequenceCallees,
    pub(crate) results: ScratchResults,
}

/// The rows of a table, not yet read.
struct Rows<'a> {
    /// The virtual addresses of the surveyed text.
    text: Range<u64>,
    preservers: &'a [[[u8; 4]; 4]],
    sequence_callees: &'a [[[u8; 4]; 4]],
    results: &'a [[[u8; 4]; 4]],
}

impl Survey {
    /// Analyzes the text at these virtual addresses; `None` if there is no memory for the result. `read` returns the
    /// instruction at an address, and `bounds` the bounds of the function around it.
    #[must_use]
    pub fn of_text(text: Range<u64>, read: Read<'_>, bounds: Bounds<'_>) -> Option<Self> {
        let preservers = ScratchPreservers::in_text(text.clone(), read, bounds)?;
        let results = ScratchResults::in_text(text.clone(), &preservers, read, bounds)?;
        let sequence_callees = SequenceCallees::in_text(text.clone(), read, bounds).ok()?;
        Some(Self { text, preservers, sequence_callees, results })
    }

    /// Returns the table; `None` if there is no memory for it, or if the text has 4 GiB or more. `region` is the
    /// virtual address of `__kprobes_text_start`.
    #[must_use]
    pub fn to_bytes(&self, region: u64) -> Option<Vec<u8>> {
        let Range { start, end } = self.text;
        let preservers = u32::try_from(self.preservers.rows(&self.text).count()).ok()?;
        let sequence_callees = u32::try_from(self.sequence_callees.rows(&self.text).count()).ok()?;
        let mut bytes = fallible::collect(start.to_le_bytes()).ok()?;
        let mut push = |word: u32| fallible::extend(&mut bytes, word.to_le_bytes());
        let header = [u32::try_from(end - start).ok()?, offset(start, region), preservers, sequence_callees];
        let rows = self.preservers.rows(&self.text).chain(self.sequence_callees.rows(&self.text));
        let rows = rows.chain(self.results.rows(&self.text));
        header.into_iter().chain(rows.flatten()).try_for_each(&mut push).ok()?;
        Some(bytes)
    }

    /// Reads a table; `None` if the bytes are not one of a text that contains `text`, in an image that runs at its link
    /// address, or if there is no memory. `region` is the virtual address of `__kprobes_text_start`.
    pub(crate) fn from_bytes(text: Range<u64>, region: u64, bytes: &[u8]) -> Option<Self> {
        let rows = Rows::split(text, region, bytes)?;
        let start = rows.text.start;
        Some(Self {
            preservers: ScratchPreservers::from_rows(start, decoded(rows.preservers))?,
            sequence_callees: SequenceCallees::from_rows(start, decoded(rows.sequence_callees))?,
            results: ScratchResults::from_rows(start, decoded(rows.results))?,
            text: rows.text,
        })
    }

    /// Reads the functions that run inside sequences of others from a table, as [`from_bytes`](Self::from_bytes) does.
    pub(crate) fn sequence_callees(text: Range<u64>, region: u64, bytes: &[u8]) -> Option<SequenceCallees> {
        let rows = Rows::split(text, region, bytes)?;
        SequenceCallees::from_rows(rows.text.start, decoded(rows.sequence_callees))
    }
}

impl<'a> Rows<'a> {
    /// Splits a table; `None` if the bytes are not one that [`Survey::from_bytes`] takes.
    fn split(text: Range<u64>, region: u64, bytes: &'a [u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<4>() else { return None };
        let (header, words) = words.split_first_chunk::<6>()?;
        let [low, high, length, region_offset, preservers, sequence_callees] = header.map(u32::from_le_bytes);
        let start = u64::from(low) | u64::from(high) << 32;
        let surveyed = start..start.checked_add(length.into())?;
        let is_whole = (start | u64::from(length)).is_multiple_of(4);
        let is_covered = surveyed.start <= text.start && text.end <= surveyed.end;
        let (rows, []) = words.as_chunks::<4>() else { return None };
        if !is_whole || !is_covered || offset(start, region) != region_offset {
            return None;
        }
        let (preservers, rows) = rows.split_at_checked(preservers as usize)?;
        let (sequence_callees, results) = rows.split_at_checked(sequence_callees as usize)?;
        Some(Self { text: surveyed, preservers, sequence_callees, results })
    }
}

fn decoded(rows: &[[[u8; 4]; 4]]) -> impl Iterator<Item = Row> {
    rows.iter().map(|row| row.map(u32::from_le_bytes))
}

#[cfg(test)]
mod tests;
