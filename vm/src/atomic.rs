//! The atomics of what is checked by a model checker: core's, and in model-checked tests those that it follows.

#[cfg(not(all(test, loom)))]
pub(crate) use core::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64},
};
#[cfg(all(test, loom))]
pub(crate) use kprobes_models::{AtomicBool, AtomicU64, spin_loop};
