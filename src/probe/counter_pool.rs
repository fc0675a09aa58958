//! Memory for the counts of probes.
//!
//! A block serves as many probes as have their counts in [`STRIDE`] bytes, with that much for each CPU; where there is one CPU,
//! nothing has to lie at that distance, and a block is smaller. Blocks stay for ever: what the most probes that there have been at a
//! time have needed. What is given back is handed out first.

use alloc::alloc::{Layout, alloc_zeroed};
use alloc::vec::Vec;
use core::ptr::NonNull;

use super::hit::counters::{Counters, Counts, STRIDE};
use crate::platform;

/// How many probes have their counts in a block where there is one CPU.
const PROBES_OF_ONE_CPU: usize = 32;

/// How many probes have their counts in a block.
fn probes() -> usize {
    if platform::cpus() == 1 { PROBES_OF_ONE_CPU } else { STRIDE / size_of::<Counts>() }
}

/// The memory of a block.
fn block() -> Option<Layout> {
    let of_one_cpu = size_of::<Counts>() * probes();
    Layout::from_size_align(of_one_cpu * platform::cpus(), of_one_cpu).ok()
}

/// The counts that no probe has.
#[derive(Debug)]
pub(super) struct FreeCounters {
    free: Vec<Counters>,
    blocks: usize,
}

impl FreeCounters {
    pub(super) const fn new() -> Self {
        Self { free: Vec::new(), blocks: 0 }
    }

    /// Makes room for two, the most that a probe takes, if there is memory for it.
    #[inline]
    pub(super) fn reserve(&mut self) -> Option<()> {
        if self.free.len() < 2 { self.grow() } else { Some(()) }
    }

    /// Counts that are zero, if there is room.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Counters> {
        self.free.pop()
    }

    #[cold]
    fn grow(&mut self) -> Option<()> {
        // Room for all that there are, so that giving back needs no memory.
        self.free.try_reserve(probes() * (self.blocks + 1) - self.free.len()).ok()?;
        // SAFETY: the layout has a size.
        let block: NonNull<Counts> = NonNull::new(unsafe { alloc_zeroed(block()?) })?.cast();
        self.blocks += 1;
        // SAFETY: the counts of a probe begin in the first part of the block, and end in the last.
        self.free.extend((0..probes()).rev().map(|probe| unsafe { Counters::new(block.add(probe)) }));
        Some(())
    }

    /// Takes back the counts of a probe that no CPU can count for any more. Returns the missed hits.
    pub(super) fn give_back(&mut self, counters: Counters) -> u64 {
        self.free.push(counters);
        counters.reset()
    }

    /// Bytes of memory that all counts take, and the list of those that no probe has.
    pub(super) fn memory(&self) -> usize {
        self.blocks * block().map_or(0, |block| block.size()) + self.free.capacity() * size_of::<Counters>()
    }
}
