//! Keys with values, in memory that is allocated once.
//!
//! A table is made of buckets of [`WAYS`] slots; the hash of a key says which bucket it belongs to, and it is nowhere else.
//! If all slots of it are taken, a new key has no place, though other buckets may have some; it is dropped, and that is
//! counted. There are twice as many slots as keys are meant to fit.
//!
//! Each bucket has a sequence number. Whoever changes the bucket makes it odd before, and even after; while it is odd, others
//! that want to change it wait. So it is a lock, held for a bounded time, with interrupts masked, by code in which nothing is
//! probed: no interrupted code holds it. A reader takes no part: it reads the number, the slots, and the number again, and
//! starts over if it has changed.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::iter;
use core::sync::atomic::Ordering;

use crate::atomic::{AtomicU64, fence, spin_loop};

/// How many slots a bucket has.
const WAYS: usize = 8;

/// The words of a bucket before its slots: its sequence number, and which slots are taken.
pub(crate) const HEAD: usize = 2;

/// What a hash multiplies by.
pub(crate) const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// Words that several CPUs use.
pub(crate) type Cells = [AtomicU64];

/// `count` words that are 0.
pub(crate) fn cells(count: usize) -> Box<Cells> {
    iter::repeat_with(|| AtomicU64::new(0)).take(count).collect()
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    key_words: usize,
    value_words: usize,
    ways: usize,
    /// How many buckets there are, less 1: all bits below the number of them.
    mask: usize,
    cells: Box<Cells>,
    dropped: AtomicU64,
}

/// A bucket that is being changed; when this goes, others may change it.
struct Held<'a> {
    sequence: &'a AtomicU64,
    odd: u64,
}

impl<'a> Held<'a> {
    #[inline]
    fn wait_for(sequence: &'a AtomicU64) -> Self {
        loop {
            let number = sequence.load(Ordering::Relaxed);
            let odd = number | 1;
            if number != odd
                && sequence.compare_exchange_weak(number, odd, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                // Nobody may see a change with the number from before it.
                fence(Ordering::Release);
                return Self { sequence, odd };
            }
            spin_loop();
        }
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.sequence.store(self.odd.wrapping_add(1), Ordering::Release);
    }
}

impl Table {
    /// A table for `entries` keys, a power of 2, of `key_words` words each, with values of `value_words`. Without words in
    /// the key there is one key.
    pub fn new(key_words: usize, value_words: usize, entries: usize) -> Self {
        let (ways, buckets) = match key_words {
            0 => (1, 1),
            _ => (WAYS, (entries * 2 / WAYS).next_power_of_two()),
        };
        let bucket = HEAD + ways * (key_words + value_words);
        Self {
            key_words,
            value_words,
            ways,
            mask: buckets - 1,
            cells: cells(buckets * bucket),
            dropped: AtomicU64::new(0),
        }
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

    /// How many new keys have found no place.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How many bytes the table takes.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.cells)
    }

    /// The sequence number of a bucket, the word that says which slots are taken, and the slots.
    #[inline]
    fn bucket(&self, number: usize) -> Option<(&AtomicU64, &AtomicU64, &Cells)> {
        let length = HEAD + self.ways * (self.key_words + self.value_words);
        let (head, slots) = self.cells.get(number * length..)?.split_at_checked(HEAD)?;
        let [sequence, taken] = head else { return None };
        Some((sequence, taken, slots.get(..length - HEAD)?))
    }

