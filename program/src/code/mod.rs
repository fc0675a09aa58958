//! The checked form of a program: what the interpreter runs, and what a compiler can turn into instructions one by one.
//!
//! # Shape
//!
//! Each clause is a [`Routine`]: a flat list of [`Op`]. Control goes from one to the next, or jumps **forward**: every target
//! is behind the jump, at most at the end of the list, which ends the clause. So a routine ends after as many ops as it has,
//! at most. The targets of jumps, and what follows a jump, begin basic blocks; there is nothing else to find them by, and no
//! block is entered from behind.
//!
//! The values of a clause are in a frame of [`FRAME_WORDS`] words of 64 bits, each named by its number, a [`Word`]. A number
//! takes one word. A string takes several in a row: its bytes in ascending order, the first in the lowest bits of the first
//! word, as a little-endian load finds them; it ends before its first zero, and is zeros from there to the end of its words.
//! So equal strings of equal length in words are equal words. The parts of a key, and the fields of an output, are put in a
//! row before they are used. No word is read that was not written before in the same run, on every way that leads there.
//!
//! What a value means (its sign, that it is a function's address) is decided when a program is checked: ops say what they
//! do, and [`Map`] and [`Action`] say how what is in their words is shown. Values narrower than 64 bits are kept extended to
//! 64 bits by their sign.
//!
//! # To instructions
//!
//! Arithmetic is that of A64, so that an op becomes an instruction or two: it wraps around, shifts take their distance modulo
//! 64 (LSLV, LSRV, ASRV), a division by zero gives 0 (UDIV, SDIV), and its remainder is the dividend (MSUB). A branch is CMP
//! and B.cond. Loads of registers are loads from the frame of the trap. What touches maps and output is a call of the same
//! functions that the interpreter calls.

mod text;
mod verify;

use alloc::string::String;
use alloc::vec::Vec;

pub use verify::Flaw;

use crate::error::Noun;
use crate::report::Piece;
use crate::syntax::Probe;

/// How many words the values of a clause have.
pub const FRAME_WORDS: usize = 256;

/// The most ops of one clause.
pub const OPS_MAX: usize = 4096;

/// The most clauses, maps and actions.
pub const MANY_MAX: usize = 256;

/// The most frames of a stack.
pub const STACK_MAX: usize = 64;

/// A program, checked.
#[derive(Clone, Debug)]
pub struct Code {
    /// The clauses, in the order of the text.
    pub routines: Vec<Routine>,
    /// The maps, in the order in which the text names them.
    pub maps: Vec<Map>,
    /// What is done by a task, some time after a clause has asked for it.
    pub actions: Vec<Action>,
    /// The most frames of a stack that are kept; 0 for a program that keeps none.
    pub stack_frames: usize,
}

/// A clause, checked.
#[derive(Clone, Debug)]
pub struct Routine {
    /// Where it runs.
    pub probes: Vec<Probe>,
    /// What it does.
    pub ops: Vec<Op>,
}

/// A word of the frame, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u8);

/// A value of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// What is in that word.
    Word(Word),
    /// This.
    Constant(u64),
}

