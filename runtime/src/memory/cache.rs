//! Cache maintenance by address, for observers that do not see this CPU's caches: CPUs whose caches are off, and
//! devices that read and write memory. The maintenance for executing memory is the engine's
//! ([`aarch64_kprobes::cache`]).

use core::arch::asm;

use aarch64_cpu::asm::barrier;
use aarch64_kprobes::cache;

/// Cleans the data cache lines of `length` mapped bytes at the virtual address `address` to the point of coherency, and
/// invalidates them.
///
/// After that, reads see what is written to the memory past the caches (Arm ARM, D7.5.9). The maintenance is complete
/// when this returns, before any later access.
pub(crate) fn clean_to_coherency(address: usize, length: usize) {
    let line = cache::data_line();
    for line in (address & !(line - 1)..address + length).step_by(line) {
        // SAFETY: cleaning and invalidating a line does not change the contents of memory, and the caller has mapped
        // the address.
        unsafe { asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    barrier::dsb(barrier::SY);
}
