//! Pseudo-random numbers for tests, on the host and on the target. A seed gives the same numbers in every run and in
//! every version, so that a failure can be repeated. Also [how many cases](tried) a test tries.

#![cfg_attr(target_os = "none", no_std)]

pub mod tried;
pub mod words;

/// A generator of pseudo-random numbers: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates the generator of `seed`, which may be any number.
    #[must_use]
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

    /// Returns a number from 0 up to `bound`, without `bound`.
    ///
    /// # Panics
    ///
    /// Panics if `bound` is not positive.
    pub fn below<T: TryFrom<u64> + TryInto<u64>>(&mut self, bound: T) -> T {
        let bound = bound.try_into().unwrap_or(0);
        assert!(bound > 0, "no number is below the bound");
        T::try_from(self.next() % bound).unwrap_or_else(|_| unreachable!("a smaller number has the type of the bound"))
    }

    /// Returns true once in `number` times on average.
    ///
    /// # Panics
    ///
    /// Panics if `number` is 0.
    pub fn one_in(&mut self, number: u64) -> bool {
        self.below(number) == 0
    }

    /// Returns an element of `all`.
    ///
    /// # Panics
    ///
    /// Panics if `all` is empty.
    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Returns a number with which arithmetic, comparisons and conversions often go wrong, or any number: a small one
    /// or its negative, one next to a power of two, one whose one half is zero, or 16 bits with a sign.
    pub fn value(&mut self) -> u64 {
        let bits = self.next();
        match self.below(10) {
            0 => 0,
            1 => u64::MAX,
            2 => bits % 16,
            3 => (bits % 16).wrapping_neg(),
            4 => (1_u64 << (bits >> 58)).wrapping_add(bits % 3).wrapping_sub(1),
            5 => bits & 0xffff_ffff,
            6 => bits & !0xffff_ffff,
            7 => (bits.cast_signed() >> 48).cast_unsigned(),
            _ => bits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The numbers of the authors' implementation.
    #[test]
    fn the_sequence_is_that_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let numbers = [(); 3].map(|()| random.next());
        assert_eq!(numbers, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn every_number_below_a_bound_occurs_and_no_other() {
        let mut random = Random::new(0);
        let mut counts = [0; 5];
        (0..1000).for_each(|_| counts[random.below(5_usize)] += 1);
        assert!(counts.iter().all(|count| (150..250).contains(count)), "{counts:?}");
        assert_eq!(random.below(1_u8), 0);
    }
}
