//! Fixed aggregations: for keys that are known before any hit. Code in a stub adds to their words by address, not in a
//! table.
//!
//! Only hits write these words. Clearing does not change them, but remembers their contents, which are subtracted from
//! then on. Only one task at a time may read or clear a map.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering;

use fallible::OutOfMemory;

use crate::atomic::{AtomicBool, Cells, cells};
use crate::ir::{Aggregate, HISTOGRAM_WORDS, Map, MapValue};

/// A block of [`WORDS`] words on every CPU, which start at 0.
pub trait Words: fmt::Debug + Send + Sync {
    /// Returns the distance in bytes from the engine's state of a CPU to the word with this number.
    fn distance(&self, index: usize) -> u64;

    /// Returns the sum of the word over all CPUs.
    fn sum(&self, index: usize) -> u64;
}

/// Allocates a block of [`Words`].
pub type NewWords<'a> = &'a mut dyn FnMut() -> Result<Box<dyn Words>, OutOfMemory>;

/// The number of words in a block of [`Words`].
pub const WORDS: usize = 512;

/// The layout of an aggregation in words that only grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The number of values.
    Count,
    /// The number of values, and their sum.
    Sum,
    /// The numbers of values by leading zeros.
    Powers,
    /// The rows, as in a table.
    Rows(usize),
}

impl Layout {
    /// Returns the layout of what a map keeps; `None` if it cannot be collected in such words.
    pub fn of(kept: MapValue) -> Option<Self> {
        match kept {
            MapValue::Aggregate(Aggregate::Count) => Some(Self::Count),
            MapValue::Aggregate(Aggregate::Sum { .. }) => Some(Self::Sum),
            MapValue::Aggregate(Aggregate::Histogram { bits: 0 }) => Some(Self::Powers),
            MapValue::Aggregate(Aggregate::Linear { .. }) => Some(Self::Rows(kept.words())),
            MapValue::Aggregate(_) | MapValue::Value(_) => None,
        }
        .filter(|layout| layout.words() <= WORDS)
    }

    /// Returns the number of words.
    pub fn words(self) -> usize {
        match self {
            Self::Count => 1,
            Self::Sum => 2,
            Self::Powers => 65,
            Self::Rows(rows) => rows,
        }
    }

    /// Returns the index, in the value that a table has, of the word `number`; `None` if a table does not have it.
    fn place(self, number: usize) -> Option<usize> {
        match self {
            Self::Count | Self::Rows(_) => Some(number),
            Self::Sum => number.checked_sub(1),
            // A value below 0 has no leading zeros; 0 has 64.
            Self::Powers => Some(if number == 0 { 0 } else { HISTOGRAM_WORDS - 1 - number }),
        }
    }
}

/// The words of one key.
#[derive(Debug)]
struct Cell {
    map: usize,
    key: Box<[u64]>,
    layout: Layout,
    /// The number of the block, and of the first word in it.
    block: usize,
    first: usize,
    /// The contents of the words when they were last cleared.
    before: Box<Cells>,
    /// Whether the key is an entry even if nothing was collected since.
    is_kept: AtomicBool,
}

/// The words of all keys of all maps.
#[derive(Debug, Default)]
pub(crate) struct Fixed {
    blocks: Vec<Box<dyn Words>>,
    /// The number of words in use in the last block.
    used: usize,
    cells: Vec<Cell>,
}

impl Fixed {
    /// Returns the distance in bytes from the engine's state of a CPU to the words for `key` of map number `map`, which
    /// must have a [`Layout`].
    pub fn distance(&mut self, map: usize, of: &Map, key: &[u64], new: NewWords<'_>) -> Result<u64, OutOfMemory> {
        // Searching the last 64 is enough: the requests for one function come together, and others are rare.
        let known = self.cells.iter().rev().take(64).find(|cell| cell.map == map && *cell.key == *key);
        if let Some(&Cell { block, first, .. }) = known {
            return self.blocks.get(block).map(|words| words.distance(first)).ok_or(OutOfMemory);
        }
        let layout = Layout::of(of.value).ok_or(OutOfMemory)?;
        if self.blocks.is_empty() || self.used + layout.words() > WORDS {
            fallible::push(&mut self.blocks, new()?)?;
            self.used = 0;
        }
        let (block, first) = (self.blocks.len() - 1, self.used);
        let (key, before) = (fallible::boxed_slice(key.iter().copied())?, cells(layout.words())?);
        let is_kept = AtomicBool::new(false);
        fallible::push(&mut self.cells, Cell { map, key, layout, block, first, before, is_kept })?;
        self.used += layout.words();
        self.blocks.last().map(|words| words.distance(first)).ok_or(OutOfMemory)
    }

    fn of(&self, map: usize) -> impl Iterator<Item = (&Cell, &dyn Words)> {
        let cells = self.cells.iter().filter(move |cell| cell.map == map);
        cells.filter_map(|cell| Some((cell, &**self.blocks.get(cell.block)?)))
    }

