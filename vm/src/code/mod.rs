//! The checked form of a program: what the interpreter runs, and what a compiler can turn into instructions one by one. Front
//! ends make it.
//!
//! # Shape
//!
//! Each clause is a [`Routine`]: a flat list of [`Op`]. Control goes from one to the next, or jumps **forward**: the target is
//! behind the jump, at most at the end of the list, which ends the clause. [`Op::Again`] alone jumps back, as the last op of a
//! loop, and only as long as the run has ops left for that. So a routine ends after as many ops as it has and [`TURNS_MAX`],
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
//! do, and [`Type`] says how what is in their words is shown. Values narrower than 64 bits are kept extended to
//! 64 bits by their sign.
//!
//! # To instructions
//!
//! Arithmetic is that of A64, so that an op becomes an instruction or two: it wraps around, shifts take their distance modulo
//! 64 (LSLV, LSRV, ASRV), a division by zero gives 0 (UDIV, SDIV), and its remainder is the dividend (MSUB). A branch is CMP
//! and B.cond. Loads of registers are loads from the frame of the trap. What touches maps and output is a call of the same
//! functions that the interpreter calls.

mod arithmetic;
mod data;
mod op;
mod text;
mod verify;

use alloc::vec::Vec;

pub use arithmetic::{Arithmetic, Comparison};
pub(crate) use data::rows;
pub use data::{Aggregate, HISTOGRAM_WORDS, Kept, Map, ROWS_MAX, Type};
pub use op::{Builtin, COMM_WORDS, Op, Operand, Register, Word};
pub use verify::Flaw;
pub(crate) use verify::Touched;

/// How many words the values of a clause have.
pub const FRAME_WORDS: usize = 256;

/// The most ops of one clause.
pub const OPS_MAX: usize = 4096;

/// The most ops that one run of a clause does in turns of loops, but for the first turn of each.
pub const TURNS_MAX: u64 = 1 << 16;

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
    /// How many actions there are: what a task does some time after a clause has asked for it. What they are is the front end's.
    pub actions: usize,
    /// The most frames of a stack that are kept; 0 for a program that keeps none.
    pub stack_frames: usize,
}

/// A clause, checked.
#[derive(Clone, Debug)]
pub struct Routine {
    /// What it does.
    pub ops: Vec<Op>,
    /// It runs also when the program has asked to end.
    pub runs_after_exit: bool,
}
