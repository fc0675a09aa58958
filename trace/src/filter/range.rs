//! Which numbers a test of a filter is true of, in the form that takes least to find out.
//!
//! All numbers of 64 bits are a circle. Whatever a number can be compared for, with a sign or without, is true of one stretch
//! of it, or of none; and a test of bits, of what a mask leaves of it: so the hit path subtracts and compares once, and does not
//! ask what was meant.

use super::Comparison;

/// Numbers of which, when only the bits in `mask` are left, and `low` is taken away, no more than `span` remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) mask: u64,
    pub(crate) low: u64,
    pub(crate) span: u64,
}

impl Range {
    /// Of no number.
    const NONE: Self = Self { mask: 0, low: 1, span: 0 };

    /// The numbers that compare to `value` in this way; as signed ones, or not.
    pub(crate) fn of(comparison: Comparison, value: u64, signed: bool) -> Self {
        // The first of all in their order, and the last, which precedes it on the circle.
        let first = if signed { 1 << 63 } else { 0 };
        let last = u64::wrapping_sub(first, 1);
        let from = |low: u64, high: u64| Self { mask: u64::MAX, low, span: high.wrapping_sub(low) };
        match comparison {
            Comparison::Equal => from(value, value),
            Comparison::NotEqual => from(value.wrapping_add(1), value.wrapping_sub(1)),
            Comparison::Less if value == first => Self::NONE,
            Comparison::Less => from(first, value.wrapping_sub(1)),
            Comparison::LessOrEqual => from(first, value),
            Comparison::Greater if value == last => Self::NONE,
            Comparison::Greater => from(value.wrapping_add(1), last),
            Comparison::GreaterOrEqual => from(value, last),
            Comparison::Bits => Self { mask: value, ..from(1, u64::MAX) },
        }
    }

    /// Whether `number` is one of them.
    #[inline(always)]
    pub(crate) fn has(&self, number: u64) -> bool {
        (number & self.mask).wrapping_sub(self.low) <= self.span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_numbers_that_compare_so() {
        let near = |middle: u64| (0..5_u64).map(move |offset| middle.wrapping_add(offset).wrapping_sub(2));
        let numbers: alloc::vec::Vec<u64> = [0, 1 << 63, 1 << 31, 0x1234].into_iter().flat_map(near).collect();
        for &value in &numbers {
            for &number in &numbers {
                let (one, other) = (number as i64, value as i64);
                for (comparison, unsigned, signed) in [
                    (Comparison::Equal, number == value, one == other),
                    (Comparison::NotEqual, number != value, one != other),
                    (Comparison::Less, number < value, one < other),
                    (Comparison::LessOrEqual, number <= value, one <= other),
                    (Comparison::Greater, number > value, one > other),
                    (Comparison::GreaterOrEqual, number >= value, one >= other),
                    (Comparison::Bits, number & value != 0, one & other != 0),
                ] {
                    let has = |signed| Range::of(comparison, value, signed).has(number);
                    assert_eq!((has(false), has(true)), (unsigned, signed), "{number:#x} {comparison:?} {value:#x}");
                }
            }
        }
    }
}
