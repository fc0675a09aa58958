//! The entry to the engine from the kernel's exception vector.
//!
//! The handler of a kernel with vectors of its own, for synchronous exceptions from EL1 (or EL2, if the kernel runs
//! there), begins like this:
//!
//! ```no_run
//! use aarch64_kprobes::exception::{Outcome, TrapFrame, handle_sync};
//!
//! extern "C" fn synchronous(frame: &mut TrapFrame, esr: u64, far: u64) {
//!     // SAFETY: called by the vectors, with interrupts masked and the complete frame of the interrupted code.
//!     let Outcome::Kernel { esr, far } = (unsafe { handle_sync(frame, esr, far) }) else { return };
//!     panic!("exception {esr:#x} at {:#x}, about {far:#x}", frame.pc);
//! }
//! ```
//!
//! The kernel continues with the syndrome and the address that `handle_sync` returns. After a fault of a simulated
//! instruction, these differ from the values in the registers. Everything else that the engine needs from an exception
//! is in the [`TrapFrame`].

pub mod frame;
pub mod nofault;
pub(crate) mod simulate;
pub(crate) mod syndrome;
#[cfg(target_os = "none")]
mod vector;

pub use frame::TrapFrame;
pub use syndrome::{BRK_KPROBE, BRK_LEAVE, BRK_STEPPED};

use simulate::Fault;
use syndrome::{
    EC_BRANCH_TARGET, EC_BREAKPOINT, EC_BRK64, EC_DATA_ABORT, EC_SHIFT, EC_STEP, EC_UNKNOWN, EC_WATCHPOINT,
    INSTRUCTION_32_BIT, ISS_BRK_COMMENT,
};

use crate::probe::hit::{self, Breakpoint};

/// What the kernel has to do about an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// Nothing: the engine has handled the exception, and the kernel returns to the frame.
    Handled,
    /// The exception is the kernel's own, and the frame is correct for it. An instruction that faulted in a slot or a
    /// stub, or while it was simulated, appears to have faulted at its own address, and this CPU's probe state is
    /// clean. If the kernel repairs the fault and returns to the frame, the probe is hit again. If a handler faulted,
    /// or a function that it called, its hit is still in progress: the kernel must return to it on the same CPU.
    ///
    /// A debug exception (a hardware breakpoint or watchpoint, a software step) is not a fault, and execution resumes
    /// after it. The frame then shows where it was taken, which may be in a slot or a stub.
    /// [`probe::recover`](crate::probe::recover) tells which probed code that stands for.
    Kernel {
        /// ESR_EL1, as the instruction would have set it without a probe.
        esr: u64,
        /// FAR_EL1, as the instruction would have set it without a probe.
        far: u64,
    },
}

/// Handles a synchronous exception that the kernel has taken from its own exception level, if it belongs to a probe.
///
/// # Safety
///
/// This is the first function called for a synchronous exception that EL1 has taken from EL1, or EL2 from EL2, with all
/// of PSTATE.DAIF masked, on the stack of the interrupted code. `frame` holds all its registers, which are loaded from
/// there when this returns [`Outcome::Handled`]. `esr` is the value of ESR_EL1, and `far` that of FAR_EL1; at EL2, of
/// the registers that these names access. TPIDR_EL1 leads to the state of this CPU
/// ([`Platform::CPU_OFFSET`](crate::platform::Platform::CPU_OFFSET)).
pub unsafe fn handle_sync(frame: &mut TrapFrame, esr: u64, far: u64) -> Outcome {
    let own = Outcome::Kernel { esr, far };
    #[cfg(all(target_os = "none", feature = "watchpoints"))]
    if hit::watch::exception(frame, esr >> EC_SHIFT & 0x3f, esr, far) {
        return Outcome::Handled;
    }
    if esr >> EC_SHIFT & 0x3f == EC_BRK64 {
        return match (esr & ISS_BRK_COMMENT) as u16 {
            BRK_KPROBE => match hit::breakpoint(frame) {
                Breakpoint::Handled => Outcome::Handled,
                Breakpoint::Foreign => own,
                Breakpoint::Raised(fault) => raised(fault, frame, far),
            },
            BRK_STEPPED if hit::stepped(frame) => Outcome::Handled,
            BRK_LEAVE if hit::stub::leave(frame) || nofault::fix_up(frame, esr) => Outcome::Handled,
            _ => own,
        };
    }
    // Hardware breakpoints, watchpoints and software steps are no faults: the instruction is executed after them.
    if matches!(esr >> EC_SHIFT & 0x3f, EC_BREAKPOINT | EC_STEP | EC_WATCHPOINT) {
        return own;
    }
    if nofault::fix_up(frame, esr) || esr >> EC_SHIFT & 0x3f == EC_DATA_ABORT && hit::snippet_cell::fix_up(frame) {
        return Outcome::Handled;
    }
    hit::faulted(frame);
    own
}

/// Tells the engine that the kernel is about to report `frame` and to stop this CPU. The kernel calls it first thing on
/// every path that does so, with interrupts masked.
///
/// From now on, no handler runs on this CPU. If the report hits a probe, only the instruction is executed. Calls in
/// progress of the task that runs on this CPU count as missed when they return. If the exception was taken in a slot or
/// a stub, `frame` is changed to show the probed code instead: at the probed instruction, or where it goes on after it.
///
/// # Safety
///
/// Interrupts are masked, `frame` holds the registers of the code that was interrupted on this CPU, and no code that
/// was interrupted on this CPU ever resumes: the hit being handled is never finished, and no handler runs on this CPU
/// again. TPIDR_EL1 leads to the state of this CPU ([`Platform::CPU_OFFSET`](crate::platform::Platform::CPU_OFFSET)).
pub unsafe fn abandon(frame: &mut TrapFrame) {
    // SAFETY: the caller guarantees that interrupts are masked and that no interrupted code resumes (see # Safety).
    unsafe { hit::abandon(Some(frame)) };
}

/// Does what [`abandon`] does where there is no frame to report, as in a panic.
///
/// # Safety
///
/// Interrupts are masked, and no code that was interrupted on this CPU resumes. TPIDR_EL1 leads to the state of this
/// CPU ([`Platform::CPU_OFFSET`](crate::platform::Platform::CPU_OFFSET)).
pub unsafe fn abandon_cpu() {
    // SAFETY: the caller guarantees that interrupts are masked and that no interrupted code resumes (see # Safety).
    unsafe { hit::abandon(None) };
}

/// Returns the exception that a simulated instruction would have taken, as the kernel sees it.
fn raised(fault: Fault, frame: &TrapFrame, far: u64) -> Outcome {
    match fault {
        Fault::Read { address, syndrome } => Outcome::Kernel { esr: syndrome, far: address },
        Fault::Authentication { syndrome } => Outcome::Kernel { esr: syndrome, far },
        Fault::Undefined => Outcome::Kernel { esr: EC_UNKNOWN << EC_SHIFT | INSTRUCTION_32_BIT, far },
        Fault::BranchTarget => {
            // The type of the branch is in the syndrome (Arm ARM, ISS encoding of a Branch Target exception).
            let branch_type = frame.pstate >> 10 & 0b11;
            let esr = EC_BRANCH_TARGET << EC_SHIFT | INSTRUCTION_32_BIT | branch_type;
            Outcome::Kernel { esr, far }
        }
    }
}
