//! Dynamic instrumentation for bare-metal AArch64: probes on the instructions and the returns of functions of a
//! kernel while it runs.
//!
//! # Principles
//!
//! 1. The probed code cannot tell. Registers, flags, memory and control flow after a probed instruction are what
//!    they would have been; only time passes. Return probes show, while a call is followed: in x30, in the return
//!    address that the function saves, and in that address where it is signed.
//! 2. No event is lost silently. Whatever is skipped or missed increments a counter that is shown.
//! 3. The hit path is closed: it takes no lock that interrupted code may hold, allocates nothing, and calls only
//!    functions that cannot be probed.
//! 4. A refusal carries its reason and the address, as data.
//! 5. A disarmed probe costs nothing.
//!
//! # Map
//!
//! | module | what it owns |
//! |---|---|
//! | [`platform`](mod@platform) | what the embedding kernel provides |
//! | [`embedding`] | what can be wrong with that, found before the first probe |
//! | [`insn`] | what an A64 instruction is: whether it can be probed, and how it is executed then |
//! | [`exception`] | the trap frame, the dispatch of breakpoints, instructions that are simulated, loads that may fault |
//! | [`probe`] | kprobes and kretprobes: registration, and the hit path in `probe::hit` |
//! | `text` | patching instructions |
//!
//! # Embedding
//!
//! The engine needs `alloc`, for registration only. A kernel
//!
//! - implements [`Platform`](platform::Platform), of which two functions are required, and exports it with [`platform!`];
//! - has in TPIDR_EL1 the address of a [`Context`], or from which the two words of one are found;
//! - leads its synchronous exceptions from EL1 to `kprobes_vector` (`trampoline/vector.S`), or calls [`exception::handle_sync`]
//!   first thing in its handler, after `kprobes_exception` or without;
//! - calls [`exception::abandon`] before it reports something that it will not survive, and [`probe::task_exited`] when a task
//!   ends;
//! - is built with `-Csymbol-mangling-version=v0`, and has `INCLUDE kprobes.x` in its linker script; what it runs itself while a
//!   hit is handled, as its exception handler and what [`Platform`](platform::Platform) names, it places in sections
//!   `.kprobes.text.*`.
//!
//! `examples/minimal` is the smallest.
//!
//! Then
//!
//! ```no_run
//! use core::sync::atomic::{AtomicU64, Ordering};
//!
//! use aarch64_kprobes::{Hit, Kprobe, ProbeError};
//!
//! static SUM: AtomicU64 = AtomicU64::new(0);
//!
//! extern "C" fn add(hit: &mut Hit<'_>) {
//!     SUM.fetch_add(hit.frame().x[0], Ordering::Relaxed);
//! }
//!
//! /// Adds up the first arguments of the calls of the function at `address`, for as long as the probe exists.
//! fn watch(address: usize) -> Result<Kprobe, ProbeError> {
//!     Kprobe::at(address).pre(add).register()
//! }
//! ```
//!
//! The pure parts also build for the host, where they are tested.

#![cfg_attr(not(test), no_std)]

#[cfg(all(target_os = "none", target_arch = "aarch64", target_feature = "neon"))]
compile_error!(
    "stubs and handlers do not save the SIMD registers of probed code, so the image must not use them: build for \
     aarch64-unknown-none-softfloat"
);

extern crate alloc;

#[macro_use]
mod convention;
mod atomic;
mod context;
pub mod embedding;
pub mod exception;
pub mod insn;
mod interrupts;
pub mod platform;
pub mod probe;
mod text;

pub use context::Context;
pub use text::cache;

pub use probe::{Call, Decision, Hit, Kprobe, Kretprobe, ProbeError};
