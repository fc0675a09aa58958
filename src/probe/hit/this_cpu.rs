//! The properties of this CPU that simulated instructions need, and those of all CPUs that generated code needs.

#[cfg(target_os = "none")]
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use crate::exception::nofault;
use crate::insn::{Environment, Guard, Key};

/// This CPU, at a probe point.
pub(crate) struct ThisCpu {
    /// Whether the page of the probe point is guarded.
    pub(crate) guarded: bool,
}

impl Environment for ThisCpu {
    #[inline]
    fn guard(&self, _pc: u64) -> Guard {
        guard(self.guarded)
    }

    #[inline]
    fn has_consistent_branches(&self) -> bool {
        has_consistent_branches()
    }

    #[inline]
    fn read_u32(&self, address: u64) -> Result<u32, u64> {
        // SAFETY: the probed instruction would make this load itself, so there is no other side effect than its own.
        // `Platform` guarantees that exceptions reach `handle_sync`.
        unsafe { nofault::read(address as usize) }.map_err(|fault| fault.syndrome)
    }

    #[inline]
    fn read_u64(&self, address: u64) -> Result<u64, u64> {
        // SAFETY: the probed instruction would make this load itself, so there is no other side effect than its own.
        // `Platform` guarantees that exceptions reach `handle_sync`.
        unsafe { nofault::read(address as usize) }.map_err(|fault| fault.syndrome)
    }

    #[inline]
    fn authenticate(&self, key: Key, pointer: u64, modifier: u64) -> Result<u64, u64> {
        nofault::authenticate(key, pointer, modifier)
    }
}

/// Returns how branch targets are checked in a page, by whether the page is guarded.
#[inline]
pub(crate) fn guard(guarded: bool) -> Guard {
    match (has_branch_targets(), guarded) {
        (false, _) => Guard::Absent,
        (true, false) => Guard::Unguarded,
        (true, true) => Guard::Guarded,
    }
}

/// Returns whether the CPU implements branch target identification: ID_AA64PFR1_EL1.BT, bits 3 to 0.
#[cfg(target_os = "none")]
#[inline]
fn has_branch_targets() -> bool {
    let features: u64;
    // SAFETY: reads an identification register.
    unsafe { core::arch::asm!("mrs {}, id_aa64pfr1_el1", out(reg) features, options(nomem, nostack, preserves_flags)) };
    features & 0xf != 0
}

#[cfg(not(target_os = "none"))]
fn has_branch_targets() -> bool {
    false
}

/// Whether generated code uses the instructions of FEAT_LSE: 0 until that is decided, then [`USED`] or [`UNUSED`].
#[cfg(target_os = "none")]
static ATOMICS: AtomicU8 = AtomicU8::new(0);
#[cfg(target_os = "none")]
const USED: u8 = 1;
#[cfg(target_os = "none")]
const UNUSED: u8 = 2;

/// Decides whether generated code uses FEAT_LSE, unless that is decided. Returns the decision.
#[cfg(target_os = "none")]
fn decide(decision: u8) -> u8 {
    ATOMICS.compare_exchange(0, decision, Relaxed, Relaxed).map_or_else(|decided| decided, |_| decision)
}

/// Returns whether generated code uses the instructions of FEAT_LSE: this CPU implements them, and so do all for which
/// [`join`] was called. The first call decides that for good.
#[cfg(target_os = "none")]
pub(crate) fn has_atomics() -> bool {
    decide(if implements_atomics() { USED } else { UNUSED }) == USED
}

/// Returns what [`has_atomics`] would return now, and decides nothing.
#[cfg(target_os = "none")]
pub(crate) fn would_have_atomics() -> bool {
    match ATOMICS.load(Relaxed) {
        0 => implements_atomics(),
        decided => decided == USED,
    }
}

#[cfg(not(target_os = "none"))]
pub(crate) fn would_have_atomics() -> bool {
    has_atomics()
}

/// Makes generated code run on this CPU, too. Returns false if there may already be code that does not.
#[cfg(target_os = "none")]
pub(crate) fn join() -> bool {
    implements_atomics() || decide(UNUSED) == UNUSED
}

/// Returns whether this CPU implements the instructions of FEAT_LSE: ID_AA64ISAR0_EL1.Atomic, bits 23 to 20.
#[cfg(target_os = "none")]
fn implements_atomics() -> bool {
    let features: u64;
    // SAFETY: reads an identification register.
    unsafe {
        core::arch::asm!("mrs {}, id_aa64isar0_el1", out(reg) features, options(nomem, nostack, preserves_flags))
    };
    features >> 20 & 0xf >= 2
}

#[cfg(not(target_os = "none"))]
pub(crate) fn has_atomics() -> bool {
    true
}

/// Returns whether the CPU implements BC.cond: ID_AA64ISAR2_EL1.BC, bits 23 to 20. The register is written by its
/// encoding, for assemblers that do not know its name.
#[cfg(target_os = "none")]
#[inline]
fn has_consistent_branches() -> bool {
    let features: u64;
    // SAFETY: reads an identification register, which reads as zero if it is not allocated.
    unsafe { core::arch::asm!("mrs {}, s3_0_c0_c6_2", out(reg) features, options(nomem, nostack, preserves_flags)) };
    features >> 20 & 0xf != 0
}

#[cfg(not(target_os = "none"))]
fn has_consistent_branches() -> bool {
    false
}
