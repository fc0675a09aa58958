//! What code is made of: single steps, each of which is an instruction or two, or a call.

use super::{Arithmetic, Comparison};

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
        /// From 1 to [`STACK_MAX`](super::STACK_MAX).
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
    /// Where one string is first in another, in bytes; -1 if it is not. The empty string is first in any.
    Find {
        /// Where to.
        to: Word,
        /// The string that is looked through.
        text: Word,
        /// How many words it has.
        text_words: u8,
        /// What is looked for.
        part: Word,
        /// How many words that has.
        part_words: u8,
    },
    /// The bytes of a string.
    Length {
        /// Where to.
        to: Word,
        /// The string.
        text: Word,
        /// How many words it has.
        words: u8,
    },
    /// How many frames a stack has, by its number.
    Frames {
        /// Where to.
        to: Word,
        /// The number.
        stack: Operand,
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
    /// Goes on at `target`, as long as this run of the clause has [`TURNS_MAX`](super::TURNS_MAX) ops left for that; the ops of
    /// a turn are those from there to here. Otherwise the run ends, and that is counted.
    Again {
        /// The number of an op that is before.
        target: u16,
    },
    /// The next key of a map, in the order of its places, and where to look for the one behind it. What is looked at counts as
    /// ops of a turn.
    Next {
        /// Where to look from, 0 at first, and behind it: the key, if there is one, and zeros if not. Then this is `u64::MAX`.
        place: Word,
        /// The number of the map.
        map: u8,
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
    /// Bytes in memory, from any address, as many as are asked for, up to 8 for each word but the first. If some cannot be read,
    /// that is counted, and they are those before it.
    ReadBytes {
        /// Where to: how many they are, and then the bytes.
        to: Word,
        /// How many words, from 2.
        words: u8,
        /// Their virtual address.
        address: Operand,
        /// How many.
        length: Operand,
    },
    /// 1 if a map has a value for a key, on any CPU; 0 if not.
    Has {
        /// Where to.
        to: Word,
        /// The number of the map.
        map: u8,
        /// The key.
        key: Word,
    },
    /// How many keys a map has that keeps one value for each.
    Keys {
        /// Where to.
        to: Word,
        /// The number of the map.
        map: u8,
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
    /// The virtual address that the function was told, at its entry, to write what it returns to. Known where a call has returned.
    Result,
    /// The virtual address of the function that the probe is in.
    Function,
    /// The virtual address of the call that the function returns behind.
    Caller,
    /// The number of the probe.
    Site,
    /// The number of the CPU.
    Cpu,
    /// How many CPUs there are.
    Cpus,
    /// A random number of 32 bits.
    Random,
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
