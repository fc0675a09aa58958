//! The Rust part of `kprobes_vector` (`trampoline/vector.S`), the entry for a kernel with exception vectors of its own.

use core::arch::asm;

use super::{Outcome, TrapFrame, handle_sync};

/// Handles a synchronous exception that `kprobes_exception` did not. Returns whether it has been handled; if not,
/// ESR_EL1 and FAR_EL1 hold the values that the kernel is to see.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.vector")]
extern "C" fn kprobes_vector_unusual(frame: &mut TrapFrame) -> bool {
    let (esr, far): (u64, u64);
    // SAFETY: reads ESR_EL1 and FAR_EL1, which hold the values of this exception while interrupts are masked.
    unsafe { asm!("mrs {}, esr_el1", "mrs {}, far_el1", out(reg) esr, out(reg) far, options(nomem, nostack)) };
    // SAFETY: `kprobes_vector` calls this first thing in the exception; it has stored the whole frame, and loads it
    // again.
    let Outcome::Kernel { esr, far } = (unsafe { handle_sync(frame, esr, far) }) else { return true };
    // SAFETY: only the kernel's handler reads the two registers, and interrupts are masked until it does.
    unsafe { asm!("msr esr_el1, {}", "msr far_el1, {}", in(reg) esr, in(reg) far, options(nomem, nostack)) };
    false
}
