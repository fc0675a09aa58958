//! The properties of this CPU that simulated instructions need.

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
