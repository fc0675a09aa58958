//! What an A64 word is to a probe, and how it is executed when its place in memory holds a breakpoint.
//!
//! A probed instruction no longer stands where it was assembled. Something has to do its work, and there are
//! only two ways: run a copy of it somewhere else (the out-of-line slot), or do by hand, on the saved registers,
//! what it would have done. Neither serves for every instruction, and for some neither is sound. Hence three
//! verdicts, and one question that decides between them: *does the instruction do the same work when it is
//! executed at another address, with interrupts masked, between two exceptions?*
//!
//! - Yes: [`Verdict::Slot`]. That is nearly everything, system instructions, barriers and landing pads included.
//!   If the copy faults, the engine reports the fault at the address of the original.
//! - No, but its whole effect is on the general registers, the program counter and the saved state, or is one
//!   load from a known address: [`Verdict::Simulate`]. That is what reads the program counter, what leaves the
//!   slot, and what reads or writes the interrupt masks, which are not the interrupted code's while a slot
//!   runs. The hints without an architectural effect belong here too: one exception is cheaper than two.
//! - No: [`Verdict::Reject`], with the [`Reason`]. An exception return clears the exclusive monitor, so a probe
//!   inside a load-exclusive/store-exclusive pair makes the pair fail forever; the syndrome and return registers
//!   hold what the probe's own breakpoint left there; some writes take away the ground the slot stands on.
//!
//! Where a probe takes no exception, even an instruction of the second kind runs from a copy, if one can be written
//! that does at its new address what the original does in place: that is [`relocate()`].
//!
//! The third verdict is also the default. The masks are lists of what is known to be allocated, and what is not
//! in them is refused: an encoding that a later extension allocates may read the program counter, and would
//! then go wrong without a sign. No disassembler is asked: a wrong verdict corrupts the probed program, and the
//! question above is not one that a disassembler answers.
//!
//! System registers and operations are no exception: what is not known to be harmless in a copy is refused.
//!
//! A verdict is about one word. What lies between a load-exclusive and its store is a property of the function
//! around the word, and [`Sequences`] answers for it; [`Data`] answers whether it is an instruction at all.
//!
//! [`Access`] says which registers a word reads and writes, and [`scratch_at_entry`] which are dead where a function begins, by
//! the ways through it; [`ScratchResults`] tells where such registers hold results at a return.
//!
//! The whole module is a function of its arguments and runs on any host. Section numbers beside the masks are
//! those of the Arm Architecture Reference Manual, DDI 0487 issue I.a; instructions are in C6.2 (general) and
//! C7.2 (floating point and vectors) under their names.

mod classify;
mod data;
pub mod encode;
mod exclusive;
mod liveness;
mod op;
mod registers;
mod relocate;
mod resolve;
mod results;
mod verdict;

pub use classify::{classify, modifies_next};
pub use data::{Data, may_read_data};
pub use encode::{BRK_KPROBE, BRK_STEP, OutOfRange, branch, brk};
pub use exclusive::{Sequences, may_be_load};
pub use liveness::{Kept, Live, SCRATCH, handed, live_at, overwrites_link, scratch_at_entry, stack_at_return};
pub use op::{Indirect, Key, Literal, Modifier, Op};
pub use registers::{Access, Registers, StackPointer};
pub use relocate::{MAX_WORDS, NotRelocatable, Place, boost, origin, relocate};
pub use resolve::Resolved;
pub use results::ScratchResults;
pub use verdict::{Reason, Verdict};

pub use crate::exception::simulate::{Fault, Guard, Machine, holds};

#[cfg(test)]
mod oracle;
