//! What the vectors call. All of it runs with PSTATE.DAIF masked.
//!
//! What ends in a report lies with the code of the engine that refuses probes, up to where the engine has been told
//! that this CPU leaves the probes behind: a probe before that could be hit while the instruction of another is in its
//! slot, which leads here again.

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

/// A synchronous exception from the kernel itself: the engine's, or a defect. A probe on it would be hit by its own
/// breakpoint, so it lies with the code of the engine that refuses probes.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.runtime_el1_sync")]
extern "C" fn runtime_el1_sync(frame: &mut TrapFrame, esr: u64, far: u64) {
    // SAFETY: trampoline/vectors.S calls this so: DAIF is masked, the frame is complete, and is returned to.
    let Outcome::Kernel { esr, far } = (unsafe { handle_sync(frame, esr, far) }) else { return };
    if FAULT_HANDLER.get().is_some_and(|handler| handler(frame, esr, far)) {
        return;
    }
    // SAFETY: the vectors have called this with DAIF masked and the complete frame, and the report does not return.
    unsafe { abandon(frame) };
    report::unexpected(frame, SYNCHRONOUS, esr, far)
}

/// Repairs faults of the kernel itself: it is given the registers, ESR_EL1 and FAR_EL1, and returns whether execution
/// is to resume at the frame.
pub type FaultHandler = fn(&mut TrapFrame, u64, u64) -> bool;

static FAULT_HANDLER: Once<FaultHandler> = Once::new();

/// Has `handler` called for every synchronous exception that the engine does not handle, before it is reported. The
/// first handler stays.
///
/// # Safety
///
/// The interrupted code must be able to go on with every frame that `handler` returns true for.
pub unsafe fn set_fault_handler(handler: FaultHandler) {
    FAULT_HANDLER.call_once(|| handler);
}

/// The number of the vector of synchronous exceptions from EL1 on SP_EL1.
const SYNCHRONOUS: u64 = 4;

/// An interrupt.
#[unsafe(no_mangle)]
extern "C" fn runtime_el1_irq(frame: &mut TrapFrame) {
    interrupt::dispatch(frame.pc as usize);
    task::preempt(frame.pc as usize);
}

/// The number of the vector of fast interrupts from EL1 on SP_EL1.
const FAST: u64 = 6;

/// A fast interrupt. No hit is being handled, and no instruction stepped: both mask it.
#[unsafe(no_mangle)]
extern "C" fn runtime_el1_fiq(frame: &mut TrapFrame) {
    if !interrupt::fast::dispatch(frame) {
        runtime_unexpected(frame, FAST, 0, 0);
    }
}

/// An exception that there is no reason for, by the vector with the number `vector`, from 0 to 15.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.runtime_unexpected")]
extern "C" fn runtime_unexpected(frame: &mut TrapFrame, vector: u64, esr: u64, far: u64) -> ! {
    // SAFETY: the vectors have called this with DAIF masked and the complete frame, and the report does not return.
    unsafe { abandon(frame) };
    report::unexpected(frame, vector, esr, far)
}

/// An exception whose trap frame had no room below the stack pointer. It runs on the emergency stack.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.runtime_stack_overflow")]
extern "C" fn runtime_stack_overflow(frame: &mut TrapFrame, esr: u64, far: u64) -> ! {
    // SAFETY: the vectors have called this with DAIF masked and the complete frame, and the report does not return.
    unsafe { abandon(frame) };
    report::stack_overflow(frame, esr, far)
}
