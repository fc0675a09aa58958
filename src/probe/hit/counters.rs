//! How often a probe was hit, and how often it was not told.
//!
//! Every CPU counts for itself, in memory of its own: a hit then costs a load, an addition and a store, and CPUs that
//! run into the same probe do not take a cache line from each other. The counts of CPU `n` lie `n` times [`STRIDE`]
//! bytes behind those of CPU 0; the memory is handed out by `probe::counters`.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::cpu::Cpu;
use crate::platform::MAX_CPUS;

/// Bytes from the counts of one CPU to those of the next: what lies between belongs to the same CPU.
pub(crate) const STRIDE: usize = 4096;

/// The counts of one probe on one CPU.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub(crate) struct Counts {
    pub(crate) hits: AtomicU64,
    pub(crate) missed: AtomicU64,
}

/// The counts of one probe on all CPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters(NonNull<Counts>);

// SAFETY: what is pointed to is atomic, and lives for ever.
unsafe impl Send for Counters {}
// SAFETY: likewise.
unsafe impl Sync for Counters {}

impl Counters {
    /// The counts that begin at `first`, those of CPU 0.
    ///
    /// # Safety
    ///
    /// There are [`MAX_CPUS`] of them, [`STRIDE`] bytes apart, and they live for ever.
    pub(crate) const unsafe fn new(first: NonNull<Counts>) -> Self {
        Self(first)
    }

    #[inline]
    fn of(self, cpu: usize) -> &'static Counts {
        // SAFETY: as `new` was promised; the mask keeps the number below MAX_CPUS.
        unsafe { self.0.byte_add((cpu & (MAX_CPUS - 1)) * STRIDE).as_ref() }
    }

    /// Counts a hit on `cpu`, which is this CPU.
    #[inline]
    pub(super) fn hit(self, cpu: &Cpu) {
        increment(&self.of(cpu.number()).hits);
    }

    /// Counts on `cpu`, which is this CPU, a hit that the probe is not told of.
    #[inline]
    pub(super) fn miss(self, cpu: &Cpu) {
        increment(&self.of(cpu.number()).missed);
    }

    /// The hits on all CPUs.
    pub(crate) fn hits(self) -> u64 {
        self.sum(|counts| &counts.hits)
    }

    /// The missed hits on all CPUs.
    pub(crate) fn missed(self) -> u64 {
        self.sum(|counts| &counts.missed)
    }

    fn sum(self, count: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        (0..MAX_CPUS).map(|cpu| count(self.of(cpu)).load(Relaxed)).sum()
    }

    /// Sets all counts to zero. No CPU counts meanwhile.
    pub(crate) fn reset(self) {
        for cpu in 0..MAX_CPUS {
            self.of(cpu).hits.store(0, Relaxed);
            self.of(cpu).missed.store(0, Relaxed);
        }
    }
}

/// Adds one to a count that this CPU alone changes, with interrupts masked, so that nothing comes in between.
#[inline]
fn increment(count: &AtomicU64) {
    count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
}
