//! Makes changes of translation tables take effect on all CPUs of the inner shareable domain (Arm ARM, D8.17).

use core::arch::asm;

use aarch64_cpu::asm::barrier;

/// Makes entries that were invalid before usable for the code that follows. TLBs hold no invalid entries, so there is
/// nothing to remove from them. Another CPU that learns of the entries needs the ISB, too.
#[inline(always)]
pub(super) fn publish() {
    barrier::dsb(barrier::ISHST);
    barrier::isb(barrier::SY);
}

/// Removes the page at the virtual address `address` from the TLBs of all CPUs. The caller has made its entry invalid.
/// When this returns, no access through the old entry is under way.
#[inline(always)]
pub(super) fn invalidate_page(address: usize) {
    // Bits 43–0 are bits 55–12 of the virtual address. Bits 47–44, TTL, are 0: no hint.
    let operand = address >> 12 & ((1 << 44) - 1);
    barrier::dsb(barrier::ISHST);
    // SAFETY: TLBs are caches; the CPU reads a dropped entry from the tables again.
    unsafe { asm!("tlbi vaale1is, {operand}", operand = in(reg) operand, options(nostack, preserves_flags)) };
    barrier::dsb(barrier::ISH);
    barrier::isb(barrier::SY);
}