/// What an op does. `to` is where its value goes; a range of words is named by the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A number.
    Set {
        /// Where to.
        to: Word,
        /// From where.
        from: Operand,
    },
    /// Several words, from the first on, so that they may be copied to where they lie in part, if that is further down.
    Copy {
        /// Where to.
        to: Word,
        /// From where.
        from: Word,
        /// How many.
        words: u8,
    },
    /// Something of the hit, of one word.
    Load {
        /// Where to.
        to: Word,
        /// What.
        what: Builtin,
    },
    /// The name of the task: [`COMM_WORDS`] words.
    Comm {
        /// Where to.
        to: Word,
    },
    /// The number of the stack, of this many frames at most, in the table of stacks.
    Stack {
        /// Where to.
        to: Word,
        /// From 1 to [`STACK_MAX`].
        frames: u8,
    },
    /// A computation.
    Compute {
        /// Where to.
        to: Word,
        /// Which.
        how: Arithmetic,
        /// The value before the operator.
        left: Operand,
        /// The value behind it.
        right: Operand,
    },
    /// A value cut to its lower bits, and extended again.
    Extend {
        /// Where to.
        to: Word,
        /// The value.
        from: Operand,
        /// 8, 16 or 32.
        bits: u8,
        /// By its sign, instead of by zeros.
        signed: bool,
    },
    /// 1 if a comparison holds, 0 if not.
    Compare {
        /// Where to.
        to: Word,
        /// Which.
        how: Comparison,
        /// The value before the operator.
        left: Operand,
        /// The value behind it.
        right: Operand,
    },
    /// 0 if two strings are the same in their first bytes, 1 if not.
    Differ {
        /// Where to.
        to: Word,
        /// The one.
        left: Word,
        /// The other.
        right: Word,
        /// How many bytes.
        bytes: u8,
    },
    /// Goes on at `target` if a comparison holds.
    Branch {
        /// Which.
        how: Comparison,
        /// The value before the operator.
        left: Operand,
        /// The value behind it.
        right: Operand,
        /// The number of an op that is further on.
        target: u16,
    },
    /// Goes on at `target`.
    Jump {
        /// The number of an op that is further on.
        target: u16,
    },
    /// An integer in memory, of any address. If it cannot be read, that is counted, and the value is 0.
    Read {
        /// Where to.
        to: Word,
        /// Its virtual address.
        address: Operand,
        /// 1, 2, 4 or 8.
        bytes: u8,
        /// Extended by its sign, instead of by zeros.
        signed: bool,
    },
    /// A string in memory, up to a zero, up to its length, up to one byte less than the words hold. If it cannot be read,
    /// that is counted, and it ends there.
    ReadText {
        /// Where to.
        to: Word,
        /// How many words.
        words: u8,
        /// Its virtual address.
        address: Operand,
        /// Its length in bytes.
        length: Operand,
    },
    /// The value of a map, zeros if it has none for that key.
    Get {
        /// Where to.
        to: Word,
        /// The number of the map.
        map: u8,
        /// The key.
        key: Word,
    },
    /// The number that all CPUs together have collected, 0 if none has.
    Total {
        /// Where to.
        to: Word,
        /// The number of the map.
        map: u8,
        /// The key.
        key: Word,
    },
    /// Gives a map a value for a key.
    Put {
        /// The number of the map.
        map: u8,
        /// The key.
        key: Word,
        /// The value.
        from: Word,
    },
    /// Computes with the value of a map, which no other CPU changes meanwhile, and keeps the result in it.
    Modify {
        /// Where the value goes that the map had, or has.
        to: Word,
        /// The number of the map.
        map: u8,
        /// The key.
        key: Word,
        /// What is done with the old value.
        how: Arithmetic,
        /// What it is done with.
        by: Operand,
        /// `to` is the value that it has then.
        after: bool,
    },
    /// Collects a value.
    Collect {
        /// The number of the map.
        map: u8,
        /// The key.
        key: Word,
        /// The value.
        value: Operand,
    },
    /// Takes a key out of a map.
    Delete {
        /// The number of the map.
        map: u8,
        /// The key.
        key: Word,
    },
    /// Asks for an action.
    Emit {
        /// The number of the action.
        action: u8,
        /// What it is done with.
        from: Word,
        /// How many words.
        words: u8,
    },
    /// No clause but `END` runs from now on.
    Exit,
}

/// How many words the name of a task has.
pub const COMM_WORDS: u8 = 2;

/// What there is to know of a hit, of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// A register.
    Register(Register),
    /// The virtual address of the function that the probe is in.
    Function,
    /// The virtual address that the function returns to.
    Caller,
    /// The number of the probe.
    Site,
    /// The number of the CPU.
    Cpu,
    /// The number of the task.
    Task,
    /// Nanoseconds since the start of the machine.
    Nanoseconds,
    /// Nanoseconds since the program was loaded.
    Elapsed,
}

