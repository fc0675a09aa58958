//! The atomics of code that is model checked, and lists of them. They are those of `core`; in model-checked tests,
//! those of the checker.

use alloc::boxed::Box;

use fallible::OutOfMemory;

#[cfg(not(all(test, loom)))]
pub(crate) use core::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64},
};
#[cfg(not(all(test, loom)))]
use fallible::zeroed;
#[cfg(all(test, loom))]
use kprobes_models::zeroed;
#[cfg(all(test, loom))]
pub(crate) use kprobes_models::{AtomicBool, AtomicU64, spin_loop};

/// Words that several CPUs access.
pub(crate) type Cells = [AtomicU64];

/// Allocates `count` words that are 0.
pub(crate) fn cells(count: usize) -> Result<Box<Cells>, OutOfMemory> {
    zeroed(count)
}
