//! The CPU's own software step (Arm ARM, D2.12). It needs no probe, and stops before every instruction that is executed
//! with debug exceptions unmasked.

use core::arch::asm;

use aarch64_kprobes::exception::TrapFrame;
use runtime::exception;
use runtime::sync::{IrqLock, IrqMask};

/// A function that gets the registers before each instruction.
type Each = fn(&mut TrapFrame);

static EACH: IrqLock<Option<Each>> = IrqLock::new(None);

/// ESR_EL1.EC of exceptions from the same level (Arm ARM, D24.2.40).
const EC_STEP: u64 = 0x33;
const EC_BRK: u64 = 0x3c;
/// The immediates of the breakpoints that begin and end stepping.
const BEGIN: u64 = 0x100;
const END: u64 = 0x101;
/// SPSR_EL1.SS, and the mask of debug exceptions in SPSR_EL1 (C5.2.19).
const STEP: u64 = 1 << 21;
const DEBUG_MASKED: u64 = 1 << 9;
/// MDSCR_EL1.KDE and SS (D24.3.20) enable software step, also at EL1.
const STEP_ENABLED: u64 = 1 << 13 | 1;

/// Handles the exceptions of stepping.
fn handle(frame: &mut TrapFrame, esr: u64, _: u64) -> bool {
    let set_debug = |value: u64| {
        // SAFETY: nothing else uses the register, and debug exceptions are masked here. The exception return
        // synchronizes the write.
        unsafe { asm!("msr mdscr_el1, {}", in(reg) value, options(nomem, nostack)) };
    };
    match (esr >> 26 & 0x3f, esr & 0xffff) {
        (EC_BRK, BEGIN) => {
            frame.pc += 4;
            frame.pstate = frame.pstate & !DEBUG_MASKED | STEP;
            set_debug(STEP_ENABLED);
        }
        (EC_BRK, END) => {
            frame.pc += 4;
            frame.pstate = frame.pstate & !STEP | DEBUG_MASKED;
            set_debug(0);
        }
        (EC_STEP, _) => {
            let each = *EACH.lock();
            each.expect("it was given before the first step")(frame);
            frame.pstate |= STEP;
        }
        _ => return false,
    }
    true
}

/// Runs `program` step by step, with interrupts masked.
#[inline(always)]
pub fn run<R>(each: Each, program: impl FnOnce() -> R) -> R {
    *EACH.lock() = Some(each);
    // SAFETY: the handler changes only the state of stepping, and continues after a breakpoint or at the next
    // instruction. The functions that are passed as `each` leave the registers as they are.
    unsafe { exception::set_fault_handler(handle) };
    let _mask = IrqMask::new();
    // SAFETY: `handle` continues after the breakpoint, with all registers unchanged.
    unsafe { asm!("brk #{}", const BEGIN) };
    let result = program();
    // SAFETY: `handle` continues after the breakpoint, with all registers unchanged.
    unsafe { asm!("brk #{}", const END) };
    result
}