    /// The key and the value of slot `way` among `slots`.
    #[inline]
    fn slot<'a>(&self, slots: &'a Cells, way: usize) -> Option<(&'a Cells, &'a Cells)> {
        let length = self.key_words + self.value_words;
        slots.get(way * length..)?.get(..length)?.split_at_checked(self.key_words)
    }

    #[inline]
    fn hash(&self, key: &Cells) -> usize {
        let mix = |hash: u64, word: u64| {
            let product = (hash ^ word).wrapping_mul(MIX);
            product ^ product >> 32
        };
        let hash = key.iter().fold(0, |hash, word| mix(hash, word.load(Ordering::Relaxed)));
        hash as usize & self.mask
    }

    /// The number of the slot that has `key`.
    #[inline]
    fn find(&self, taken: u64, slots: &Cells, key: &Cells) -> Option<usize> {
        (0..self.ways).filter(|way| taken & 1 << way != 0).find(|&way| {
            let has = self.slot(slots, way).map_or(&[][..], |(has, _)| has);
            has.len() == key.len()
                && has.iter().zip(key).all(|(has, wants)| has.load(Ordering::Relaxed) == wants.load(Ordering::Relaxed))
        })
    }

    /// Calls `change` with the value of `key`, which has as many words as the table's keys; with zeros, if it is
    /// new. If it is new and has no place, that is counted, and there is no call. Interrupts are masked.
    #[inline]
    pub fn change<T>(&self, key: &Cells, change: impl FnOnce(&Cells) -> T) -> Option<T> {
        let (sequence, taken, slots) = self.bucket(self.hash(key))?;
        let _held = Held::wait_for(sequence);
        let used = taken.load(Ordering::Relaxed);
        if let Some(way) = self.find(used, slots, key) {
            return self.slot(slots, way).map(|(_, value)| change(value));
        }
        let free = (0..self.ways).find(|way| used & 1 << way == 0);
        let Some((way, (place, value))) = free.and_then(|way| Some((way, self.slot(slots, way)?))) else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        place.iter().zip(key).for_each(|(to, from)| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed));
        value.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        taken.store(used | 1 << way, Ordering::Relaxed);
        Some(change(value))
    }

    /// Calls `look` with the value of `key`, if it has one. Interrupts are masked.
    #[inline]
    pub fn look<T>(&self, key: &Cells, look: impl FnOnce(&Cells) -> T) -> Option<T> {
        let (sequence, taken, slots) = self.bucket(self.hash(key))?;
        let _held = Held::wait_for(sequence);
        let way = self.find(taken.load(Ordering::Relaxed), slots, key)?;
        self.slot(slots, way).map(|(_, value)| look(value))
    }

    /// Takes `key` out. Interrupts are masked.
    #[inline]
    pub fn remove(&self, key: &Cells) {
        let Some((sequence, taken, slots)) = self.bucket(self.hash(key)) else { return };
        let _held = Held::wait_for(sequence);
        let used = taken.load(Ordering::Relaxed);
        if let Some(way) = self.find(used, slots, key) {
            taken.store(used & !(1 << way), Ordering::Relaxed);
        }
    }

    /// How many buckets there are.
    pub fn buckets(&self) -> usize {
        self.mask + 1
    }

    /// Takes all keys out of bucket `number`, or, if `keep`, makes their values zeros. Interrupts are masked.
    #[inline(never)]
    pub fn clear(&self, number: usize, keep: bool) {
        let Some((sequence, taken, slots)) = self.bucket(number) else { return };
        let _held = Held::wait_for(sequence);
        if !keep {
            taken.store(0, Ordering::Relaxed);
        }
        for (_, value) in (0..self.ways).filter_map(|way| self.slot(slots, way)) {
            value.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
    }

    /// The keys and values of bucket `number`, as they have been at one moment. Called in a task.
    pub fn read(&self, number: usize) -> Vec<(Vec<u64>, Vec<u64>)> {
        let slot = self.key_words + self.value_words;
        let mut words: Vec<u64> = iter::repeat_n(0, self.ways * slot).collect();
        let Some(taken) = self.copy(number, &mut words) else { return Vec::new() };
        let slots = words.chunks_exact(slot.max(1)).enumerate().filter(|(way, _)| taken & 1 << way != 0);
        slots
            .filter_map(|(_, slot)| slot.split_at_checked(self.key_words))
            .map(|(key, value)| (key.into(), value.into()))
            .collect()
    }

    /// Copies the slots of bucket `number` to `words`, as they have been at one moment, and tells which are taken.
    ///
    /// It starts over as often as the bucket is changed meanwhile. So nothing in it may be probed, and it calls nothing: a hit
    /// could change the bucket every time.
    #[inline(never)]
    fn copy(&self, number: usize, words: &mut [u64]) -> Option<u64> {
        let (sequence, taken, slots) = self.bucket(number)?;
        loop {
            let before = sequence.load(Ordering::Acquire);
            let used = taken.load(Ordering::Relaxed);
            words.iter_mut().zip(slots).for_each(|(to, from)| *to = from.load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if before & 1 == 0 && sequence.load(Ordering::Relaxed) == before {
                return Some(used);
            }
            spin_loop();
        }
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(words: &[u64]) -> Box<Cells> {
        words.iter().map(|&word| AtomicU64::new(word)).collect()
    }

    fn add(table: &Table, words: &[u64], amount: u64) -> Option<u64> {
        table.change(&key(words), |value| value[0].fetch_add(amount, Ordering::Relaxed) + amount)
    }

    fn all(table: &Table) -> Vec<(Vec<u64>, Vec<u64>)> {
        let mut all: Vec<_> = (0..table.buckets()).flat_map(|bucket| table.read(bucket)).collect();
        all.sort();
        all
    }

    #[test]
    fn keys_have_values_of_their_own() {
        let table = Table::new(2, 1, 64);
        for number in 0..40 {
            assert_eq!(add(&table, &[number, 7], number), Some(number));
            assert_eq!(add(&table, &[7, number], 100), Some(if number == 7 { 107 } else { 100 }));
        }
        assert_eq!(all(&table).len(), 79);
        assert_eq!(table.look(&key(&[7, 9]), |value| value[0].load(Ordering::Relaxed)), Some(100));
        table.remove(&key(&[7, 9]));
        assert_eq!(table.look(&key(&[7, 9]), |_| ()), None);
        assert_eq!(add(&table, &[7, 9], 5), Some(5));
        assert_eq!(table.dropped(), 0);
    }

    #[test]
    fn without_a_key_there_is_one_value() {
        let table = Table::new(0, 1, 64);
        assert_eq!(all(&table), []);
        add(&table, &[], 3);
        add(&table, &[], 4);
        assert_eq!(all(&table), [(Vec::new(), [7].to_vec())]);
    }

    #[test]
    fn what_has_no_place_is_dropped_and_counted() {
        let table = Table::new(1, 1, 16);
        for number in 0..1000 {
            add(&table, &[number], 1);
        }
        let kept = all(&table).len() as u64;
        assert!((16..=32).contains(&kept), "{kept}");
        assert_eq!(table.dropped(), 1000 - kept);
        for (key, _) in all(&table) {
            assert_eq!(add(&table, &key, 1), Some(2));
        }
    }

    #[test]
    fn clearing_takes_keys_out_and_zeroing_keeps_them() {
        let table = Table::new(1, 2, 16);
        add(&table, &[1], 5);
        (0..table.buckets()).for_each(|bucket| table.clear(bucket, true));
        assert_eq!(all(&table), [([1].to_vec(), [0, 0].to_vec())]);
        (0..table.buckets()).for_each(|bucket| table.clear(bucket, false));
        assert_eq!(all(&table), []);
    }

    #[test]
    fn threads_lose_nothing_and_readers_see_whole_values() {
        let table = Table::new(1, 2, 64);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for number in 0..30_000_u64 {
                        table.change(&key(&[number % 5]), |value| {
                            for word in value {
                                word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                            }
                        });
                    }
                });
            }
            for _ in 0..2_000 {
                assert!(all(&table).iter().all(|(_, value)| value[0] == value[1]));
            }
        });
        assert_eq!(all(&table), [0, 1, 2, 3, 4].map(|number| ([number].to_vec(), [18_000; 2].to_vec())));
    }
}
