//! Cache maintenance by address, for words that become instructions.
//!
//! Line sizes come from CTR_EL0, and so does whether the maintenance is needed at all: where IDC or DIC is set,
//! the hardware keeps the caches coherent to the point of unification (Arm ARM, D24.2.34), and the barriers
//! alone remain.

/// Cleans the data cache lines that hold the words at `offsets` from the virtual address `base` to the point of
/// unification. Words that follow one another in one line are cleaned together.
#[cfg(target_os = "none")]
pub(super) fn clean_data(base: usize, offsets: impl Iterator<Item = usize>) {
    let type_register = cache_type();
    if type_register & CTR_IDC == 0 {
        for line in lines(offsets.map(|offset| base + offset), (type_register >> CTR_DMIN_LINE) & 0xf) {
            // SAFETY: cleaning changes no memory; the address is mapped, as the caller has just written there.
            unsafe { core::arch::asm!("dc cvau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
    }
    // SAFETY: a barrier.
    unsafe { core::arch::asm!("dsb ish", options(nostack, preserves_flags)) };
}

/// Invalidates the instruction cache lines that hold the words at these virtual addresses, on all CPUs, and makes this
/// one refetch.
#[cfg(target_os = "none")]
pub(super) fn invalidate_instructions(addresses: impl Iterator<Item = usize>) {
    let type_register = cache_type();
    if type_register & CTR_DIC == 0 {
        for line in lines(addresses, type_register & 0xf) {
            // SAFETY: invalidating loses nothing: instruction caches are never written back. The address is
            // mapped, as it is text or a slot.
            unsafe { core::arch::asm!("ic ivau, {}", in(reg) line, options(nostack, preserves_flags)) };
        }
    }
    // SAFETY: barriers.
    unsafe { core::arch::asm!("dsb ish", "isb", options(nostack, preserves_flags)) };
}

/// CTR_EL0.DminLine, bits 19 to 16: log2 of the words in the smallest data cache line.
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

/// The addresses of the lines of `4 << log2_words` bytes that hold the words at `addresses`; each once where the words in
/// it follow one another.
#[cfg(any(target_os = "none", test))]
fn lines(addresses: impl Iterator<Item = usize>, log2_words: u64) -> impl Iterator<Item = usize> {
    let size = 4usize << log2_words;
    let mut last = None;
    addresses.map(move |address| address & !(size - 1)).filter(move |&line| last.replace(line) != Some(line))
}

/// The tests of the host write words that it does not execute.
#[cfg(not(target_os = "none"))]
pub(super) fn clean_data(_base: usize, _offsets: impl Iterator<Item = usize>) {}

/// See [`clean_data`].
#[cfg(not(target_os = "none"))]
pub(super) fn invalidate_instructions(_addresses: impl Iterator<Item = usize>) {}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn lines_cover_the_words() {
        let of = |addresses: &[usize]| lines(addresses.iter().copied(), 4).collect::<Vec<_>>();
        assert_eq!(of(&[0x1000]), [0x1000]);
        assert_eq!(of(&[0x103c, 0x1040]), [0x1000, 0x1040]);
        assert_eq!(of(&[0x1040, 0x1044, 0x107c, 0x1080]), [0x1040, 0x1080]);
        assert_eq!(of(&[0x1040, 0x2000, 0x1044]), [0x1040, 0x2000, 0x1040]);
    }
}
