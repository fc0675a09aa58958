//! A language in which one line asks a running kernel: bpftrace's, as far as it makes sense without user space.
//!
//! ```text
//! kprobe:blk::* /arg1 > 512/ { @[func] = hist(arg1); }
//! ```
//!
//! The text is read into a tree, the tree is checked and becomes code for [`kprobes_vm`], which runs it at every hit. This crate is
//! the language: it knows no kernel, and nothing of how code is run. What it needs of them are two traits.
//!
//! | module | what it owns |
//! |---|---|
//! | [`syntax`] | the text and the tree |
//! | [`check`](mod@check) | types, bounds, what each kind of probe allows; from the tree to code |
//! | [`checked`] | what that makes: the code, where it runs, and what is done with what it puts out |
//! | [`report`] | output and maps as text |
//! | [`shortcut`] | names for usual programs |
//! | [`error`] | what is wrong with a program, and where |
//! | `foreign` | names of bpftrace's that mean nothing here, and what comes nearest |
//!
//! # Use
//!
//! [`syntax::parse`] and [`check::check`] in a task; then the code runs, as [`kprobes_vm`] says. In a task, now and then,
//! [`report::drain`] prints what the program has put out, and says when it has asked to end. [`report::write_maps`] prints what
//! is left in its maps.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod check;
pub mod checked;
pub mod error;
mod foreign;
pub mod report;
pub mod shortcut;
pub mod syntax;

#[cfg(any(test, feature = "generate"))]
pub mod random;
#[cfg(test)]
mod tests;
