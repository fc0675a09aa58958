//! The vectors (Arm ARM, D1.4.1), and the handler of interrupts.

use core::arch::{asm, global_asm};

use kprobes_symbols::image;

use super::{interrupts, task, timer};
use crate::patching; // patching
use crate::probes; // probes

unsafe extern "C" {
    pub fn vectors();
}

global_asm!(
    ".section .text.vectors, \"ax\"",
    ".section .kprobes.text.vectors, \"ax\"", // probes
    ".balign 2048",
    ".global vectors",
    ".type vectors, %function",
    "vectors:",
    ".rept 4",
    "b {unexpected}",
    ".balign 128",
    ".endr",
    // The CPU has taken these from EL1, with SP_EL1: synchronous exceptions, then interrupts.
    "b kprobes_vector",                                  // probes
    ".global kprobes_host_vector; kprobes_host_vector:", // probes
    "b {unexpected}",
    ".balign 128",
    "b interrupted",
    ".rept 10",
    ".balign 128",
    "b {unexpected}",
    ".endr",
    ".balign 128",
    ".size vectors, . - vectors",
    // Saves what a call may change, on the stack of the interrupted task, and what another exception would.
    ".type interrupted, %function",
    "interrupted:",
    "stp x29, x30, [sp, #-192]!",
    "mov x29, sp",
    "stp x0, x1, [sp, #16]",
    "stp x2, x3, [sp, #32]",
    "stp x4, x5, [sp, #48]",
    "stp x6, x7, [sp, #64]",
    "stp x8, x9, [sp, #80]",
    "stp x10, x11, [sp, #96]",
    "stp x12, x13, [sp, #112]",
    "stp x14, x15, [sp, #128]",
    "stp x16, x17, [sp, #144]",
    "mrs x0, elr_el1",
    "mrs x1, spsr_el1",
    "stp x18, x0, [sp, #160]",
    "str x1, [sp, #176]",
    "bl {handle_interrupt}",
    "ldp x18, x0, [sp, #160]",
    "ldr x1, [sp, #176]",
    "msr elr_el1, x0",
    "msr spsr_el1, x1",
    "ldp x0, x1, [sp, #16]",
    "ldp x2, x3, [sp, #32]",
    "ldp x4, x5, [sp, #48]",
    "ldp x6, x7, [sp, #64]",
    "ldp x8, x9, [sp, #80]",
    "ldp x10, x11, [sp, #96]",
    "ldp x12, x13, [sp, #112]",
    "ldp x14, x15, [sp, #128]",
    "ldp x16, x17, [sp, #144]",
    "ldp x29, x30, [sp], #192",
    "eret",
    ".size interrupted, . - interrupted",
    unexpected = sym unexpected,
    handle_interrupt = sym handle_interrupt,
);

/// Handles the interrupt of the code at `pc`, with interrupts masked.
extern "C" fn handle_interrupt(pc: usize) {
    probes::set_interrupted(pc); // probes
    let interrupt = interrupts::acknowledge();
    match interrupts::number(interrupt) {
        interrupts::TIMER => {
            timer::next_tick();
            interrupts::end(interrupt);
            task::preempt();
        }
        interrupts::HOLD => patching::wait_while_held(interrupt), // patching
        1020.. => {}                                              // The request is gone.
        _ => interrupts::end(interrupt),
    }
    probes::set_interrupted(0); // probes
}

/// Reports an exception that has no expected cause.
#[unsafe(link_section = ".kprobes.text.unexpected")] // probes
extern "C" fn unexpected() -> ! {
    let (esr, elr, far): (u64, usize, u64);
    // SAFETY: reads three registers.
    unsafe { asm!("mrs {}, esr_el1", "mrs {}, elr_el1", "mrs {}, far_el1", out(reg) esr, out(reg) elr, out(reg) far) };
    // SAFETY: the vector has masked interrupts, and the report does not return.
    unsafe { aarch64_kprobes::exception::abandon_cpu() }; // probes
    let name = image::checked().and_then(|table| table.lookup(elr as u64)).map_or("?", |function| function.name);
    panic!("exception {esr:#x} at {elr:#x} in {name}, address {far:#x}")
}
