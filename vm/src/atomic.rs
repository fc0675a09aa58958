//! The atomics of code that is model checked: those of `core`, or in model-checked tests those of the checker. Also lists of them.

#[cfg(not(all(test, loom)))]
pub(crate) use core::{
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU64},
};
#[cfg(all(test, loom))]
pub(crate) use kprobes_models::{AtomicBool, AtomicU64, spin_loop};

#[cfg(not(all(test, loom)))]
pub(crate) use fallible::zeroed;

/// Makes a boxed slice of `count` words that are 0. The checker's atomics are more than numbers.
#[cfg(all(test, loom))]
pub(crate) fn zeroed(count: usize) -> Result<alloc::boxed::Box<[AtomicU64]>, fallible::OutOfMemory> {
    fallible::boxed_slice((0..count).map(|_| AtomicU64::new(0)))
}
