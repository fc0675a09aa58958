//! Which bytes a watchpoint register can watch (Arm ARM, D2.10.4): some of one aligned doubleword, or a power of two.

/// DBGWCR_EL1 (D24.3.11): enabled, and for accesses at EL1 only (PAC 01, HMC 0, SSC 00).
const ENABLED_AT_EL1: u64 = 0b01 << 1 | 1;
const LOADS: u64 = 0b01 << 3;
const STORES: u64 = 0b10 << 3;
const BYTES_SHIFT: u32 = 5;
const MASK_SHIFT: u32 = 24;
/// The largest range: MASK leaves out at most 31 bits of an address.
const LONGEST: u64 = 1 << 31;

/// The values of a watchpoint's registers. The control register has no accesses yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Values {
    /// For DBGWVR_EL1.
    pub(crate) value: u64,
    /// For DBGWCR_EL1, without the accesses.
    pub(crate) control: u64,
}

impl Values {
    /// Returns the values for the `bytes` bytes from the virtual address `address` on; `None` if no register can watch
    /// them.
    pub(crate) fn of(address: u64, bytes: u64) -> Option<Self> {
        let in_doubleword = address % 8;
        if bytes >= 1 && bytes <= 8 - in_doubleword {
            let selected = ((1 << bytes) - 1) << in_doubleword;
            return Some(Self { value: address - in_doubleword, control: ENABLED_AT_EL1 | selected << BYTES_SHIFT });
        }
        let is_range = bytes > 8 && bytes <= LONGEST && bytes.is_power_of_two() && address.is_multiple_of(bytes);
        let mask = u64::from(bytes.trailing_zeros());
        is_range.then_some(Self { value: address, control: ENABLED_AT_EL1 | 0xff << BYTES_SHIFT | mask << MASK_SHIFT })
    }
}

/// Returns whether the virtual address `address` is in one of the two ranges that the value `tcr` of TCR_EL1 describes
/// (D24.2: bits 5 to 0 are T0SZ, bits 21 to 16 T1SZ). Bit 55 of an address selects the range.
pub(in crate::probe) const fn is_canonical(address: u64, tcr: u64) -> bool {
    const SELECTS: u64 = 55;
    let (lower, upper) = (tcr & 0x3f, tcr >> 16 & 0x3f);
    let unused = if address >> SELECTS & 1 == 0 { lower } else { upper };
    let size = if unused < 64 - SELECTS { SELECTS } else { 64 - unused };
    matches!(address.cast_signed() >> size, 0 | -1)
}

/// Returns the virtual address `address` without a tag, which an access may have in bits 63 to 56 (TCR_EL1.TBI0 and
/// TBI1), and which watchpoints do not compare. All upper bits become those of bit 55.
#[inline(always)]
pub(super) const fn untagged(address: u64) -> u64 {
    const TAG: u32 = 8;
    ((address << TAG).cast_signed() >> TAG).cast_unsigned()
}

/// Returns the bits of DBGWCR_EL1 for these accesses.
#[inline(always)]
pub(super) const fn accesses(loads: bool, stores: bool) -> u64 {
    (if loads { LOADS } else { 0 }) | if stores { STORES } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: u64, bytes: u64) -> Option<(u64, u64)> {
        Values::of(address, bytes).map(|Values { value, control }| (value, control))
    }

    #[test]
    fn bytes_of_a_doubleword_are_selected() {
        assert_eq!(of(0x1000, 8), Some((0x1000, 0x1fe3)));
        assert_eq!(of(0x1004, 4), Some((0x1000, 0xf0 << 5 | 3)));
        assert_eq!(of(0x1003, 2), Some((0x1000, 0b1_1000 << 5 | 3)));
        assert_eq!(of(0x1007, 1), Some((0x1000, 0x80 << 5 | 3)));
        assert_eq!(of(0x1001, 8), None);
        assert_eq!(of(0x1006, 4), None);
        assert_eq!(of(0x1000, 0), None);
        assert_eq!(of(u64::MAX, 1), Some((u64::MAX - 7, 0x80 << 5 | 3)));
    }

    #[test]
    fn longer_ranges_are_powers_of_two() {
        assert_eq!(of(0x1000, 16), Some((0x1000, 4 << 24 | 0x1fe3)));
        assert_eq!(of(0, LONGEST), Some((0, 31 << 24 | 0x1fe3)));
        for (address, bytes) in [(0x1008, 16), (0x1000, 24), (0x1000, 9), (0, 2 * LONGEST), (0, u64::MAX)] {
            assert_eq!(of(address, bytes), None, "{address:#x} {bytes}");
        }
    }

    #[test]
    fn the_upper_bits_of_an_address_are_equal() {
        // 39 bits in the lower half, 48 in the upper one.
        const TCR: u64 = 16 << 16 | 25;
        for address in [0, 0x7f_ffff_ffff, 0xffff_0000_0000_0000, 0xffff_8000_0000_0000, u64::MAX] {
            assert!(is_canonical(address, TCR), "{address:#x}");
        }
        for address in [0x80_0000_0000, 0x1_0000_0000_0000, 0xfffe_ffff_ffff_fff8, 0xff80_0000_0000_0000, 1 << 63] {
            assert!(!is_canonical(address, TCR), "{address:#x}");
        }
        // No translation is set up.
        assert!(is_canonical(1 << 54, 0) && !is_canonical(1 << 55, 0));
    }
}
