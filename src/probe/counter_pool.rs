//! Allocates the counts of probes.
//!
//! A block serves as many probes as there are counts in [`STRIDE`] bytes, and takes that much memory for each CPU. With
//! only one CPU, nothing has to lie at that distance, so a block is smaller. Blocks are never freed: the pool keeps
//! what the largest number of probes at any time has needed. Counts that were given back are reused first.

use alloc::alloc::{Layout, alloc_zeroed};
use alloc::vec::Vec;
use core::ptr::NonNull;

use super::hit::counters::{Counters, Counts, STRIDE};
use crate::platform;

/// The number of probes that a block serves if there is only one CPU.
const PROBES_OF_ONE_CPU: usize = 32;

/// Returns the number of probes that a block serves.
fn probes() -> usize {
    if platform::cpus() == 1 { PROBES_OF_ONE_CPU } else { STRIDE / size_of::<Counts>() }
}

/// The alignment of a block, which shares no cache line with other memory. Some allocators take long to find memory of
/// a larger alignment.
const ALIGNMENT: usize = 64;

/// Returns the layout of a block.
fn block() -> Option<Layout> {
    Layout::from_size_align(size_of::<Counts>() * probes() * platform::cpus(), ALIGNMENT).ok()
}

/// The counts that belong to no probe.
#[derive(Debug)]
pub(super) struct FreeCounters {
    free: Vec<Counters>,
    blocks: usize,
}

impl FreeCounters {
    pub(super) const fn new() -> Self {
        Self { free: Vec::new(), blocks: 0 }
    }

    /// Makes room for two counts, the most that a probe takes; `None` if there is no memory.
    #[inline]
    pub(super) fn reserve(&mut self) -> Option<()> {
        if self.free.len() < 2 { self.grow() } else { Some(()) }
    }

    /// Takes counts that are zero; `None` if there is no room.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Counters> {
        self.free.pop()
    }

    #[cold]
    fn grow(&mut self) -> Option<()> {
        // Reserves room for all counts, so that giving back needs no memory.
        let more = probes() * (self.blocks + 1) - self.free.len();
        fallible::reserve(&mut self.free, more).ok()?;
        // SAFETY: the size of the layout is not zero.
        let block: NonNull<Counts> = NonNull::new(unsafe { alloc_zeroed(block()?) })?.cast();
        self.blocks += 1;
        // SAFETY: the first part of the block has the counts for CPU 0, the last part those for the last CPU, and the
        // block is never freed.
        self.free.extend((0..probes()).rev().map(|probe| unsafe { Counters::new(block.add(probe)) }));
        Some(())
    }

    /// Takes back the counts of a probe, for which no CPU can count any more. Returns the number of missed hits.
    pub(super) fn give_back(&mut self, counters: Counters) -> u64 {
        self.free.push(counters);
        counters.reset()
    }

    /// Returns the bytes of memory that all counts and the free list take.
    pub(super) fn memory(&self) -> usize {
        self.blocks * block().map_or(0, |block| block.size()) + self.free.capacity() * size_of::<Counters>()
    }
}
