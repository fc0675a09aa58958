//! Per-CPU counts of the hits of a probe, and of the hits that it missed.
//!
//! Every CPU counts in memory of its own. So a hit costs a load, an addition and a store, and CPUs that hit the same
//! probe do not take a cache line from each other. The counts of CPU `n` lie `n` times [`STRIDE`] bytes after those of
//! CPU 0, and so does its state after that of CPU 0: every CPU finds them at the same distance from its state. The
//! counts of the first probes are a part of the states. `probe::counter_pool` allocates the others.

use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use super::cpu::Cpu;
use crate::kernel;

/// Bytes between the counts of consecutive CPUs. The memory between them belongs to the first of the two CPUs.
pub(crate) const STRIDE: usize = 4096;

/// The counts of one probe on one CPU.
#[derive(Debug, Default)]
#[repr(C, align(16))]
pub(crate) struct Counts {
    pub(crate) hits: AtomicU64,
    pub(crate) missed: AtomicU64,
}

/// The counts of one probe on all CPUs, as their distance in bytes from the state of the CPU.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Counters(usize);

impl Counts {
    pub(super) const fn new() -> Self {
        Self { hits: AtomicU64::new(0), missed: AtomicU64::new(0) }
    }
}

impl Counters {
    /// Makes the counts whose part for CPU 0 is at `first`.
    ///
    /// # Safety
    ///
    /// There are counts for each CPU of the platform, [`STRIDE`] bytes apart, and they are never freed.
    pub(crate) unsafe fn new(first: NonNull<Counts>) -> Self {
        Self(first.as_ptr().expose_provenance().wrapping_sub(Cpu::first().addr()))
    }

    /// Returns the counts with the number `index` among those that are parts of the states of the CPUs.
    pub(crate) fn in_states(index: usize) -> Self {
        assert!(index < Cpu::COUNTS, "there are {} counts in the state of a CPU", Cpu::COUNTS);
        Self(Cpu::COUNTS_OFFSET + index * size_of::<Counts>())
    }

    /// Sink for hits that belong to no probe. Never read.
    pub(crate) const SINK: Self = Self(Cpu::SINK);

    /// Words that stay zero: the places for spares of a pool that has not got its own yet.
    pub(crate) const NO_SPARE: Self = Self(Cpu::NO_SPARE);

    /// Returns the distance, in bytes, from the state of a CPU to its counts.
    pub(crate) const fn distance(self) -> u64 {
        self.0 as u64
    }

    /// Returns the offset of the counts in the state of a CPU, in bytes, if they are a part of it.
    pub(crate) fn offset_in_state(self) -> Option<u16> {
        u16::try_from(self.0).ok().filter(|&offset| usize::from(offset) < size_of::<Cpu>())
    }

    #[inline]
    pub(super) fn of(self, cpu: &Cpu) -> &'static Counts {
        // SAFETY: the caller of `new` guarantees that counts which are never freed lie at this distance from every
        // CPU's state; the sinks and the counts of `in_states` are parts of the state.
        unsafe { &*ptr::with_exposed_provenance(ptr::from_ref(cpu).expose_provenance().wrapping_add(self.0)) }
    }

    /// Counts a hit on `cpu`, which is this CPU.
    #[inline]
    pub(super) fn hit(self, cpu: &Cpu) {
        increment(&self.of(cpu).hits);
    }

    /// Counts a missed hit on `cpu`, which is this CPU.
    #[inline]
    pub(super) fn miss(self, cpu: &Cpu) {
        increment(&self.of(cpu).missed);
    }

    /// Takes back a hit that was counted on `cpu`, which is this CPU.
    #[inline]
    pub(super) fn take_back(self, cpu: &Cpu) {
        let Counts { hits, .. } = self.of(cpu);
        hits.store(hits.load(Relaxed).wrapping_sub(1), Relaxed);
    }

    /// Returns the hits on all CPUs.
    pub(crate) fn hits(self) -> u64 {
        self.sum(|counts| &counts.hits)
    }

    /// Returns the missed hits on all CPUs.
    pub(crate) fn missed(self) -> u64 {
        self.sum(|counts| &counts.missed)
    }

    fn sum(self, count: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        self.all().map(|counts| count(counts).load(Relaxed)).sum()
    }

    /// Sets all counts to zero, and returns the previous sum of missed hits. No CPU counts at the same time.
    pub(crate) fn reset(self) -> u64 {
        let mut missed = 0;
        for counts in self.all() {
            counts.hits.store(0, Relaxed);
            missed += counts.missed.load(Relaxed);
            counts.missed.store(0, Relaxed);
        }
        missed
    }

    /// Makes `next` the counts that follow these in a list, until [`unlink`](Self::unlink) is called. These belong to
    /// no probe meanwhile, and are zero, except that the hits on CPU 0 hold the link.
    #[inline]
    pub(crate) fn link(self, next: Self) {
        self.on(0).hits.store(next.0 as u64, Relaxed);
    }

    /// Returns the counts that follow these in a list, and makes these zero again.
    #[inline]
    pub(crate) fn unlink(self) -> Self {
        let Counts { hits, .. } = self.on(0);
        let next = Self(hits.load(Relaxed) as usize);
        hits.store(0, Relaxed);
        next
    }

    /// Returns the counts of each CPU.
    #[inline]
    fn all(self) -> impl Iterator<Item = &'static Counts> {
        (0..kernel::cpus()).map(move |cpu| self.on(cpu))
    }

    /// Returns the counts of the CPU with the number `cpu`, which is below the number of CPUs.
    #[inline]
    pub(super) fn on(self, cpu: usize) -> &'static Counts {
        let first = Cpu::first().expose_provenance().wrapping_add(self.0);
        // SAFETY: the caller of `new` guarantees counts for each CPU, `STRIDE` bytes apart. The sinks and the counts of
        // `in_states`, which are parts of the states, are that far apart, too.
        unsafe { &*ptr::with_exposed_provenance(first + cpu * STRIDE) }
    }
}

/// Adds one to a count. Only this CPU changes it, with interrupts masked, so the load and the store cannot be
/// separated.
#[inline]
fn increment(count: &AtomicU64) {
    count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
}
