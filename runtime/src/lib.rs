//! A small preemptive kernel for several CPUs: the way to try the engine, the reference for embedding it, and the bed that
//! the on-target tests run in.
//!
//! | module | what it owns |
//! |---|---|
//! | [`device_tree`] | what machine this is |
//! | [`memory`] | translation tables, page frames, the heap, stacks, executable memory |
//! | `boot` | the way to the first task |
//! | [`smp`] | the other CPUs |
//! | [`interrupt`], [`time`], [`uart`], [`power`], `virtio`, `broadcom` | devices |
//! | [`block`] | disks, and the requests of tasks for their sectors |
//! | [`network`] | network cards, and what is served there |
//! | [`machine`] | the end: panics, and the line that every failure ends with |
//! | [`task`], [`sync`], [`per_cpu`] | who runs, and how they share |
//! | [`exception`], [`backtrace`], [`symbol`] | what went wrong, where, and who called whom |
//! | `platform`, [`tracing`] | what the engine and the trace layer ask of a kernel |
//! | [`program`] | programs in the one-line language, on the probes of the engine |
//! | [`disassembly`] | instructions as text |
//! | `nearest`, `paths` | what was probably meant by a name that is not known, and the paths by which names are compared |
//! | [`console`], [`workload`] | what a person does with it |
//!
//! What needs no hardware also builds for the host, where it is tested.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

#[cfg(any(target_os = "none", all(test, loom)))]
mod atomic;
pub mod backtrace;
#[cfg(target_os = "none")]
pub mod block;
#[cfg(target_os = "none")]
mod boot;
#[cfg(target_os = "none")]
mod broadcom;
pub mod console;
pub mod device_tree;
pub mod disassembly;
pub mod exception;
#[cfg(target_os = "none")]
pub mod interrupt;
#[cfg(target_os = "none")]
mod lines;
#[cfg(target_os = "none")]
pub mod machine;
pub mod memory;
#[cfg(any(target_os = "none", test))]
mod nearest;
pub mod network;
#[cfg(any(target_os = "none", test))]
mod paths;
#[cfg(target_os = "none")]
pub mod per_cpu;
#[cfg(target_os = "none")]
mod platform;
#[cfg(target_os = "none")]
pub mod power;
pub mod program;
#[cfg(target_os = "none")]
pub mod recording;
#[cfg(all(test, loom))]
#[path = "smp/round/mod.rs"]
mod round;
#[cfg(target_os = "none")]
pub mod smp;
#[cfg(target_os = "none")]
pub mod symbol;
#[cfg(target_os = "none")]
pub mod sync;
pub mod task;
#[cfg(target_os = "none")]
pub mod time;
#[cfg(target_os = "none")]
pub mod tracing;
#[cfg(target_os = "none")]
mod types;
#[cfg(target_os = "none")]
pub mod uart;
#[cfg(target_os = "none")]
mod virtio;
pub mod workload;
