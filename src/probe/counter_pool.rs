//! Memory for the counts of probes.
//!
//! A block serves as many probes as have their counts in [`STRIDE`] bytes, with that much for each CPU. Blocks stay for
//! ever: what the most probes that there have been at a time have needed. What is given back is handed out first.

use alloc::alloc::{Layout, alloc_zeroed};
use alloc::vec::Vec;
use core::ptr::NonNull;

use super::hit::counters::{Counters, Counts, STRIDE};
use crate::platform::MAX_CPUS;

/// How many probes have their counts in one block.
const PROBES: usize = STRIDE / size_of::<Counts>();
const BLOCK: Layout = match Layout::from_size_align(STRIDE * MAX_CPUS, STRIDE) {
    Ok(layout) => layout,
    Err(_) => panic!("the size of a block is not a multiple of its alignment"),
};

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
        self.free.try_reserve(PROBES * (self.blocks + 1) - self.free.len()).ok()?;
        // SAFETY: the layout has a size.
        let block: NonNull<Counts> = NonNull::new(unsafe { alloc_zeroed(BLOCK) })?.cast();
        self.blocks += 1;
        // SAFETY: the counts of a probe begin in the first part of the block, and end in the last.
        self.free.extend((0..PROBES).rev().map(|probe| unsafe { Counters::new(block.add(probe)) }));
        Some(())
    }

    /// Takes back the counts of a probe that no CPU can count for any more.
    pub(super) fn give_back(&mut self, counters: Counters) {
        counters.reset();
        self.free.push(counters);
    }

    /// Bytes of memory that all counts take, and the list of those that no probe has.
    pub(super) fn memory(&self) -> usize {
        self.blocks * BLOCK.size() + self.free.capacity() * size_of::<Counters>()
    }
}
