//! The interrupts of each CPU, on a Raspberry Pi 3: the local peripherals of the BCM2836 (QA7, revision 3.4).

use core::arch::asm;

use super::cpu::{self, CPUS};

const BASE: usize = 0x4000_0000;
const TIMERS_CONTROL: usize = BASE + 0x40;
const MAILBOXES_CONTROL: usize = BASE + 0x50;
const SOURCE: usize = BASE + 0x60;
const MAILBOX_SET: usize = BASE + 0x80;
const MAILBOX_CLEAR: usize = BASE + 0xc0;

// Interrupts are numbered by their bit of the source register.
/// The interrupt of the virtual timer.
pub const TIMER: u32 = 3;
/// The interrupt of mailbox 0, by which a CPU holds the others.
pub const HOLD: u32 = 4; // patching

#[inline(always)]
fn write(register: usize, value: u32) {
    // SAFETY: the constants above are registers of the local peripherals, which are mapped as device memory.
    unsafe { (register as *mut u32).write_volatile(value) };
}

/// There is nothing to start for all CPUs.
pub fn start() {}

/// Has the timer and mailbox 0 interrupt this CPU.
pub fn start_cpu() {
    write(TIMERS_CONTROL + 4 * cpu::number(), 1 << TIMER);
    write(MAILBOXES_CONTROL + 4 * cpu::number(), 1);
}

/// Returns the interrupt that is to be handled; 1020 or more if its request is gone.
pub fn acknowledge() -> u32 {
    // SAFETY: reads a register of the local peripherals, which are mapped as device memory.
    let pending = unsafe { ((SOURCE + 4 * cpu::number()) as *const u32).read_volatile() };
    [HOLD, TIMER].into_iter().find(|bit| pending & 1 << bit != 0).unwrap_or(1023)
}

/// Returns the number of an interrupt that [`acknowledge`] has returned.
pub fn number(acknowledged: u32) -> u32 {
    acknowledged
}

/// Ends the interrupt that [`acknowledge`] has returned. The timer's interrupt ends with its request.
#[inline(always)] // patching
pub fn end(acknowledged: u32) {
    if acknowledged == HOLD {
        write(MAILBOX_CLEAR + 16 * cpu::number(), u32::MAX);
    }
}

/// Interrupts all other CPUs. They see the stores before this.
pub fn interrupt_others(_: u32) {
    // SAFETY: a barrier. The interrupt is no memory access that a weaker one would order (Arm ARM, B2.3.12).
    unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) };
    (0..CPUS).filter(|&other| other != cpu::number()).for_each(|other| write(MAILBOX_SET + 16 * other, 1));
}
