//! Programs of probes: the work done at a hit, in one intermediate form for all front ends.
//!
//! A front end makes [`Code`](ir::Code): clauses, each a flat list of small steps, and the maps that they change.
//! This crate checks the code, allocates all memory that it will ever need, and runs it: interpreted, or as A64
//! instructions in the stubs of its probes. The crate knows no language and no kernel, and of the engine only A64 words
//! and stubs.
//!
//! | module | what it owns |
//! |---|---|
//! | [`ir`] | the intermediate form, and its check |
//! | [`maps`] | the data of a running program: maps, output, stacks |
//! | [`hit`] | the code of a hit: the interpreter, which defines the form's meaning, and its operations on that data |
//! | [`jit`] | the compiler to A64 instructions that do the same |
//!
//! # Use
//!
//! [`maps::Store::new`] checks the code and allocates, in a task. Then every hit, with interrupts masked, calls
//! [`hit::run`] for a clause, or the instructions that [`jit::compile`] made of it. A task gets
//! the output of the clauses from [`maps::Store::take_record`], and the contents of a map from [`maps::Store::read`].
//!
//! # In the hit path
//!
//! Code in the hit path takes no lock that interrupted code may hold, allocates nothing, cannot panic, and takes
//! bounded time. Jumps go forward, or back only while the run has steps left for that; each step takes bounded time;
//! and all memory is preallocated. All of this code is in [`hit`], which the engine's `kprobes.x` places where nothing
//! is probed.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod atomic;
#[doc(hidden)]
pub mod counted;
pub mod hit;
pub mod ir;
pub mod jit;
pub mod maps;
