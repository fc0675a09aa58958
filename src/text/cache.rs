//! Cache maintenance by address for words that become instructions. The engine uses it for its own writes, and a kernel
//! for memory that it maps as executable.
//!
//! The instruction cache need not see what is in the data cache, nor notice that memory has changed. So before memory
//! that was written is executed, the data cache is cleaned to the point of unification; then the instruction cache is
//! invalidated, by the address at which the memory is executed. A barrier completes each step (Arm ARM, B2.4.4 and
//! D7.5.9). A barrier completes only the maintenance of the CPU that executes it, so a task must not be moved to
//! another CPU meanwhile.
//!
//! CTR_EL0 gives the line sizes, and tells whether the maintenance is needed at all: where IDC or DIC is set, the
//! hardware keeps the caches coherent to the point of unification (Arm ARM, D24.2.37), and only the barriers remain.
//! The CPUs of a machine may have different caches, and the maintenance is for all of them, so it follows what the CPUs
//! that have called [`embedding::check`](crate::embedding::check) have in common.

#[cfg(target_os = "none")]
use core::sync::atomic::AtomicU64;
#[cfg(target_os = "none")]
use core::sync::atomic::Ordering::Relaxed;

/// Cleans the data cache lines that hold the words at these byte offsets from the virtual address `base` to the point
/// of unification. Consecutive words in one line are cleaned together.
///
/// The words may have been written through another virtual address: data caches are physically tagged.
///
/// # Safety
///
/// The words are mapped and readable at `base`. The caller stays on this CPU until the function returns.
#[cfg(target_os = "none")]
#[inline(always)] // An iterator that is handed over may be moved by memcpy, which can be probed.
pub unsafe fn clean_data(base: usize, offsets: impl Iterator<Item = usize>) {
    let type_register = cache_type();
    if type_register & CTR_IDC == 0 {
        for line in lines(offsets.map(|offset| base + offset), data_line_of(type_register)) {
            // SAFETY: cleaning changes no memory, and the caller guarantees that the address is mapped (see # Safety).
            unsafe { core::arch::asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
    }
    // SAFETY: a barrier.
    unsafe { core::arch::asm!("dsb ish", options(nostack, preserves_flags)) };
}

/// Invalidates the instruction cache lines of the words at these virtual addresses on all CPUs, and makes this CPU
/// refetch.
///
/// # Safety
///
/// The words are mapped and readable. The caller stays on this CPU until the function returns.
#[cfg(target_os = "none")]
#[inline(always)] // The iterator may be moved by memcpy, which can be probed.
pub unsafe fn invalidate_instructions(addresses: impl Iterator<Item = usize>) {
    let type_register = cache_type();
    if type_register & CTR_DIC == 0 {
        for line in lines(addresses, 4 << (type_register & 0xf)) {
            // SAFETY: invalidating loses nothing, because instruction caches are never written back. The caller
            // guarantees that the address is mapped (see # Safety).
            unsafe { core::arch::asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
    }
    refetch();
}

/// Completes the invalidation, and has the following instructions fetched anew. It is a function of its own so that a
/// caller's loop over pages contains no ISB: the audit takes a loop with an ISB for a loop that waits.
#[cfg(target_os = "none")]
#[inline(never)]
fn refetch() {
    // SAFETY: barriers.
    unsafe { core::arch::asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

/// Returns the size of the smallest data cache line, in bytes.
#[cfg(target_os = "none")]
#[must_use]
pub fn data_line() -> usize {
    data_line_of(cache_type())
}

/// Returns the size of the smallest data cache line, in bytes, for this value of CTR_EL0. DminLine is log2 of the
/// line's words.
#[cfg(target_os = "none")]
const fn data_line_of(type_register: u64) -> usize {
    4 << ((type_register >> CTR_DMIN_LINE) & 0xf)
}

/// CTR_EL0.DminLine, bits 19 to 16.
#[cfg(any(target_os = "none", test))]
const CTR_DMIN_LINE: u32 = 16;
/// CTR_EL0.IDC: no clean of data is needed for instructions to see it.
#[cfg(any(target_os = "none", test))]
const CTR_IDC: u64 = 1 << 28;
/// CTR_EL0.DIC: no invalidation of instructions is needed.
#[cfg(any(target_os = "none", test))]
const CTR_DIC: u64 = 1 << 29;

/// The value of CTR_EL0 that fits all CPUs for which [`join`] was called; 0 before the first. The register itself is
/// never 0: its bit 31 is RES1.
#[cfg(target_os = "none")]
static COMMON: AtomicU64 = AtomicU64::new(0);

/// Makes the maintenance cover the caches of this CPU. Called in a task, or before there are tasks.
#[cfg(target_os = "none")]
#[inline(always)] // It is not part of the closed region that this module is in.
pub(crate) fn join() {
    let own = own_cache_type();
    let mut before = 0;
    let mut joined = own;
    while let Err(other) = COMMON.compare_exchange(before, joined, Relaxed, Relaxed) {
        (before, joined) = (other, common(other, own));
    }
    // Maintenance that came before may have left out what only this CPU has.
    // SAFETY: invalidating loses nothing, because instruction caches are never written back.
    unsafe { core::arch::asm!("ic iallu", "dsb nsh", "isb", options(nostack, preserves_flags)) };
}

/// Returns a value of CTR_EL0 that fits the caches of both: the smaller lines, and maintenance where one of them needs
/// it.
#[cfg(any(target_os = "none", test))]
#[inline(always)]
const fn common(one: u64, other: u64) -> u64 {
    const LINE: u64 = 0xf;
    #[inline(always)]
    const fn smaller(one: u64, other: u64, field: u64) -> u64 {
        if one & field < other & field { one & field } else { other & field }
    }
    const LINES: u64 = LINE | LINE << CTR_DMIN_LINE;
    const COHERENT: u64 = CTR_IDC | CTR_DIC;
    one & !(LINES | COHERENT)
        | smaller(one, other, LINE)
        | smaller(one, other, LINE << CTR_DMIN_LINE)
        | one & other & COHERENT
}

#[cfg(target_os = "none")]
fn cache_type() -> u64 {
    match COMMON.load(Relaxed) {
        0 => own_cache_type(),
        common => common,
    }
}

#[cfg(target_os = "none")]
#[inline(always)]
fn own_cache_type() -> u64 {
    let value: u64;
    // SAFETY: reads an identification register.
    unsafe { core::arch::asm!("mrs {}, ctr_el0", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Returns the addresses of the lines of `size` bytes that hold the words at `addresses`. Consecutive words in one line
/// give it once.
#[cfg(any(target_os = "none", test))]
fn lines(addresses: impl Iterator<Item = usize>, size: usize) -> impl Iterator<Item = usize> {
    let mut last = None;
    addresses.map(move |address| address & !(size - 1)).filter(move |&line| last.replace(line) != Some(line))
}

/// Does nothing: the host's tests do not execute the words that they write.
///
/// # Safety
///
/// It does nothing, so any argument is safe.
#[cfg(not(target_os = "none"))]
pub unsafe fn clean_data(_base: usize, _offsets: impl Iterator<Item = usize>) {}

/// Does nothing: the host's tests do not execute the words that they write.
///
/// # Safety
///
/// It does nothing, so any argument is safe.
#[cfg(not(target_os = "none"))]
pub unsafe fn invalidate_instructions(_addresses: impl Iterator<Item = usize>) {}

#[cfg(test)]
mod tests {
    use super::{common, lines};

    /// A CPU with larger lines, or without a need for maintenance, would leave out lines of the others.
    #[test]
    fn maintenance_fits_the_caches_of_all_cpus() {
        const BIG: u64 = 0xb444_c004;
        const LITTLE: u64 = 0x8443_8003;
        assert_eq!(common(LITTLE, LITTLE), LITTLE);
        for (one, other) in [(BIG, LITTLE), (LITTLE, BIG)] {
            let common = common(one, other);
            assert_eq!((common & 0xf, common >> 16 & 0xf, common >> 28), (3, 3, 0x8), "{common:#x}");
        }
        // The CPU with the larger lines of data has the smaller lines of instructions.
        assert_eq!(common(0x8003_0004, 0x8004_0003), 0x8003_0003);
    }

    #[test]
    fn lines_cover_the_words() {
        let of = |addresses: &[usize]| lines(addresses.iter().copied(), 64).collect::<Vec<_>>();
        assert_eq!(of(&[0x1000]), [0x1000]);
        assert_eq!(of(&[0x103c, 0x1040]), [0x1000, 0x1040]);
        assert_eq!(of(&[0x1040, 0x1044, 0x107c, 0x1080]), [0x1040, 0x1080]);
        assert_eq!(of(&[0x1040, 0x2000, 0x1044]), [0x1040, 0x2000, 0x1040]);
    }
}
