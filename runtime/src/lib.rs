//! A small preemptive kernel for several CPUs. It is the way to try the engine, the reference for embedding it, and the
//! kernel that the on-target tests run in.
//!
//! | module | what it owns |
//! |---|---|
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
//! The crate is for the machine alone. What needs no hardware is in crates that are tested on the host: `device_tree`,
//! `kprobes_servers`, `kprobes_smp`, `kprobes_syndrome`.

#![no_std]

extern crate alloc;

pub mod backtrace;
pub mod block;
mod boot;
mod broadcom;
pub mod console;
pub mod event;
pub mod exception;
pub mod interrupt;
pub mod machine;
pub mod memory;
pub mod network;
pub mod per_cpu;
mod platform;
pub mod power;
pub mod recording;
pub mod sampling;
pub mod smp;
pub mod sync;
pub mod task;
pub mod time;
pub mod uart;
mod virtio;
pub mod workload;
