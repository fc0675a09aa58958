//! Cache maintenance by address, for words that become instructions; the engine's own, and for the kernel that maps memory
//! to be executed.
//!
//! The instruction cache need not see what is in the data cache, nor notice that memory has changed. Before memory is
//! executed that was written, the data cache is cleaned to the point of unification, then the instruction cache is
//! invalidated, by the address that is executed, each completed by a barrier (Arm ARM, B2.4.4 and D7.5.9.4).
//!
//! Line sizes come from CTR_EL0, and so does whether the maintenance is needed at all: where IDC or DIC is set,
//! the hardware keeps the caches coherent to the point of unification (Arm ARM, D24.2.34), and the barriers
//! alone remain.

/// Cleans the data cache lines that hold the words at `offsets` from the virtual address `base` to the point of
/// unification. They are mapped, there or at another address, and this one cleans what that one wrote: data caches are
/// physically tagged. Words that follow one another in one line are cleaned together.
///
/// # Safety
///
/// The words are mapped, and readable.
#[cfg(target_os = "none")]
#[inline(always)] // An iterator that is handed over may be moved by memcpy, which can be probed.
pub unsafe fn clean_data(base: usize, offsets: impl Iterator<Item = usize>) {
    let type_register = cache_type();
    if type_register & CTR_IDC == 0 {
        for line in lines(offsets.map(|offset| base + offset), data_line_of(type_register)) {
            // SAFETY: cleaning changes no memory, and the address is mapped, by the caller.
            unsafe { core::arch::asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
    }
    // SAFETY: a barrier.
    unsafe { core::arch::asm!("dsb ish", options(nostack, preserves_flags)) };
}

/// Invalidates the instruction cache lines that hold the words at these virtual addresses on all CPUs, and makes this one refetch.
///
/// # Safety
///
/// The words are mapped, and readable.
#[cfg(target_os = "none")]
#[inline(always)] // As above.
pub unsafe fn invalidate_instructions(addresses: impl Iterator<Item = usize>) {
    let type_register = cache_type();
    if type_register & CTR_DIC == 0 {
        for line in lines(addresses, 4 << (type_register & 0xf)) {
            // SAFETY: invalidating loses nothing: instruction caches are never written back. The address is mapped, by the
            // caller.
            unsafe { core::arch::asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
    }
    refetch();
}

/// Completes the invalidation, and has the following instructions fetched anew. A function of its own, so that a caller's loop
/// over pages contains no ISB: the audit takes a loop with one for a loop that waits.
#[cfg(target_os = "none")]
#[inline(never)]
fn refetch() {
    // SAFETY: barriers.
    unsafe { core::arch::asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

/// The bytes of the smallest data cache line.
#[cfg(target_os = "none")]
#[must_use]
pub fn data_line() -> usize {
    data_line_of(cache_type())
}

/// The same, of the value of CTR_EL0: DminLine is log2 of the words in it.
#[cfg(target_os = "none")]
const fn data_line_of(type_register: u64) -> usize {
    4 << ((type_register >> CTR_DMIN_LINE) & 0xf)
}

/// CTR_EL0.DminLine, bits 19 to 16.
#[cfg(target_os = "none")]
const CTR_DMIN_LINE: u32 = 16;
/// CTR_EL0.IDC: no clean of data is needed for instructions to see it.
#[cfg(target_os = "none")]
const CTR_IDC: u64 = 1 << 28;
/// CTR_EL0.DIC: no invalidation of instructions is needed.
#[cfg(target_os = "none")]
const CTR_DIC: u64 = 1 << 29;

#[cfg(target_os = "none")]
fn cache_type() -> u64 {
    let value: u64;
    // SAFETY: reads an identification register.
    unsafe { core::arch::asm!("mrs {}, ctr_el0", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// The addresses of the lines of `size` bytes that hold the words at `addresses`; each once where the words in it follow one
/// another.
#[cfg(any(target_os = "none", test))]
fn lines(addresses: impl Iterator<Item = usize>, size: usize) -> impl Iterator<Item = usize> {
    let mut last = None;
    addresses.map(move |address| address & !(size - 1)).filter(move |&line| last.replace(line) != Some(line))
}

/// The tests of the host write words that it does not execute.
///
/// # Safety
///
/// It does nothing.
#[cfg(not(target_os = "none"))]
pub unsafe fn clean_data(_base: usize, _offsets: impl Iterator<Item = usize>) {}

/// See [`clean_data`].
///
/// # Safety
///
/// It does nothing.
#[cfg(not(target_os = "none"))]
pub unsafe fn invalidate_instructions(_addresses: impl Iterator<Item = usize>) {}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn lines_cover_the_words() {
        let of = |addresses: &[usize]| lines(addresses.iter().copied(), 64).collect::<Vec<_>>();
        assert_eq!(of(&[0x1000]), [0x1000]);
        assert_eq!(of(&[0x103c, 0x1040]), [0x1000, 0x1040]);
        assert_eq!(of(&[0x1040, 0x1044, 0x107c, 0x1080]), [0x1040, 0x1080]);
        assert_eq!(of(&[0x1040, 0x2000, 0x1044]), [0x1040, 0x2000, 0x1040]);
    }
}
