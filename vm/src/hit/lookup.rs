//! Looking up the value of a key, with its bucket locked.

use core::sync::atomic::Ordering;

use super::{all_pairs, copy_cells, load_cells};
use crate::atomic::{AtomicU64, Cells, spin_loop};
use crate::maps::{Bucket, DISTANCE_MAX, HashTable, MIX};

/// A locked bucket. Dropping this unlocks it.
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

/// The slot of a key. The key's home, and the bucket of the slot if it is another one, are locked.
struct Found<'a> {
    taken: &'a AtomicU64,
    way: usize,
    value: &'a Cells,
    _bucket: Option<Held<'a>>,
    _home: Held<'a>,
}

impl HashTable {
    /// Returns the number of the home bucket of `key`: the upper bits of a product that all bits of the key affect. One
    /// multiplication is not enough for a key of one word: keys that differ by certain multiples would have adjacent
    /// homes.
    #[inline]
    pub(crate) fn home(&self, key: &Cells) -> usize {
        let mix = |hash: u64, word: u64| (hash ^ hash >> 32 ^ word).wrapping_mul(MIX);
        let hash = key.iter().fold(0, |hash, word| mix(hash, word.load(Ordering::Relaxed)));
        mix(hash, 0).checked_shr(u64::BITS - self.home_bits).unwrap_or(0) as usize
    }

    /// Looks up `key` in `bucket`, which is locked. Returns the number of its slot, and its value.
    #[inline]
    fn find<'a>(&self, bucket: Bucket<'a>, key: &Cells) -> Option<(usize, &'a Cells)> {
        let taken = bucket.taken.load(Ordering::Relaxed);
        let slots = (0..self.ways).filter(|way| taken & 1 << way != 0);
        slots.filter_map(|way| Some((way, self.slot(bucket.slots, way)?))).find_map(|(way, (has, value))| {
            let same =
                |has: &AtomicU64, wants: &AtomicU64| has.load(Ordering::Relaxed) == wants.load(Ordering::Relaxed);
            (has.len() == key.len() && all_pairs(has, key, same)).then_some((way, value))
        })
    }

    /// Puts `key` into a free slot of `bucket`, which is locked, with zeros as its value. `None` if no slot is free.
    #[inline]
    fn add<'a>(&self, bucket: Bucket<'a>, key: &Cells) -> Option<(usize, &'a Cells)> {
        let taken = bucket.taken.load(Ordering::Relaxed);
        let way = (0..self.ways).find(|way| taken & 1 << way == 0)?;
        let (place, value) = self.slot(bucket.slots, way)?;
        copy_cells(place, key);
        value.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        bucket.taken.store(taken | 1 << way, Ordering::Relaxed);
        self.keys.fetch_add(1, Ordering::Relaxed);
        Some((way, value))
    }

    /// Returns the slot of `key`, whose length is that of the table's keys. If the key is new and `add` is true, it is
    /// added. `None` if the key is new and not added, or has no place.
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

    /// Continues [`place`](Self::place) after the home bucket, which has the number `number`: the key may be in a later
    /// bucket, or the home may be full.
    //
    // Buckets are locked in ascending order, so there is no deadlock.
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
        let mut away = 1;
        while away <= furthest {
            let Some((bucket, other)) = at(away) else { break };
            if let Some((way, value)) = self.find(bucket, key) {
                return Some(Found { taken: bucket.taken, way, value, _bucket: Some(other), _home: held });
            }
            away += 1;
        }
        if !add {
            return None;
        }
        if let Some((way, value)) = self.add(home, key) {
            return Some(Found { taken: home.taken, way, value, _bucket: None, _home: held });
        }
        for away in 1..DISTANCE_MAX + 1 {
            let Some((bucket, other)) = at(away) else { break };
            if let Some((way, value)) = self.add(bucket, key) {
                home.furthest.store(furthest.max(away) as u64, Ordering::Relaxed);
                return Some(Found { taken: bucket.taken, way, value, _bucket: Some(other), _home: held });
            }
        }
        self.dropped.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Calls `change` with the value of `key`, whose length is that of the table's keys. The value of a new key is
    /// zeros. If a new key has no place, counts it as dropped and does not call `change`. Interrupts must be masked.
    #[inline]
    pub fn change<T>(&self, key: &Cells, change: impl FnOnce(&Cells) -> T) -> Option<T> {
        self.place(key, true).map(|found| change(found.value))
    }

    /// Calls `read` with the value of `key`; `None` if the table does not have the key. Interrupts must be masked.
    #[inline]
    pub fn with_value<T>(&self, key: &Cells, read: impl FnOnce(&Cells) -> T) -> Option<T> {
        self.place(key, false).map(|found| read(found.value))
    }

    /// Removes `key`. Interrupts must be masked.
    #[inline]
    pub fn remove(&self, key: &Cells) {
        if let Some(found) = self.place(key, false) {
            found.taken.store(found.taken.load(Ordering::Relaxed) & !(1 << found.way), Ordering::Relaxed);
            self.keys.fetch_add(1_u64.wrapping_neg(), Ordering::Relaxed);
        }
    }

    /// Removes all keys from bucket `number`, or, if `keep`, only zeros their values. Interrupts must be masked.
    ///
    /// Once its home has been cleared, a key in a later bucket is no longer found. It is removed together with its
    /// bucket.
    #[inline(never)]
    pub fn clear(&self, number: usize, keep: bool) {
        let Some(bucket) = self.bucket(number) else { return };
        let _held = Held::wait_for(bucket.holder);
        if !keep {
            let gone = u64::from(bucket.taken.load(Ordering::Relaxed).count_ones());
            self.keys.fetch_add(gone.wrapping_neg(), Ordering::Relaxed);
            bucket.taken.store(0, Ordering::Relaxed);
            bucket.furthest.store(0, Ordering::Relaxed);
        }
        for (_, value) in (0..self.ways).filter_map(|way| self.slot(bucket.slots, way)) {
            value.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
    }

    /// Returns the number of the first used slot from slot `from` on, within one bucket, and copies its key to `to`.
    /// `None` if the rest of the bucket is free.
    #[inline(never)]
    pub(crate) fn key_from(&self, from: usize, to: &Cells) -> Option<usize> {
        let number = from.checked_div(self.ways)?;
        let bucket = self.bucket(number)?;
        let _held = Held::wait_for(bucket.holder);
        let taken = bucket.taken.load(Ordering::Relaxed);
        let first = number.wrapping_mul(self.ways);
        let way = (from.wrapping_sub(first)..self.ways).find(|way| taken & 1 << way != 0)?;
        let (key, _) = self.slot(bucket.slots, way)?;
        copy_cells(to, key);
        Some(first.wrapping_add(way))
    }

    /// Copies the slots of bucket `number` to `words`, and returns the mask of used slots. Interrupts must be masked.
    #[inline(never)]
    pub(crate) fn copy(&self, number: usize, words: &mut [u64]) -> u64 {
        let Some(bucket) = self.bucket(number) else { return 0 };
        let _held = Held::wait_for(bucket.holder);
        load_cells(words, bucket.slots);
        bucket.taken.load(Ordering::Relaxed)
    }
}
