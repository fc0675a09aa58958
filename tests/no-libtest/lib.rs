//! Replaces pages of errors by one sentence. `cargo test FILTER` compiles the unit tests of the default packages for
//! the bare-metal target, which has no libtest. This crate is a dependency of those tests on that target, and fails to
//! compile. Builds of the whole workspace for that target exclude this crate, like `xtask`.

#![no_std]

#[cfg(target_os = "none")]
compile_error!("unit tests run on the host: type `cargo xtask test FILTER`, or `cargo test -- FILTER` at the root");
