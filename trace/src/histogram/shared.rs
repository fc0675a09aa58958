//! The table of a histogram that all CPUs share: one CPU sets variables under a key, and another looks them up.
//! `hit::action` writes the table.
//!
//! Nothing waits. Each CPU has an entry outside the table, its **room**: it writes a key there, and looks it up from
//! there. A new key is inserted by one compare-and-swap of its slot, from 0 to the number of the entry. A CPU whose
//! swap fails finds the entry of the CPU that succeeded. So a key is in the table only once, and a reader that finds
//! the number of an entry (acquire) also finds its key (release). Sums are added atomically.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use fallible::OutOfMemory;

use super::table::room;
use crate::atomic::{AtomicU32, AtomicU64, zeroed};

/// A table that all CPUs share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The slots, by hash: the number of an entry, from 1, or 0. Their number is a power of two, and twice the number
    /// of keys.
    pub(crate) slots: Box<[AtomicU32]>,
    /// The words of the entries: the key, hits, other sums, the task's name, the mask of the variables that are set,
    /// the variables.
    pub(crate) words: Box<[AtomicU64]>,
    /// The number of words of an entry.
    pub(crate) stride: usize,
    /// The number of words of each part of the key.
    pub(crate) parts: Box<[usize]>,
    /// The number of each CPU's room.
    pub(crate) rooms: Box<[AtomicU32]>,
    /// The number of the first entry that is neither in the table nor a room.
    pub(crate) next: AtomicU32,
    /// The number of entries in the table.
    pub(crate) used: AtomicU32,
    /// The number of hits that found the table full.
    pub(crate) dropped: AtomicU64,
}

impl Shared {
    /// Makes a table for `cpus` CPUs with space for `size` keys, a power of two. A key has these `parts`, and an entry
    /// `stride` words.
    ///
    /// If several CPUs add keys at the same time when only one more has space, all of them are added. So there is an
    /// entry for the key of each CPU and for its next room, besides those for `size` keys.
    pub(super) fn new(size: u32, parts: Box<[usize]>, stride: usize, cpus: usize) -> Result<Self, OutOfMemory> {
        let size = room(size);
        let words = zeroed((size + 2 * cpus) * stride)?;
        let slots = zeroed(2 * size)?;
        let rooms = fallible::boxed_slice((0..cpus as u32).map(AtomicU32::new))?;
        let (next, used, dropped) = (AtomicU32::new(cpus as u32), AtomicU32::new(0), AtomicU64::new(0));
        Ok(Self { slots, words, stride, parts, rooms, next, used, dropped })
    }

    /// Returns the memory that [`new`](Self::new) allocates, in bytes.
    pub(super) fn bytes(size: u32, stride: usize, cpus: usize) -> usize {
        let size = size as usize;
        let entries = (size + 2 * cpus).saturating_mul(stride).saturating_mul(size_of::<AtomicU64>());
        entries.saturating_add((2 * size + cpus) * size_of::<AtomicU32>())
    }

    /// Appends all words of each entry to `entries`.
    pub(super) fn read(&self, entries: &mut Vec<Vec<u64>>) -> Result<(), OutOfMemory> {
        let hits: usize = self.parts.iter().sum();
        for slot in &self.slots {
            let Some(number) = (slot.load(Acquire) as usize).checked_sub(1) else { continue };
            let words = self.words.get(number * self.stride..(number + 1) * self.stride).unwrap_or(&[]);
            // The first hit of the entry may not be counted yet.
            if words.get(hits).is_some_and(|hits| hits.load(Relaxed) > 0) {
                fallible::push(entries, fallible::collect(words.iter().map(|word| word.load(Relaxed)))?)?;
            }
        }
        Ok(())
    }

    /// Removes all entries.
    ///
    /// The caller must make sure that no hit is counted meanwhile, and that the next hit sees the stores of this
    /// function. Otherwise such a hit may be lost, or share an entry with a hit that has another key.
    pub(super) fn clear(&self) {
        self.slots.iter().for_each(|slot| slot.store(0, Relaxed));
        self.words.iter().for_each(|word| word.store(0, Relaxed));
        self.rooms.iter().zip(0..).for_each(|(room, number)| room.store(number, Relaxed));
        self.next.store(self.rooms.len() as u32, Relaxed);
        self.used.store(0, Relaxed);
        self.dropped.store(0, Relaxed);
    }
}
