//! Cache maintenance by address, for memory that instructions are executed from.
//!
//! The instruction cache need not see what is in the data cache, nor notice that memory has changed. Before memory is
//! executed that was written, the data cache is cleaned to the point of unification, then the instruction cache is
//! invalidated, by the address that is executed, each completed by a barrier (Arm ARM, B2.4.4 and D7.5.9.4). Where
//! CTR_EL0 says that one of them is not needed (IDC, DIC; Arm ARM, D24.2.34), its barrier remains.

use core::arch::asm;
use core::ops::Range;

use aarch64_cpu::asm::barrier;
use tock_registers::{LocalRegisterCopy, register_bitfields};

register_bitfields! {
    u64,
    /// CTR_EL0.
    CacheType [
        /// log2 of the words in the smallest instruction cache line.
        INSTRUCTION_LINE OFFSET(0) NUMBITS(4) [],
        /// log2 of the words in the smallest data cache line.
        DATA_LINE OFFSET(16) NUMBITS(4) [],
        /// IDC: instructions see data without a clean.
        DATA_COHERENT OFFSET(28) NUMBITS(1) [],
        /// DIC: instructions need no invalidation.
        INSTRUCTION_COHERENT OFFSET(29) NUMBITS(1) [],
    ],
}

fn cache_type() -> LocalRegisterCopy<u64, CacheType::Register> {
    let value;
    // SAFETY: reads an identification register.
    unsafe { asm!("mrs {}, ctr_el0", out(reg) value, options(nomem, nostack, preserves_flags)) };
    LocalRegisterCopy::new(value)
}

/// Cleans the data cache lines that hold `length` bytes at the virtual address `address`, which are mapped, to the point
/// of unification.
pub(super) fn clean_to_unification(address: usize, length: usize) {
    let cache_type = cache_type();
    if !cache_type.is_set(CacheType::DATA_COHERENT) {
        for line in lines(address..address + length, cache_type.read(CacheType::DATA_LINE)) {
            // SAFETY: cleaning changes no memory, and the caller has mapped the address.
            unsafe { asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
    }
    barrier::dsb(barrier::ISH);
}

/// Cleans the data cache lines that hold `length` bytes at the virtual address `address`, which are mapped, to the point of
/// coherency, and drops them, so that what is written there past the caches is seen as well.
pub(crate) fn clean_to_coherency(address: usize, length: usize) {
    for line in lines(address..address + length, cache_type().read(CacheType::DATA_LINE)) {
        // SAFETY: cleaning and dropping changes no memory, and the caller has mapped the address.
        unsafe { asm!("dc civac, {}", in(reg) line, options(nostack, preserves_flags)) };
    }
    barrier::dsb(barrier::SY);
}

/// Invalidates the instruction cache lines that hold `length` bytes at the virtual address `address`, which are mapped,
/// on all CPUs, and makes this one fetch again.
pub(super) fn invalidate_instructions(address: usize, length: usize) {
    let cache_type = cache_type();
    if !cache_type.is_set(CacheType::INSTRUCTION_COHERENT) {
        for line in lines(address..address + length, cache_type.read(CacheType::INSTRUCTION_LINE)) {
            // SAFETY: instruction caches hold nothing that is not in memory, and the caller has mapped the address.
            unsafe { asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
    }
    barrier::dsb(barrier::ISH);
    barrier::isb(barrier::SY);
}

/// The addresses of the lines of `4 << log2_words` bytes that hold `bytes`.
fn lines(bytes: Range<usize>, log2_words: u64) -> impl Iterator<Item = usize> {
    let size = 4 << log2_words;
    (bytes.start & !(size - 1)..bytes.end).step_by(size)
}
