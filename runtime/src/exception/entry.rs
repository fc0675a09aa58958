//! The functions that the exception vectors call, with PSTATE.DAIF masked.
//!
//! The functions that end in a report lie in the engine's section that refuses probes, up to the point where they have
//! told the engine that this CPU abandons its probes. An earlier probe could be hit while another probe's instruction
//! is in its slot, and that hit would lead here again.

use core::arch::asm;

use aarch64_kprobes::exception::{Outcome, TrapFrame, abandon, handle_sync};

use spin::Once;

use super::report;
use crate::memory::layout;
use crate::{interrupt, task};

core::arch::global_asm!(
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../trampoline/frame.S")),
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../trampoline/vectors.S")),
    FRAME_SIZE = const TrapFrame::SIZE,
    FRAME_SP = const TrapFrame::SP,
    FRAME_PC = const TrapFrame::PC,
    FRAME_RECORD = const TrapFrame::RECORD,
    STACK_SHIFT = const layout::STACK_SHIFT,
);

/// Handles a synchronous exception from the kernel itself: the engine's breakpoint, or a defect. A probe on this
/// function would hit its own breakpoint, so the function lies in the section that refuses probes.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.runtime_el1_sync")]
extern "C" fn runtime_el1_sync(frame: &mut TrapFrame, esr: u64, far: u64) {
    // SAFETY: trampoline/vectors.S calls this with DAIF masked and a complete frame, and returns to the frame.
    let Outcome::Kernel { esr, far } = (unsafe { handle_sync(frame, esr, far) }) else { return };
    if FAULT_HANDLER.get().is_some_and(|handler| handler(frame, esr, far)) {
        return;
    }
    // SAFETY: the vectors have called this with DAIF masked and a complete frame, and the report does not return.
    unsafe { abandon(frame) };
    report::unexpected(frame, SYNCHRONOUS, esr, far)
}

/// A function that repairs faults of the kernel itself. It takes the registers, ESR_EL1 and FAR_EL1, and returns
/// whether execution is to resume at the frame.
pub type FaultHandler = fn(&mut TrapFrame, u64, u64) -> bool;

static FAULT_HANDLER: Once<FaultHandler> = Once::new();

/// Registers `handler` for every synchronous exception that the engine does not handle. It is called before the
/// exception is reported. Only the first handler is kept.
///
/// # Safety
///
/// The interrupted code must be able to go on with every frame for which `handler` returns true.
pub unsafe fn set_fault_handler(handler: FaultHandler) {
    FAULT_HANDLER.call_once(|| handler);
}

/// The number of the vector for synchronous exceptions from EL1 with SP_EL1.
const SYNCHRONOUS: u64 = 4;

/// Handles an interrupt, then lets another task run if one is due. Debug exceptions are unmasked meanwhile, unless the
/// interrupted code had them masked, so that watchpoints see what handlers of interrupts access.
#[unsafe(no_mangle)]
extern "C" fn runtime_el1_irq(frame: &mut TrapFrame) {
    let is_masked = frame.pstate & DEBUG_MASKED != 0;
    if !is_masked {
        // SAFETY: the state of the interrupted code is in the frame, so that another exception may come.
        unsafe { asm!("msr daifclr, #0b1000", options(nostack, preserves_flags)) };
    }
    interrupt::dispatch(frame);
    task::preempt(frame.pc as usize);
    // SAFETY: masking is always allowed. The return from the exception loads ELR_EL1, which another exception would
    // overwrite.
    unsafe { asm!("msr daifset, #0b1000", options(nostack, preserves_flags)) };
}

/// The mask of debug exceptions in SPSR_EL1 (Arm ARM, C5.2.19).
const DEBUG_MASKED: u64 = 1 << 9;

/// Returns whether the vectors of interrupts call the function at this virtual address.
pub(crate) fn is_interrupt_entry(function: usize) -> bool {
    let entries: [extern "C" fn(&mut TrapFrame); 2] = [runtime_el1_irq, runtime_el1_fiq];
    entries.iter().any(|&entry| entry as usize == function)
}

/// The number of the vector for fast interrupts from EL1 with SP_EL1.
const FAST: u64 = 6;

/// Handles a fast interrupt. No hit is being handled and no instruction is being stepped, because both mask fast
/// interrupts.
#[unsafe(no_mangle)]
extern "C" fn runtime_el1_fiq(frame: &mut TrapFrame) {
    if !interrupt::fast::dispatch(frame) {
        runtime_unexpected(frame, FAST, 0, 0);
    }
}

/// Reports an exception that has no expected cause. It came by the vector with the number `vector`, from 0 to 15.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.runtime_unexpected")]
extern "C" fn runtime_unexpected(frame: &mut TrapFrame, vector: u64, esr: u64, far: u64) -> ! {
    // SAFETY: the vectors have called this with DAIF masked and a complete frame, and the report does not return.
    unsafe { abandon(frame) };
    report::unexpected(frame, vector, esr, far)
}

/// Reports an exception whose trap frame does not fit below the stack pointer. Runs on the emergency stack.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.runtime_stack_overflow")]
extern "C" fn runtime_stack_overflow(frame: &mut TrapFrame, esr: u64, far: u64) -> ! {
    // SAFETY: the vectors have called this with DAIF masked and a complete frame, and the report does not return.
    unsafe { abandon(frame) };
    report::stack_overflow(frame, esr, far)
}
