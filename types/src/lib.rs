//! The table of types of an image: written on the host, read on the target.
//!
//! A program that uses `args.packet.len` must know where `packet` is, at the entry or at another instruction, and where
//! `len` is inside it. The compiler knows, and writes it down as DWARF, which is more than twenty times as large as the
//! kernel. The host reads the DWARF once, keeps only what leads from a name to a value, and appends that to the image.
//! The kernel reads the table in place: nothing is copied, allocated or relocated.
//!
//! # Format
//!
//! All numbers are little-endian. The table and its words are at multiples of 4.
//!
//! | at | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic, `kprobtyp` |
//! | 8 | 4 | CRC-32 (IEEE) of the bytes from 12 to the total length |
//! | 12 | 4 | version, 6 |
//! | 16 | 4 | total length in bytes |
//! | 20 | 4 | number of parts, *p* |
//! | 24 | 8 | base: the link address that the offsets of functions count from |
//! | 32 | 12 *p* | the parts: kind, offset, length in bytes |
//!
//! A reader ignores parts of unknown kinds, so a table can contain more than is described here. There is exactly one
//! part of each of the kinds 1 to 7, and at most one of each of the kinds 8 to 14:
//!
//! | kind | what |
//! |---|---|
//! | 1 | functions, in ascending order: offset from the base, offset of the record in part 2, in 4 bytes each |
//! | 2 | records of functions |
//! | 3 | types: offset of the record of each in part 4, in 4 bytes; a type is identified by its number in this part |
//! | 4 | records of types |
//! | 5 | places; a place is identified by its offset |
//! | 6 | names, in 4 bytes each: bits 0 to 21 are the offset in part 7, bits 22 to 31 the length in bytes; identified by its number in this part |
//! | 7 | the text of names, in UTF-8; a name that occurs in another has no bytes of its own |
//! | 8 | blocks of rows, in ascending order: offset of the address, offset of the rows in part 9, in 4 bytes each |
//! | 9 | rows, each for the instructions from its address up to that of the next row |
//! | 10 | source files: name of each, in 4 bytes; a file is identified by its number in this part |
//! | 11 | vtables, in ascending order: offset from the base, type whose methods are in it, in 4 bytes each |
//! | 12 | for each function of part 1, in its order: offset of its variables in part 13, in 4 bytes |
//! | 13 | variables |
//! | 14 | functions that are inlined; each is identified by its offset |
//!
//! Records of functions do not overlap, nor do those of types. In records and places, a number is in unsigned LEB128
//! (DWARF 4, section 7.6): seven bits a byte, the lowest first. The writer gives the lowest numbers to the names and
//! places that are used most.
//!
//! | record | consists of |
//! |---|---|
//! | function | declaration; number of arguments, each: name, type, place; then the type of the result, and its place |
//! | declaration | 0 if it is unknown; otherwise 1 plus the number of the file, the line, number of lines from there to the last of the function |
//! | place | 0: the value has no bytes |
//! | | 1: number of words, 1 or 2, each: its offset in the value, its size in bytes, source |
//! | | 2: source of the address of the value |
//! | | 5: number of the register that the value is in memory from, and the offset there |
//! | | 3: the value itself, at most 8 bytes |
//! | | 4: unknown; the reason as a number of [`Unknown`], for [`Unknown::Elsewhere`] followed by its two offsets |
//! | source | 0: lost; 1 to 31: register x0 to x30; 32: in memory, followed by the number of a register, where 31 is the stack pointer, and the offset from the address there; 33: the sum of a register and an offset, which follow in the same way; 34: in the lowest bits of a register, followed by its number and the number of bits |
//! | variables | number of variables, each: name, type, scope; number of stretches with a place, each: stretch, place; then number of inlined copies, each: copy |
//! | scope | a number: its bit 0 is set for an argument, the bits above are the number of stretches that follow, where 0 means the whole function |
//! | stretch | of instructions: a number: its bit 0 is set if a distance follows, the bits above are the number of words; the distance is in words, from the end of the stretch before, or from the entry |
//! | inlined function | [`hash`] of its demangled name, in 2 bytes; number of variables, at most 255, each: name, then a number: its bit 0 is set for an argument, the bits above are the type plus 1, or 0 if no copy has the variable |
//! | copy | a number: its bit 0 is set if the number of stretches of its instructions follows, which is 1 otherwise, the bits above are the distance in words from the start of the copy before, or from the entry; then these stretches; inlined function; for each of its variables that a copy has: variable of a copy |
//! | variable of a copy | 0 if the copy does not have it; otherwise 1 plus a number: its bit 0 is set if the scope follows, as number of stretches, each: stretch; the bits above are 0 if the place follows, which holds in the whole scope, or 1 plus the number of stretches with a place, each: stretch, place |
//! | row | see below |
//! | type | name, module, size, number of the kind, then the fields of the [`TypeKind`] in their order |
//!
//! A row is a byte, followed by up to three numbers:
//!
//! - Bit 0 of the byte: the instruction begins a statement.
//! - Bits 1 to 4: the row's line among the lines last met in this block, most recent first, where 0 is the line before
//!   the last. 15 means another line.
//! - Bits 5 to 7: the distance from the previous row in words. If it is 0, the distance follows as a number.
//! - For another line, a number follows. Its bits 0 and 1 are the row's file among the last three files, or 3 for
//!   another file. The bits above are the difference from the last line of that file, or from 0, with the sign in the
//!   lowest bit (0, -1, 1, -2, …).
//! - For another file, the number of the file follows.
//!
//! Before the first row of a block, everything is 0. Line 0 means that there is no line.
//!
//! An offset from a register has its sign in the lowest bit. Variables of a block follow those of the blocks around it,
//! and copies follow those that contain them. In a copy, the first stretch of a list counts from the start of the copy.
//! A variable of a copy has the whole copy as its scope if none follows.
//!
//! The number of a kind is its position in [`TypeKind`], from 0 and without [`TypeKind::Object`], whose number is 15. A
//! list is preceded by the number of its items. A tag is 0 if there is none; otherwise 1, its offset and its size. A
//! member is its name, offset and type. A variant is its name, then 0 if it has no value of its own or 1 and its value,
//! and its type. An enumerator is its name and its value, of the size of the type.
//!
//! [`Types::parse`] checks the whole table once. No input makes the reader panic; an inconsistent record is `None`.
#![no_std]

