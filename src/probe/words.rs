//! Words that every CPU has for itself, for what snippets count and collect.
//!
//! They lie at one distance from the state of every CPU, as the counts of probes do (`hit::counters`): so a snippet comes to those
//! of its CPU by one addition.

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use fallible::OutOfMemory;

use super::hit::counters::STRIDE;
use super::hit::cpu::Cpu;
use crate::platform;

/// The memory of the words of all CPUs.
fn block() -> Result<Layout, OutOfMemory> {
    Layout::from_size_align(CpuWords::bytes(), STRIDE).map_err(|_| OutOfMemory)
}

/// As many words as fit into a page, on each CPU. They outlive the probes whose snippets add to them.
#[derive(Debug)]
pub struct CpuWords {
    /// The words of CPU 0.
    first: NonNull<AtomicU64>,
}

// SAFETY: it owns the memory.
unsafe impl Send for CpuWords {}
// SAFETY: the words are atomic.
unsafe impl Sync for CpuWords {}

impl CpuWords {
    /// How many there are.
    pub const COUNT: usize = STRIDE / size_of::<AtomicU64>();

    /// Bytes of memory that they take.
    #[must_use]
    pub fn bytes() -> usize {
        STRIDE * platform::cpus()
    }

    /// Words that are 0.
    ///
    /// # Errors
    ///
    /// There is no memory for them.
    pub fn new() -> Result<Self, OutOfMemory> {
        // SAFETY: the layout has a size.
        let first = NonNull::new(unsafe { alloc_zeroed(block()?) }).ok_or(OutOfMemory)?;
        // Snippets come to them by an address that is computed.
        first.as_ptr().expose_provenance();
        Ok(Self { first: first.cast() })
    }

    /// How far the word of number `index` is from the state of a CPU: the operand of a snippet that adds to it.
    ///
    /// # Panics
    ///
    /// If there is no such word.
    #[must_use]
    pub fn distance(&self, index: usize) -> u64 {
        assert!(index < Self::COUNT, "there are {} words", Self::COUNT);
        let place = self.first.addr().get() + index * size_of::<AtomicU64>();
        place.wrapping_sub(Cpu::first().addr()) as u64
    }

    /// Has the word of number `index` be `value` on the CPU of number `cpu`; nothing if there is no such word or CPU.
    pub fn set(&self, cpu: usize, index: usize, value: u64) {
        if cpu < platform::cpus() && index < Self::COUNT {
            // SAFETY: there are so many words for each of these CPUs.
            unsafe { self.first.byte_add(cpu * STRIDE).add(index).as_ref() }.store(value, Relaxed);
        }
    }

    /// What the word of number `index` is on all CPUs together; 0 if there is no such word.
    #[must_use]
    pub fn sum(&self, index: usize) -> u64 {
        if index >= Self::COUNT {
            return 0;
        }
        // SAFETY: there are so many words for each of these CPUs.
        let word = |cpu: usize| unsafe { self.first.byte_add(cpu * STRIDE).add(index).as_ref() };
        (0..platform::cpus()).fold(0, |sum, cpu| sum.wrapping_add(word(cpu).load(Relaxed)))
    }
}

impl Drop for CpuWords {
    fn drop(&mut self) {
        if let Ok(block) = block() {
            // SAFETY: `new` has allocated it with this layout. The probes whose snippets use it are gone, as the type demands.
            unsafe { dealloc(self.first.as_ptr().cast(), block) };
        }
    }
}
