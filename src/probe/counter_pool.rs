//! Allocates the counts of probes, and the places for spare instances of return probes, which are laid out like counts.
//!
//! The first counts lie in the states of the CPUs, where there is room. A block has as many more as fit into [`STRIDE`]
//! bytes, and takes that much memory for each CPU. Blocks are never freed: the pool keeps as many counts as the probes
//! needed when there were most of them. Counts that were given back are reused first.

use alloc::alloc::{Layout, alloc_zeroed};
use core::ptr::NonNull;

use super::hit::counters::{Counters, Counts, STRIDE};
use super::hit::cpu::Cpu;
use crate::kernel;

/// The number of counts in a block.
const COUNTS: usize = STRIDE / size_of::<Counts>();

/// The alignment of a block, which shares no cache line with other memory. Some allocators take long to find memory of
/// a larger alignment.
const ALIGNMENT: usize = 64;

/// Returns the layout of a block.
fn block() -> Option<Layout> {
    Layout::from_size_align(STRIDE * kernel::cpus(), ALIGNMENT).ok()
}

/// The counts that belong to no probe.
#[derive(Debug)]
pub(super) struct FreeCounters {
    /// The first in a list of counts, if it is not empty.
    first: Counters,
    /// The length of the list.
    count: usize,
    /// Whether the counts in the states of the CPUs have been in the list.
    has_begun: bool,
    blocks: usize,
}

impl FreeCounters {
    pub(super) const fn new() -> Self {
        Self { first: Counters::SINK, count: 0, has_begun: false, blocks: 0 }
    }

    /// Makes room for this many counts, which are fewer than a block has; `None` if there is no memory.
    #[inline]
    pub(super) fn reserve(&mut self, needed: usize) -> Option<()> {
        if self.count < needed { self.grow() } else { Some(()) }
    }

    /// Takes counts that are zero; `None` if there is no room.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Counters> {
        self.count = self.count.checked_sub(1)?;
        let counters = self.first;
        self.first = counters.unlink();
        Some(counters)
    }

    #[cold]
    fn grow(&mut self) -> Option<()> {
        if !self.has_begun {
            self.has_begun = true;
            (0..Cpu::COUNTS).rev().for_each(|index| self.add(Counters::in_states(index)));
            return Some(());
        }
        // SAFETY: the size of the layout is not zero: `block` has `STRIDE` bytes for each CPU.
        let block: NonNull<Counts> = NonNull::new(unsafe { alloc_zeroed(block()?) })?.cast();
        self.blocks += 1;
        for index in (0..COUNTS).rev() {
            // SAFETY: the first part of the block has the counts for CPU 0, the last part those for the last CPU, and
            // the block is never freed.
            self.add(unsafe { Counters::new(block.add(index)) });
        }
        Some(())
    }

    /// Adds counts, which are zero, to the list.
    #[inline]
    fn add(&mut self, counters: Counters) {
        counters.link(self.first);
        self.first = counters;
        self.count += 1;
    }

    /// Takes back the counts of a probe, for which no CPU can count any more. Returns the number of missed hits.
    pub(super) fn give_back(&mut self, counters: Counters) -> u64 {
        let missed = counters.reset();
        self.add(counters);
        missed
    }

    /// Returns the bytes of memory that the blocks take.
    pub(super) fn memory(&self) -> usize {
        self.blocks * block().map_or(0, |block| block.size())
    }
}
