//! Random numbers for tests. The sequence is the same in every run; an environment variable sets the number of rounds.

/// An xorshift64* generator.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns the next number.
    #[expect(clippy::should_implement_trait, reason = "the sequence has no end")]
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `bound`.
    ///
    /// # Panics
    ///
    /// Panics if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    /// Returns one element of `all`.
    ///
    /// # Panics
    ///
    /// Panics if `all` is empty.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Returns a small number, a number next to a power of 2, a small negative number, or any number.
    pub fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.next() % 16,
            1 => (1_u64 << self.below(64)).wrapping_add(self.next() % 3).wrapping_sub(1),
            2 => (self.next() % 16).wrapping_neg(),
            _ => self.next(),
        }
    }
}

/// Returns the number of rounds of a test: `usual` times the factor in the environment variable `PROGRAM_ROUNDS`. Miri
/// runs a 500th of `usual`.
#[cfg(test)]
pub(crate) fn rounds(usual: u64) -> u64 {
    let factor = std::env::var("PROGRAM_ROUNDS").ok().and_then(|text| text.parse::<u64>().ok());
    if cfg!(miri) { usual / 500 } else { usual * factor.unwrap_or(1) }
}
