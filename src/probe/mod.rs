//! Probes: registering them, and what happens when they are hit.
//!
//! There are two halves, and the line between them keeps the engine sound.
//!
//! - `hit` runs between a breakpoint, or the branch to a stub, and the return to probed code. Nothing can interrupt it,
//!   it waits for nothing but another CPU in the same half, and it cannot be probed.
//! - The other modules run in tasks. They check that an address can be probed ([`check()`]), keep the list of all
//!   probes and patch the text (`registry`), and hand out the slots and stubs in which instructions are executed
//!   (`arena`, `stub_builder`). They publish to the hit path by storing a pointer, and free nothing that it may still
//!   be using.
//!
//! The owner of a probe *enables* and *disables* it. While an instruction has enabled probes, it is *armed*: a
//! breakpoint or a branch stands in its place.

mod aliasable;
mod arena;
pub(crate) mod atomics;
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
#[cfg(feature = "watchpoints")]
mod watchpoint;
mod words;

pub use aliasable::AliasableBox;
pub use check::{CheckedInstruction, blacklist, check, instruction};
pub use error::ProbeError;
pub use fallback::{Fallback, NotEntry};
pub use hit::arguments::{ArgumentHandler, CallArguments};
pub use hit::cpu::{Cpu as CpuState, CpuStates};
pub use hit::list::TaskCalls;
pub use hit::result::{CallResult, ResultHandler};
pub use hit::returns::{Call, Decision, EntryHandler, ReturnHandler};
pub use hit::stack_walk::StackWalk;
#[cfg(feature = "watchpoints")]
pub use hit::watch::{WatchHandler, WatchHit};
pub use hit::{Hit, PostHandler, PreHandler};
pub use kprobe::{Kprobe, KprobeBuilder};
pub use kretprobe::{Kretprobe, KretprobeBuilder};
pub use recovery::{address_here, origin, recover};
pub use registration::Registration;
pub use registry::{list, memory};
pub use snippet::{Insertion, Snippet, SnippetError, Step, StepLabel, StepList};
#[cfg(feature = "watchpoints")]
pub use watchpoint::{WatchError, Watchpoint, WatchpointBuilder, initialize_cpu, watchpoints};

// For the crates that build on the engine and run in the same kernel: a kernel that embeds the engine needs none.
#[doc(hidden)]
pub use {check::Checker, hit::stack_position::stack_around, registry::analyze_text, words::CpuWords};

use core::fmt;

use crate::interrupts;
use crate::text::{self, Word};
use hit::{returns, trampoline};

/// The largest number of calls that one return probe can follow at the same time (the limit of Linux `kprobe_events`).
pub const MAX_ACTIVE: u32 = 4096;

/// The maximum number of private words of a call: 4096 bytes, as in Linux (`KRETPROBE_MAX_DATA_SIZE` in
/// `include/linux/kprobes.h`). They are cleared at each call that is followed.
pub const MAX_DATA_WORDS: usize = 512;

/// A registered probe, as listings show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeInfo {
    /// The virtual address of the probed instruction.
    pub address: usize,
    /// Whether it is a kprobe or a kretprobe.
    pub kind: ProbeKind,
    /// How the probed instruction is executed; `None` while the instruction is not armed.
    pub mode: Option<Mode>,
    /// The reason why the instruction is not executed in the fastest mode that its probes allow; `None` if it is.
    pub fallback: Option<Fallback>,
    /// Whether the probe is enabled.
    pub enabled: bool,
    /// The number of hits that the probe has reported: its handler was called, or, if it is
    /// [compiled](Mode::Compiled), its instructions ran.
    pub hits: u64,
    /// The number of hits that the probe could not report.
    pub missed: u64,
    /// The word that the probe was registered with.
    pub data: usize,
}

/// The kind of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// A probe on one instruction.
    Kprobe,
    /// A probe on the returns of a function.
    Kretprobe,
}

/// How a probed instruction is executed. Ordered from the slowest mode to the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// From a slot, followed by a second breakpoint after which the post-handlers are called: two exceptions.
    Stepped,
    /// On the saved registers, within the exception, because the instruction would not do the same in a slot: one
    /// exception.
    Simulated,
    /// From a slot, followed by a branch to the next instruction: one exception.
    Boosted,
    /// From a stub; a branch to the stub replaces the instruction: no exception.
    Optimized,
    /// From a stub that saves only what a call passes, for a handler that reads nothing else: no exception.
    Lean,
    /// From a stub that contains the work of the probe as instructions, or with such instructions where the function
    /// returns to: no exception, and no call of a handler in the usual case. The crates for events and programs make
    /// such probes.
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

/// The memory that probes take, besides what the general allocator holds for the probes themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The number of probed instructions.
    pub points: usize,
    /// The number of slots in use.
    pub slots: usize,
    /// Bytes of executable memory allocated for slots, including free slots. It is never freed.
    pub slot_bytes: usize,
    /// The number of stubs in use.
    pub stubs: usize,
    /// Bytes of executable memory allocated for stubs, including free stubs. It is never freed.
    pub stub_bytes: usize,
    /// Bytes of the tables that map addresses to probes and back, and of the free lists of slots and stubs. They are
    /// never freed.
    pub table_bytes: usize,
    /// Bytes of the counts of hits, besides those that lie in the states of the CPUs. They are never freed.
    pub counter_bytes: usize,
}

