//! The atomics of code that a model checker verifies: those of `core`, or in model-checked tests those that the
//! checker tracks.

#[cfg(not(all(test, loom)))]
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(all(test, loom))]
pub(crate) use kprobes_models::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