/// A register of the interrupted code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// `x0` to `x30`.
    X(u8),
    /// `sp`.
    Sp,
    /// `pc`.
    Pc,
    /// `pstate`, as in SPSR_EL1.
    Pstate,
}

/// A computation with two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/` of values without a sign.
    Divide,
    /// `/` of values with a sign.
    DivideSigned,
    /// `%` of values without a sign.
    Remainder,
    /// `%` of values with a sign.
    RemainderSigned,
    /// `&`.
    And,
    /// `|`.
    Or,
    /// `^`.
    Xor,
    /// `<<`.
    Left,
    /// `>>` of values without a sign.
    Right,
    /// `>>` of values with a sign.
    RightSigned,
}

impl Arithmetic {
    /// The result.
    #[inline]
    #[must_use]
    pub fn apply(self, left: u64, right: u64) -> u64 {
        let (signed, by) = (left.cast_signed(), right.cast_signed());
        match self {
            Self::Add => left.wrapping_add(right),
            Self::Subtract => left.wrapping_sub(right),
            Self::Multiply => left.wrapping_mul(right),
            Self::Divide => left.checked_div(right).unwrap_or(0),
            Self::DivideSigned if right == 0 => 0,
            Self::DivideSigned => signed.wrapping_div(by).cast_unsigned(),
            Self::Remainder => left.checked_rem(right).unwrap_or(left),
            Self::RemainderSigned if right == 0 => left,
            Self::RemainderSigned => signed.wrapping_rem(by).cast_unsigned(),
            Self::And => left & right,
            Self::Or => left | right,
            Self::Xor => left ^ right,
            Self::Left => left.wrapping_shl(right as u32),
            Self::Right => left.wrapping_shr(right as u32),
            Self::RightSigned => signed.wrapping_shr(right as u32).cast_unsigned(),
        }
    }
}

/// A comparison of two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `==`.
    Equal,
    /// `!=`.
    Unequal,
    /// `<` of values without a sign.
    Below,
    /// `<=` of values without a sign.
    BelowEqual,
    /// `>` of values without a sign.
    Above,
    /// `>=` of values without a sign.
    AboveEqual,
    /// `<` of values with a sign.
    Less,
    /// `<=` of values with a sign.
    LessEqual,
    /// `>` of values with a sign.
    Greater,
    /// `>=` of values with a sign.
    GreaterEqual,
}

impl Comparison {
    /// Whether it holds.
    #[inline]
    #[must_use]
    pub fn holds(self, left: u64, right: u64) -> bool {
        let signed = (left.cast_signed(), right.cast_signed());
        match self {
            Self::Equal => left == right,
            Self::Unequal => left != right,
            Self::Below => left < right,
            Self::BelowEqual => left <= right,
            Self::Above => left > right,
            Self::AboveEqual => left >= right,
            Self::Less => signed.0 < signed.1,
            Self::LessEqual => signed.0 <= signed.1,
            Self::Greater => signed.0 > signed.1,
            Self::GreaterEqual => signed.0 >= signed.1,
        }
    }

    /// The comparison that holds where this one does not.
    #[must_use]
    pub fn inverse(self) -> Self {
        match self {
            Self::Equal => Self::Unequal,
            Self::Unequal => Self::Equal,
            Self::Below => Self::AboveEqual,
            Self::BelowEqual => Self::Above,
            Self::Above => Self::BelowEqual,
            Self::AboveEqual => Self::Below,
            Self::Less => Self::GreaterEqual,
            Self::LessEqual => Self::Greater,
            Self::Greater => Self::LessEqual,
            Self::GreaterEqual => Self::Less,
        }
    }
}

/// `value` cut to its lower `bits`, below 64, and extended again.
#[inline]
#[must_use]
pub fn extend(value: u64, bits: u8, signed: bool) -> u64 {
    let away = 64_u32.saturating_sub(bits.into()).min(63);
    let high = value << away;
    if signed { (high.cast_signed() >> away).cast_unsigned() } else { high >> away }
}

