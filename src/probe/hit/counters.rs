//! Per-CPU counts of the hits of a probe, and of the hits that it missed.
//!
//! Every CPU counts for itself, in memory of its own: a hit then costs a load, an addition and a store, and CPUs that
//! run into the same probe do not take a cache line from each other. The counts of CPU `n` lie `n` times [`STRIDE`]
//! bytes behind those of CPU 0, as its state does behind that of CPU 0: so a CPU finds them at the same distance from
//! its state as any other. The memory is handed out by `probe::counter_pool`.

use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::cpu::Cpu;
use crate::platform;

/// Bytes from the counts of one CPU to those of the next: what lies between belongs to the same CPU.
pub(crate) const STRIDE: usize = 4096;

/// The counts of one probe on one CPU.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub(crate) struct Counts {
    pub(crate) hits: AtomicU64,
    pub(crate) missed: AtomicU64,
}

/// The counts of one probe on all CPUs: the distance to them, in bytes, from the state of the CPU.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Counters(usize);

impl Counts {
    pub(super) const fn new() -> Self {
        Self { hits: AtomicU64::new(0), missed: AtomicU64::new(0) }
    }
}

impl Counters {
    /// The counts that begin at `first`, those of CPU 0.
    ///
    /// # Safety
    ///
    /// There is one for each CPU of the platform, [`STRIDE`] bytes from the other, and they live forever.
    pub(crate) unsafe fn new(first: NonNull<Counts>) -> Self {
        Self(first.as_ptr().expose_provenance().wrapping_sub(Cpu::first().addr()))
    }

    /// Sink for hits that belong to no probe. Never read.
    pub(crate) const NOBODY: Self = Self(Cpu::NOBODY);

    /// In bytes from the state of a CPU.
    pub(crate) const fn distance(self) -> u64 {
        self.0 as u64
    }

    #[inline]
    fn of(self, cpu: &Cpu) -> &'static Counts {
        // SAFETY: as the caller of `new` promised; the sink is a part of the state.
        unsafe { &*ptr::with_exposed_provenance(ptr::from_ref(cpu).expose_provenance().wrapping_add(self.0)) }
    }

    /// Counts a hit on `cpu`, which is this CPU.
    #[inline]
    pub(super) fn hit(self, cpu: &Cpu) {
        increment(&self.of(cpu).hits);
    }

    /// Counts on `cpu`, which is this CPU, a hit that the probe is not told of.
    #[inline]
    pub(super) fn miss(self, cpu: &Cpu) {
        increment(&self.of(cpu).missed);
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
        self.all().map(|counts| count(counts).load(Relaxed)).sum()
    }

    /// Sets all counts to zero, and returns the missed hits on all CPUs until then. No CPU counts meanwhile.
    pub(crate) fn reset(self) -> u64 {
        let mut missed = 0;
        for counts in self.all() {
            counts.hits.store(0, Relaxed);
            missed += counts.missed.load(Relaxed);
            counts.missed.store(0, Relaxed);
        }
        missed
    }

    /// Those of each CPU.
    #[inline]
    fn all(self) -> impl Iterator<Item = &'static Counts> {
        let first = Cpu::first().expose_provenance().wrapping_add(self.0);
        // SAFETY: as the caller of `new` promised; the sinks, parts of the states, lie so far apart, too.
        (0..platform::cpus()).map(move |cpu| unsafe { &*ptr::with_exposed_provenance(first + cpu * STRIDE) })
    }
}

/// Adds one to a count that this CPU alone changes, with interrupts masked, so that nothing comes in between.
#[inline]
fn increment(count: &AtomicU64) {
    count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
}
