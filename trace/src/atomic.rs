//! The atomics of code that is model checked, and lists of them. They are those of `core`; in model-checked tests,
//! those of the checker.

#[cfg(not(all(test, loom)))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};
#[cfg(not(all(test, loom)))]
pub(crate) use fallible::zeroed;
#[cfg(all(test, loom))]
pub(crate) use kprobes_models::{AtomicBool, AtomicU32, AtomicU64, fence, zeroed};
