//! Model-checked tests of data that several CPUs change at once without a lock.
//!
//! A test on real CPUs exercises a few of the possible interleavings, and, on a host with strong memory ordering, few
//! of the reorderings. Here, [loom](https://docs.rs/loom) runs a small program, the model, once for every possible
//! interleaving of its threads and every value that Rust's memory model lets a load return.
//!
//! Under `cfg(loom)`, the product's tests are built with the atomics of this crate instead of core's, so they check the
//! product's own code. Each of these atomics knows where in the sources it is accessed, so a single access can be
//! weakened. [`verify`] weakens every ordering of the product that the models use, one at a time, and one of the models
//! must fail each time. So a model that checks nothing does not pass, and an ordering that is not needed is found.
//!
//! The limits of loom: compare-and-swap never fails spuriously; sequentially consistent accesses count as acquire and
//! release, so the product uses fences where it needs more; and only the last seven values of an atomic can be loaded.

#![cfg_attr(not(loom), no_std)]

#[cfg(loom)]
mod atomic;
#[cfg(loom)]
mod model;
#[cfg(loom)]
mod weaken;

#[cfg(loom)]
pub use atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, fence, zeroed};
#[cfg(loom)]
pub use loom;
#[cfg(loom)]
pub use loom::hint::spin_loop;
#[cfg(loom)]
pub use model::{Model, verify};
