//! Masks interrupts, for the short times that the engine needs it outside exceptions, and tells the exception level.

use core::fmt;

/// Panics because a value was dropped with interrupts masked. The panic does not leave this `extern "C"` function:
/// otherwise the owner would go on, and drop what the handlers of the value use.
#[cold]
pub(crate) extern "C" fn refuse_drop(why: &fmt::Arguments<'_>) -> ! {
    panic!("{why}")
}

/// Returns whether interrupts are masked on this CPU (PSTATE.I).
#[cfg(target_os = "none")]
pub fn are_masked() -> bool {
    let daif: u64;
    // SAFETY: reads PSTATE.DAIF.
    unsafe { core::arch::asm!("mrs {}, daif", out(reg) daif, options(nomem, nostack, preserves_flags)) };
    daif & crate::exception::frame::TrapFrame::IRQ_MASKED != 0
}

/// Returns whether this CPU is at EL2.
#[cfg(target_os = "none")]
pub(crate) fn is_at_el2() -> bool {
    let current: u64;
    // SAFETY: reads CurrentEL.
    unsafe { core::arch::asm!("mrs {}, currentel", out(reg) current, options(nomem, nostack, preserves_flags)) };
    current >> 2 & 0b11 == 2
}

/// Calls `f` with all of PSTATE.DAIF masked, as in the hit path.
///
/// Always inlined, so that it is in the region without probes if its caller is.
#[cfg(target_os = "none")]
#[inline(always)]
pub fn with_masked<R>(f: impl FnOnce() -> R) -> R {
    let daif: u64;
    // SAFETY: masking is always allowed. No `nomem`: what `f` does must not move out of the masked region.
    unsafe {
        core::arch::asm!("mrs {}, daif", "msr daifset, #0b1111", out(reg) daif, options(nostack, preserves_flags))
    };
    let result = f();
    // SAFETY: restores the value that was read above.
    unsafe { core::arch::asm!("msr daif, {}", in(reg) daif, options(nostack, preserves_flags)) };
    result
}

/// On the host, each thread of the tests has a mask, as a CPU has. Models and the tests of other crates have none.
#[cfg(not(target_os = "none"))]
mod host {
    #[cfg(all(test, not(loom)))]
    std::thread_local! {
        static ARE_MASKED: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
    }

    /// Returns whether interrupts are masked on this CPU.
    pub fn are_masked() -> bool {
        #[cfg(all(test, not(loom)))]
        return ARE_MASKED.get();
        #[cfg(not(all(test, not(loom))))]
        false
    }

    /// Calls `f` with interrupts masked.
    pub fn with_masked<R>(f: impl FnOnce() -> R) -> R {
        #[cfg(all(test, not(loom)))]
        let before = ARE_MASKED.replace(true);
        let result = f();
        #[cfg(all(test, not(loom)))]
        ARE_MASKED.set(before);
        result
    }
}

#[cfg(not(target_os = "none"))]
pub use host::{are_masked, with_masked};
