//! A small preemptive kernel for several CPUs. It is the way to try the engine, the reference for embedding it, and the
//! kernel that the on-target tests run in.
//!
//! | module | what it owns |
//! |---|---|
//! | [`device_tree`] | the description of the machine |
//! | [`memory`] | translation tables, page frames, the heap, stacks, executable memory |
//! | `boot` | the path from reset to the first task |
//! | [`smp`] | starting the other CPUs, and holding them |
//! | [`interrupt`], [`time`], [`uart`], [`power`], `virtio`, `broadcom` | devices |
//! | [`sampling`] | interrupting all CPUs at exact times, or after events that they count, to see what they do |
//! | [`block`] | disks, and the tasks' requests for their sectors |
//! | [`network`] | network cards, and the services on them |
//! | [`machine`] | the end: panics, and the line that every failure ends with |
//! | [`task`], [`sync`], [`per_cpu`] | which task runs, and how tasks share data |
//! | [`event`](mod@event) | the static events, under Linux's names |
//! | [`exception`], [`backtrace`] | reports of exceptions: what, where, and the chain of callers |
//! | `platform` | the engine's `Platform` trait, implemented |
//! | `console`, `recording` | what the console needs from a kernel, and the commands about this kernel |
//! | [`workload`] | programs to trace |
//!
//! The modules that need no hardware also build for the host and are tested there.

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
#[cfg(target_os = "none")]
pub mod console;
pub mod device_tree;
#[cfg(target_os = "none")]
pub mod event;
pub mod exception;
#[cfg(target_os = "none")]
pub mod interrupt;
#[cfg(target_os = "none")]
pub mod machine;
pub mod memory;
pub mod network;
#[cfg(target_os = "none")]
pub mod per_cpu;
#[cfg(target_os = "none")]
mod platform;
#[cfg(target_os = "none")]
pub mod power;
#[cfg(target_os = "none")]
pub mod recording;
#[cfg(all(test, loom))]
#[path = "smp/round/mod.rs"]
mod round;
#[cfg(target_os = "none")]
pub mod sampling;
#[cfg(target_os = "none")]
pub mod smp;
#[cfg(target_os = "none")]
pub mod sync;
pub mod task;
#[cfg(target_os = "none")]
pub mod time;
#[cfg(target_os = "none")]
pub mod uart;
#[cfg(target_os = "none")]
mod virtio;
pub mod workload;
