//! The atomics of code that is model checked: core's in the kernel, and loom's in model-checked tests.

#[cfg(not(all(test, loom)))]
pub(crate) use core::hint::spin_loop;
#[cfg(not(all(test, loom)))]
pub(crate) use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, fence};
#[cfg(all(test, loom))]
pub(crate) use kprobes_models::{AtomicBool, AtomicU64, AtomicUsize, fence, spin_loop};
