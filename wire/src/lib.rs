//! The binary protocol between a kernel and the host command, beside the text for people. One side writes each part and
//! the other reads it, so both halves of every format are defined together here.

#![cfg_attr(not(any(test, feature = "host")), no_std)]

pub mod history;
pub mod mark;
pub mod record;