/// Tells the engine that a task has ended and will not run again. The calls of return-probed functions that it was in
/// are counted as missed, and their instances become free for other calls.
///
/// It does not wait. Memory that unregistered probes have kept for such calls is freed at the next change of probes.
///
/// # Safety
///
/// The task that owns `calls` does not run, and never will again: a call that is still in progress would return to the
/// return address of another call.
pub unsafe fn task_exited(calls: &TaskCalls) {
    // SAFETY: the caller guarantees that the task never runs again (see # Safety); `with_masked` masks interrupts.
    interrupts::with_masked(|| unsafe { returns::task_exited(calls) });
}

/// Waits until the hits that are now being handled on any CPU are over. When it returns, no handler uses anything that
/// it found before the call.
///
/// # Panics
///
/// If interrupts are masked, as they are in a handler: it would wait for itself.
pub fn synchronize() {
    assert!(!interrupts::are_masked(), "hits cannot be waited for with interrupts masked");
    text::patch::<arena::Used>(&[], &mut []);
}

/// Writes `words`, which are instructions and the literals that they load, at the virtual address `address` and after
/// it, the way the engine writes its own code: with the cache maintenance that makes them executable.
///
/// The code may be the handler of a probe that is registered disabled, and enabled afterwards: every CPU refetches
/// before it gets to the code. A handler of a probe that is registered enabled may be called by a CPU that is on its way
/// to another probe of the same instruction, and has not refetched.
///
/// # Safety
///
/// `address` is a multiple of 4, in memory that
/// [`Platform::allocate_executable`](crate::platform::Platform::allocate_executable) has mapped. The memory has room
/// for all words and belongs to the caller, and no CPU executes it until this returns.
#[doc(hidden)]
pub unsafe fn write_instructions(address: usize, words: &[u32]) {
    let mut addresses = (address..).step_by(size_of::<u32>());
    for words in words.chunks(text::WORDS_PER_RENDEZVOUS) {
        let mut placed = [const { Word { address: 0, words: [0] } }; text::WORDS_PER_RENDEZVOUS];
        for (word, (address, &instruction)) in placed.iter_mut().zip(addresses.by_ref().zip(words)) {
            *word = Word { address, words: [instruction] };
        }
        text::write(&placed[..words.len()]);
    }
}

/// Returns whether the virtual address `address`, found as a return address, is that of a return-probe trampoline,
/// which stands for the true return address. It may be called anywhere.
#[inline(always)]
#[must_use]
pub fn is_trampoline(address: usize) -> bool {
    trampoline::is_kretprobe(address as u64)
}

/// Returns whether the virtual address `address`, found as a return address, is in a routine of the engine that calls
/// handlers with x29 at the [record](crate::exception::TrapFrame::record) of a trap frame, as exception vectors do. A
/// backtrace continues there in the interrupted code. It may be called anywhere.
#[must_use]
pub fn has_trap_frame(address: usize) -> bool {
    trampoline::with_trap_frame().contains(&address)
}

/// Returns the arguments of the call that a handler is being told of, if the virtual address `address`, found as a
/// return address, is in the routine of the engine that calls handlers with [`CallArguments`] and with x29 at their
/// beginning. A backtrace continues there in the called function, and after that at the
/// [return address](CallArguments::return_address). It may be called anywhere.
///
/// # Safety
///
/// `record` is the value of x29 in the frame record that contains `address`. If `address` is in that routine, the bytes
/// of [`CallArguments`] can be read at `record`, and their handler has not returned while the result is used.
#[must_use]
pub unsafe fn arguments_at<'a>(address: usize, record: usize) -> Option<&'a CallArguments> {
    // SAFETY: the address is in the routine, so the caller guarantees that `CallArguments` are at `record` (see
    // # Safety).
    trampoline::with_arguments().contains(&address).then(|| unsafe { &*(record as *const CallArguments) })
}

/// Returns the true return address of a function whose frame shows the trampoline, in the task that owns `calls`.
///
/// `floor` is the lowest value that the stack pointer can have had when the function was entered: the virtual address
/// just after its frame record, or the stack pointer if the return address is still in x30.
///
/// It may be called anywhere, also with interrupts masked, and in handlers.
///
/// # Safety
///
/// The task that owns `calls` runs on this CPU; or it runs on no CPU until this returns, and what it did last happens
/// before this call. The call list of a task that runs elsewhere leads to instances that may have been freed.
#[inline(always)]
#[must_use]
pub unsafe fn true_return_address(calls: &TaskCalls, floor: usize) -> Option<usize> {
    // SAFETY: the caller guarantees where the task runs (see # Safety); `with_masked` masks interrupts.
    let address = interrupts::with_masked(|| unsafe { returns::true_return_address(calls, floor as u64) });
    address.map(|address| address as usize)
}
