//! Ops on maps.

use core::sync::atomic::Ordering;

use super::{Machine, Run, copy_cells, halves, is_better, join, load_cells, series, total, wide, widened};
use crate::atomic::{AtomicU64, Cells};
use crate::ir::{Aggregate, MapValue, Word, rows};
use crate::maps::HashTable;

/// The number of empty buckets that count as one op while the keys of a map are enumerated. Looking at an empty bucket
/// takes a few instructions.
const EMPTY_BUCKETS: usize = 64;

impl<M: Machine> Run<'_, M> {
    /// Calls `act` with the table of a map for this CPU, or the shared one, and with the key.
    #[inline]
    pub(super) fn with_table<T>(
        &self,
        map: u8,
        key: Word,
        act: impl FnOnce(&HashTable, &Cells) -> Option<T>,
    ) -> Option<T> {
        let table = match &**self.store.tables.get(usize::from(map))? {
            [alone] => alone,
            tables => tables.get(self.machine.cpu())?,
        };
        act(table, self.words(key, table.key_words))
    }

    /// Copies the value of a key to the frame; zeros if the map does not have the key.
    #[inline]
    pub(super) fn get_value(&self, to: Word, map: u8, key: Word) {
        let found = self.with_table(map, key, |table, key| {
            let place = self.words(to, table.value_words);
            let copied = table.with_value(key, |value| {
                copy_cells(place, value);
            });
            if copied.is_none() {
                place.iter().for_each(|word| word.store(0, Ordering::Relaxed));
            }
            Some(())
        });
        if found.is_none() {
            self.set(to, 0);
        }
    }

    /// Copies the next key of a map to the frame. A place has the number of the table in its upper half and that of the
    /// slot in its lower half. A key that several CPUs have is reported for the first of them. Returns false if the run
    /// had no ops left for this.
    pub(super) fn next_key(&self, place: Word, map: u8) -> bool {
        let Some(tables) = self.store.tables.get(usize::from(map)) else { return false };
        let mut at = self.get(place);
        while let Some(table) = tables.get((at >> 32) as usize) {
            let key = self.words(Word(place.0.wrapping_add(1)), table.key_words);
            let bucket = (at as u32 as usize).checked_div(table.ways).unwrap_or(usize::MAX);
            if bucket >= table.buckets {
                at = (at >> 32).wrapping_add(1) << 32;
                continue;
            }
            let Some(found) = table.key_from(at as u32 as usize, key) else {
                at = (at >> 32 << 32) | bucket.wrapping_add(1).wrapping_mul(table.ways) as u64;
                if bucket.is_multiple_of(EMPTY_BUCKETS) && !self.spend(1) {
                    return false;
                }
                continue;
            };
            at = (at >> 32 << 32) | (found as u64).wrapping_add(1);
            let before = tables.get(..(at >> 32) as usize).unwrap_or(&[]);
            let mut is_new = true;
            for other in before {
                is_new &= other.with_value(key, |_| ()).is_none();
            }
            if is_new {
                self.set(place, at);
                return true;
            }
            if !self.spend(1) {
                return false;
            }
        }
        self.set(place, u64::MAX);
        if let Some(table) = tables.first() {
            let key = self.words(Word(place.0.wrapping_add(1)), table.key_words);
            key.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        true
    }

    /// Returns whether a map has a key, on any CPU.
    #[inline]
    pub(super) fn has(&self, map: u8, key: Word) -> bool {
        let Some(tables) = self.store.tables.get(usize::from(map)) else { return false };
        for table in tables {
            if table.with_value(self.words(key, table.key_words), |_| ()).is_some() {
                return true;
            }
        }
        false
    }

    /// Returns the result of an aggregation over all CPUs.
    #[inline]
    pub(super) fn total(&self, map: u8, key: Word) -> u64 {
        let map = usize::from(map);
        let (Some(of), Some(tables)) = (self.code.maps.get(map), self.store.tables.get(map)) else { return 0 };
        let MapValue::Aggregate(aggregate) = &of.value else { return 0 };
        let words = tables.first().map_or(0, |table| table.value_words).min(3);
        let mut all = [0; 3];
        for table in tables {
            table.with_value(self.words(key, table.key_words), |value| {
                let mut one = [0; 3];
                load_cells(&mut one, value);
                let (Some(all), Some(one)) = (all.get_mut(..words), one.get(..words)) else { return };
                join(aggregate, all, one);
            });
        }
        total(aggregate, all.get(..words).unwrap_or(&[]))
    }

    /// Removes a key from a map, on all CPUs.
    #[inline]
    pub(super) fn delete(&self, map: u8, key: Word) {
        let Some(tables) = self.store.tables.get(usize::from(map)) else { return };
        for table in tables {
            table.remove(self.words(key, table.key_words));
        }
    }

    /// Adds a value to an aggregation, on this CPU.
    #[inline]
    pub(super) fn collect(&self, map: u8, key: Word, value: u64) {
        let Some(MapValue::Aggregate(aggregate)) = self.code.maps.get(usize::from(map)).map(|of| &of.value) else {
            return;
        };
        let now = || self.machine.nanoseconds();
        let found =
            self.with_table(map, key, |table, key| table.change(key, |words| add(aggregate, words, value, now)));
        if found.is_some()
            && let (Some(Some(cached)), [key]) = (self.store.cached.get(usize::from(map)), self.words(key, 1))
        {
            let key = key.load(Ordering::Relaxed);
            if let Some((place, free_key)) = cached.slot(self.machine.cpu(), key)
                && place.load(Ordering::Relaxed) == free_key
            {
                // From now on the stub collects for this key.
                place.store(key, Ordering::Relaxed);
            }
        }
    }
}

