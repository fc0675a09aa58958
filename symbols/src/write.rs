//! The writer of symbol tables, for the host tool and the tests.

mod inlined;

use core::ops::Range;
use std::{fmt, string::String, string::ToString, vec::Vec};

use crate::frame::{ALIGNMENT, seal};
use crate::{HEADER_BYTES, MAGIC, Symbol, VERSION};

pub use inlined::Inlined;
#[cfg(test)]
pub(crate) use inlined::{encode, pack};

/// Why contents do not fit into a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// A symbol begins below the base or ends 4 GiB or more above it; or an inlined copy does, or has parts that far
    /// apart.
    OutOfRange {
        /// The name.
        name: String,
        /// The virtual address.
        address: u64,
    },
    /// A range of data begins below the base or ends 4 GiB or more above it.
    DataOutOfRange {
        /// The virtual addresses of the range.
        data: Range<u64>,
    },
    /// A name is longer than 65535 bytes.
    NameTooLong {
        /// The virtual address of the symbol.
        address: u64,
    },
    /// The table would take 4 GiB or more.
    TooLong,
}

impl fmt::Display for WriteError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { name, address } => {
                write!(out, "{name} at {address:#x} is not within 4 GiB above the start of the image")
            }
            Self::DataOutOfRange { data } => {
                write!(
                    out,
                    "the data from {:#x} to {:#x} is not within 4 GiB above the start of the image",
                    data.start, data.end
                )
            }
            Self::NameTooLong { address } => {
                write!(out, "the name of the symbol at {address:#x} is longer than 65535 bytes")
            }
            Self::TooLong => write!(out, "there are more symbols than fit into a table"),
        }
    }
}

impl std::error::Error for WriteError {}

/// The contents of a table, in any order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Contents<'a> {
    /// The functions.
    pub functions: &'a [Symbol<'a>],
    /// The statics.
    pub statics: &'a [Symbol<'a>],
    /// The virtual (link) addresses of data among instructions.
    pub data: &'a [Range<u64>],
    /// What `Platform::survey` is to return. Bytes of 0 fill it up to a multiple of 4.
    pub survey: &'a [u8],
    /// The inlined copies of functions.
    pub copies: &'a [Inlined],
}

/// Makes the table of `contents`. `base` must not be above the lowest of their addresses.
///
/// # Errors
///
/// Fails if something does not fit into the fields of the format.
pub fn write(base: u64, contents: &Contents<'_>) -> Result<Vec<u8>, WriteError> {
    let &Contents { functions, statics, data, survey, copies } = contents;
    let mut names = Vec::new();
    let mut lists = list(base, functions, &mut names)?;
    lists.extend(list(base, statics, &mut names)?);
    let data = ranges(base, data)?;
    lists.extend(data.as_flattened().iter().flat_map(|word| word.to_le_bytes()));
    lists.extend(survey);
    lists.resize(lists.len().next_multiple_of(ALIGNMENT), 0);

    let (inlined, copies) = inlined::encode(base, copies)?;
    let unpacked = copies.len();
    let copies = inlined::pack(&copies);
    let inlined_at = HEADER_BYTES + lists.len() + names.len();
    let length = inlined_at + copies.len();
    let mut table = Vec::with_capacity(length);
    table.extend(MAGIC);
    table.extend([0; 4]);
    table.extend(VERSION.to_le_bytes());
    table.extend(word(length)?);
    table.extend(word(functions.len())?);
    table.extend(base.to_le_bytes());
    table.extend(word(inlined)?);
    table.extend(word(inlined_at)?);
    table.extend(word(unpacked)?);
    table.extend(word(statics.len())?);
    table.extend(word(data.len())?);
    table.extend(word(survey.len().next_multiple_of(ALIGNMENT))?);
    table.extend(lists);
    table.extend(names);
    table.extend(copies);
    seal(&mut table);
    Ok(table)
}

/// Encodes a number as a word of the table.
fn word(number: usize) -> Result<[u8; 4], WriteError> {
    u32::try_from(number).map(u32::to_le_bytes).map_err(|_| WriteError::TooLong)
}

/// Encodes the entries of `symbols` and their order by name. Appends their names to `names`.
fn list(base: u64, symbols: &[Symbol<'_>], names: &mut Vec<u8>) -> Result<Vec<u8>, WriteError> {
    let mut symbols = symbols.to_vec();
    symbols.sort_by_key(|symbol| (symbol.address, symbol.name));
    let mut list = Vec::new();
    for symbol in &symbols {
        let out_of_range = || WriteError::OutOfRange { name: symbol.name.to_string(), address: symbol.address };
        let offset = symbol.address.checked_sub(base).ok_or_else(out_of_range)?;
        let end = offset.checked_add(symbol.size).ok_or_else(out_of_range)?;
        if end > u64::from(u32::MAX) || base.checked_add(end).is_none() {
            return Err(out_of_range());
        }
        let length =
            u16::try_from(symbol.name.len()).map_err(|_| WriteError::NameTooLong { address: symbol.address })?;
        list.extend((offset as u32).to_le_bytes());
        list.extend((symbol.size as u32).to_le_bytes());
        list.extend(word(names.len())?);
        names.extend(length.to_le_bytes());
        names.extend(symbol.name.as_bytes());
    }
    let mut by_name: Vec<usize> = (0..symbols.len()).collect();
    by_name.sort_by_key(|&number| (symbols[number].name, symbols[number].address));
    for number in by_name {
        list.extend(word(number)?);
    }
    Ok(list)
}

/// Returns the offset and size of each range, after joining ranges that touch.
fn ranges(base: u64, data: &[Range<u64>]) -> Result<Vec<[u32; 2]>, WriteError> {
    let mut data: Vec<_> = data.iter().filter(|data| !data.is_empty()).cloned().collect();
    data.sort_by_key(|data| data.start);
    data.dedup_by(|next, last| {
        let touches = next.start <= last.end;
        if touches {
            last.end = last.end.max(next.end);
        }
        touches
    });
    let entry = |data: &Range<u64>| {
        let start = u32::try_from(data.start.checked_sub(base)?).ok()?;
        let end = u32::try_from(data.end.checked_sub(base)?).ok().filter(|&end| end < u32::MAX)?;
        Some([start, end - start])
    };
    data.iter().map(|data| entry(data).ok_or(WriteError::DataOutOfRange { data: data.clone() })).collect()
}

#[cfg(test)]
mod tests {
    use super::{Contents, WriteError, write};
    use crate::Symbol;
    use std::string::ToString;

    #[test]
    fn refuses_what_does_not_fit() {
        let of = |base, symbol| write(base, &Contents { functions: &[symbol], ..Contents::default() });
        let at = |address, size| of(0x1000, Symbol { name: "f", address, size });
        let out_of_range = |address| Err(WriteError::OutOfRange { name: "f".to_string(), address });
        assert_eq!(at(0xfff, 1), out_of_range(0xfff));
        assert_eq!(at(0x1_0000_1000, 4), out_of_range(0x1_0000_1000));
        assert_eq!(at(0x1000, u64::MAX), out_of_range(0x1000));
        assert!(at(0x1000, 0xffff_ffff).is_ok());
        let name = "n".repeat(0x1_0000);
        let long = of(0, Symbol { name: &name, address: 8, size: 4 });
        assert_eq!(long, Err(WriteError::NameTooLong { address: 8 }));
    }
}
