//! What makes changes of translation tables take effect, on all CPUs of the inner shareable domain (Arm ARM, D8.17).

use core::arch::asm;

use aarch64_cpu::asm::barrier;

/// Makes entries that were invalid before usable by the code that follows. The TLBs hold no invalid entries, so there is
/// nothing to be removed, on any CPU. Another one that learns of the entries after this needs the ISB, too.
#[inline(always)]
pub(super) fn publish() {
    barrier::dsb(barrier::ISHST);
    barrier::isb(barrier::SY);
}

/// Removes the page at the virtual address `address` from the TLBs of all CPUs, after its entry was made invalid; when
/// this returns, no access through it is under way any more.
#[inline(always)]
pub(super) fn invalidate_page(address: usize) {
    // Bits 43–0: virtual address bits 55–12. TTL, bits 47–44, is 0: no hint.
    let operand = address >> 12 & ((1 << 44) - 1);
    barrier::dsb(barrier::ISHST);
    // SAFETY: the TLBs are caches; an entry that is dropped is read again from the tables.
    unsafe { asm!("tlbi vaale1is, {operand}", operand = in(reg) operand, options(nostack, preserves_flags)) };
    barrier::dsb(barrier::ISH);
    barrier::isb(barrier::SY);
}