/// Adds `amount` to `word`, which only this CPU changes.
#[inline]
fn increase(word: Option<&AtomicU64>, amount: u64) {
    if let Some(word) = word {
        word.store(word.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }
}

/// Adds `value` to the aggregation in `words`. `now` returns the nanoseconds since the start of the machine.
#[inline]
fn add(aggregate: &Aggregate, words: &Cells, value: u64, now: impl FnOnce() -> u64) {
    match *aggregate {
        Aggregate::Count => increase(words.first(), 1),
        Aggregate::Sum { .. } => increase(words.first(), value),
        Aggregate::Average { signed } | Aggregate::Statistics { signed } => {
            let [count, low, high] = words else { return };
            increase(Some(count), 1);
            let sum = wide([low, high].map(|word| word.load(Ordering::Relaxed)));
            let [new_low, new_high] = halves(sum.wrapping_add(widened(value, signed)));
            low.store(new_low, Ordering::Relaxed);
            high.store(new_high, Ordering::Relaxed);
        }
        Aggregate::Least { signed } | Aggregate::Greatest { signed } => {
            if let [set, best] = words
                && (set.load(Ordering::Relaxed) == 0
                    || is_better(aggregate, signed, value, best.load(Ordering::Relaxed)))
            {
                set.store(1, Ordering::Relaxed);
                best.store(value, Ordering::Relaxed);
            }
        }
        Aggregate::Histogram { bits } => increase(words.get(power_row(value, bits)), 1),
        Aggregate::Linear { least, most, step } => increase(words.get(linear_row(least, most, step, value)), 1),
        Aggregate::Series(ref series) => series::add(series, words, value, now()),
    }
}

/// Returns the row of a signed value: 0 for values below 0, 1 for 0, 2 for 1, 3 for 2 to 3, and so on. With `bits`,
/// each range between powers of two has 2 to the power `bits` rows, but no row is shorter than 1.
#[inline]
pub(crate) fn power_row(value: u64, bits: u8) -> usize {
    if value.cast_signed() < 0 {
        return 0;
    }
    // The row of a value with this many leading zeros is 2 to the power `length` long.
    let length = 63_u32.saturating_sub(bits.into()).saturating_sub(value.leading_zeros());
    let before = (length as usize).wrapping_shl(bits.into());
    before.wrapping_add(value.wrapping_shr(length) as usize).wrapping_add(1)
}

/// Returns the row of a signed value: 0 for values below `least`, and the last row for values from the end of the last
/// step on.
#[inline]
pub(crate) fn linear_row(least: i64, most: i64, step: i64, value: u64) -> usize {
    let value = value.cast_signed();
    let rows = rows(least, most, step);
    if value < least {
        return 0;
    }
    let steps = value.abs_diff(least).checked_div(step.unsigned_abs()).unwrap_or(0);
    1 + (steps as usize).min(rows)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::power_row;
    use crate::ir::{HISTOGRAM_BITS_MAX, histogram_words};

    #[test]
    fn rows_divide_the_ranges_between_powers_of_two() {
        for bits in 0..=if cfg!(miri) { 2 } else { HISTOGRAM_BITS_MAX } {
            // The least numbers of the rows from 0 on.
            let mut starts: Vec<u64> = (0..1 << bits).collect();
            for exponent in 0..63 - u32::from(bits) {
                starts.extend((1 << bits..2 << bits).map(|units: u64| units << exponent));
            }
            assert_eq!(starts.len() + 2, histogram_words(bits), "a row for numbers below 0, and one that is not used");
            let near = |start: &u64| [start.saturating_sub(1), *start, *start + 1];
            let step = if cfg!(miri) { 17 } else { 1 };
            for value in starts.iter().step_by(step).flat_map(near).chain([u64::MAX >> 1]) {
                assert_eq!(power_row(value, bits), starts.partition_point(|&start| start <= value), "{value} {bits}");
            }
            assert_eq!([u64::MAX, 1 << 63].map(|value| power_row(value, bits)), [0, 0]);
        }
    }
}
