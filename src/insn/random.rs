//! Random numbers for tests. The sequence is the same in every run.

/// Marsaglia's xorshift with 64 bits.
pub(crate) struct Random(u64);

impl Random {
    /// Starts the sequence of this seed, which is not 0.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }

    pub(crate) fn one_in(&mut self, number: u64) -> bool {
        self.next().is_multiple_of(number)
    }

    /// Returns a value that is often small, often all ones, and often has only one half set.
    pub(crate) fn value(&mut self) -> u64 {
        let value = self.next();
        match self.next() % 6 {
            0 => 0,
            1 => value & 0xffff_ffff_0000_0000,
            2 => value & 0xffff_ffff,
            3 => 1 << (value % 64),
            4 => u64::MAX,
            _ => value,
        }
    }
}
