//! The atomics of what is checked by a model checker: core's, and in model-checked tests those that it follows.

#[cfg(not(all(test, loom)))]
pub(crate) use core::sync::atomic::{AtomicU64, fence};
#[cfg(all(test, loom))]
pub(crate) use kprobes_models::{AtomicU64, fence};
