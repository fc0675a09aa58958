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
//! - No, but its whole effect is on the general registers, the program counter and the saved state, or is one load from
//!   a known address: [`Verdict::Simulate`]. These are the instructions that read the program counter, that leave the
//!   slot, and that read or write the interrupt masks, which are not those of the interrupted code while a slot runs.
//!   The hints without an architectural effect belong here too: one exception is cheaper than two.
//! - No: [`Verdict::Reject`], with the [`Reason`]. An exception return clears the exclusive monitor, so a probe inside
//!   a load-exclusive/store-exclusive pair makes the pair fail forever; the syndrome and return registers hold what the
//!   probe's own breakpoint left there; some writes take away the ground the slot stands on.
//!
//! If a probe takes no exception, even an instruction of the second kind runs from a copy, if one can be written that
//! does at its new address what the original does in place ([`NotRelocatable`] says why not).
//!
//! The third verdict is also the default. The masks list the encodings that are known to be allocated, and every other
//! word is refused: an encoding that a later extension allocates may read the program counter, and would then go wrong
//! without a sign. No disassembler is consulted: a wrong verdict corrupts the probed program, and the question above is
//! not one that a disassembler answers.
//!
//! The same holds for system registers and operations: one that is not known to be harmless in a copy is refused.
//!
//! A verdict is about one word. Whether the word lies between a load-exclusive and its store is a property of the
//! function around it, which [`Sequences`] determines, and of the functions that call that one; [`Data`] determines
//! whether it is an instruction at all.
//!
//! The fastest probes need registers that are dead where a function begins, or that hold no results where it returns
//! ([`Live`] says which one is not). Both take an analysis of the whole text: a survey of it can be made on the host
//! ([`Platform::survey`](crate::platform::Platform::survey)).
//!
//! The whole module is a function of its arguments and runs on any host. Section numbers beside the masks are those of
//! the Arm Architecture Reference Manual, DDI 0487 issue I.a; instructions are in C6.2 (general) and C7.2 (floating
//! point and vectors) under their names.

mod classify;
mod continuation;
mod control;
mod data;
mod decode;
// For the crates that compile programs.
#[doc(hidden)]
pub mod encode;
mod exclusive;
mod linkage;
mod liveness;
mod memory;
pub(crate) mod op;
mod registers;
mod relocate;
mod resolve;
mod results;
mod survey;
mod synchronization;
mod verdict;

pub use classify::classify;
pub use data::Data;
pub use encode::OutOfRange;
pub use exclusive::Sequences;
pub use liveness::Live;
pub use memory::MemoryAccess;
pub use op::{Indirect, Key, Literal, Modifier, Op};
pub use registers::Registers;
pub use relocate::NotRelocatable;
pub use verdict::{Reason, Verdict};

// Parts of the engine and of the crates that list, audit and compile: a kernel that embeds the engine needs none.
#[doc(hidden)]
pub use {
    crate::exception::simulate::{Environment, Fault, Guard, holds},
    classify::{is_exception_or_system, is_floating, is_load_or_store, is_prefetch, may_branch, modifies_next},
    continuation::Continuation,
    control::Control,
    data::may_read_data,
    decode::{Instruction, LoadSize, Shift},
    encode::{BRK_KPROBE, BRK_STEP, branch, brk},
    exclusive::{SequenceCallees, may_be_load},
    linkage::Linkage,
    liveness::{
        SCRATCH, ScratchPreservers, changes_task, handed, live_at, overwrites_link, scratch_at_entry, stack_at_return,
    },
    memory::{Exclusive, exclusive},
    registers::{RegisterAccess, StackPointer},
    relocate::{MAX_WORDS, Relocation, boost, origin, relocate},
    resolve::Resolved,
    results::ScratchResults,
    survey::Survey,
    synchronization::{Synchronization, synchronization},
};

#[cfg(test)]
mod oracle;
