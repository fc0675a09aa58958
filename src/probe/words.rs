//! Words that every CPU has a copy of, in which snippets count and collect.
//!
//! The copies lie at the same distance from the state of every CPU, like the counts of probes (`hit::counters`). So a
//! snippet finds the copy of its CPU by one addition.

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use fallible::OutOfMemory;

use super::hit::counters::STRIDE;
use super::hit::cpu::Cpu;
use crate::kernel;

/// Returns the layout of the words of all CPUs.
fn block() -> Result<Layout, OutOfMemory> {
    Layout::from_size_align(CpuWords::bytes(), STRIDE).map_err(|_| OutOfMemory)
}

/// Per-CPU words, as many as fit into a page for each CPU. They must outlive the probes whose snippets add to them.
#[derive(Debug)]
pub struct CpuWords {
    /// The words of CPU 0.
    first: NonNull<AtomicU64>,
}

// SAFETY: it owns the memory, and the words are atomic.
unsafe impl Send for CpuWords {}
// SAFETY: shared references give access only to the words, which are atomic.
unsafe impl Sync for CpuWords {}

impl CpuWords {
    /// The number of words for each CPU.
    pub const COUNT: usize = STRIDE / size_of::<AtomicU64>();

    /// Returns the bytes of memory that the words of all CPUs take.
    #[must_use]
    pub fn bytes() -> usize {
        STRIDE * kernel::cpus()
    }

    /// Makes words that are 0.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for them.
    pub fn new() -> Result<Self, OutOfMemory> {
        // SAFETY: the size of the layout is not zero: `block` has `STRIDE` bytes for each CPU.
        let first = NonNull::new(unsafe { alloc_zeroed(block()?) }).ok_or(OutOfMemory)?;
        // Exposed, because snippets reach the words by a computed address.
        first.as_ptr().expose_provenance();
        Ok(Self { first: first.cast() })
    }

    /// Returns the distance of the word `index` from the state of its CPU, in bytes: the operand of a snippet that adds
    /// to the word.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`COUNT`](Self::COUNT).
    #[must_use]
    pub fn distance(&self, index: usize) -> u64 {
        assert!(index < Self::COUNT, "there are {} words", Self::COUNT);
        let place = self.first.addr().get() + index * size_of::<AtomicU64>();
        place.wrapping_sub(Cpu::first().addr()) as u64
    }

    /// Sets the word `index` to `value` on the CPU with the number `cpu`. Does nothing if there is no such word or CPU.
    pub fn set(&self, cpu: usize, index: usize, value: u64) {
        if cpu < kernel::cpus() && index < Self::COUNT {
            // SAFETY: the block has `COUNT` words for each CPU, whose number does not change (`Platform::cpus`), and
            // both numbers were checked.
            unsafe { self.first.byte_add(cpu * STRIDE).add(index).as_ref() }.store(value, Relaxed);
        }
    }

    /// Returns the sum of the word `index` on all CPUs, wrapping on overflow; 0 if there is no such word.
    #[must_use]
    pub fn sum(&self, index: usize) -> u64 {
        if index >= Self::COUNT {
            return 0;
        }
        // SAFETY: the block has `COUNT` words for each CPU, whose number does not change (`Platform::cpus`), and
        // `index` was checked.
        let word = |cpu: usize| unsafe { self.first.byte_add(cpu * STRIDE).add(index).as_ref() };
        (0..kernel::cpus()).fold(0, |sum, cpu| sum.wrapping_add(word(cpu).load(Relaxed)))
    }
}

impl Drop for CpuWords {
    fn drop(&mut self) {
        if let Ok(block) = block() {
            // SAFETY: `new` allocated the block with this layout, because the number of CPUs does not change
            // (`Platform::cpus`). The words that a snippet adds to belong to it while it is in use, which the caller of
            // `Snippet::new` guarantees.
            unsafe { dealloc(self.first.as_ptr().cast(), block) };
        }
    }
}
