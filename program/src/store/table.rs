//! Keys with values, in memory that is allocated once.
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
use crate::atomic::{AtomicU64, spin_loop};

/// How many slots a bucket has.
const WAYS: usize = 8;

/// How many buckets behind its home a key may be in. A table for up to 128 keys finds room for all, whatever their hashes
/// are; in one for 1,024 that is half full on average, 16 buckets in a row are not.
const FOLLOWING: usize = 15;

/// The words of a bucket before its slots: 0 unless somebody holds it; which slots are taken; and how far away from this home
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
    key_words: usize,
    value_words: usize,
    ways: usize,
    /// How many buckets are homes, as a power of 2.
    home_bits: u32,
    buckets: usize,
    cells: Box<Cells>,
    dropped: AtomicU64,
}

/// A bucket that somebody holds; when this goes, others may have it.
struct Held<'a>(&'a AtomicU64);

impl<'a> Held<'a> {
    #[inline]
    fn wait_for(holder: &'a AtomicU64) -> Self {
        while holder.load(Ordering::Relaxed) != 0
            || holder.compare_exchange_weak(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            spin_loop();
        }
        Self(holder)
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// A bucket.
#[derive(Clone, Copy)]
struct Bucket<'a> {
    holder: &'a AtomicU64,
    taken: &'a AtomicU64,
    furthest: &'a AtomicU64,
    slots: &'a Cells,
}

/// Where a key is, held with its home.
struct Found<'a> {
    taken: &'a AtomicU64,
    way: usize,
    value: &'a Cells,
    _bucket: Option<Held<'a>>,
    _home: Held<'a>,
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

