//! `cargo test FILTER` compiles the unit tests of the default packages for the bare-metal target, where there is no
//! libtest, and ends in pages of errors. As a dependency of tests on that target, this crate ends it with one sentence.
//! What builds the whole workspace for that target leaves this crate out, as it does `xtask`.

#![no_std]

#[cfg(target_os = "none")]
compile_error!("unit tests run on the host: type `cargo xtask test FILTER`, or `cargo test -- FILTER` at the root");
