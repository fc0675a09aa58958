//! Servers that any other machine can talk to, so that there is network traffic to trace.
//!
//! | module | what it owns |
//! |---|---|
//! | [`service`] | the connections to one port |
//! | [`protocol`] | the trait of a protocol, independent of what carries it |
//! | [`http`], [`echo`] | the two protocols that are served |
//!
//! The crate needs no kernel, so it is tested on the host. The kernel has the network cards, and the task that runs the
//! IP stack (the crate `smoltcp`).

#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod echo;
pub mod http;
pub mod protocol;
pub mod service;
