//! A checked program: its code, and the tables that give the code's numbers their meaning in the language.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use kprobes_vm::ir::{Code, Type};

use crate::config::Config;
use crate::conversion::Piece;
use crate::syntax::Probe;
use kprobes_types::TypeId;

/// A program that passed the checker. `Display` writes one line for each op, to show what the program was lowered to.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The settings.
    pub config: Config,
    /// The code and the maps that [`kprobes_vm`] runs.
    pub code: Code,
    /// The probes of each clause, in the order of the text.
    pub probes: Vec<Vec<Probe>>,
    /// The actions that the code requests, indexed by their numbers.
    pub actions: Vec<Action>,
    /// The format strings of times, indexed by their numbers.
    pub formats: Vec<String>,
    /// The parts of each tuple type, indexed by the number of the tuple type.
    pub tuples: Vec<Shape>,
    /// The Rust types of values, indexed by their numbers.
    pub rust_values: Vec<RustValue>,
    /// The blocks of Rust values that are captured as a whole, indexed by their numbers.
    pub captures: Vec<Vec<Block>>,
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

/// The maximum nesting depth of tuples and records. The checker and the reports recurse over the types of values, on a
/// stack of a kernel.
pub const TUPLE_DEPTH_MAX: u8 = 8;

/// The parts of a tuple, a record or an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The types of the parts.
    pub parts: Vec<Type>,
    /// The names of the parts of a record; none for others.
    pub names: Vec<String>,
    /// The size of an element of an array, in bytes; 0 for others. In a program, each element takes a word.
    pub element_bytes: u8,
    /// The nesting depth: 1 if no part has parts of its own. At most [`TUPLE_DEPTH_MAX`].
    pub depth: u8,
}

/// The calls that write formatted text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrintKind {
    /// `printf`.
    Printf,
    /// `print(args)`.
    Value,
    /// `time`.
    Time,
    /// `errorf`.
    Error,
    /// `warnf`.
    Warning,
}

/// A Rust value, and how the words of a language value represent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RustValue {
    /// The whole value, in one word.
    Whole(TypeId),
    /// The variant of an enum with fields, as the distance of its tag from the first tag. The value is `u64::MAX` for
    /// the variant that owns every tag that no other variant has.
    Variant {
        /// The enum.
        of: TypeId,
        /// The tag of the first variant.
        first: u64,
    },
    /// The whole value and what it refers to, in the blocks of this number.
    Captured(u8),
    /// Not a Rust value: the address of an instruction, shown as its line of source.
    Line,
    /// Not a Rust value: an address of a network card, in the order that its bytes have in memory.
    HardwareAddress,
    /// Not a Rust value: an address of the internet, in the order that its bytes have in memory.
    InternetAddress {
        /// The number of bytes, 4 or 16.
        bytes: u8,
    },
}

/// Bytes of a value, or of the memory that a reference in the value leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The index of the word that holds the number of bytes read. The bytes follow this word.
    pub at: u8,
    /// The type of the value, or of its elements.
    pub of: TypeId,
    /// The size of the room for the value, in bytes.
    pub bytes: u32,
    /// The block that holds the reference. Block 0 is the value itself.
    pub parent: u8,
    /// The offset of the reference in that block, in bytes.
    pub offset: u32,
}

/// Work that a task does for the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `printf` and its relatives: the literal text, and a conversion for each value.
    Format {
        /// The pieces of the format, in the order of the text.
        pieces: Vec<Piece>,
        /// The call that wrote the text.
        kind: PrintKind,
    },
    /// `print` of a value.
    Print {
        /// The type of the value.
        of: Type,
    },
    /// `unwatch`: the address whose watchpoints end.
    Unwatch,
    /// `print` of an entry of a map: the key, then the value.
    PrintEntry {
        /// The number of the map.
        map: u8,
    },
    /// `print` of a map.
    PrintMap {
        /// The number of the map.
        map: u8,
        /// The number of entries to print, greatest values first; 0 prints all.
        top: u64,
        /// The divisor for the numbers, at least 1.
        divisor: u64,
    },
    /// `clear` of a map: removes all keys.
    Clear {
        /// The number of the map.
        map: u8,
    },
    /// `zero` of a map: keeps all keys and sets their values to zero.
    Zero {
        /// The number of the map.
        map: u8,
    },
    /// `exit`: the output of the program ends here.
    Exit,
}

/// The exit status of a program that has ended because an assertion did not hold.
pub const ASSERTION_STATUS: u8 = 6;
/// The exit statuses besides 0 that a program can ask for. The command on the host uses lower statuses, and shells use
/// higher ones.
pub const EXIT_STATUSES: core::ops::RangeInclusive<u64> = 10..=125;
