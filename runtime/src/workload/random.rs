//! Pseudo-random numbers that a script on another machine can reproduce, to compute the right answers.

/// Knuth's linear congruential generator (MMIX). Its high bits are the good ones.
pub struct Random(u64);

impl Random {
    /// Creates the sequence that begins with `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number, of `bits` bits. `bits` is from 1 to 64.
    pub const fn next(&mut self, bits: u32) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> (64 - bits)
    }
}
