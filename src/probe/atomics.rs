//! Decides whether generated code uses the atomic instructions of FEAT_LSE, which may be missing on some CPUs of a
//! machine.

#[cfg(not(target_os = "none"))]
pub(super) use host::{are_used, would_be_used};
#[cfg(target_os = "none")]
pub(crate) use target::join;
#[cfg(target_os = "none")]
pub(super) use target::{are_used, would_be_used};

#[cfg(target_os = "none")]
mod target {
    use core::arch::asm;
    use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

    /// The decision: 0 until there is one, then [`USED`] or [`UNUSED`].
    static DECISION: AtomicU8 = AtomicU8::new(0);
    const USED: u8 = 1;
    const UNUSED: u8 = 2;

    /// Returns whether generated code uses the instructions: this CPU implements them, and so do all for which [`join`]
    /// was called. The first call decides that for good.
    pub fn are_used() -> bool {
        decide(if are_implemented() { USED } else { UNUSED }) == USED
    }

    /// Returns what [`are_used`] would return now, and decides nothing.
    pub fn would_be_used() -> bool {
        match DECISION.load(Relaxed) {
            0 => are_implemented(),
            decision => decision == USED,
        }
    }

    /// Makes generated code run on this CPU, too. Returns false if there may already be code that does not.
    pub fn join() -> bool {
        are_implemented() || decide(UNUSED) == UNUSED
    }

    /// Makes this decision, unless there is one. Returns the decision that holds.
    fn decide(decision: u8) -> u8 {
        DECISION.compare_exchange(0, decision, Relaxed, Relaxed).map_or_else(|before| before, |_| decision)
    }

    /// Returns whether this CPU implements FEAT_LSE: ID_AA64ISAR0_EL1.Atomic, bits 23 to 20.
    fn are_implemented() -> bool {
        let features: u64;
        // SAFETY: reads an identification register.
        unsafe { asm!("mrs {}, id_aa64isar0_el1", out(reg) features, options(nomem, nostack, preserves_flags)) };
        features >> 20 & 0xf >= 2
    }
}

/// The host's tests assume the instructions.
#[cfg(not(target_os = "none"))]
mod host {
    pub fn are_used() -> bool {
        true
    }

    pub fn would_be_used() -> bool {
        are_used()
    }
}