#[cfg(any(test, feature = "write"))]
extern crate std;

mod lines;
mod model;
#[cfg(any(test, feature = "write"))]
mod pool;
mod record;
mod shared;
mod table;
mod variables;
#[cfg(any(test, feature = "write"))]
pub mod write;

pub use kprobes_symbols::Defect;
pub use lines::{LineError, LineRow, Lines, SourceLine};
pub use model::{Declaration, Flavor, Form, Source, Tag, TypeId, TypeKind, Unknown, ValuePart, ValuePlace};
pub use shared::Argument;
pub use table::{Enumerator, Enumerators, Function, Member, Members, Type, Types, TypesError, Variant, Variants};
pub use variables::{Copies, CopyVariable, InlinedCopy, Variable, Variables};

/// The first bytes of a table.
const MAGIC: [u8; 8] = *b"kprobtyp";
/// The version of the format that this crate writes and reads.
const VERSION: u32 = 6;
/// The size of the header before the parts, in words of four bytes.
const HEADER_WORDS: usize = 8;
/// The kinds of the required parts: functions, their records, types, their records, places, names, text.
const PARTS: [u32; 7] = [1, 2, 3, 4, 5, 6, 7];
/// The kinds of the parts about lines, which a table has all or none of: blocks, rows, files.
const LINES: [u32; 3] = [8, 9, 10];
/// The kind of the part about vtables, which a table may have.
const VTABLES: u32 = 11;
/// The kinds of the parts about variables, which a table has both or none of: the offset of each list, the lists.
const VARIABLES: [u32; 2] = [12, 13];
/// The kind of the part about inlined functions, which a table has if it has variables of copies.
const INLINED: u32 = 14;
/// The number of bits of a name's entry that hold its offset in the text. The bits above hold its length.
const NAME_OFFSET_BITS: u32 = 22;

/// The maximum number of variables of an inlined function. It bounds the time to check a table, as copies are checked
/// with the variables of their function.
pub const COPY_VARIABLES_MAX: usize = 255;
/// The offset in a vtable of the size of the object, in bytes. A table has no vtables of another form.
pub const VTABLE_SIZE: u64 = 8;

/// Returns a number that tells a function from others that are inlined at the same instruction, by its demangled name.
#[must_use]
pub fn hash(name: &str) -> u16 {
    let sum = kprobes_symbols::frame::CHECKSUM.checksum(name.as_bytes());
    (sum ^ sum >> 16) as u16
}
