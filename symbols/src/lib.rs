//! A kernel that names what it shows needs its own symbols while it runs, and has no file system to find them
//! in. So the host appends a table to the image after the link, and the kernel reads it where it lies: nothing
//! is copied, allocated or relocated, but for inlined copies, which are many, and which programs alone ask for.
//!
//! # Format
//!
//! All numbers are little-endian. The table lies at a multiple of 4, and so do its words, which are read by who may not read
//! others; names are not aligned.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic, `kprobsym` |
//! | 8 | 4 | CRC-32 (IEEE) of the bytes from 12 to the total length |
//! | 12 | 4 | version, 4 |
//! | 16 | 4 | total length in bytes |
//! | 20 | 4 | number of functions, *n* |
//! | 24 | 8 | base: the link address that the offsets count from |
//! | 32 | 4 | number of functions with inlined copies |
//! | 36 | 4 | where the part that tells of these begins, *i* |
//! | 40 | 4 | bytes that it has unpacked |
//! | 44 | 4 | number of statics, *m* |
//! | 48 | 4 | number of ranges of data among the instructions, *d* |
//! | 52 | 12 *n* | functions in ascending order of address: offset, size, offset of the name |
//! | 52 + 12 *n* | 4 *n* | their numbers in ascending order of name |
//! | 52 + 16 *n* | 16 *m* | the same of statics |
//! | 52 + 16 (*n* + *m*) | 8 *d* | the ranges in ascending order, no two of which touch: offset, size |
//! | 52 + 16 (*n* + *m*) + 8 *d* | to *i* | names: length in two bytes, then that many bytes of UTF-8 |
//! | *i* | rest | functions with their copies (`inlined.rs`), packed by DEFLATE (RFC 1951) |
//!
//! The table is all there is between a fault and a report that a person can read, so [`SymbolTable::parse`]
//! checks all of it once, but for the copies, which are unpacked and checked when they are asked for. No bytes whatever make the
//! reader panic.
#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "write"))]
extern crate std;

mod checksum;
mod glob;
mod inlined;
mod table;
#[cfg(any(test, feature = "write"))]
mod write;

pub use checksum::crc32;
pub use glob::{glob_match, glob_match_chars};
pub use inlined::{InlinedCopies, InlinedCopy, InlinedError, InlinedFunction, Passage, When};
pub use table::{Symbol, SymbolError, SymbolTable};
#[cfg(any(test, feature = "write"))]
pub use write::{Contents, Inlined, WriteError, write};

/// The first bytes of a table.
const MAGIC: [u8; 8] = *b"kprobsym";
/// The version of the format that this crate writes and reads.
const VERSION: u32 = 4;
/// What the address of a table is a multiple of, in bytes.
const ALIGNMENT: usize = 4;
/// Words of four bytes in the header.
const HEADER_WORDS: usize = 13;
/// Bytes in the header.
const HEADER_BYTES: usize = 4 * HEADER_WORDS;
/// Where the bytes begin that the checksum covers: after the magic and the checksum itself.
const CHECKED_FROM: usize = 12;
