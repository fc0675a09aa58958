//! The hits of watchpoints. Each hit finds out which function accesses the memory.

use aarch64_kprobes::exception::nofault;
use aarch64_kprobes::insn::Linkage;
use aarch64_kprobes::probe::{WatchHandler, WatchHit};

use super::clause::{ArmedClause, ClauseHit};
use crate::program::Shared;
use crate::program::exits::Exit;
use crate::prologue;

/// The handler of all watchpoints, which interprets the clause. Its data is the address of an [`ArmedWatchpoint`].
pub(crate) const WATCHED: WatchHandler = watched;

/// A watchpoint of a program, as its hits see it.
#[derive(Debug)]
pub(crate) struct ArmedWatchpoint {
    /// The program. It outlives the watchpoint.
    pub shared: *const Shared,
    /// The number of the clause.
    pub clause: usize,
    /// The number of the probe's name, from 1.
    pub name: u64,
    /// Whether the clause asks for the caller.
    pub wants_caller: bool,
}

// SAFETY: an armed watchpoint does not change after `AttachedWatchpoints::register` makes it, and its pointer leads to
// a `Shared`, which is `Sync` and which `AttachedWatchpoints` keeps alive.
unsafe impl Send for ArmedWatchpoint {}
// SAFETY: an armed watchpoint does not change after `AttachedWatchpoints::register` makes it, and its pointer leads to
// a `Shared`, which is `Sync` and which `AttachedWatchpoints` keeps alive.
unsafe impl Sync for ArmedWatchpoint {}

/// The longest part of a function, in instructions, that is read to find its frame record.
const LONGEST: u64 = 4096;

/// Runs a clause at an access to watched memory.
#[unsafe(link_section = ".kprobes.text.handlers.program_watched")]
extern "C" fn watched(hit: &WatchHit<'_>) {
    // SAFETY: only `AttachedWatchpoints::register` registers this function, with the address of an armed watchpoint.
    // `AttachedWatchpoints` frees it after all watchpoints have ended.
    let watch = unsafe { &*core::ptr::with_exposed_provenance::<ArmedWatchpoint>(hit.data()) };
    // SAFETY: `AttachedWatchpoints` has the program in an `Arc` until all watchpoints have ended.
    let shared = unsafe { &*watch.shared };
    let pc = hit.frame().pc;
    let (function, function_end) = containing(shared.functions.ranges(), pc);
    let is_caller_in_x30 = watch.wants_caller && is_caller_in_x30(function, function_end, pc);
    let armed = ArmedClause {
        shared: watch.shared,
        clause: watch.clause,
        name: watch.name,
        function,
        function_end,
        is_caller_in_x30,
        exit: Exit::Always,
        caller: None,
    };
    ClauseHit { armed: &armed, registers: hit.frame(), return_address: None, result: 0 }.run();
}

/// Returns the range that contains the virtual address `pc`; an empty range at `pc` if none does.
#[inline(always)]
fn containing(ranges: &[(u64, u64)], pc: u64) -> (u64, u64) {
    // All ranges before `low` begin at or below `pc`, and all ranges from `high` on begin above it.
    let (mut low, mut high) = (0, ranges.len());
    while low < high {
        let middle = low + (high - low) / 2;
        match ranges.get(middle) {
            Some(&(start, _)) if start <= pc => low = middle + 1,
            _ => high = middle,
        }
    }
    match ranges.get(low.wrapping_sub(1)) {
        Some(&(start, end)) if pc < end => (start, end),
        _ => (pc, pc),
    }
}

/// Returns whether the function has its return address in x30 at the virtual address `pc`, and not in a frame record.
/// If a probe has replaced an instruction that would tell, the answer is no.
#[inline(always)]
fn is_caller_in_x30(start: u64, end: u64, pc: u64) -> bool {
    if pc.wrapping_sub(start) / 4 > LONGEST {
        return false;
    }
    // SAFETY: all addresses read are within a function of the image, from `Functions::of`: memory, and no device
    // register.
    let word = |address: u64| unsafe { nofault::read::<u32>(address as usize) }.unwrap_or(prologue::BREAKPOINT);
    let mut leaves_link_alone = pc < end;
    let mut at = start;
    while at < pc && leaves_link_alone {
        leaves_link_alone = !prologue::ends_link(word(at), at, start..end);
        at = at.wrapping_add(4);
    }
    if leaves_link_alone {
        return true;
    }
    at = pc;
    while at < end {
        match Linkage::of(word(at)) {
            Linkage::Return => return true,
            Linkage::Restore | Linkage::Call | Linkage::Jump(_) | Linkage::Elsewhere => return false,
            Linkage::Frame | Linkage::Next => at = at.wrapping_add(4),
        }
    }
    false
}
