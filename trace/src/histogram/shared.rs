//! The table of a histogram that all CPUs count in: what one CPU has set under a key, another looks up under it. It is written by
//! `hit::action`.
//!
//! Nobody waits. Each CPU has an entry that is not in the table, its **room**: a key is written to it, and looked up from there. If
//! it is new, one compare-and-swap of its slot, from 0 to the number of the entry, puts it in the table; who fails finds the entry
//! of who has succeeded. So a key is in the table once, and a reader that finds the number of an entry (acquire) finds its key
//! (release). Sums are added to atomically.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use fallible::OutOfMemory;

use crate::atomic::AtomicU64;

/// The room of a CPU for which there is none any more.
pub(crate) const NO_ROOM: u32 = u32::MAX;

/// The table.
#[derive(Debug)]
pub(crate) struct Shared {
    /// By hash: the number of the entry, from 1 on, or 0. A power of two of them, twice as many as there is room for.
    pub(crate) slots: Box<[AtomicU32]>,
    /// The words of the entries: the key, hits, other sums, the task's name, which variables are set, the variables.
    pub(crate) words: Box<[AtomicU64]>,
    /// Words of an entry.
    pub(crate) stride: usize,
    /// How many of these each part of the key has.
    pub(crate) parts: Box<[usize]>,
    /// The room of each CPU.
    pub(crate) rooms: Box<[AtomicU32]>,
    /// The first entry that is neither in the table nor a room.
    pub(crate) next: AtomicU32,
    /// How many entries are in the table.
    pub(crate) used: AtomicU32,
    /// Hits that had no room.
    pub(crate) dropped: AtomicU64,
}

impl Shared {
    /// A table of `cpus` CPUs with room for `size` keys, a power of two, of these `parts`, in entries of `stride` words.
    pub(super) fn new(size: u32, parts: Box<[usize]>, stride: usize, cpus: usize) -> Result<Self, OutOfMemory> {
        let size = size as usize;
        let words = fallible::boxed_slice((0..(size + cpus) * stride).map(|_| AtomicU64::new(0)))?;
        let slots = fallible::boxed_slice((0..2 * size).map(|_| AtomicU32::new(0)))?;
        let rooms = fallible::boxed_slice((0..cpus as u32).map(AtomicU32::new))?;
        let (next, used, dropped) = (AtomicU32::new(cpus as u32), AtomicU32::new(0), AtomicU64::new(0));
        Ok(Self { slots, words, stride, parts, rooms, next, used, dropped })
    }

    /// Bytes of memory that [`new`](Self::new) takes.
    pub(super) fn bytes(size: u32, stride: usize, cpus: usize) -> usize {
        let size = size as usize;
        let entries = (size + cpus).saturating_mul(stride).saturating_mul(size_of::<AtomicU64>());
        entries.saturating_add((2 * size + cpus) * size_of::<AtomicU32>())
    }

    /// Appends the entries: all their words.
    pub(super) fn read(&self, entries: &mut Vec<Vec<u64>>) -> Result<(), OutOfMemory> {
        let hits: usize = self.parts.iter().sum();
        for slot in &self.slots {
            let Some(number) = (slot.load(Acquire) as usize).checked_sub(1) else { continue };
            let words = self.words.get(number * self.stride..(number + 1) * self.stride).unwrap_or(&[]);
            // Its first hit may not be counted yet.
            if words.get(hits).is_some_and(|hits| hits.load(Relaxed) > 0) {
                fallible::push(entries, fallible::collect(words.iter().map(|word| word.load(Relaxed)))?)?;
            }
        }
        Ok(())
    }

    /// Forgets all entries.
    ///
    /// Nothing may be counted meanwhile: what is, may be lost.
    pub(super) fn clear(&self) {
        self.slots.iter().for_each(|slot| slot.store(0, Relaxed));
        self.words.iter().for_each(|word| word.store(0, Relaxed));
        self.rooms.iter().zip(0..).for_each(|(room, number)| room.store(number, Relaxed));
        self.next.store(self.rooms.len() as u32, Relaxed);
        self.used.store(0, Relaxed);
        self.dropped.store(0, Relaxed);
    }
}
