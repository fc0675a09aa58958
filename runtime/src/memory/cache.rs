//! Cache maintenance by address, for who does not see this CPU's caches: CPUs whose own are off, and devices that read and
//! write memory. What it takes to execute memory is the engine's ([`aarch64_kprobes::cache`]).

use core::arch::asm;

use aarch64_cpu::asm::barrier;
use aarch64_kprobes::cache;

/// Cleans the data cache lines that hold `length` bytes at the virtual address `address`, which are mapped, to the point of
/// coherency, and drops them, so that what is written there past the caches is seen as well (Arm ARM, D7.5.9.4). When this
/// returns it is done, before any access that follows.
pub(crate) fn clean_to_coherency(address: usize, length: usize) {
    let line = cache::data_line();
    for line in (address & !(line - 1)..address + length).step_by(line) {
        // SAFETY: cleaning and dropping changes no memory, and the caller has mapped the address.
        unsafe { asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    barrier::dsb(barrier::SY);
}
