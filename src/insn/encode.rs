//! The few words that the engine writes itself.

use core::fmt;

/// The breakpoint at a probe point. The immediates are those that Linux uses for the same two purposes, so that a
/// debugger or a disassembly shows something familiar.
pub const BRK_KPROBE: u32 = brk(4);
/// The breakpoint behind the instruction in an out-of-line slot.
pub const BRK_STEP: u32 = brk(6);

/// `brk #comment` (C6.2, BRK).
#[must_use]
pub const fn brk(comment: u16) -> u32 {
    0xd420_0000 | (comment as u32) << 5
}

/// `b to`, to be written at `from` (C6.2, B).
///
/// # Errors
///
/// If `to` is further than a branch reaches (-128 MiB to +128 MiB - 4), or the distance is not a number of words.
pub const fn branch(from: u64, to: u64) -> Result<u32, OutOfRange> {
    let distance = to.wrapping_sub(from).cast_signed();
    if distance % 4 != 0 || distance < -(1 << 27) || distance >= 1 << 27 {
        return Err(OutOfRange { from, to });
    }
    Ok(0x1400_0000 | (distance >> 2) as u32 & 0x03ff_ffff)
}

/// A branch that cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// The virtual address of the branch.
    pub from: u64,
    /// The virtual address it should reach.
    pub to: u64,
}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a branch at {:#x} does not reach {:#x}: at most 128 MiB, in whole words", self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn breakpoints_carry_their_comment() {
        assert_eq!(BRK_KPROBE, 0xd420_0080);
        assert_eq!(BRK_STEP, 0xd420_00c0);
        assert_eq!(brk(0xffff), 0xd43f_ffe0);
    }

    #[test]
    fn branches_reach_128_mebibytes_and_no_further() {
        let here = 0xffff_ffc0_0000_0000;
        assert_eq!(branch(here, here), Ok(0x1400_0000));
        assert_eq!(branch(here, here + 4), Ok(0x1400_0001));
        assert_eq!(branch(here, here - 4), Ok(0x17ff_ffff));
        assert_eq!(branch(here, here + (1 << 27) - 4), Ok(0x15ff_ffff));
        assert_eq!(branch(here, here - (1 << 27)), Ok(0x1600_0000));
        for to in [here + (1 << 27), here - (1 << 27) - 4, here + 2, here + 1, 0x1000] {
            assert_eq!(branch(here, to), Err(OutOfRange { from: here, to }));
        }
    }
}
