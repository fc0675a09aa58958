//! The contents of a map: its keys with their values, in ascending order of keys.
//!
//! Everything is in two lists, so that reading a map of a million keys takes not much more memory than one of its
//! tables.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::mem;

use fallible::OutOfMemory;

use super::{HashTable, Masked};
use crate::hit::merge::join;
use crate::ir::MapValue;

/// The entries of a map.
#[derive(Debug)]
pub struct Entries {
    kept: MapValue,
    /// For each row, the words of the key, followed by those of the value.
    rows: Vec<u64>,
    /// The numbers of the rows, in the order of the entries.
    order: Vec<u32>,
    key_words: usize,
    row_words: usize,
}

impl Entries {
    /// Reads `tables` of a map that keeps `kept`, and merges the aggregations of all CPUs. Each step runs within a call
    /// of `masked`.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for a copy.
    pub(crate) fn read(tables: &[HashTable], kept: MapValue, masked: Masked<'_>) -> Result<Self, OutOfMemory> {
        let (key_words, value_words) = tables.first().map_or((0, 1), |table| (table.key_words, table.value_words));
        let row_words = (key_words + value_words).max(1);
        let mut entries = Self { kept, rows: Vec::new(), order: Vec::new(), key_words, row_words };
        for table in tables {
            for bucket in 0..table.buckets {
                table.read(bucket, masked, &mut entries.rows)?;
            }
            entries.merge()?;
        }
        Ok(entries)
    }

    /// Merges further rows. `read` appends them, and gets the number of words of a value.
    pub(crate) fn add(
        &mut self,
        read: impl FnOnce(usize, &mut Vec<u64>) -> Result<(), OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        let length = self.rows.len();
        read(self.row_words - self.key_words, &mut self.rows)?;
        if self.rows.len() > length { self.merge() } else { Ok(()) }
    }

    /// Applies `change` to each key, and merges entries whose keys become equal.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the merge.
    pub fn change_keys(&mut self, change: impl Fn(&mut [u64])) -> Result<(), OutOfMemory> {
        for row in self.rows.chunks_exact_mut(self.row_words) {
            change(&mut row[..self.key_words]);
        }
        self.merge()
    }

    /// Sorts the rows by their keys, and merges rows with equal keys.
    fn merge(&mut self) -> Result<(), OutOfMemory> {
        let Self { kept, rows, order, key_words, row_words } = self;
        let (key_words, row_words) = (*key_words, *row_words);
        let count = rows.len() / row_words;
        order.clear();
        order.try_reserve(count)?;
        order.extend((0..count).map(|row| row as u32));
        let key = |row: u32| row as usize * row_words..row as usize * row_words + key_words;
        fallible::sort_by(order, |&one, &other| rows[key(one)].cmp(&rows[key(other)]).then(one.cmp(&other)));
        order.dedup_by(|&mut again, &mut first| {
            let is_same = rows[key(again)] == rows[key(first)];
            if is_same {
                // Equal keys are sorted by row, so `first` is before `again`.
                let (before, behind) = rows.split_at_mut(key(again).end);
                let value_words = row_words - key_words;
                let (all, one) = (&mut before[key(first).end..][..value_words], &behind[..value_words]);
                match kept {
                    MapValue::Aggregate(aggregate) => join(aggregate, all, one),
                    MapValue::Value(_) => all.copy_from_slice(one),
                }
            }
            is_same
        });
        if order.len() < count {
            order.sort_unstable();
            for (to, &from) in order.iter().enumerate() {
                let from = from as usize * row_words;
                rows.copy_within(from..from + row_words, to * row_words);
            }
            rows.truncate(order.len() * row_words);
            return self.merge();
        }
        Ok(())
    }

    fn entry(&self, row: u32) -> (&[u64], &[u64]) {
        let start = row as usize * self.row_words;
        self.rows[start..start + self.row_words].split_at(self.key_words)
    }

    /// Returns the keys and their values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u64], &[u64])> {
        self.order.iter().map(|&row| self.entry(row))
    }

    /// Sorts the entries by the `number` of their values, and those with equal numbers by their keys.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the numbers.
    pub fn sort_by_number(&mut self, number: impl Fn(&[u64]) -> i128) -> Result<(), OutOfMemory> {
        let values = self.rows.chunks_exact(self.row_words).map(|row| &row[self.key_words..]);
        let numbers = fallible::collect(values.map(number))?;
        self.sort(|_, one, other| numbers[one as usize].cmp(&numbers[other as usize]));
        Ok(())
    }

    /// Sorts the entries by their keys, as `compare` compares them.
    pub fn sort_by_key(&mut self, compare: impl Fn(&[u64], &[u64]) -> Ordering) {
        self.sort(|entries, one, other| compare(entries.entry(one).0, entries.entry(other).0));
    }

    fn sort(&mut self, compare: impl Fn(&Self, u32, u32) -> Ordering) {
        let mut order = mem::take(&mut self.order);
        fallible::sort_by(&mut order, |&one, &other| {
            compare(self, one, other).then_with(|| self.entry(one).0.cmp(self.entry(other).0))
        });
        self.order = order;
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
