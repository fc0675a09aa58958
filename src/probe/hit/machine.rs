//! What simulated instructions need of this CPU.

use crate::exception::nofault;
use crate::insn::{Guard, Machine};

/// This CPU.
pub(super) struct ThisCpu;

impl Machine for ThisCpu {
    /// Pages of the text are taken to be unguarded, as the kernels that embed the engine map them so far.
    #[inline]
    fn guard(&self, _pc: u64) -> Guard {
        if has_branch_targets() { Guard::Unguarded } else { Guard::Absent }
    }

    #[inline]
    fn read_u32(&self, address: u64) -> Option<u32> {
        nofault::read(address as usize).ok()
    }

    #[inline]
    fn read_u64(&self, address: u64) -> Option<u64> {
        nofault::read(address as usize).ok()
    }
}

/// ID_AA64PFR1_EL1.BT, bits 3 to 0: branch target identification is implemented.
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
