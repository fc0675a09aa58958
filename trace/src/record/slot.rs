//! Writing to a ring: taking a slot, filling it and publishing it, in the order that `ring` explains.

use core::sync::atomic::Ordering;

use crate::atomic::fence;
use crate::host::Context;
use crate::recorder::Flags;
use crate::ring::{Rings, Slot, UNPUBLISHED};

impl Rings {
    /// Takes the next slot of the ring of `cpu`; `None` if that CPU has no ring.
    pub(crate) fn reserve(&self, cpu: usize) -> Option<Reservation<'_>> {
        let ring = self.rings.get(cpu)?;
        let number = ring.taken.fetch_add(1, Ordering::Relaxed);
        let slot = ring.slots.get(number as usize & ring.slots.len().wrapping_sub(1))?;
        slot.sequence.store(UNPUBLISHED, Ordering::Release);
        fence(Ordering::Release);
        Some(Reservation { slot, sequence: number.wrapping_add(1) })
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
        self.slot.event.store(u64::from(event) | u64::from(flags.0) << 32, Ordering::Relaxed);
        self.slot.time.store(time, Ordering::Relaxed);
        self.slot.task.store(context.task, Ordering::Relaxed);
    }

    /// Stores where it was hit.
    pub(crate) fn locate(&self, address: u64, return_address: u64) {
        self.slot.address.store(address, Ordering::Relaxed);
        self.slot.return_address.store(return_address, Ordering::Relaxed);
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
