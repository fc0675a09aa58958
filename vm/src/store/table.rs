//! Keys with values, in memory that is allocated once. They are looked for and changed by `hit::lookup`.
//!
//! A table is made of buckets of [`WAYS`] slots. The hash of a key says which bucket is its home. Where all slots of that are
//! taken, a new key goes to the next bucket that has a free one, if it is one of a few behind, and the home keeps how far away
//! the furthest is that was put there; so a key is looked for in its home, and seldom further. Without a place it is dropped, and
//! that is counted. There are twice as many slots as keys are meant to fit, and some behind the last home.
//!
//! Who looks at a bucket holds it, for a bounded time, with interrupts masked, in code in which nothing is probed: no
//! interrupted code holds it. Who does something with a key holds its home meanwhile, so that it cannot get two places, and at
//! most one bucket behind that.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use fallible::OutOfMemory;

use super::Masked;
use crate::atomic::AtomicU64;

/// How many slots a bucket has.
const WAYS: usize = 8;

/// How many buckets behind its home a key may be in. A table for up to 128 keys finds room for all, whatever their hashes
/// are; in one for 1,024 that is half full on average, 16 buckets in a row are not.
pub(crate) const FOLLOWING: usize = 15;

/// The words of a bucket before its slots: 0 unless a CPU holds it; which slots are taken; and how far away from this home
/// the furthest key is.
pub(crate) const HEAD: usize = 3;

/// What a hash multiplies by.
pub(crate) const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Words that several CPUs use.
pub(crate) type Cells = [AtomicU64];

/// `count` words that are 0, if there is memory for them.
pub(crate) fn cells(count: usize) -> Result<Box<Cells>, OutOfMemory> {
    fallible::boxed_slice((0..count).map(|_| AtomicU64::new(0)))
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) key_words: usize,
    pub(crate) value_words: usize,
    pub(crate) ways: usize,
    /// How many buckets are homes, as a power of 2.
    pub(crate) home_bits: u32,
    pub(crate) buckets: usize,
    cells: Box<Cells>,
    pub(crate) dropped: AtomicU64,
    /// How many keys it has. Nobody reads it but a clause that asks for it, and stubs do not count what they add and take out, where
    /// none does: see `compile::snippet`.
    pub(crate) keys: AtomicU64,
}

/// A bucket.
#[derive(Clone, Copy)]
pub(crate) struct Bucket<'a> {
    pub(crate) holder: &'a AtomicU64,
    pub(crate) taken: &'a AtomicU64,
    pub(crate) furthest: &'a AtomicU64,
    pub(crate) slots: &'a Cells,
}

impl Table {
    /// A table for `entries` keys, a power of 2 from 16 on, of `key_words` words each, with values of `value_words`. Without
    /// words in the key there is one key.
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

    /// How many slots a bucket has, how many buckets are homes, and how many there are.
    fn layout(key_words: usize, entries: usize) -> [usize; 3] {
        if key_words == 0 {
            return [1, 1, 1];
        }
        let homes = 2 * entries / WAYS;
        [WAYS, homes, homes + (entries / WAYS - 1).min(FOLLOWING)]
    }

    /// How many words such a table takes.
    pub fn words(key_words: usize, value_words: usize, entries: usize) -> usize {
        let [ways, _, buckets] = Self::layout(key_words, entries);
        buckets * (HEAD + ways * (key_words + value_words))
    }

    /// How many words a key has.
    #[inline]
    pub fn key_words(&self) -> usize {
        self.key_words
    }

    /// How many words a value has.
    #[inline]
    pub fn value_words(&self) -> usize {
        self.value_words
    }

    /// The virtual address of the first bucket; the others follow.
    pub fn address(&self) -> u64 {
        self.cells.as_ptr().addr() as u64
    }

    /// How many slots a bucket has.
    pub fn ways(&self) -> usize {
        self.ways
    }

    /// How many buckets are homes, as a power of 2: the first of them.
    pub fn home_bits(&self) -> u32 {
        self.home_bits
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> usize {
        self.buckets
    }

    /// How many new keys have found no place.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How many keys it has.
    #[inline]
    pub fn keys(&self) -> u64 {
        self.keys.load(Ordering::Relaxed)
    }

    /// The bucket of that number.
    #[inline(always)]
    pub(crate) fn bucket(&self, number: usize) -> Option<Bucket<'_>> {
        let length = HEAD + self.ways * (self.key_words + self.value_words);
        let (head, slots) = self.cells.get(number * length..)?.split_at_checked(HEAD)?;
        let [holder, taken, furthest] = head else { return None };
        Some(Bucket { holder, taken, furthest, slots: slots.get(..length - HEAD)? })
    }

    /// The key and the value of slot `way` among `slots`.
    #[inline(always)]
    pub(crate) fn slot<'a>(&self, slots: &'a Cells, way: usize) -> Option<(&'a Cells, &'a Cells)> {
        let length = self.key_words + self.value_words;
        slots.get(way * length..)?.get(..length)?.split_at_checked(self.key_words)
    }

    /// Appends the keys and values of bucket `number`, as they have been at one moment, to `rows`: the words of a key, and behind
    /// them those of its value. Called in a task; the bucket is held within a call of `masked`.
    ///
    /// # Errors
    ///
    /// There is no memory for them.
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
