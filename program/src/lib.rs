//! A language in which one line asks a running kernel: bpftrace's, as far as it makes sense without user space.
//!
//! ```text
//! kprobe:blk::* /arg1 > 512/ { @[func] = hist(arg1); }
//! ```
//!
//! The text is read into a tree, the tree is checked and becomes code, and the code runs at every hit. This crate is all of
//! that apart from the probes: it knows no kernel, and of the engine what A64 words are. What it needs of them are two traits,
//! and a table for the compiler.
//!
//! | module | what it owns |
//! |---|---|
//! | [`syntax`] | the text and the tree |
//! | [`check`](mod@check) | types, bounds, what each kind of probe allows; from the tree to code |
//! | [`code`] | the checked form, which is interpreted, and can be compiled |
//! | [`store`] | what a program keeps while it runs: maps, output, stacks |
//! | [`run`] | the interpreter, which is the meaning of the checked form |
//! | [`compile`](mod@compile) | the compiler, from it to A64 instructions that do the same |
//! | [`report`] | output and maps as text |
//! | [`shortcut`] | names for usual programs |
//! | [`error`] | what is wrong with a program, and where |
//!
//! # Use
//!
//! [`syntax::parse`] and [`check::check`] in a task; [`store::Store::new`] looks the code over once more, and allocates
//! all that the program will ever need. Then [`run::run`] at every hit, with interrupts masked; and in a task, now and then,
//! [`report::drain`], which prints what the program has put out, and says when it has asked to end. [`report::write_maps`]
//! prints what is left in its maps.
//!
//! # On the way of a hit
//!
//! [`run`] and [`store`] take no lock that interrupted code may hold, allocate nothing, cannot panic, and take bounded time:
//! the code has only jumps forward, each instruction takes bounded time, and everything is allocated before. They belong
//! where nothing is probed, and so do the functions of [`code`] that compute, [`Arithmetic`](code::Arithmetic) and the like.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod atomic;
pub mod check;
pub mod code;
pub mod compile;
pub mod error;
pub mod report;
pub mod run;
pub mod shortcut;
pub mod store;
pub mod syntax;

#[cfg(any(test, feature = "generate"))]
pub mod random;
#[cfg(test)]
mod tests;
