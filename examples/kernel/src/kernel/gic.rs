//! The interrupts of each CPU, on QEMU's virt machine: the GICv2 (Arm IHI 0048B).

use core::arch::asm;

const DISTRIBUTOR: usize = 0x800_0000;
const GICD_CTLR: usize = DISTRIBUTOR;
const GICD_ISENABLER0: usize = DISTRIBUTOR + 0x100;
const GICD_SGIR: usize = DISTRIBUTOR + 0xf00;
const INTERFACE: usize = 0x801_0000;
const GICC_CTLR: usize = INTERFACE;
const GICC_PMR: usize = INTERFACE + 0x4;
const GICC_IAR: usize = INTERFACE + 0xc;
const GICC_EOIR: usize = INTERFACE + 0x10;

/// The interrupt of the virtual timer.
pub const TIMER: u32 = 27;
/// The software-generated interrupt by which a CPU holds the others.
pub const HOLD: u32 = 0; // patching

#[inline(always)]
fn write(register: usize, value: u32) {
    // SAFETY: the constants above are registers of the GIC, which is mapped as device memory.
    unsafe { (register as *mut u32).write_volatile(value) };
}

/// Starts the distributor.
pub fn start() {
    write(GICD_CTLR, 1);
}

/// Starts the interface of this CPU.
pub fn start_cpu() {
    write(GICD_ISENABLER0, 1 << TIMER | 0xffff);
    write(GICC_PMR, 0xff);
    write(GICC_CTLR, 1);
}

/// Returns the interrupt that is to be handled, which is then active.
pub fn acknowledge() -> u32 {
    // SAFETY: reads a register of the GIC, which is mapped as device memory.
    unsafe { (GICC_IAR as *const u32).read_volatile() }
}

/// Returns the number of an interrupt that [`acknowledge`] has returned; 1020 or more if its request is gone.
pub fn number(acknowledged: u32) -> u32 {
    // The other bits are the number of the CPU that has sent it.
    acknowledged % 1024
}

/// Ends the interrupt that [`acknowledge`] has returned.
#[inline(always)] // patching
pub fn end(acknowledged: u32) {
    write(GICC_EOIR, acknowledged);
}

/// Interrupts all other CPUs. They see the stores before this.
pub fn interrupt_others(number: u32) {
    // SAFETY: a barrier. The interrupt is no memory access that a weaker one would order (Arm ARM, B2.3.12).
    unsafe { asm!("dsb ishst", options(nostack, preserves_flags)) };
    write(GICD_SGIR, 0b01 << 24 | number);
}
