//! Masking interrupts, for the short times that the engine needs it outside exceptions.

/// Whether interrupts are masked on this CPU (PSTATE.I).
#[cfg(target_os = "none")]
pub(crate) fn are_masked() -> bool {
    let daif: u64;
    // SAFETY: reads PSTATE.DAIF.
    unsafe { core::arch::asm!("mrs {}, daif", out(reg) daif, options(nomem, nostack, preserves_flags)) };
    daif & crate::exception::TrapFrame::IRQ_MASKED != 0
}

/// Calls `f` with all of PSTATE.DAIF masked, as in the hit path.
///
/// Inlined, so that it is in the region without probes where its caller is.
#[cfg(target_os = "none")]
#[inline(always)]
pub fn with_masked<R>(f: impl FnOnce() -> R) -> R {
    let daif: u64;
    // SAFETY: masking is always allowed. No `nomem`: what `f` does must not move out of the masked region.
    unsafe {
        core::arch::asm!("mrs {}, daif", "msr daifset, #0b1111", out(reg) daif, options(nostack, preserves_flags))
    };
    let result = f();
    // SAFETY: puts back what was read above.
    unsafe { core::arch::asm!("msr daif, {}", in(reg) daif, options(nostack, preserves_flags)) };
    result
}

/// The host's tests have no interrupts.
#[cfg(not(target_os = "none"))]
pub(crate) fn are_masked() -> bool {
    false
}

/// See [`are_masked`].
#[cfg(not(target_os = "none"))]
pub(crate) fn with_masked<R>(f: impl FnOnce() -> R) -> R {
    f()
}
