//! Merging the aggregations of several CPUs.

use super::series;
use crate::ir::Aggregate;

/// Merges the aggregation of one CPU into that of others.
pub(crate) fn join(aggregate: &Aggregate, all: &mut [u64], one: &[u64]) {
    match (aggregate, all, one) {
        (&(Aggregate::Least { signed } | Aggregate::Greatest { signed }), [set, value], [has, found]) => {
            if *has != 0 && (*set == 0 || is_better(aggregate, signed, *found, *value)) {
                (*set, *value) = (1, *found);
            }
        }
        (
            Aggregate::Average { .. } | Aggregate::Statistics { .. },
            [count, low, high],
            &[more, other_low, other_high],
        ) => {
            *count = count.wrapping_add(more);
            [*low, *high] = halves(wide([*low, *high]).wrapping_add(wide([other_low, other_high])));
        }
        (Aggregate::Series(series), all, one) => series::join(series, all, one),
        (_, mut all, mut one) => {
            while let ([to, more @ ..], [from, rest @ ..]) = (all, one) {
                *to = to.wrapping_add(*from);
                (all, one) = (more, rest);
            }
        }
    }
}

/// Returns the 128-bit number with these halves, the lower one first.
#[inline]
#[must_use]
pub fn wide([low, high]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// Returns the halves of a 128-bit number, the lower one first.
#[inline]
pub(crate) fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}

/// Extends a value to 128 bits.
#[inline]
pub(crate) fn widened(value: u64, signed: bool) -> u128 {
    if signed { i128::from(value.cast_signed()).cast_unsigned() } else { value.into() }
}

/// Returns whether `new` replaces `old` as the least or the greatest value.
#[inline]
pub(crate) fn is_better(aggregate: &Aggregate, signed: bool, new: u64, old: u64) -> bool {
    let less = if signed { new.cast_signed() < old.cast_signed() } else { new < old };
    if matches!(aggregate, Aggregate::Least { .. }) { less } else { new != old && !less }
}

/// Returns the lower half of `dividend / divisor`; 0 if `divisor` is 0.
///
/// A loop, because the compiler would call a function of its own for this division. That function can be probed, and
/// programs compare averages in the hit path.
fn quotient(dividend: u128, divisor: u64) -> u64 {
    let [low, high] = halves(dividend);
    let Some(mut rest) = high.checked_rem(divisor) else { return 0 };
    let mut quotient = 0;
    for bit in (0..u64::BITS).rev() {
        let is_beyond = rest >> (u64::BITS - 1) != 0;
        rest = rest << 1 | low >> bit & 1;
        quotient <<= 1;
        if is_beyond || rest >= divisor {
            rest = rest.wrapping_sub(divisor);
            quotient |= 1;
        }
    }
    quotient
}

/// Returns the result of an aggregation that has a single number as its result; 0 if nothing was collected.
#[inline]
#[must_use]
pub fn total(aggregate: &Aggregate, words: &[u64]) -> u64 {
    match (aggregate, words) {
        (&(Aggregate::Average { signed } | Aggregate::Statistics { signed }), &[count, low, high]) => {
            let sum = wide([low, high]);
            if signed && sum.cast_signed() < 0 {
                quotient(sum.wrapping_neg(), count).wrapping_neg()
            } else {
                quotient(sum, count)
            }
        }
        (Aggregate::Least { .. } | Aggregate::Greatest { .. }, &[_, value]) | (_, &[value]) => value,
        _ => 0,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{halves, quotient, total};
    use crate::ir::Aggregate;

    #[test]
    fn a_quotient_is_that_of_128_bits() {
        let words = [0, 1, 2, 3, 7, 10, 1 << 31, 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX];
        for high in words.into_iter().step_by(if cfg!(miri) { 2 } else { 1 }) {
            for low in words {
                let dividend = u128::from(high) << 64 | u128::from(low);
                for divisor in words.into_iter().step_by(if cfg!(miri) { 3 } else { 1 }) {
                    let expected = dividend.checked_div(divisor.into()).unwrap_or(0) as u64;
                    assert_eq!(quotient(dividend, divisor), expected, "{dividend:#x} / {divisor:#x}");
                }
            }
        }
    }

    #[test]
    fn an_average_has_a_sign_if_its_values_have() {
        let [low, high] = halves((-7_i128).cast_unsigned());
        let average = |signed| total(&Aggregate::Average { signed }, &[2, low, high]);
        assert_eq!(average(true), (-3_i64).cast_unsigned());
        assert_eq!(average(false), (u128::MAX - 6).wrapping_div(2) as u64);
        assert_eq!(total(&Aggregate::Average { signed: true }, &[0, 0, 0]), 0);
    }
}
