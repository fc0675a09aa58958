//! Watchpoints: what happens when a load or store touches watched memory.
//!
//! The exception comes before the access (Arm ARM, D2.10). The handlers are called, then the instruction is executed
//! with watchpoints off, by the CPU's software step (D2.12), with interrupts masked. The step's exception turns them on
//! again.
//!
//! **Exclusives.** The return from an exception clears the local monitor, so a store-exclusive that is stepped fails,
//! and the loop around it would run forever. A load-exclusive is therefore not stepped: watchpoints are turned off,
//! breakpoints are set where its sequence is left ([`exits`]), and the CPU runs freely up to there, with interrupts
//! masked. A store-exclusive that has stored is reported there, after the fact. If only stores are watched, the first
//! exception is that of the store-exclusive. It is made to fail, which the architecture allows at any time, and this
//! CPU watches loads, too, until a store-exclusive has succeeded: the next attempt begins at the load.
//!
//! A sequence may be left before its store, as by a call. Then the breakpoint clears the monitor, and the store fails.
//! After some such attempts in a row, the watchpoints are given up, because the loop might never end. They are given up
//! at once if a branch in the sequence leads back: it could turn forever, with interrupts masked.
//!
//! PSTATE.D masks all of this: while a hit or an exception is handled, accesses are not seen. A stub and the trampoline
//! of returns use the stack before they mask debug exceptions and after they unmask them, and a snippet need not mask
//! them. These accesses are left out.

#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "used by `taken`"))]
mod exits;
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "used by `taken`"))]
pub(in crate::probe) mod range;
#[cfg(target_os = "none")]
pub(in crate::probe) mod registers;
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "used by `taken`"))]
pub(in crate::probe) mod slot;
#[cfg(target_os = "none")]
mod taken;

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU32, AtomicU64};

use exits::Exits;

#[cfg(target_os = "none")]
pub(crate) use taken::exception;
#[cfg(target_os = "none")]
pub(in crate::probe) use taken::{has_failed, is_busy, load_registers, select, try_registers};

use crate::exception::frame::TrapFrame;
use crate::insn::MemoryAccess;

called_by_assembly! {
    /// Called at an access to watched memory.
    pub type WatchHandler = fn(&WatchHit<'_>);
}

/// The largest number of watchpoints.
pub(in crate::probe) const MOST: usize = 16;

/// An access to watched memory, as a handler sees it.
///
/// Handlers run before the access; after it, if it is that of a store-exclusive. [`Hit`](crate::Hit) says what a
/// handler may do.
#[derive(Debug)]
pub struct WatchHit<'a> {
    frame: &'a TrapFrame,
    access: MemoryAccess,
    data: usize,
}

impl WatchHit<'_> {
    /// Returns the registers of the code that accesses the memory. The pc is that of the instruction.
    #[inline]
    #[must_use]
    pub fn frame(&self) -> &TrapFrame {
        self.frame
    }

    /// Returns the access, which may touch more bytes than those that are watched. If [`MemoryAccess::of`] does not
    /// know the instruction, it is one of the bytes that are accessed, and its length is 1.
    #[inline]
    #[must_use]
    pub fn access(&self) -> MemoryAccess {
        self.access
    }

    /// Returns the word that the watchpoint was registered with.
    #[inline]
    #[must_use]
    pub fn data(&self) -> usize {
        self.data
    }
}

/// What a CPU knows of its watchpoints. Only the CPU itself uses it, with debug exceptions masked.
#[derive(Debug)]
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "used by `taken`"))]
pub(in crate::probe) struct WatchpointState {
    /// What the interrupted code is doing: one of the constants below.
    doing: AtomicU64,
    /// PSTATE.DAIF of the interrupted code, while interrupts are masked for it.
    masks: AtomicU64,
    /// Not 0 if loads are watched wherever stores are.
    is_wide: AtomicU32,
    /// How many attempts in a row the watchpoints have kept from storing, of the sequence that `attempted_at` begins.
    failures: AtomicU32,
    /// The virtual address of the last load-exclusive that was followed.
    attempted_at: AtomicU64,
    /// Not 0 if the engine has enabled breakpoints and watchpoints (MDSCR_EL1.MDE), which were disabled before.
    has_enabled: AtomicU64,
    /// The breakpoints that are set: a bit for each.
    breakpoints: AtomicU64,
    /// The watchpoints that are loaded: a bit for each. Other registers may have another owner.
    loaded: AtomicU64,
    /// The exits of the sequence that is executed.
    exits: Exits,
    counts: [[AtomicU64; 2]; MOST],
}

/// Nothing that concerns watchpoints.
const NOTHING: u64 = 0;
/// One instruction is stepped.
#[cfg(target_os = "none")]
const STEPPING: u64 = 1;
/// The sequence of a load-exclusive is executed.
#[cfg(target_os = "none")]
const IN_SEQUENCE: u64 = 2;

impl WatchpointState {
    pub(super) const fn new() -> Self {
        Self {
            doing: AtomicU64::new(NOTHING),
            masks: AtomicU64::new(0),
            is_wide: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            attempted_at: AtomicU64::new(0),
            has_enabled: AtomicU64::new(0),
            breakpoints: AtomicU64::new(0),
            loaded: AtomicU64::new(0),
            exits: Exits::new(),
            counts: [const { [const { AtomicU64::new(0) }; 2] }; MOST],
        }
    }

    /// Returns the numbers of hits and of missed hits of the watchpoint with this number, and forgets them if
    /// `is_reset`.
    pub(in crate::probe) fn counted(&self, number: usize, is_reset: bool) -> [u64; 2] {
        let Some(counts) = self.counts.get(number) else { return [0; 2] };
        let found = [0, 1].map(|index: usize| counts[index].load(Relaxed));
        if is_reset {
            counts.iter().for_each(|count| count.store(0, Relaxed));
        }
        found
    }
}
