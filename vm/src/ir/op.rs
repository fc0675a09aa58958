//! The ops of code: single steps, each of which becomes one or two instructions, or a call.

use super::{Arithmetic, Comparison};

/// A word of the frame, identified by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word(pub u8);

/// An operand of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The contents of this word.
    Word(Word),
    /// This constant.
    Constant(u64),
}

impl Operand {
    /// Returns the value of a constant; `None` for a word.
    pub(crate) fn constant(self) -> Option<u64> {
        if let Self::Constant(value) = self { Some(value) } else { None }
    }
}

/// A step of a clause. `to` is the word that receives the result; a range of words is identified by its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets a word.
    Set {
        /// The destination.
        to: Word,
        /// The source.
        from: Operand,
    },
    /// Copies consecutive words, the first one first. The destination may overlap the source if it is at lower numbers.
    Copy {
        /// The first destination word.
        to: Word,
        /// The first source word.
        from: Word,
        /// The number of words.
        words: u8,
    },
    /// Loads one word that describes the hit.
    Load {
        /// The destination.
        to: Word,
        /// The value to load.
        what: Builtin,
    },
    /// Loads the name of the task: [`COMM_WORDS`] words.
    Comm {
        /// The first destination word.
        to: Word,
    },
    /// Loads the number of the current stack in the table of stacks, from 1; 0 if it has no place there.
    Stack {
        /// The destination.
        to: Word,
        /// The largest number of frames, from 1 to [`STACK_MAX`](super::STACK_MAX).
        frames: u8,
    },
    /// Computes with two values.
    Compute {
        /// The destination.
        to: Word,
        /// The operator.
        how: Arithmetic,
        /// The left operand.
        left: Operand,
        /// The right operand.
        right: Operand,
    },
    /// Truncates a value to its lower bits, and extends it to 64 bits again.
    Extend {
        /// The destination.
        to: Word,
        /// The value.
        from: Operand,
        /// The number of lower bits: 8, 16 or 32.
        bits: u8,
        /// Whether to extend by the sign; otherwise by zeros.
        signed: bool,
    },
    /// Compares two values: the result is 1 if the comparison holds, 0 if not.
    Compare {
        /// The destination.
        to: Word,
        /// The comparison.
        how: Comparison,
        /// The left operand.
        left: Operand,
        /// The right operand.
        right: Operand,
    },
    /// Compares the first bytes of two strings: the result is 0 if they are equal, 1 if not.
    Differ {
        /// The destination.
        to: Word,
        /// The first word of one string.
        left: Word,
        /// The first word of the other string.
        right: Word,
        /// The number of bytes to compare.
        bytes: u8,
    },
    /// Searches a string for another. The result is the offset of the first match in bytes, or -1. The empty string
    /// matches at 0.
    Find {
        /// The destination.
        to: Word,
        /// The first word of the string to search.
        text: Word,
        /// The number of its words.
        text_words: u8,
        /// The first word of the string to search for.
        part: Word,
        /// The number of its words.
        part_words: u8,
    },
    /// Counts the bytes of a string.
    Length {
        /// The destination.
        to: Word,
        /// The first word of the string.
        text: Word,
        /// The number of its words.
        words: u8,
    },
    /// Counts the frames of a stack, given by its number.
    Frames {
        /// The destination.
        to: Word,
        /// The number of the stack.
        stack: Operand,
    },
    /// Jumps to `target` if a comparison holds.
    Branch {
        /// The comparison.
        how: Comparison,
        /// The left operand.
        left: Operand,
        /// The right operand.
        right: Operand,
        /// The number of a later op.
        target: u16,
    },
    /// Jumps to `target`.
    Jump {
        /// The number of a later op.
        target: u16,
    },
    /// Jumps back to `target`, if this run of the clause has ops left for the next turn. A run has
    /// [`LOOP_OPS_MAX`](super::LOOP_OPS_MAX) ops for turns of loops; a turn takes the ops from `target` to here.
    /// Otherwise the run ends, and is counted as cut.
    Again {
        /// The number of an earlier op.
        target: u16,
    },
    /// Loads the next key of a map, in the order of slots, and the place to continue from. Keys and empty buckets that
    /// are passed over take ops of the run.
    Next {
        /// The place to look from, 0 at first; updated to the place to continue from, or to `u64::MAX` after the last
        /// key. The words after it receive the key, or zeros if there is none.
        place: Word,
        /// The number of the map.
        map: u8,
    },
    /// Reads an integer from memory, at any address. A failed read is counted, and its value is 0.
    Read {
        /// The destination.
        to: Word,
        /// The virtual address.
        address: Operand,
        /// The size in bytes: 1, 2, 4 or 8.
        bytes: u8,
        /// Whether to extend by the sign; otherwise by zeros.
        signed: bool,
    },
    /// Reads a string from memory: up to a zero, to its length, or to one byte less than the words hold, whichever
    /// comes first. A failed read is counted, and ends the string.
    ReadText {
        /// The first destination word.
        to: Word,
        /// The number of destination words.
        words: u8,
        /// The virtual address.
        address: Operand,
        /// The length in bytes.
        length: Operand,
    },
    /// Reads bytes from memory, at any address: as many as `length` says, but at most 8 for each word except the first.
    /// A failed read is counted, and ends the bytes.
    ReadBytes {
        /// The first destination word, which receives the number of bytes. The bytes follow.
        to: Word,
        /// The number of destination words, at least 2.
        words: u8,
        /// The virtual address.
        address: Operand,
        /// The number of bytes to read.
        length: Operand,
    },
    /// Tests whether a map has a key, on any CPU: the result is 1 or 0.
    Has {
        /// The destination.
        to: Word,
        /// The number of the map.
        map: u8,
        /// The first word of the key.
        key: Word,
    },
    /// Counts the keys of a map that keeps one value for each key.
    Keys {
        /// The destination.
        to: Word,
        /// The number of the map.
        map: u8,
    },
    /// Loads the value of a key, or zeros if the map does not have the key.
    Get {
        /// The first destination word.
        to: Word,
        /// The number of the map.
        map: u8,
        /// The first word of the key.
        key: Word,
    },
    /// Loads the result of an aggregation over all CPUs, or 0 if no CPU has the key.
    Total {
        /// The destination.
        to: Word,
        /// The number of the map.
        map: u8,
        /// The first word of the key.
        key: Word,
    },
    /// Sets the value of a key.
    Put {
        /// The number of the map.
        map: u8,
        /// The first word of the key.
        key: Word,
        /// The first word of the value.
        from: Word,
    },
    /// Computes with the value of a key and stores the result there, as one step: no other CPU changes the value
    /// meanwhile.
    Modify {
        /// The destination of the old or the new value.
        to: Word,
        /// The number of the map.
        map: u8,
        /// The first word of the key.
        key: Word,
        /// The operator, whose left operand is the old value.
        how: Arithmetic,
        /// The right operand.
        by: Operand,
        /// Whether `to` receives the new value; otherwise the old one.
        after: bool,
    },
    /// Adds a value to an aggregation.
    Collect {
        /// The number of the map.
        map: u8,
        /// The first word of the key.
        key: Word,
        /// The value.
        value: Operand,
    },
    /// Removes a key from a map, on all CPUs.
    Delete {
        /// The number of the map.
        map: u8,
        /// The first word of the key.
        key: Word,
    },
    /// Asks for an action, by writing a record to the output.
    Emit {
        /// The number of the action.
        action: u8,
        /// The first word of the action's arguments.
        from: Word,
        /// The number of words.
        words: u8,
    },
    /// Ends the program: from now on, only clauses that run after the end, such as `END`, still run.
    Exit {
        /// The exit status: a constant below 256, or a word whose values above 255 count as 255.
        status: Operand,
    },
}

