//! The symbol table of an image, written on the host and read on the target; and the names in it: patterns that match
//! them ([`names`]), and the nearest one to a word ([`distance`](mod@distance)).
//!
//! A kernel that prints names needs its own symbols while it runs, and has no file system to find them in. So the host
//! appends a table to the image after linking, and the kernel reads the table in place: nothing is copied, allocated or
//! relocated. The inlined copies of functions are an exception. There are many of them, only programs need them, and
//! they are unpacked on demand.
//!
//! ```
//! # #[cfg(feature = "write")]
//! # {
//! use kprobes_symbols::{Contents, Symbol, SymbolTable, write};
//!
//! // On the host, with the feature `write`:
//! let open = Symbol { name: "shop::open", address: 0x4008_0040, size: 0x58 };
//! let table = write(0x4008_0000, &Contents { functions: &[open], ..Contents::default() })?;
//!
//! // On the target, with the table at a multiple of 4:
//! # let mut room = vec![0; table.len() + 3];
//! # let at = room.as_ptr().align_offset(4);
//! # room[at..][..table.len()].copy_from_slice(&table);
//! # let table = &room[at..];
//! let symbols = SymbolTable::parse(table)?;
//! assert_eq!(symbols.lookup(0x4008_0044), Some(open));
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Format
//!
//! All numbers are little-endian. The table and its words are at multiples of 4, so that a target with strict alignment
//! can read them. Names are not aligned.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic, `kprobsym` |
//! | 8 | 4 | CRC-32 (IEEE) of the bytes from 12 to the total length |
//! | 12 | 4 | version, 5 |
//! | 16 | 4 | total length in bytes |
//! | 20 | 4 | number of functions, *n* |
//! | 24 | 8 | base: the link address that offsets count from |
//! | 32 | 4 | number of functions with inlined copies |
//! | 36 | 4 | offset of the part about inlined copies, *i* |
//! | 40 | 4 | unpacked size of that part in bytes |
//! | 44 | 4 | number of statics, *m* |
//! | 48 | 4 | number of ranges of data among the instructions, *d* |
//! | 52 | 4 | length of the survey in bytes, *s*, a multiple of 4 |
//! | 56 | 12 *n* | functions in ascending order of address: offset, size, offset of the name |
//! | 56 + 12 *n* | 4 *n* | numbers of functions in ascending order of name |
//! | 56 + 16 *n* | 16 *m* | statics, in the same two lists |
//! | 56 + 16 (*n* + *m*) | 8 *d* | ranges of data in ascending order, no two of which touch: offset, size |
//! | 56 + 16 (*n* + *m*) + 8 *d* | *s* | the survey that [aarch64-kprobes](https://docs.rs/aarch64-kprobes) makes of the text |
//! | 56 + 16 (*n* + *m*) + 8 *d* + *s* | to *i* | names: length in two bytes, then that many bytes of UTF-8 |
//! | *i* | rest | functions with their inlined copies, packed by DEFLATE (RFC 1951) |
//!
//! In the last part, unpacked, a number is stored in groups of seven bits, the lowest first; bit 7 is set in all bytes
//! except the last. Functions are in ascending order of name. Each consists of:
//!
//! | number of | what |
//! |---|---|
//! | bytes | that its name shares with the start of the previous name |
//! | bytes | that follow in its name; then these bytes |
//! | bytes | that its copies take; then its copies, in ascending order of address |
//!
//! A copy consists of these numbers:
//!
//! - its distance in words from the previous copy, or from the base;
//! - flags, and in the bits above them the number of the calling function plus 1, or 0. Bit 0: the copy is in pieces;
//!   bit 1: its entries are unknown; bit 2: its exits are unknown;
//! - its entries: how many, and a number for each;
//! - its exits: how many, and a number for each.
//!
//! An entry or exit has in its two lowest bits when control passes there, in the order of [`When`], then a sign bit,
//! and above these the distance in words from the copy.
//!
//! A fatal report is readable only because of this table, so [`SymbolTable::parse`] checks all of it once. Only the
//! inlined copies are unpacked and checked on demand. No input makes the reader panic.
#![no_std]

extern crate alloc;
#[cfg(any(test, feature = "write"))]
extern crate std;

mod brackets;
pub mod distance;
#[doc(hidden)]
pub mod frame;
mod glob;
pub mod image;
mod inlined;
pub mod names;
mod table;
#[cfg(any(test, feature = "write"))]
mod write;

pub use frame::Defect;
pub use glob::{glob_match, glob_match_chars};
pub use inlined::{InlinedCopies, InlinedCopy, InlinedError, InlinedFunction, Passage, When};
pub use table::{Symbol, SymbolError, SymbolTable};
#[cfg(any(test, feature = "write"))]
pub use write::{Contents, Inlined, WriteError, write};

// For the other crates of the project.
#[doc(hidden)]
pub use {
    brackets::Brackets,
    glob::{Unit, class_match_chars, glob_match_units},
};

/// The first bytes of a table.
const MAGIC: [u8; 8] = *b"kprobsym";
/// The version of the format that this crate writes and reads.
const VERSION: u32 = 5;
/// The size of the header in words of four bytes.
const HEADER_WORDS: usize = 14;
/// The size of the header in bytes.
const HEADER_BYTES: usize = 4 * HEADER_WORDS;
