//! A program that asks for `args.packet.len` has to know where the call passes `packet`, and where `len` is in it. The compiler
//! knows, and writes it down as DWARF, which is more than twenty times as long as the kernel. The host reads that once, keeps what
//! leads from an argument to a value, and appends it to the image. The kernel reads it where it lies: nothing is copied, allocated
//! or relocated.
//!
//! # Format
//!
//! All numbers are little-endian. The table lies at a multiple of 4, and so do its words.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic, `kprobtyp` |
//! | 8 | 4 | CRC-32 (IEEE) of the bytes from 12 to the total length |
//! | 12 | 4 | version, 1 |
//! | 16 | 4 | total length in bytes |
//! | 20 | 4 | number of parts, *p* |
//! | 24 | 8 | base: the link address that the offsets of functions count from |
//! | 32 | 12 *p* | the parts: number of the kind, where it begins, its length in bytes |
//!
//! A reader ignores parts of kinds that it does not know: a table can have more in it than is described here. Of each of the kinds 1
//! to 5 there is exactly one part, of 6 to 8 one or none:
//!
//! | kind | what |
//! |---|---|
//! | 1 | functions, in ascending order of address: offset from the base in 4 bytes, where its record begins in part 2 in 4 bytes |
//! | 2 | records of functions |
//! | 3 | types: where the record of each begins in part 4, in 4 bytes; a type is known by its number in this part |
//! | 4 | records of types |
//! | 5 | names: length, then that many bytes of UTF-8; a name is known by where it begins |
//! | 6 | blocks of rows, in ascending order of address: the offset that the first counts from in 4 bytes, where it begins in part 7 in 4 bytes |
//! | 7 | rows, each of which has the instructions from its address up to that of the next |
//! | 8 | files of source: where the name of each begins, in 4 bytes; a file is known by its number in this part |
//!
//! In records and names a number is in LEB128 without a sign (DWARF 4, section 7.6), from the lowest seven bits on.
//!
//! | record | consists of |
//! |---|---|
//! | function | number of arguments, each: name, type, place; then the type of what it returns, and its place |
//! | place | 0: it has no bytes |
//! | | 1: number of words, 1 or 2, each: its offset in the value, its bytes, source |
//! | | 2: source of the address that the value is at |
//! | | 3: the value itself, of 8 bytes at most |
//! | | 4: it is not known, and why: a number of [`Unknown`]; for [`Unknown::Elsewhere`] from where to where it is known |
//! | source | 0: lost; 1 to 31: register x0 to x30; from 32 on: 32 and the distance from the stack pointer at the entry, in bytes |
//! | row | a byte: from the lowest bit on, 1 bit: the instruction begins a statement; 4 bits: which of the lines before it is in the order in which they were last met in this block, where 0 is the one before the last, or 15; 3 bits: how many words it is from the row before, or 0: then that number follows; for 15 then a number: 2 bits: which of the last three files, or 3, above that the difference from the last line of that file, or from 0, with the sign as the lowest bit (0, -1, 1, -2, …); for 3 then the number of the file. Before the first of a block all is 0. Line 0 is none |
//! | type | name, module, size, number of the kind, and what [`Kind`] has in the order of its fields |
//!
//! A list is preceded by the number of its items. A member is its name, offset and type; a variant its name, 0 if it is the one
//! that no value is for or 1 and the value, and its type; an enumerator its name and value, of the size of the type.
//!
//! [`Types::parse`] checks all of a table once. No bytes whatever make the reader panic, and a record that lies is `None`.
#![no_std]

#[cfg(any(test, feature = "write"))]
extern crate std;

mod lines;
mod model;
mod record;
mod table;
#[cfg(any(test, feature = "write"))]
pub mod write;

pub use lines::{Line, LineError, Lines, Row};
pub use model::{Flavor, Form, Kind, Part, Place, Source, Tag, TypeId, Unknown};
pub use table::{
    Argument, Enumerator, Enumerators, Function, Member, Members, Type, Types, TypesError, Variant, Variants,
};

/// The first bytes of a table.
const MAGIC: [u8; 8] = *b"kprobtyp";
/// The version of the format that this crate writes and reads.
const VERSION: u32 = 1;
/// What the address of a table is a multiple of, in bytes.
const ALIGNMENT: usize = 4;
/// Words of four bytes in the header, before the parts.
const HEADER_WORDS: usize = 8;
/// Where the bytes begin that the checksum covers: after the magic and the checksum itself.
const CHECKED_FROM: usize = 12;
/// Kinds of parts: functions, their records, types, their records, names.
const PARTS: [u32; 5] = [1, 2, 3, 4, 5];
/// Kinds of parts about lines, of which there are all or none: blocks, rows, files.
const LINES: [u32; 3] = [6, 7, 8];
