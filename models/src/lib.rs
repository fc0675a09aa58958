//! Model-checked tests of what several CPUs change at once without a lock.
//!
//! A test on real CPUs shows a few of the interleavings that are possible, and on a host that orders memory accesses
//! strongly few of the reorderings. Here [loom](https://docs.rs/loom) runs a small program, the model, once for every
//! order in which its threads can be interleaved and every value that the memory model of Rust lets a load return.
//!
//! Under `cfg(loom)` the tests of the product are built with the atomics of this crate in place of core's. What is checked
//! is the product's own code. Each of these atomics knows where in the sources it is accessed, so that one access can be
//! weakened: [`verify`] makes every ordering of the product that the models come to weaker, one at a time, and one of them must
//! fail each time. So a model cannot pass because it looks at nothing, and an ordering that is not needed is found.
//!
//! What loom does not do: compare-and-swap never fails spuriously; accesses that are sequentially consistent count as
//! acquire and release, so the product uses fences where it needs more; and of an atomic only the last seven values can be
//! loaded.

#![cfg_attr(not(loom), no_std)]

#[cfg(loom)]
mod atomic;
#[cfg(loom)]
mod model;
#[cfg(loom)]
mod weaken;

#[cfg(loom)]
pub use atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence};
#[cfg(loom)]
pub use loom;
#[cfg(loom)]
pub use loom::hint::spin_loop;
#[cfg(loom)]
pub use model::{Model, verify};
