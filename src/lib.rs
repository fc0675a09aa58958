//! Placeholder.
#![cfg_attr(not(test), no_std)]
extern crate alloc;
pub mod exception;
pub mod platform;
