//! Linux's way to find exclusive sequences, for comparison: it scans backward from the probe, word by word.
//!
//! The scan covers at most 32 instructions, and stops at the start of the function. The first exclusive instruction
//! that it finds decides: a load-exclusive refuses the probe, and a store-exclusive accepts it. If there is none, the
//! probe is accepted. The scan ignores branches.

/// The maximum number of instructions to scan.
const LENGTH: usize = 32;

/// The masks that identify exclusive instructions (C4.1.88, load/store exclusive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masks {
    /// Without bit 23: LDAR counts as a load-exclusive, STLR and CAS as store-exclusives. Used by Linux up to 2025.
    Loose,
    /// With bit 23, but CASP still counts as a store-exclusive. Used by Linux since then.
    Tight,
}

impl Masks {
    /// Returns whether a probe after `before`, the preceding words of the function, is refused.
    pub fn refuse(self, before: &[u32]) -> bool {
        let mask = match self {
            Self::Loose => 0x3f40_0000,
            Self::Tight => 0x3fc0_0000,
        };
        let window = before.iter().rev().take(LENGTH);
        // Bit 22 is L: set for a load, clear for a store.
        let first = window.map(|word| word & mask).find(|word| word & !0x0040_0000 == 0x0800_0000);
        first == Some(0x0840_0000)
    }
}
