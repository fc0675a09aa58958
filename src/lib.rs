//! Dynamic instrumentation for bare-metal AArch64: probes on the instructions and on the function returns of a
//! kernel, placed and removed while it runs.
//!
//! # Principles
//!
//! 1. The probed code cannot tell. After a probed instruction, live registers and flags, memory and control flow are
//!    what they would have been without the probe; only time passes. There is one exception: while a return probe
//!    follows a call, its trampoline shows in x30, in the return address that the function saves, and in that address
//!    once it is signed.
//! 2. No event is lost silently. Every skipped or missed event increments a counter that is shown.
//! 3. The hit path is closed: it takes no lock that interrupted code may hold, allocates nothing, and calls only
//!    functions that cannot be probed.
//! 4. A refusal carries its reason and the address, as data.
//! 5. A disabled probe costs nothing.
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
//! | [`cache`] | cache maintenance for instructions |
//!
//! # Embedding
//!
//! The engine runs at EL1, or at EL2 with FEAT_VHE and HCR_EL2.E2H set. It needs `alloc`, but only for registration. A
//! kernel that embeds it
//!
//! - is built for `aarch64-unknown-none-softfloat`, with `-Csymbol-mangling-version=v0`;
//! - has `INCLUDE kprobes.x` in its linker script, before the first pattern that matches `.text.*`;
//! - implements [`Platform`](platform::Platform), which has two required functions, and exports it with
//!   [`platform!`];
//! - keeps in TPIDR_EL1 the address of a [`Context`], or of a structure of its own that contains the two words the
//!   engine needs;
//! - has `b kprobes_vector` as its vector of synchronous exceptions from its own exception level, and defines
//!   `kprobes_host_vector`: exceptions that belong to no probe go on there, with all registers as the CPU left them. Or
//!   its vectors store a [`TrapFrame`](exception::TrapFrame), and its handler first calls [`exception::handle_sync`];
//! - calls [`embedding::check`] on each CPU that starts, and [`probe::initialize_cpu`] if it is to have watchpoints;
//! - calls [`exception::abandon`] before it reports an error that stops the CPU, and [`probe::task_exited`] when a
//!   task ends;
//! - places its own code that runs while a hit is handled in sections `.kprobes.text.*`: its vectors, its handlers, and
//!   what `fatal`, `stack`, `with_writable` and `interrupted` of its [`Platform`](platform::Platform) call.
//!
//! [docs/embedding.md](https://docs.rs/crate/aarch64-kprobes/latest/source/docs/embedding.md), in the package of this
//! crate, goes through it step by step, lists the mistakes that are found, and says what probes cost. In the
//! repository, `examples/minimal` is the smallest kernel that does all this, and `examples/kernel` does it with several
//! CPUs, preemptive tasks and read-only text.
//!
//! | feature, on by default | without it |
//! |---|---|
//! | `stubs` | every hit takes an exception |
//! | `watchpoints` | there is no [`Watchpoint`](probe::Watchpoint), and no code for debug exceptions |
//!
//! # A probe
//!
//! A probe is registered like this, and unregistered when it is dropped:
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
//! A handler gets a [`Hit`], which says what it may do. There is more than this:
//!
//! | wanted | how |
//! |---|---|
//! | a handler that only reads what a call passes, at less cost | [`arguments`] in place of `pre` |
//! | a handler after the instruction | [`post`] |
//! | the returns of a function | a [`Kretprobe`] with a [`handler`] or, at less cost, a [`result`] |
//! | which calls to follow, and data for each of them | [`entry`], [`data_words`] |
//! | the accesses to some bytes of memory | a [`Watchpoint`](probe::Watchpoint) |
//! | the callers | a [`StackWalk`](probe::StackWalk), also in a handler |
//! | hits and missed hits, and a probe that comes and goes | the [`Registration`](probe::Registration) in either kind |
//! | many probes at once | [`register_all`](Kprobe::register_all), [`set_all_enabled`] |
//! | whether an address can be probed, or why not | [`check`](probe::check()) |
//! | all probes, and their memory | [`list`](probe::list()), [`memory`](probe::memory()) |
//!
//! [`arguments`]: probe::KprobeBuilder::arguments
//! [`post`]: probe::KprobeBuilder::post
//! [`handler`]: probe::KretprobeBuilder::handler
//! [`result`]: probe::KretprobeBuilder::result
//! [`entry`]: probe::KretprobeBuilder::entry
//! [`data_words`]: probe::KretprobeBuilder::data_words
//! [`set_all_enabled`]: probe::Registration::set_all_enabled
//!
//! The crate also builds for the host, where the modules that need no hardware are tested. Nothing can be probed there.

#![cfg_attr(not(test), no_std)]

#[cfg(all(target_os = "none", target_arch = "aarch64", target_feature = "neon"))]
compile_error!(
    "stubs and handlers do not save the SIMD registers of probed code, so the image must not use them: build for \
     aarch64-unknown-none-softfloat"
);

#[cfg(all(target_os = "none", target_arch = "aarch64", target_endian = "big"))]
compile_error!(
    "stubs hold addresses and instructions that are little-endian, so data must be little-endian, too: build for \
     aarch64-unknown-none-softfloat"
);

// A UEFI application, for one, is none of these. Programs on the host have one of them.
#[cfg(all(target_arch = "aarch64", not(any(target_os = "none", unix, windows, target_family = "wasm"))))]
compile_error!(
    "the engine is compiled for a kernel only if the target's operating system is `none`, and nothing can be probed \
     otherwise: write `\"os\": \"none\"` in the JSON file of the target, or leave `os` out"
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
mod kernel;
pub mod platform;
pub mod probe;
mod text;

pub use context::Context;
pub use text::cache;

pub use probe::{Call, Decision, Hit, Kprobe, Kretprobe, ProbeError};
