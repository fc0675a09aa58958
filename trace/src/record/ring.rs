//! The rings that records are written to: one for every CPU, overwritten when full.
//!
//! A ring is written by its own CPU only, and can be read from any other at any time. Nothing waits: a writer
//! takes the next sequence number, which tells the slot, marks the slot as being written, fills it and then
//! publishes the sequence number in it. A reader copies a slot and keeps the copy only if the same sequence
//! number was published before and after; what was overwritten meanwhile it counts. A writer that interrupts
//! another, should that ever happen, takes a later number and a slot of its own.
//!
//! The order of the accesses is that of a sequence lock in the memory model of Rust: all words are atomic, the
//! writer separates the mark from the words by a release fence and publishes with release, the reader
//! publishes nothing, loads the sequence number with acquire and separates the words from its second load by
//! an acquire fence.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering, fence};

use super::Flags;
use crate::definition::MAX_ARGUMENTS;
use crate::host::Context;

/// The sequence number of a slot that is being written, or never was: real ones count from 1.
pub(crate) const UNPUBLISHED: u64 = 0;

/// One record: two cache lines.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(crate) sequence: AtomicU64,
    pub(crate) time: AtomicU64,
    /// The number of the event in the low half, the flags in the high half.
    pub(crate) event: AtomicU64,
    pub(crate) task: AtomicU64,
    pub(crate) name: [AtomicU64; 2],
    pub(crate) address: AtomicU64,
    pub(crate) return_address: AtomicU64,
    pub(crate) values: [AtomicU64; MAX_ARGUMENTS],
}

/// The records of one CPU.
#[derive(Debug)]
pub(crate) struct Ring {
    pub(crate) slots: Box<[Slot]>,
    /// How many sequence numbers were taken; the next one is one more.
    pub(crate) taken: AtomicU64,
    /// The sequence numbers up to this one were cleared away.
    pub(crate) cleared: AtomicU64,
}

/// The rings of all CPUs.
#[derive(Debug)]
pub struct Rings {
    pub(crate) rings: Box<[Ring]>,
}

impl Rings {
    /// Takes the next slot of the ring of `cpu`; `None` if that CPU has no ring.
    pub(crate) fn reserve(&self, cpu: usize) -> Option<Reservation<'_>> {
        let ring = self.rings.get(cpu)?;
        let number = ring.taken.fetch_add(1, Ordering::Relaxed);
        let slot = ring
            .slots
            .get(number as usize & ring.slots.len().wrapping_sub(1))?;
        slot.sequence.store(UNPUBLISHED, Ordering::Relaxed);
        fence(Ordering::Release);
        Some(Reservation {
            slot,
            sequence: number.wrapping_add(1),
        })
    }
}

/// A slot that is being written.
pub(crate) struct Reservation<'a> {
    slot: &'a Slot,
    sequence: u64,
}

impl Reservation<'_> {
    /// Stores what was hit, and when and in which task.
    pub(crate) fn describe(&self, event: u32, flags: Flags, time: u64, context: &Context) {
        let name = u128::from_le_bytes(context.name);
        let [low, high] = &self.slot.name;
        low.store(name as u64, Ordering::Relaxed);
        high.store((name >> 64) as u64, Ordering::Relaxed);
        self.slot.event.store(
            u64::from(event) | u64::from(flags.0) << 32,
            Ordering::Relaxed,
        );
        self.slot.time.store(time, Ordering::Relaxed);
        self.slot.task.store(context.task, Ordering::Relaxed);
    }

    /// Stores where it was hit.
    pub(crate) fn locate(&self, address: u64, return_address: u64) {
        self.slot.address.store(address, Ordering::Relaxed);
        self.slot
            .return_address
            .store(return_address, Ordering::Relaxed);
    }

    /// Stores argument `number`; one that has no place is dropped.
    pub(crate) fn value(&self, number: usize, value: u64) {
        if let Some(place) = self.slot.values.get(number) {
            place.store(value, Ordering::Relaxed);
        }
    }

    /// Publishes the record.
    pub(crate) fn commit(self) {
        self.slot.sequence.store(self.sequence, Ordering::Release);
    }
}
