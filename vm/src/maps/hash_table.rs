//! Hash tables: keys with values, in memory that is allocated once. `hit::lookup` searches and changes them.
//!
//! A table is made of buckets of [`WAYS`] slots. The hash of a key tells its home bucket. If all slots of the home are
//! in use, a new key goes to one of the next few buckets, the first with a free slot, and the home records the distance
//! of the furthest key that was placed so. Therefore a key is looked up in its home, and rarely in later buckets. A key
//! without a place is dropped, and counted. There are twice as many slots as the table is meant to hold keys, and some
//! more after the last home.
//!
//! A CPU that looks at a bucket locks it, for a bounded time, with interrupts masked, in code that is not probed. So
//! interrupted code never holds a bucket. An operation on a key holds the lock of its home throughout, so that the key
//! cannot get two places, and of at most one later bucket.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use fallible::OutOfMemory;

use super::Masked;
use crate::atomic::{AtomicU64, Cells, cells};

/// The number of slots in a bucket.
const WAYS: usize = 8;

/// The largest distance of a key from its home, in buckets. A table for up to 128 keys has room for all of them,
/// whatever their hashes are. In a table for 1,024 keys, which is half full on average, 16 consecutive buckets are
/// never all full in practice.
pub(crate) const DISTANCE_MAX: usize = 15;

/// The words of a bucket before its slots: 0 unless a CPU holds the lock; the mask of used slots; and the distance of
/// the furthest key that has this home.
pub(crate) const HEAD: usize = 3;

/// The factor of hashes.
pub(crate) const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// A hash table of keys with values.
#[derive(Debug)]
pub(crate) struct HashTable {
    pub(crate) key_words: usize,
    pub(crate) value_words: usize,
    /// The number of slots in a bucket.
    pub(crate) ways: usize,
    /// The number of home buckets, as a power of 2. They are the first buckets.
    pub(crate) home_bits: u32,
    pub(crate) buckets: usize,
    cells: Box<Cells>,
    pub(crate) dropped: AtomicU64,
    /// The number of keys. Only clauses that ask for it read it. In a program without such a clause, stubs do not count
    /// the keys that they add and remove: see `jit::snippet::tables`.
    pub(crate) keys: AtomicU64,
}

/// A bucket of a table.
#[derive(Clone, Copy)]
pub(crate) struct Bucket<'a> {
    pub(crate) holder: &'a AtomicU64,
    pub(crate) taken: &'a AtomicU64,
    pub(crate) furthest: &'a AtomicU64,
    pub(crate) slots: &'a Cells,
}

impl HashTable {
    /// Makes a table for `entries` keys, a power of 2 and at least 16, with `key_words` words in a key and
    /// `value_words` in a value. If a key has no words, there is only one key.
    pub fn new(key_words: usize, value_words: usize, entries: usize) -> Result<Self, OutOfMemory> {
        let [ways, homes, buckets] = Self::layout(key_words, entries);
        Ok(Self {
            key_words,
            value_words,
            ways,
            home_bits: homes.trailing_zeros(),
            buckets,
            cells: cells(Self::words(key_words, value_words, entries))?,
            dropped: AtomicU64::new(0),
            keys: AtomicU64::new(0),
        })
    }

    /// Returns the number of slots in a bucket, the number of home buckets, and the number of all buckets.
    fn layout(key_words: usize, entries: usize) -> [usize; 3] {
        if key_words == 0 {
            return [1, 1, 1];
        }
        let homes = 2 * entries / WAYS;
        [WAYS, homes, homes + (entries / WAYS - 1).min(DISTANCE_MAX)]
    }

    /// Returns the number of words that such a table takes.
    pub fn words(key_words: usize, value_words: usize, entries: usize) -> usize {
        let [ways, _, buckets] = Self::layout(key_words, entries);
        buckets * (HEAD + ways * (key_words + value_words))
    }

    /// Returns the virtual address of the first bucket; the others follow.
    pub fn address(&self) -> u64 {
        self.cells.as_ptr().expose_provenance() as u64
    }

    /// Returns the number of new keys that found no place.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    #[inline]
    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// Returns the bucket with this number.
    #[inline(always)]
    pub(crate) fn bucket(&self, number: usize) -> Option<Bucket<'_>> {
        let length = HEAD + self.ways * (self.key_words + self.value_words);
        let (head, slots) = self.cells.get(number * length..)?.split_at_checked(HEAD)?;
        let [holder, taken, furthest] = head else { return None };
        Some(Bucket { holder, taken, furthest, slots: slots.get(..length - HEAD)? })
    }

    /// Returns the key and the value of slot `way` among `slots`.
    #[inline(always)]
    pub(crate) fn slot<'a>(&self, slots: &'a Cells, way: usize) -> Option<(&'a Cells, &'a Cells)> {
        let length = self.key_words + self.value_words;
        slots.get(way * length..)?.get(..length)?.split_at_checked(self.key_words)
    }

    /// Appends the keys and values of bucket `number` to `rows`: for each, the words of the key, followed by those of
    /// the value. The copy is consistent, because the bucket is locked meanwhile, within a call of `masked`. Called in
    /// a task.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the copy.
    pub fn read(&self, number: usize, masked: Masked<'_>, rows: &mut Vec<u64>) -> Result<(), OutOfMemory> {
        let (slot, start) = (self.key_words + self.value_words, rows.len());
        rows.try_reserve(self.ways * slot)?;
        rows.resize(start + self.ways * slot, 0);
        let mut taken = 0;
        masked(&mut || taken = self.copy(number, &mut rows[start..]));
        let mut end = start;
        for way in (0..self.ways).filter(|way| taken & 1 << way != 0) {
            let from = start + way * slot;
            rows.copy_within(from..from + slot, end);
            end += slot;
        }
        rows.truncate(end);
        Ok(())
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests;
