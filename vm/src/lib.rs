//! Programs of probes: what is done at a hit, as one intermediate form, whatever front end it was written for.
//!
//! A front end makes [`Code`](code::Code): clauses, each a flat list of small steps, and the maps that they change. This crate is
//! what happens to it: it is checked, gets the memory that it will ever need, and runs, interpreted or as A64 instructions in
//! the stubs of its probes. It knows no language, no kernel, and of the engine what A64 words and stubs are.
//!
//! | module | what it owns |
//! |---|---|
//! | [`code`] | the intermediate form, and its check |
//! | [`store`] | what a program keeps while it runs: maps, output, stacks |
//! | [`hit`] | what runs at a hit: the interpreter, which is the meaning of the form, and what it does to the store |
//! | [`compile`](mod@compile) | the compiler, to A64 instructions that do the same |
//!
//! # Use
//!
//! [`store::Store::new`] looks the code over, and allocates, in a task. Then [`hit::run`] runs a clause at every hit, with
//! interrupts masked; or what [`compile::compile`](compile::compile()) has made of it does. [`store::Store::take_record`] gives a
//! task what the clauses have put out, and [`store::Store::read`] what is in a map.
//!
//! # On the way of a hit
//!
//! What runs there takes no lock that interrupted code may hold, allocates nothing, cannot panic, and takes bounded time: the code
//! jumps forward, or back as long as the run has steps left for that, each step takes bounded time, and everything is allocated
//! before. All of it is in [`hit`], which belongs where nothing is probed.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod atomic;
pub mod code;
pub mod compile;
pub mod hit;
pub mod store;
