//! Time series: the values of the last intervals, each combined to one number.
//!
//! Interval `n` since the start of the machine has the place `n % intervals`, so a later interval replaces an earlier
//! one. If nothing is collected in an interval, its place keeps an earlier interval.

use core::sync::atomic::Ordering;

use super::{all_pairs, halves, load_cells, wide, widened};
use crate::atomic::Cells;
use crate::ir::{Combine, INTERVAL_WORDS, Series};

/// The words of an interval: see [`INTERVAL_WORDS`].
type IntervalWords = [u64; INTERVAL_WORDS];

/// Adds `value`, which was collected `now` nanoseconds after the start of the machine.
#[inline]
pub(super) fn add(series: &Series, words: &Cells, value: u64, now: u64) {
    let number = now.checked_div(series.interval).unwrap_or(0);
    let place = number.checked_rem(series.intervals.into()).unwrap_or(0) as usize;
    let Some(own) = words.get(INTERVAL_WORDS * place..).and_then(<[_]>::first_chunk::<INTERVAL_WORDS>) else { return };
    let mut known: IntervalWords = [0; INTERVAL_WORDS];
    load_cells(&mut known, own);
    let found = match series.by {
        Combine::Last => [now, value, 0],
        Combine::Average => {
            let [low, high] = halves(widened(value, series.signed));
            [1, low, high]
        }
        Combine::Sum | Combine::Least | Combine::Greatest => [1, value, 0],
    };
    let [other, low, high] = found;
    merge(series, &mut known, [number.wrapping_add(1), other, low, high]);
    all_pairs(own, &known, |word, known| {
        word.store(*known, Ordering::Relaxed);
        true
    });
}

/// Merges the series of one CPU into that of others.
pub(super) fn join(series: &Series, mut all: &mut [u64], mut one: &[u64]) {
    while let (Some((known, all_rest)), Some((found, one_rest))) =
        (all.split_first_chunk_mut(), one.split_first_chunk())
    {
        merge(series, known, *found);
        (all, one) = (all_rest, one_rest);
    }
}

/// Merges two intervals that have the same place. The later interval stays. If both are the same interval, their values
/// are combined.
#[inline]
fn merge(series: &Series, known: &mut IntervalWords, found: IntervalWords) {
    let ([number, other, low, high], [found_number, found_other, found_low, found_high]) = (&mut *known, found);
    if found_number < *number {
        return;
    }
    if found_number > *number {
        *known = found;
        return;
    }
    let is_less = match series.signed {
        true => found_low.cast_signed() < low.cast_signed(),
        false => found_low < *low,
    };
    match series.by {
        Combine::Last if found_other >= *other => (*other, *low) = (found_other, found_low),
        Combine::Least if is_less => *low = found_low,
        Combine::Greatest if !is_less => *low = found_low,
        Combine::Sum => *low = low.wrapping_add(found_low),
        Combine::Average => {
            *other = other.wrapping_add(found_other);
            [*low, *high] = halves(wide([*low, *high]).wrapping_add(wide([found_low, found_high])));
        }
        Combine::Last | Combine::Least | Combine::Greatest => {}
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::atomic::AtomicU64;

    fn series(by: Combine) -> Series {
        Series { interval: 100, intervals: 3, by, signed: true }
    }

    /// Returns the words of a series that has collected these values, each with its time.
    fn collected(by: Combine, values: &[(u64, i64)]) -> [u64; 12] {
        let words = [const { AtomicU64::new(0) }; 12];
        values.iter().for_each(|&(now, value)| add(&series(by), &words, value.cast_unsigned(), now));
        words.map(|word| word.load(Ordering::Relaxed))
    }

    fn shown(by: Combine, words: &[u64]) -> [Option<(u64, i64)>; 3] {
        [0, 1, 2].map(|place| series(by).interval(words, place).map(|(number, value)| (number, value.cast_signed())))
    }

    const VALUES: [(u64, i64); 6] = [(100, 9), (310, 5), (320, -7), (399, 1), (500, -2), (501, -4)];

    #[test]
    fn an_interval_combines_its_values_and_replaces_an_old_one() {
        for (by, third, fifth) in [
            (Combine::Last, 1, -4),
            (Combine::Sum, -1, -6),
            (Combine::Average, 0, -3),
            (Combine::Least, -7, -4),
            (Combine::Greatest, 5, -2),
        ] {
            let words = collected(by, &VALUES);
            assert_eq!(shown(by, &words), [Some((3, third)), Some((1, 9)), Some((5, fifth))], "{by:?}");
            let again = collected(by, &[(400, 8)]);
            assert_eq!(shown(by, &again), [None, Some((4, 8)), None]);
        }
    }

    #[test]
    fn averages_are_of_sums_that_do_not_wrap() {
        let words = collected(Combine::Average, &[(0, i64::MIN), (1, i64::MIN), (2, i64::MIN)]);
        assert_eq!(shown(Combine::Average, &words), [Some((0, i64::MIN)), None, None]);
    }

    #[test]
    fn the_series_of_several_cpus_are_one_whatever_their_order() {
        for by in [Combine::Last, Combine::Sum, Combine::Average, Combine::Least, Combine::Greatest] {
            let alone = collected(by, &VALUES);
            for mask in (0..64).step_by(if cfg!(miri) { 9 } else { 1 }) {
                let is_first = |number: &usize| mask >> number & 1 == 0;
                let part = |first: bool| -> Vec<_> {
                    (0..6).filter(|number| is_first(number) == first).map(|number| VALUES[number]).collect()
                };
                let [mut one, other] = [true, false].map(|first| collected(by, &part(first)));
                join(&series(by), &mut one, &other);
                assert_eq!(shown(by, &one), shown(by, &alone), "{by:?} {mask:b}");
            }
        }
    }
}
