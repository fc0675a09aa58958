//! Decisions that concern several CPUs: how one of them holds all others ([`rendezvous`]), and which CPU runs which
//! task ([`mod@line`]).
//!
//! Neither module depends on a machine, so a model checker and models run them on the host. The kernel sends the
//! interrupts, and keeps the tasks.

#![cfg_attr(not(test), no_std)]

mod atomic;
pub mod line;
pub mod rendezvous;
