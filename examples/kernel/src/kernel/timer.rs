//! The virtual timer of each CPU (Arm ARM, D12).

use core::arch::asm;

/// Starts the timer of this CPU.
pub fn start() {
    next_tick();
    // SAFETY: enables the timer (CNTV_CTL_EL0.ENABLE), whose interrupt has a handler.
    unsafe { asm!("msr cntv_ctl_el0, {}", in(reg) 1_u64, options(nostack, preserves_flags)) };
}

/// Ends the request of the timer, and has it interrupt this CPU in a millisecond.
pub fn next_tick() {
    // SAFETY: sets the time of an interrupt that has a handler.
    unsafe {
        asm!(
            "mrs {0}, cntfrq_el0", "udiv {0}, {0}, {1}", "msr cntv_tval_el0, {0}", "isb",
            out(reg) _, in(reg) 1000_u64, options(nostack, preserves_flags)
        );
    }
}