    #[inline]
    fn bucket(&self, number: usize) -> Option<Bucket<'_>> {
        let length = HEAD + self.ways * (self.key_words + self.value_words);
        let (head, slots) = self.cells.get(number * length..)?.split_at_checked(HEAD)?;
        let [holder, taken, furthest] = head else { return None };
        Some(Bucket { holder, taken, furthest, slots: slots.get(..length - HEAD)? })
    }

    /// The key and the value of slot `way` among `slots`.
    #[inline]
    fn slot<'a>(&self, slots: &'a Cells, way: usize) -> Option<(&'a Cells, &'a Cells)> {
        let length = self.key_words + self.value_words;
        slots.get(way * length..)?.get(..length)?.split_at_checked(self.key_words)
    }

    /// The number of the home of `key`: the upper bits of a product, on which all bits of it have an effect. One product does not
    /// do for a key of one word: where keys differ by a multiple of what makes it small, their homes are side by side.
    #[inline]
    fn home(&self, key: &Cells) -> usize {
        let mix = |hash: u64, word: u64| (hash ^ hash >> 32 ^ word).wrapping_mul(MIX);
        let hash = key.iter().fold(0, |hash, word| mix(hash, word.load(Ordering::Relaxed)));
        mix(hash, 0).checked_shr(u64::BITS - self.home_bits).unwrap_or(0) as usize
    }

    /// The number of the slot of `bucket`, which is held, that has `key`, and its value.
    #[inline]
    fn find<'a>(&self, bucket: Bucket<'a>, key: &Cells) -> Option<(usize, &'a Cells)> {
        let taken = bucket.taken.load(Ordering::Relaxed);
        let slots = (0..self.ways).filter(|way| taken & 1 << way != 0);
        slots.filter_map(|way| Some((way, self.slot(bucket.slots, way)?))).find_map(|(way, (has, value))| {
            let same =
                |(has, wants): (&AtomicU64, &AtomicU64)| has.load(Ordering::Relaxed) == wants.load(Ordering::Relaxed);
            (has.len() == key.len() && has.iter().zip(key).all(same)).then_some((way, value))
        })
    }

    /// Gives `key` a slot of `bucket`, which is held, with zeros as its value, if one is free.
    #[inline]
    fn add<'a>(&self, bucket: Bucket<'a>, key: &Cells) -> Option<(usize, &'a Cells)> {
        let taken = bucket.taken.load(Ordering::Relaxed);
        let way = (0..self.ways).find(|way| taken & 1 << way == 0)?;
        let (place, value) = self.slot(bucket.slots, way)?;
        place.iter().zip(key).for_each(|(to, from)| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed));
        value.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        bucket.taken.store(taken | 1 << way, Ordering::Relaxed);
        Some((way, value))
    }

    /// Where `key` is, which has as many words as the table's keys; where it is new and to be added, where it has been put.
    /// None where it is new and is not to be added, or has no place.
    #[inline(never)]
    fn place(&self, key: &Cells, add: bool) -> Option<Found<'_>> {
        let number = self.home(key);
        let home = self.bucket(number)?;
        let held = Held::wait_for(home.holder);
        let further = home.furthest.load(Ordering::Relaxed) as usize;
        let found = match self.find(home, key) {
            None if further > 0 => None,
            None if add => self.add(home, key),
            None => return None,
            found => found,
        };
        match found {
            Some((way, value)) => Some(Found { taken: home.taken, way, value, _bucket: None, _home: held }),
            None => self.beyond(number, home, held, key, add),
        }
    }

    /// The same, where the key is not in its home, number `number`, but may be behind it, or the home has no room.
    //
    // Locks are taken in the order of the buckets, so nobody waits for who waits for him.
    #[inline(never)]
    fn beyond<'a>(
        &'a self,
        number: usize,
        home: Bucket<'a>,
        held: Held<'a>,
        key: &Cells,
        add: bool,
    ) -> Option<Found<'a>> {
        let furthest = home.furthest.load(Ordering::Relaxed) as usize;
        let at = |away: usize| {
            let bucket = self.bucket(number + away)?;
            Some((bucket, Held::wait_for(bucket.holder)))
        };
        for (bucket, other) in (1..=furthest).filter_map(at) {
            if let Some((way, value)) = self.find(bucket, key) {
                return Some(Found { taken: bucket.taken, way, value, _bucket: Some(other), _home: held });
            }
        }
        if !add {
            return None;
        }
        if let Some((way, value)) = self.add(home, key) {
            return Some(Found { taken: home.taken, way, value, _bucket: None, _home: held });
        }
        for away in 1..=FOLLOWING {
            let Some((bucket, other)) = at(away) else { break };
            if let Some((way, value)) = self.add(bucket, key) {
                home.furthest.store(furthest.max(away) as u64, Ordering::Relaxed);
                return Some(Found { taken: bucket.taken, way, value, _bucket: Some(other), _home: held });
            }
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Calls `change` with the value of `key`, which has as many words as the table's keys; with zeros, if it is
    /// new. If it is new and has no place, that is counted, and there is no call. Interrupts are masked.
    #[inline]
    pub fn change<T>(&self, key: &Cells, change: impl FnOnce(&Cells) -> T) -> Option<T> {
        self.place(key, true).map(|found| change(found.value))
    }

    /// Calls `look` with the value of `key`, if it has one. Interrupts are masked.
    #[inline]
    pub fn look<T>(&self, key: &Cells, look: impl FnOnce(&Cells) -> T) -> Option<T> {
        self.place(key, false).map(|found| look(found.value))
    }

    /// Takes `key` out. Interrupts are masked.
    #[inline]
    pub fn remove(&self, key: &Cells) {
        if let Some(found) = self.place(key, false) {
            found.taken.store(found.taken.load(Ordering::Relaxed) & !(1 << found.way), Ordering::Relaxed);
        }
    }

    /// Takes all keys out of bucket `number`, or, if `keep`, makes their values zeros. Interrupts are masked.
    ///
    /// A key that is behind its home is found no more when that has been cleared, and taken out with the bucket that it is in.
    #[inline(never)]
    pub fn clear(&self, number: usize, keep: bool) {
        let Some(bucket) = self.bucket(number) else { return };
        let _held = Held::wait_for(bucket.holder);
        if !keep {
            bucket.taken.store(0, Ordering::Relaxed);
            bucket.furthest.store(0, Ordering::Relaxed);
        }
        for (_, value) in (0..self.ways).filter_map(|way| self.slot(bucket.slots, way)) {
            value.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
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

    /// Copies the slots of bucket `number` to `words`, and tells which are taken. Interrupts are masked.
    #[inline(never)]
    fn copy(&self, number: usize, words: &mut [u64]) -> u64 {
        let Some(bucket) = self.bucket(number) else { return 0 };
        let _held = Held::wait_for(bucket.holder);
        words.iter_mut().zip(bucket.slots).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
        bucket.taken.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests;
