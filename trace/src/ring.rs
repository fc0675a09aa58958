//! The rings that records are written to, one for every CPU, overwritten when full: how they are made and read.
//! They are written by [`record`](crate::record), which is the hit path.
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
//!
//! A record whose number is taken and which is not in its slot is either being written, by its CPU at this moment, and then
//! not yet there; or overwritten, and then lost to this reader. The mark is stored with release, after the later number was
//! taken, so that who finds the mark of an overwriter sees how far the numbers have gone.
//!
//! Readers get a copy, in the order of time, because printing takes long and may be probed itself.

use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::array;
use core::sync::atomic::Ordering;

use crate::atomic::{AtomicU64, fence};
use crate::definition::MAX_ARGUMENTS;
use crate::recorder::Flags;

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

/// The records of one CPU, in cache lines of its own: no hit waits for those of other CPUs.
#[derive(Debug)]
#[repr(align(128))]
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

/// One hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The system counter at the hit.
    pub time: u64,
    /// The CPU.
    pub cpu: usize,
    /// The position among the records of this CPU.
    pub sequence: u64,
    /// The number of the event.
    pub event: u32,
    /// The state of the CPU.
    pub flags: Flags,
    /// The number of the task.
    pub task: u64,
    /// The name of the task, filled up with zeros.
    pub name: [u8; 16],
    /// The virtual address of the probe; of the function that returned.
    pub address: u64,
    /// The virtual address that the function returned to; otherwise 0.
    pub return_address: u64,
    /// The arguments, as many as the event has.
    pub values: [u64; MAX_ARGUMENTS],
}

/// What was in the rings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The records, oldest first.
    pub records: Vec<Record>,
    /// How many were written since the rings were cleared, on all CPUs.
    pub written: u64,
    /// How many of the records were overwritten while they were read, by CPU.
    pub lost: Vec<u64>,
}

impl Slot {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            sequence: AtomicU64::new(UNPUBLISHED),
            time: zero(),
            event: zero(),
            task: zero(),
            name: array::from_fn(|_| zero()),
            address: zero(),
            return_address: zero(),
            values: array::from_fn(|_| zero()),
        }
    }
}

impl Rings {
    /// Rings with at least `records` records each, for the CPUs numbered below `cpus`: all that can be hit, as a hit
    /// on another is not recorded. Nothing is allocated later.
    #[must_use]
    pub fn new(cpus: usize, records: usize) -> Self {
        let records = records.next_power_of_two();
        let ring = || Ring {
            slots: (0..records).map(|_| Slot::new()).collect(),
            taken: AtomicU64::new(0),
            cleared: AtomicU64::new(0),
        };
        Self { rings: (0..cpus).map(|_| ring()).collect::<Box<[Ring]>>() }
    }

    /// Copies what is in the rings.
    ///
    /// # Errors
    ///
    /// No memory for the copy.
    pub fn snapshot(&self) -> Result<Snapshot, TryReserveError> {
        let mut snapshot = Snapshot::default();
        snapshot.lost.try_reserve_exact(self.rings.len())?;
        for (cpu, ring) in self.rings.iter().enumerate() {
            // What is written from now on does not count, so there is room for the rest.
            let span = ring.span();
            snapshot.records.try_reserve(span.len())?;
            snapshot.written += ring.written();
            let mut lost = 0;
            for sequence in span.numbers() {
                match ring.read(cpu, sequence) {
                    Some(record) => snapshot.records.push(record),
                    None => lost += u64::from(ring.is_overwritten(sequence)),
                }
            }
            snapshot.lost.push(lost);
        }
        snapshot.records.sort_unstable_by_key(|record| (record.time, record.cpu, record.sequence));
        Ok(snapshot)
    }

    /// How many records were written since the rings were cleared, on all CPUs.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.rings.iter().map(Ring::written).sum()
    }

    /// Whether a record of the event numbered `event` is in the rings.
    #[must_use]
    pub fn holds(&self, event: u32) -> bool {
        let mut rings = self.rings.iter().enumerate();
        rings.any(|(cpu, ring)| {
            let mut records = ring.span().numbers().filter_map(|sequence| ring.read(cpu, sequence));
            records.any(|record| record.event == event)
        })
    }

    /// Empties the rings. Records that are written meanwhile stay.
    pub fn clear(&self) {
        for ring in &self.rings {
            ring.cleared.store(ring.taken.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

/// The sequence numbers that can be in a ring: above the first, up to and including the second.
#[derive(Clone, Copy)]
struct Span(u64, u64);

impl Span {
    fn len(self) -> usize {
        (self.1 - self.0) as usize
    }

    fn numbers(self) -> core::ops::RangeInclusive<u64> {
        self.0 + 1..=self.1
    }
}

impl Ring {
    fn written(&self) -> u64 {
        self.taken.load(Ordering::Relaxed).saturating_sub(self.cleared.load(Ordering::Relaxed))
    }

    fn span(&self) -> Span {
        let taken = self.taken.load(Ordering::Relaxed);
        let oldest = taken.saturating_sub(self.slots.len() as u64);
        Span(oldest.max(self.cleared.load(Ordering::Relaxed)).min(taken), taken)
    }

    /// The record numbered `sequence`, unless it is being written or was overwritten.
    fn read(&self, cpu: usize, sequence: u64) -> Option<Record> {
        let slot = self.slots.get((sequence - 1) as usize & (self.slots.len() - 1))?;
        let record = slot.is_published(sequence).then(|| slot.copy(cpu, sequence))?;
        slot.is_unchanged(sequence).then_some(record)
    }

    /// Whether the record numbered `sequence`, which was not found in its slot, has been there: a later one has the slot.
    fn is_overwritten(&self, sequence: u64) -> bool {
        // After the load that has found the slot marked.
        fence(Ordering::Acquire);
        self.taken.load(Ordering::Relaxed) >= sequence + self.slots.len() as u64
    }
}

impl Slot {
    /// Whether the record numbered `sequence` is complete. What is copied then is this one, or newer.
    fn is_published(&self, sequence: u64) -> bool {
        self.sequence.load(Ordering::Acquire) == sequence
    }

    /// Whether what was copied before is still the record numbered `sequence`, and nothing of a newer one.
    fn is_unchanged(&self, sequence: u64) -> bool {
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == sequence
    }

    fn copy(&self, cpu: usize, sequence: u64) -> Record {
        let word = |place: &AtomicU64| place.load(Ordering::Relaxed);
        let event = word(&self.event);
        let name = u128::from(word(&self.name[0])) | u128::from(word(&self.name[1])) << 64;
        Record {
            time: word(&self.time),
            cpu,
            sequence,
            event: event as u32,
            flags: Flags((event >> 32) as u32),
            task: word(&self.task),
            name: name.to_le_bytes(),
            address: word(&self.address),
            return_address: word(&self.return_address),
            values: self.values.each_ref().map(word),
        }
    }
}

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
mod tests;
