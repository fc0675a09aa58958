//! Probes: registering them, and what happens when they are hit.
//!
//! There are two halves, and the line between them is the one that keeps the engine sound. `hit` is what runs
//! between a breakpoint, or the branch to a stub, and the return to probed code; it can be interrupted by nothing, waits
//! for nothing but another CPU in the same half, and cannot be probed. The other modules run in tasks: they check that an
//! address can be probed ([`check()`]), keep the list of all probes and patch the text (`registry`), and hand out
//! the slots in which instructions are executed (`arena`, `stub_builder`). They publish to the hit path by storing a pointer,
//! and free nothing that it may still be using.

mod aliasable;
mod arena;
mod check;
mod counter_pool;
mod error;
mod fallback;
mod follower;
pub(crate) mod hit;
mod kprobe;
mod kretprobe;
mod publish;
mod recovery;
mod registration;
mod registry;
mod slab;
mod snippet;
mod stub_builder;
#[cfg(test)]
mod tests;
mod words;

pub use aliasable::AliasableBox;
pub use check::{Checker, Site, blacklist, check, instruction};
pub use error::ProbeError;
pub use fallback::{Fallback, NotEntry};
pub use hit::cpu::{Cpu as CpuState, CpuStates};
pub use hit::entry::{ArgumentHandler, Entry};
pub use hit::returns::{Call, Decision, EntryHandler, ReturnHandler, TaskCalls};
pub use hit::{Hit, PostHandler, PreHandler};
pub use kprobe::{Kprobe, KprobeBuilder};
pub use kretprobe::{Kretprobe, KretprobeBuilder};
pub use recovery::{address_here, origin, recover};
pub use registration::Registration;
pub use registry::{list, memory, survey};
pub use snippet::{Insertion, Snippet, SnippetError, Step};
pub use words::CpuWords;

use core::fmt;

use crate::interrupts;
use crate::text::{self, Word};
use hit::{returns, trampoline};

/// The largest number of calls that a return probe can follow at a time (the limit of Linux `kprobe_events`).
pub const MAX_ACTIVE: u32 = 4096;

/// A registered probe, as it is shown to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeInfo {
    /// The virtual address of the probed instruction.
    pub address: usize,
    /// What kind of probe it is.
    pub kind: ProbeKind,
    /// How the probed instruction is executed; nothing while no probe there is armed.
    pub mode: Option<Mode>,
    /// Why it is not executed in the fastest mode that its probes allow.
    pub fallback: Option<Fallback>,
    /// Whether it is armed.
    pub enabled: bool,
    /// How many hits it has been told of.
    pub hits: u64,
    /// How many hits it has not been told of.
    pub missed: u64,
    /// The word that it was registered with.
    pub data: usize,
}

/// The kinds of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// On one instruction.
    Kprobe,
    /// On the returns of a function.
    Kretprobe,
}

/// How a probed instruction is executed, from the slowest way to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// From a slot, with a second breakpoint behind it, so that post-handlers can be told: two exceptions.
    Stepped,
    /// On the saved registers, within the exception, since it would not do the same in a slot.
    Simulated,
    /// From a slot, with a branch to the next instruction behind it: one exception.
    Boosted,
    /// From a stub, to which a branch leads that stands in the place of the instruction: no exception.
    Optimized,
    /// The same, but from a stub that saves only what a call passes, for a handler that reads only that.
    Lean,
    /// The same, but what the probe does is a [`Snippet`] in its stub, or where the function returns to, and no handler is called
    /// in the usual case.
    Compiled,
}

impl Mode {
    const FASTEST: Self = Self::Compiled;
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Stepped => "stepped",
            Self::Simulated => "simulated",
            Self::Boosted => "boosted",
            Self::Optimized => "optimized",
            Self::Lean => "lean",
            Self::Compiled => "compiled",
        })
    }
}

/// What the probes take, beside the general memory for the probes themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// How many instructions are probed.
    pub points: usize,
    /// How many slots are in use.
    pub slots: usize,
    /// Bytes of executable memory that slots take, free ones included. It is never given back.
    pub slot_bytes: usize,
    /// How many stubs are in use.
    pub stubs: usize,
    /// Bytes of executable memory that stubs take, free ones included. It is never given back.
    pub stub_bytes: usize,
    /// Bytes of the tables that lead from addresses to probes and back, and of the lists of what slots and stubs are free. It is
    /// never given back.
    pub table_bytes: usize,
    /// Bytes of the counts of hits. They are never given back.
    pub counter_bytes: usize,
}

