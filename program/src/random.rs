//! Numbers for tests: the same in every run, and for as many rounds as are asked for.

/// A generator, xorshift64*.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that `seed` begins.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "there is always a next one")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `bound`, which is not 0.
    ///
    /// # Panics
    ///
    /// If it is.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    /// One of `all`.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A number that is small, or next to a power of 2, or anything.
    pub fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.next() % 16,
            1 => (1_u64 << self.below(64)).wrapping_add(self.next() % 3).wrapping_sub(1),
            2 => (self.next() % 16).wrapping_neg(),
            _ => self.next(),
        }
    }
}

/// How many rounds a test goes: `usual`, times the number in the environment's `PROGRAM_ROUNDS`.
#[cfg(test)]
pub(crate) fn rounds(usual: u64) -> u64 {
    let factor = std::env::var("PROGRAM_ROUNDS").ok().and_then(|text| text.parse::<u64>().ok());
    if cfg!(miri) { usual / 500 } else { usual * factor.unwrap_or(1) }
}
