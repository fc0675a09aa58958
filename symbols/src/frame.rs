//! The frame of the tables that are appended to an image. Each begins with these fields:
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic |
//! | 8 | 4 | CRC-32 (IEEE) of the bytes from 12 to the total length |
//! | 12 | 4 | version |
//! | 16 | 4 | total length in bytes |

use core::fmt;

use alloc::vec::Vec;
use crc::{CRC_32_ISO_HDLC, Crc};

/// The checksum of tables, CRC-32 (IEEE 802.3), by which a reader notices a table that was cut or overwritten on its
/// way to the machine.
pub static CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
/// The alignment of a table, in bytes.
pub const ALIGNMENT: usize = 4;
/// The offset of the first byte that the checksum covers: after the magic and the checksum itself.
pub const CHECKED_FROM: usize = 12;

/// What is wrong with a table. It is displayed as a predicate, to follow the name of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// There are fewer bytes than the table or its header needs.
    Truncated {
        /// The number of bytes needed.
        needed: usize,
        /// The number of bytes present.
        present: usize,
    },
    /// The bytes are not aligned as a table.
    Misaligned {
        /// The virtual address, which is not a multiple of 4.
        address: usize,
    },
    /// The reader does not know this version.
    Version {
        /// The version in the header.
        found: u32,
        /// The version that the reader knows.
        supported: u32,
    },
    /// The bytes differ from those that were written.
    Checksum {
        /// The checksum in the header.
        expected: u32,
        /// The checksum of the bytes.
        found: u32,
    },
    /// The checksum is right, but this part contradicts the format.
    Inconsistent {
        /// The part, as a noun.
        part: &'static str,
    },
}

impl fmt::Display for Defect {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, present } => {
                write!(out, "is truncated: it needs {needed} bytes, and {present} are present")
            }
            Self::Misaligned { address } => write!(out, "is at {address:#x}, which is not a multiple of {ALIGNMENT}"),
            Self::Version { found, supported } => {
                write!(out, "has version {found}, and only version {supported} is supported")
            }
            Self::Checksum { expected, found } => {
                write!(out, "is damaged: its checksum is {found:#010x} instead of {expected:#010x}")
            }
            Self::Inconsistent { part } => write!(out, "is inconsistent: {part}"),
        }
    }
}

/// Checks the frame of the table at the start of `bytes`, except for its magic. Returns the words of its header, and
/// all its bytes.
///
/// # Errors
///
/// Fails if the bytes are not a complete, aligned and intact table of this version.
pub fn open<const WORDS: usize>(bytes: &[u8], version: u32) -> Result<([u32; WORDS], &[u8]), Defect> {
    const { assert!(WORDS > 4, "the header has all fields of the frame") };
    let truncated = |needed| Defect::Truncated { needed, present: bytes.len() };
    let (words, _) = bytes.as_chunks::<4>();
    let (header, _) = words.split_first_chunk::<WORDS>().ok_or(truncated(4 * WORDS))?;
    let header = header.map(u32::from_le_bytes);
    let [expected, found, length] = [header[2], header[3], header[4]];
    if found != version {
        return Err(Defect::Version { found, supported: version });
    }
    let table = bytes.get(..length as usize).ok_or(truncated(length as usize))?;
    if !table.as_ptr().addr().is_multiple_of(ALIGNMENT) {
        return Err(Defect::Misaligned { address: table.as_ptr().addr() });
    }
    let checked = table.get(CHECKED_FROM..).ok_or(Defect::Inconsistent { part: "its length" })?;
    let found = CHECKSUM.checksum(checked);
    if found != expected {
        return Err(Defect::Checksum { expected, found });
    }
    Ok((header, table))
}

/// Corrects the checksum of a table.
pub fn seal(table: &mut [u8]) {
    let checksum = CHECKSUM.checksum(&table[CHECKED_FROM..]);
    table[CHECKED_FROM - 4..CHECKED_FROM].copy_from_slice(&checksum.to_le_bytes());
}

/// Appends a number in groups of seven bits, the lowest first; bit 7 is set in all bytes except the last.
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Removes a number that [`put`] has written from the start of `bytes`. `None` if the bytes end, or the number exceeds
/// 64 bits.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            // One bit of the tenth byte fits.
            return (shift < 63 || byte <= 1).then_some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{Vec, put, take};

    #[test]
    fn numbers_come_back_and_no_larger_ones() {
        for number in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::MAX - 1, u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            for length in 0..bytes.len() {
                assert_eq!(take(&mut &bytes[..length]), None, "{length} bytes of {number:#x}");
            }
            bytes.push(5);
            let mut rest = &bytes[..];
            assert_eq!(take(&mut rest), Some(number));
            assert_eq!(rest, [5]);
        }
        // 2⁶⁴, and a number of 11 bytes.
        for mut too_large in [[0x80; 10], [0xff; 10]] {
            assert_eq!(take(&mut &too_large[..]), None);
            too_large[9] = 2;
            assert_eq!(take(&mut &too_large[..]), None);
        }
    }
}
