//! Dynamic instrumentation for bare-metal AArch64: probes on the instructions and on the function returns of a
//! kernel, placed and removed while it runs.
//!
//! # Principles
//!
//! 1. The probed code cannot tell. After a probed instruction, registers, flags, memory and control flow are what
//!    they would have been without the probe; only time passes. There is one exception: while a return probe follows
//!    a call, its trampoline shows in x30, in the return address that the function saves, and in that address once
//!    it is signed.
//! 2. No event is lost silently. Every skipped or missed event increments a counter that is shown.
//! 3. The hit path is closed: it takes no lock that interrupted code may hold, allocates nothing, and calls only
//!    functions that cannot be probed.
//! 4. A refusal carries its reason and the address, as data.
//! 5. A disarmed probe costs nothing.
//!
//! # Map
//!
//! | module | what it owns |
//! |---|---|
//! | [`platform`](mod@platform) | the trait that the embedding kernel implements |
//! | [`embedding`] | checks of the embedding, made before the first probe |
//! | [`insn`] | what an A64 instruction is: whether it can be probed, and how it is executed then |
//! | [`event`](mod@event) | static events: a NOP until something listens |
//! | [`exception`] | the trap frame, the dispatch of breakpoints, simulated instructions, loads that may fault |
//! | [`probe`] | kprobes and kretprobes: registration, and the hit path in `probe::hit` |
//! | `text` | patching instructions |
//!
//! # Embedding
//!
//! The engine needs `alloc`, but only for registration. To embed it, a kernel
//!
//! - implements [`Platform`](platform::Platform), which has two required functions, and exports it with
//!   [`platform!`];
//! - keeps in TPIDR_EL1 the address of a [`Context`], or of a structure of its own that contains the two words the
//!   engine needs;
//! - leads its synchronous exceptions from EL1 to `kprobes_vector` (`trampoline/vector.S`), or calls
//!   [`exception::handle_sync`] first thing in its handler, with or without `kprobes_exception` before it;
//! - calls [`exception::abandon`] before it reports an error that stops the CPU, and [`probe::task_exited`] when a
//!   task ends;
//! - is built with `-Csymbol-mangling-version=v0`, and has `INCLUDE kprobes.x` in its linker script;
//! - places its own code that runs while a hit is handled, such as its exception handler and the functions that
//!   [`Platform`](platform::Platform) names, in sections `.kprobes.text.*`.
//!
//! `examples/minimal` is the smallest kernel that does all this. `examples/kernel` does it with several CPUs,
//! preemptive tasks and read-only text, and `docs/embedding.md` goes through it step by step.
//!
//! Then a probe is registered like this:
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
//! The crate also builds for the host, where the modules that need no hardware are tested.

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
pub mod event;
pub mod exception;
pub mod insn;
mod interrupts;
pub mod platform;
pub mod probe;
mod text;

pub use context::Context;
pub use text::cache;

pub use probe::{Call, Decision, Hit, Kprobe, Kretprobe, ProbeError};
