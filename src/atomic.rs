//! The atomics of what is checked by a model checker: core's, and in model-checked tests those that it follows.

#[cfg(not(all(test, loom)))]
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
#[cfg(all(test, loom))]
pub(crate) use kprobes_models::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};
