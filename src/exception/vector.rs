//! The rest of `kprobes_vector` (`trampoline/vector.S`), the way in for a kernel with exception vectors of its own.

use core::arch::asm;

use super::{Outcome, TrapFrame, handle_sync};

/// A synchronous exception that is no usual hit. Returns whether it has been dealt with; if not, ESR_EL1 and FAR_EL1 are those that
/// the kernel is to see.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.vector")]
extern "C" fn kprobes_vector_unusual(frame: &mut TrapFrame) -> bool {
    let (esr, far): (u64, u64);
    // SAFETY: reads two registers of this exception.
    unsafe { asm!("mrs {}, esr_el1", "mrs {}, far_el1", out(reg) esr, out(reg) far, options(nomem, nostack)) };
    // SAFETY: called first thing in the exception, by `kprobes_vector`, which has stored the whole frame and loads it again.
    let Outcome::Kernel { esr, far } = (unsafe { handle_sync(frame, esr, far) }) else { return true };
    // SAFETY: nothing but the kernel's handler reads them, and interrupts are masked until then.
    unsafe { asm!("msr esr_el1, {}", "msr far_el1, {}", in(reg) esr, in(reg) far, options(nomem, nostack)) };
    false
}