/// Tells the engine that the task has ended and will not run again: calls of return-probed functions that it
/// was in are counted as missed, and their instances are free for others.
///
/// It waits for nothing: what unregistered probes have kept for such calls is freed when probes change next.
///
/// # Safety
///
/// The task whose calls these are does not run and never will again: a call that is still in progress would return to where another
/// call came from.
pub unsafe fn task_exited(calls: &TaskCalls) {
    // SAFETY: by the caller; interrupts are masked.
    interrupts::with_masked(|| unsafe { returns::task_exited(calls) });
}

/// Waits until the hits that are being handled now, on any CPU, are over: what their handlers may have found before this was
/// called, they use no more when it returns.
///
/// # Panics
///
/// If interrupts are masked, as they are in a handler, which would wait for itself.
pub fn synchronize() {
    assert!(!interrupts::are_masked(), "hits cannot be waited for with interrupts masked");
    text::patch::<arena::Used>(&[], &mut []);
}

/// Writes `words`, which are instructions and what these load, to the virtual address `address` and behind it, as probes are
/// written, with all that makes instructions of them. A handler may begin there: a CPU has refetched when it comes to a probe that
/// was armed since.
///
/// # Safety
///
/// `address` is a multiple of 4, in memory that [`Platform::allocate_executable`](crate::platform::Platform::allocate_executable)
/// has mapped. The memory has room for all words, belongs to the caller, and no CPU executes it until this returns.
pub unsafe fn write_instructions(address: usize, words: &[u32]) {
    let mut addresses = (address..).step_by(size_of::<u32>());
    for words in words.chunks(text::AT_ONCE) {
        let mut placed = [const { Word { address: 0, words: [0] } }; text::AT_ONCE];
        for (word, (address, &instruction)) in placed.iter_mut().zip(addresses.by_ref().zip(words)) {
            *word = Word { address, words: [instruction] };
        }
        text::write(&placed[..words.len()]);
    }
}

/// Whether the virtual address `address`, found as a return address, is that of the return-probe trampoline,
/// which stands for the true one.
#[inline(always)]
#[must_use]
pub fn is_trampoline(address: usize) -> bool {
    trampoline::is_kretprobe(address as u64)
}

/// Whether the virtual address `address`, found as a return address, is in a routine of the engine that calls handlers with
/// x29 at the [record](crate::exception::TrapFrame::record) of a trap frame, as exception vectors do: a backtrace goes on in
/// the code that was interrupted there.
#[must_use]
pub fn has_trap_frame(address: usize) -> bool {
    trampoline::with_trap_frame().contains(&address)
}

/// The call that a handler has been told of which has returned to the virtual address `address`, if that is in the routine
/// of the engine that calls handlers with an [`Entry`], and x29 at its beginning: a backtrace goes on in the function that is
/// called there, and then at the [return address](Entry::return_address).
///
/// # Safety
///
/// `record` is the value of x29 in the frame record that has `address`; if `address` is what it was asked for, so many bytes as
/// an [`Entry`] has can be read there, and change no more.
#[must_use]
pub unsafe fn entry_at<'a>(address: usize, record: usize) -> Option<&'a Entry> {
    // SAFETY: the caller has promised it.
    trampoline::with_entry().contains(&address).then(|| unsafe { &*(record as *const Entry) })
}

/// The true return address where a frame of the task of `calls` shows the trampoline.
///
/// `floor` is the lowest value that the stack pointer can have had when the function of that frame was entered:
/// the virtual address behind its frame record; or the stack pointer, where the return address is still in x30.
///
/// # Safety
///
/// The task of `calls` is the one that runs on this CPU, or it is on no CPU until this returns, and what it did on the last one
/// happens before this call. The list of calls of a task that runs elsewhere leads to instances that may have been freed.
#[inline(always)]
#[must_use]
pub unsafe fn true_return_address(calls: &TaskCalls, floor: usize) -> Option<usize> {
    // SAFETY: by the caller; interrupts are masked.
    let address = interrupts::with_masked(|| unsafe { returns::true_return_address(calls, floor as u64) });
    address.map(|address| address as usize)
}
