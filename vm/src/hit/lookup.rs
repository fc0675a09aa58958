//! Finding the value of a key, with its bucket held.

use core::sync::atomic::Ordering;

use super::{all_pairs, copy_cells, load_cells};
use crate::atomic::{AtomicU64, spin_loop};
use crate::store::{Bucket, Cells, FOLLOWING, MIX, Table};

/// A held bucket. Dropping this releases it.
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

/// Where a key is, held with its home.
struct Found<'a> {
    taken: &'a AtomicU64,
    way: usize,
    value: &'a Cells,
    _bucket: Option<Held<'a>>,
    _home: Held<'a>,
}

impl Table {
    /// The number of the home of `key`: the upper bits of a product, on which all bits of it have an effect. One product does not
    /// do for a key of one word: where keys differ by a multiple of what makes it small, their homes are side by side.
    #[inline]
    pub(crate) fn home(&self, key: &Cells) -> usize {
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
                |has: &AtomicU64, wants: &AtomicU64| has.load(Ordering::Relaxed) == wants.load(Ordering::Relaxed);
            (has.len() == key.len() && all_pairs(has, key, same)).then_some((way, value))
        })
    }

    /// Gives `key` a slot of `bucket`, which is held, with zeros as its value, if one is free.
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
        for away in 1..FOLLOWING + 1 {
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
            self.keys.fetch_add(1_u64.wrapping_neg(), Ordering::Relaxed);
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
            let gone = u64::from(bucket.taken.load(Ordering::Relaxed).count_ones());
            self.keys.fetch_add(gone.wrapping_neg(), Ordering::Relaxed);
            bucket.taken.store(0, Ordering::Relaxed);
            bucket.furthest.store(0, Ordering::Relaxed);
        }
        for (_, value) in (0..self.ways).filter_map(|way| self.slot(bucket.slots, way)) {
            value.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
    }

    /// The number of the first slot that has a key, from slot `from` on in the bucket of that, and copies the key to `to`.
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

    /// Copies the slots of bucket `number` to `words`, and tells which are taken. Interrupts are masked.
    #[inline(never)]
    pub(crate) fn copy(&self, number: usize, words: &mut [u64]) -> u64 {
        let Some(bucket) = self.bucket(number) else { return 0 };
        let _held = Held::wait_for(bucket.holder);
        load_cells(words, bucket.slots);
        bucket.taken.load(Ordering::Relaxed)
    }
}