/// What a value is, and how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number, of 64 bits.
    Integer {
        /// It has a sign.
        signed: bool,
    },
    /// The address of a number.
    Pointer {
        /// The number has a sign.
        signed: bool,
        /// Its length in bytes: 1, 2, 4 or 8.
        bytes: u8,
    },
    /// A string.
    Text {
        /// How many words it has.
        words: u8,
    },
    /// A virtual address, shown as the function that it is in.
    Symbol,
    /// The number of a stack.
    Stack,
    /// The number of a probe.
    Site,
}

impl Type {
    /// How many words it has.
    #[must_use]
    pub fn words(self) -> u8 {
        if let Self::Text { words } = self { words } else { 1 }
    }

    /// It in a sentence.
    #[must_use]
    pub fn noun(self) -> Noun {
        match self {
            Self::Integer { .. } => Noun::Integer,
            Self::Pointer { .. } => Noun::Pointer,
            Self::Text { .. } => Noun::Text,
            Self::Symbol => Noun::Symbol,
            Self::Stack => Noun::Stack,
            Self::Site => Noun::Site,
        }
    }
}

/// A map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Without `@`; may be empty.
    pub name: String,
    /// The parts of its key.
    pub keys: Vec<Type>,
    /// What it keeps for a key.
    pub value: Kept,
}

impl Map {
    /// How many words a key has.
    #[must_use]
    pub fn key_words(&self) -> usize {
        self.keys.iter().map(|part| usize::from(part.words())).sum()
    }
}

/// The most rows of a linear histogram, without those below and above its bounds.
pub const ROWS_MAX: u64 = 1000;

/// How many words a histogram by powers of two has: below 0, 0, 1, 2 to 3, and so on.
pub const HISTOGRAM_WORDS: usize = 66;

/// What a map keeps for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// One value, for all CPUs.
    Value(Type),
    /// What is collected of many values, by each CPU for itself.
    Aggregate(Aggregate),
}

/// What is collected of many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// How many.
    Count,
    /// Their sum.
    Sum {
        /// They have signs.
        signed: bool,
    },
    /// Their average.
    Average {
        /// They have signs.
        signed: bool,
    },
    /// The least.
    Least {
        /// They have signs.
        signed: bool,
    },
    /// The greatest.
    Greatest {
        /// They have signs.
        signed: bool,
    },
    /// How many, their average and their sum.
    Statistics {
        /// They have signs.
        signed: bool,
    },
    /// How many lie between powers of two.
    Histogram,
    /// How many lie between equal steps.
    Linear {
        /// The least that does.
        least: i64,
        /// Where the last step ends, at most.
        most: i64,
        /// How long a step is, from 1.
        step: i64,
    },
}

impl Aggregate {
    /// What the single number is that it amounts to, if it does.
    #[must_use]
    pub fn number(self) -> Option<Type> {
        match self {
            Self::Count => Some(Type::Integer { signed: false }),
            Self::Sum { signed } | Self::Average { signed } | Self::Least { signed } | Self::Greatest { signed } => {
                Some(Type::Integer { signed })
            }
            Self::Statistics { .. } | Self::Histogram | Self::Linear { .. } => None,
        }
    }
}

impl Kept {
    /// How many words it has, on each CPU if it is collected.
    #[must_use]
    pub fn words(self) -> usize {
        match self {
            Self::Value(of) => of.words().into(),
            Self::Aggregate(Aggregate::Count | Aggregate::Sum { .. }) => 1,
            Self::Aggregate(Aggregate::Histogram) => HISTOGRAM_WORDS,
            Self::Aggregate(Aggregate::Linear { least, most, step }) => rows(least, most, step) + 2,
            Self::Aggregate(_) => 2,
        }
    }
}

/// How many steps there are between the bounds of a linear histogram.
pub(crate) fn rows(least: i64, most: i64, step: i64) -> usize {
    most.abs_diff(least).checked_div(step.unsigned_abs()).unwrap_or(0).min(ROWS_MAX) as usize
}

/// What is done by a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `printf`: the text between the values, and how each is shown.
    Format {
        /// In the order of the text.
        pieces: Vec<Piece>,
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
