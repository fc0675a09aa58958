//! The way to find exclusive sequences that Linux has, to compare with: a look back from the probe, word by word.
//!
//! It goes back over at most 32 instructions, but not past the start of the function. Whichever it meets first
//! decides: a load-exclusive refuses the probe, a store-exclusive accepts it; neither accepts it too. Branches
//! mean nothing to it.

/// How many instructions are looked at.
const LENGTH: usize = 32;

/// The masks by which a word is taken for one of the exclusives (C4.1.94, load/store exclusive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masks {
    /// Without bit 23: LDAR counts as a load-exclusive, STLR and CAS as store-exclusives. Linux up to 2025.
    Loose,
    /// With bit 23; CASP still counts as a store-exclusive. Linux since then.
    Tight,
}

impl Masks {
    /// Whether a probe is refused behind `before`, the words of the function up to the probed one.
    pub fn refuse(self, before: &[u32]) -> bool {
        let mask = match self {
            Self::Loose => 0x3f40_0000,
            Self::Tight => 0x3fc0_0000,
        };
        let window = before.iter().rev().take(LENGTH);
        // Bit 22 is L: a load, not a store.
        let first = window.map(|word| word & mask).find(|word| word & !0x0040_0000 == 0x0800_0000);
        first == Some(0x0840_0000)
    }
}
