//! Random programs in the language of [`kprobes_program`], for tests.
//!
//! This is a crate, and not a feature of the language, so that the kernel and the tests on the target share one build
//! of the language. The tests of the language itself include the module [`programs`].

#![no_std]

extern crate alloc;

pub mod programs;
