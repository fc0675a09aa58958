//! Masks interrupts, for the short times that the engine needs it outside exceptions.

/// Returns whether interrupts are masked on this CPU (PSTATE.I).
#[cfg(target_os = "none")]
pub(crate) fn are_masked() -> bool {
    let daif: u64;
    // SAFETY: reads PSTATE.DAIF.
    unsafe { core::arch::asm!("mrs {}, daif", out(reg) daif, options(nomem, nostack, preserves_flags)) };
    daif & crate::exception::TrapFrame::IRQ_MASKED != 0
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

/// Returns false: the host's tests have no interrupts.
#[cfg(not(target_os = "none"))]
pub(crate) fn are_masked() -> bool {
    false
}

/// Calls `f`: the host's tests have no interrupts to mask.
#[cfg(not(target_os = "none"))]
pub(crate) fn with_masked<R>(f: impl FnOnce() -> R) -> R {
    f()
}
