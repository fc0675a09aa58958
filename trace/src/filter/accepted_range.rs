//! The numbers that a test of a filter accepts, in the form that is cheapest to check.
//!
//! The 64-bit numbers form a circle. Every comparison, signed or unsigned, accepts one arc of the circle, or nothing; a
//! test of bits accepts an arc after a mask. So the hit path masks, subtracts and compares once, whatever the operator
//! was.

use core::ops::Range;

use super::Comparison;

/// The numbers for which, after masking with `mask` and subtracting `low`, at most `span` remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AcceptedRange {
    pub(crate) mask: u64,
    pub(crate) low: u64,
    pub(crate) span: u64,
}

impl AcceptedRange {
    /// The empty range.
    pub(crate) const NONE: Self = Self { mask: 0, low: 1, span: 0 };

    /// Returns the numbers that are in `range`, or those that are not. The range is not empty.
    pub(crate) fn of_addresses(range: &Range<u64>, is_in: bool) -> Self {
        let inside =
            Self { mask: u64::MAX, low: range.start, span: range.end.wrapping_sub(range.start).wrapping_sub(1) };
        let outside = Self { low: range.end, span: range.start.wrapping_sub(range.end).wrapping_sub(1), ..inside };
        if is_in { inside } else { outside }
    }

    /// Returns the numbers that compare to `value` in this way, as signed or unsigned numbers.
    pub(crate) fn of(comparison: Comparison, value: u64, signed: bool) -> Self {
        // The smallest number in this order, and the largest, which precedes it on the circle.
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

    /// Whether `number` is in the range.
    #[inline(always)]
    pub(crate) fn has(&self, number: u64) -> bool {
        (number & self.mask).wrapping_sub(self.low) <= self.span
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use kprobes_random::tried::tried;

    #[test]
    fn addresses_are_in_a_function_or_not() {
        let (inside, outside) = [true, false].map(|is_in| AcceptedRange::of_addresses(&(0x1000..0x1010), is_in)).into();
        for address in [0, 0xfff, 0x1000, 0x1001, 0x100f, 0x1010, 0x1011, u64::MAX] {
            let expected = (0x1000..0x1010).contains(&address);
            assert_eq!((inside.has(address), outside.has(address)), (expected, !expected), "{address:#x}");
        }
    }

    #[test]
    fn a_range_has_the_numbers_that_compare_so() {
        let near = |middle: u64| (0..5_u64).map(move |offset| middle.wrapping_add(offset).wrapping_sub(2));
        let numbers: alloc::vec::Vec<u64> = [0, 1 << 63, 1 << 31, 0x1234].into_iter().flat_map(near).collect();
        for &value in &numbers {
            for &number in &numbers {
                let (one, other) = (number as i64, value as i64);
                for (comparison, unsigned, signed) in tried([
                    (Comparison::Equal, number == value, one == other),
                    (Comparison::NotEqual, number != value, one != other),
                    (Comparison::Less, number < value, one < other),
                    (Comparison::LessOrEqual, number <= value, one <= other),
                    (Comparison::Greater, number > value, one > other),
                    (Comparison::GreaterOrEqual, number >= value, one >= other),
                    (Comparison::Bits, number & value != 0, one & other != 0),
                ]) {
                    let has = |signed| AcceptedRange::of(comparison, value, signed).has(number);
                    assert_eq!((has(false), has(true)), (unsigned, signed), "{number:#x} {comparison:?} {value:#x}");
                }
            }
        }
    }
}