/// The number of words of a task's name.
pub const COMM_WORDS: u8 = 2;

/// A property of a hit, of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// A register.
    Register(Register),
    /// The virtual address to which the caller told the function to write its result. Known only where a call has
    /// returned.
    Result,
    /// The virtual address of the function that contains the probe.
    Function,
    /// The virtual address of the instruction that called the function: the one before the return address.
    Caller,
    /// The number of the probe, from 1.
    Probe,
    /// The number of the CPU.
    Cpu,
    /// The number of CPUs.
    Cpus,
    /// A random number of 32 bits.
    Random,
    /// The number of the task.
    Task,
    /// The nanoseconds since the start of the machine.
    Nanoseconds,
    /// The nanoseconds since the program was loaded.
    Elapsed,
}

/// What a kernel must find out at a hit before it can give the value of a builtin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltinNeed {
    /// Nothing.
    Nothing,
    /// This register.
    Register(Register),
    /// The call of the function.
    Caller,
    /// The function that contains the probe.
    Function,
}

impl Builtin {
    /// Returns what a kernel must find out for the value. A kernel need not find out more than the builtins of a clause
    /// need, so a need that is missing here gives the value 0.
    #[must_use]
    pub const fn need(self) -> BuiltinNeed {
        match self {
            Self::Register(register) => BuiltinNeed::Register(register),
            Self::Caller => BuiltinNeed::Caller,
            Self::Function => BuiltinNeed::Function,
            Self::Result | Self::Probe | Self::Cpu | Self::Cpus | Self::Random | Self::Task => BuiltinNeed::Nothing,
            Self::Nanoseconds | Self::Elapsed => BuiltinNeed::Nothing,
        }
    }

    /// Returns whether the value may change while a clause runs.
    #[must_use]
    pub const fn changes(self) -> bool {
        match self {
            Self::Nanoseconds | Self::Elapsed | Self::Random => true,
            Self::Register(_) | Self::Result | Self::Function | Self::Caller => false,
            Self::Probe | Self::Cpu | Self::Cpus | Self::Task => false,
        }
    }
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

impl Op {
    /// Returns the op that this one may jump forward to, and whether control may fall through to the next op.
    pub(crate) fn successors(self) -> (Option<usize>, bool) {
        match self {
            Self::Branch { target, .. } => (Some(target.into()), true),
            Self::Jump { target } => (Some(target.into()), false),
            Self::Again { .. } => (None, false),
            _ => (None, true),
        }
    }

    /// Returns whether the op ends the program.
    pub(crate) fn is_exit(&self) -> bool {
        matches!(self, Self::Exit { .. })
    }
}
