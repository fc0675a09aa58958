//! A program that has been checked: its code, and what of it is the language's.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use kprobes_vm::code::{Code, Type};

use crate::report::Piece;
use crate::syntax::Probe;
use kprobes_types::TypeId;

/// A program, checked. Its text is a line for each op, to show what it was lowered to.
#[derive(Clone, Debug)]
pub struct Checked {
    /// What runs.
    pub code: Code,
    /// Where each clause runs, in the order of the text.
    pub probes: Vec<Vec<Probe>>,
    /// The actions that the code asks for by their numbers.
    pub actions: Vec<Action>,
    /// The formats of times, by their numbers.
    pub formats: Vec<String>,
    /// The types of the parts of tuples, by their numbers.
    pub tuples: Vec<Vec<Type>>,
    /// What values of Rust are, by their numbers.
    pub known: Vec<Known>,
    /// The blocks of values as a whole, by their numbers.
    pub images: Vec<Vec<Block>>,
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, map) in self.code.maps.iter().enumerate() {
            writeln!(f, "map {number}: @{} {:?} {:?}", map.name, map.keys, map.value)?;
        }
        for (number, action) in self.actions.iter().enumerate() {
            writeln!(f, "action {number}: {action:?}")?;
        }
        for (routine, probes) in self.code.routines.iter().zip(&self.probes) {
            for (number, probe) in probes.iter().enumerate() {
                write!(f, "{}{probe}", if number > 0 { ", " } else { "" })?;
            }
            writeln!(f, ":")?;
            for (number, op) in routine.ops.iter().enumerate() {
                writeln!(f, "{number:>4}  {op}")?;
            }
        }
        Ok(())
    }
}

/// The calls that write a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// `printf`.
    Printf,
    /// `time`.
    Time,
    /// `errorf`.
    Error,
    /// `warnf`.
    Warning,
}

/// A value of Rust, and what of it the words of a value are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// All of it, in one word.
    Whole(TypeId),
    /// Which variant it is of an enum with fields: the distance of its tag from that of the first, or `u64::MAX` for the variant
    /// that has all tags that no other has.
    Variant {
        /// The enum.
        of: TypeId,
        /// The tag of the first.
        first: u64,
    },
    /// All of it, and what it refers to, in the blocks of this number.
    Image(u8),
    /// No value of Rust, but the address of an instruction, which stands for its line of source.
    Line,
}

/// Bytes of a value, or of what a reference in one leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Which word of the value has how many bytes could be read; the bytes follow.
    pub at: u8,
    /// Of which type it is, or its elements are.
    pub of: TypeId,
    /// How many bytes there is room for.
    pub bytes: u32,
    /// In which block the reference is; the first is the value itself.
    pub parent: u8,
    /// Where it is in that, in bytes.
    pub offset: u32,
}

/// What is done by a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `printf`: the text between the values, and how each is shown.
    Format {
        /// In the order of the text.
        pieces: Vec<Piece>,
        /// Which call it is.
        kind: Said,
    },
    /// `print` of a value.
    Print {
        /// What it is.
        of: Type,
    },
    /// `print` of an entry of a map: its key, then its value.
    PrintEntry {
        /// The number of the map.
        map: u8,
    },
    /// `print` of a map.
    PrintMap {
        /// The number of the map.
        map: u8,
        /// How many entries, the greatest; all if 0.
        top: u64,
        /// What the numbers are divided by, from 1.
        divisor: u64,
    },
    /// `clear` of a map: no keys.
    Clear {
        /// The number of the map.
        map: u8,
    },
    /// `zero` of a map: all its keys, with zeros.
    Zero {
        /// The number of the map.
        map: u8,
    },
    /// `exit`.
    Exit,
}
