//! The checked form of a program, which front ends make. The interpreter runs it, and the compiler can turn it into
//! instructions op by op.
//!
//! # Shape
//!
//! Each clause is a [`Routine`]: a flat list of [`Op`]s. Control goes from one op to the next, or jumps **forward**:
//! the target is after the jump, at most at the end of the list, which ends the clause. Only [`Op::Again`] jumps back,
//! as the last op of a loop, and only while the run has ops left for that. So a routine ends after at most its number
//! of ops plus [`LOOP_OPS_MAX`]. Basic blocks begin at the targets of jumps and after jumps, and nowhere else. Only the
//! first block of a loop is entered by a jump back.
//!
//! The values of a clause are in a frame of [`FRAME_WORDS`] words of 64 bits, each identified by its number, a
//! [`Word`]. A number takes one word. A string takes several consecutive words, with its bytes in ascending order, the
//! first in the lowest bits of the first word, as a little-endian load finds them. It ends before its first zero, and
//! all further bytes of its words are zeros. So equal strings of the same number of words are equal words. The parts of
//! a key, and the fields of an output, are placed in consecutive words before they are used. No word is read unless it
//! was written before in the same run, on every path that leads there.
//!
//! The meaning of a value (its sign, that it is a function's address) is decided when a program is checked: ops say
//! what they do, and [`Type`] says how the contents of words are shown. Values narrower than 64 bits are kept extended
//! to 64 bits according to their sign.
//!
//! # To instructions
//!
//! Arithmetic is that of A64, so that an op becomes one or two instructions. It wraps around. Shifts take their
//! distance modulo 64 (LSLV, LSRV, ASRV). A division by zero gives 0 (UDIV, SDIV), and its remainder is the dividend
//! (MSUB). A branch is CMP and B.cond. Loads of registers are loads from the trap frame. Ops on maps and output call
//! the same functions as the interpreter.

mod arithmetic;
mod data;
mod op;
mod text;
mod verify;

use alloc::vec::Vec;

pub use arithmetic::{Arithmetic, Comparison};
pub use data::{
    Aggregate, Combine, HISTOGRAM_BITS_MAX, HISTOGRAM_WORDS, INTERVAL_WORDS, INTERVALS_MAX, Map, MapValue, ROWS_MAX,
    Series, Type,
};
pub(crate) use data::{histogram_words, rows};
pub use op::{Builtin, BuiltinNeed, COMM_WORDS, Op, Operand, Register, Word};
pub use verify::Flaw;
pub(crate) use verify::Touched;

/// The number of words in the frame of a clause.
pub const FRAME_WORDS: usize = 256;

/// The largest number of ops in a clause.
pub const OPS_MAX: usize = 4096;

/// The largest number of ops that one run of a clause executes in loops, not counting the first turn of each loop.
pub const LOOP_OPS_MAX: u64 = 1 << 16;

/// The largest number of clauses, of maps, and of actions: a byte numbers each kind of item.
pub const ITEMS_MAX: usize = 256;

/// The largest number of frames in a stack.
pub const STACK_MAX: usize = 64;

/// A program in the checked form.
#[derive(Clone, Debug)]
pub struct Code {
    /// The clauses, in the order of the text.
    pub routines: Vec<Routine>,
    /// The maps, in the order in which the text names them.
    pub maps: Vec<Map>,
    /// The number of actions, which a task carries out after a clause has asked for them. Only the front end knows what
    /// they do.
    pub actions: usize,
    /// The largest number of frames in a recorded stack; 0 for a program that records none.
    pub stack_frames: usize,
}

impl Code {
    /// Returns the ops of all clauses.
    pub(crate) fn ops(&self) -> impl Iterator<Item = &Op> {
        self.routines.iter().flat_map(|routine| &routine.ops)
    }
}

/// A clause in the checked form.
#[derive(Clone, Debug)]
pub struct Routine {
    /// The ops of the clause.
    pub ops: Vec<Op>,
    /// Whether the interpreter also runs the clause after the program has asked to end. At a hit, it must not be asked
    /// to then.
    pub runs_after_exit: bool,
}
