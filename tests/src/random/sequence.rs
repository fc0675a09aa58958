//! Pseudo-random numbers, by the standard SplitMix64, so that a seed gives the same sequence everywhere.

/// A sequence of pseudo-random numbers.
#[derive(Clone)]
pub struct Sequence(u64);

impl Sequence {
    /// Creates the sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// Returns a number below `end`, which must not be 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Returns a value for a register: random bits, or sometimes a value that instructions treat specially.
    pub const fn register(&mut self) -> u64 {
        let bits = self.next();
        match bits & 15 {
            0 => 0,
            1 => u64::MAX,
            2 => 1 << (bits >> 58),
            3 => (1 << (bits >> 58)) - 1,
            4 => (bits >> 32) as u32 as u64,
            5 => 0x7fff_ffff | (bits & 1 << 60) << 3,
            6 => (bits >> 40) & 0xff,
            7 => (bits as i64 >> 48) as u64,
            _ => self.next(),
        }
    }
}