    /// Appends each key of a map, with `value_words` words of its value, to `rows`.
    pub fn read(&self, map: usize, value_words: usize, rows: &mut Vec<u64>) -> Result<(), OutOfMemory> {
        for (cell, words) in self.of(map) {
            let length = rows.len();
            fallible::extend(rows, cell.key.iter().copied())?;
            let value = rows.len();
            fallible::extend(rows, core::iter::repeat_n(0, value_words))?;
            let mut is_entry = cell.is_kept.load(Ordering::Relaxed);
            for (number, before) in cell.before.iter().enumerate() {
                let before = before.load(Ordering::Relaxed);
                let since = words.sum(cell.first + number).wrapping_sub(before);
                is_entry |= since != 0;
                if let Some(place) = cell.layout.place(number).and_then(|place| rows.get_mut(value + place)) {
                    *place = since;
                }
            }
            if !is_entry {
                rows.truncate(length);
            }
        }
        Ok(())
    }

    /// Forgets what was collected so far. If `keep`, the present keys stay as entries.
    pub fn clear(&self, map: usize, keep: bool) {
        for (cell, words) in self.of(map) {
            let mut is_entry = cell.is_kept.load(Ordering::Relaxed);
            for (number, before) in cell.before.iter().enumerate() {
                let now = words.sum(cell.first + number);
                is_entry |= now != before.swap(now, Ordering::Relaxed);
            }
            cell.is_kept.store(keep && is_entry, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ir::{HISTOGRAM_WORDS, Type};

    /// A block of words on a single CPU.
    #[derive(Debug, Clone)]
    struct One(Arc<Cells>);

    impl Words for One {
        fn distance(&self, index: usize) -> u64 {
            0x1000 + index as u64
        }

        fn sum(&self, index: usize) -> u64 {
            self.0[index].load(Ordering::Relaxed)
        }
    }

    fn map(aggregate: Aggregate) -> Map {
        Map { name: "m".into(), keys: vec![Type::Symbol], value: MapValue::Aggregate(aggregate), room: None }
    }

    fn read(fixed: &Fixed, value_words: usize) -> Vec<u64> {
        let mut rows = Vec::new();
        fixed.read(0, value_words, &mut rows).unwrap();
        rows
    }

    #[test]
    fn what_is_cleared_is_left_away_and_counts_go_on() {
        let one = One(cells(WORDS).unwrap().into());
        let mut fixed = Fixed::default();
        let count = map(Aggregate::Count);
        let mut distance = |key| fixed.distance(0, &count, &[key], &mut || Ok(Box::new(one.clone()))).unwrap();
        assert_eq!([distance(7), distance(8), distance(7)], [0x1000, 0x1001, 0x1000]);
        let add = |index: usize| one.0[index].fetch_add(1, Ordering::Relaxed);
        assert_eq!(read(&fixed, 1), []);
        add(0);
        add(0);
        assert_eq!(read(&fixed, 1), [7, 2]);
        fixed.clear(0, true);
        assert_eq!(read(&fixed, 1), [7, 0]);
        add(1);
        assert_eq!(read(&fixed, 1), [7, 0, 8, 1]);
        fixed.clear(0, false);
        assert_eq!(read(&fixed, 1), []);
        add(1);
        assert_eq!(read(&fixed, 1), [8, 1]);
    }

    #[test]
    fn rows_by_leading_zeros_are_those_of_a_table() {
        let one = One(cells(WORDS).unwrap().into());
        let mut fixed = Fixed::default();
        fixed.distance(0, &map(Aggregate::Histogram { bits: 0 }), &[7], &mut || Ok(Box::new(one.clone()))).unwrap();
        for value in [0_u64, 1, 2, 3, 4, u64::MAX >> 1, u64::MAX] {
            one.0[value.leading_zeros() as usize].fetch_add(1, Ordering::Relaxed);
            let rows = read(&fixed, HISTOGRAM_WORDS);
            assert_eq!(rows.len(), 1 + HISTOGRAM_WORDS);
            // The rows are below 0, 0, 1, 2 to 3, and so on.
            let row = if value >> 63 == 1 { 0 } else { 65 - value.leading_zeros() as usize };
            let row = if value == 0 { 1 } else { row };
            assert_eq!(rows[1 + row], if value == 3 { 2 } else { 1 }, "{value}");
        }
    }

    #[test]
    fn a_sum_of_nothing_is_an_entry() {
        let one = One(cells(WORDS).unwrap().into());
        let mut fixed = Fixed::default();
        fixed.distance(0, &map(Aggregate::Sum { signed: false }), &[7], &mut || Ok(Box::new(one.clone()))).unwrap();
        one.0[0].fetch_add(1, Ordering::Relaxed);
        assert_eq!(read(&fixed, 1), [7, 0]);
        one.0[1].fetch_add(5, Ordering::Relaxed);
        assert_eq!(read(&fixed, 1), [7, 5]);
    }
}
