//! A language for one-line questions to a running kernel. It follows bpftrace's language, without what needs user
//! space.
//!
//! ```text
//! kprobe:blk::* /arg1 > 512/ { @[func] = hist(arg1); }
//! ```
//!
//! The text is parsed into a tree; the tree is checked and lowered to code for [`kprobes_vm`], which runs the code at
//! every hit. This crate is the language only: it knows neither the kernel nor how code is executed. Two traits,
//! [`check::Symbols`] and [`report::Names`], tell it what it needs to know of the image.
//!
//! | module | what it owns |
//! |---|---|
//! | [`syntax`] | the text and the tree |
//! | [`check`](mod@check) | types, bounds, what each kind of probe allows; from the tree to code |
//! | [`checked`] | a checked program: its code, its probes, and the actions for its output |
//! | [`report`] | output and maps as text |
//! | [`shortcut`] | names for usual programs |
//! | [`error`] | what is wrong with a program, and where |
//! | [`config`] | the settings at the top of a program |
//! | [`conversion`] | the conversions of `printf` |
//!
//! # Use
//!
//! Call [`syntax::parse`] and [`check::check`] in a task, then run the code as [`kprobes_vm`] describes. From a task,
//! call [`report::drain`] now and then: it prints the output of the program and tells whether the program asked to
//! exit. At the end [`report::write_maps`] prints what is left in the maps.

#![cfg_attr(not(test), no_std)]

extern crate alloc;
// The generator of random programs is included in the tests as a module, and names this crate like its other users.
#[cfg(test)]
extern crate self as kprobes_program;

// For the console, which completes their names, and for random programs.
#[doc(hidden)]
pub mod builtins;
pub mod check;
pub mod checked;
pub mod config;
pub mod conversion;
pub mod error;
// The names of bpftrace that this language lacks, with the nearest replacement.
mod foreign;
pub mod report;
pub mod shortcut;
mod stack;
pub mod syntax;

#[cfg(test)]
#[path = "../generate/src/programs/mod.rs"]
mod generate;
#[cfg(test)]
mod tests;
