//! What the CPUs of a machine decide together: how one of them holds all others ([`rendezvous`]), and which runs which
//! task ([`line`]).
//!
//! Both are apart from the machine, so that a model checker and models go through them on the host. The kernel sends
//! the interrupts, and keeps the tasks.

#![cfg_attr(not(test), no_std)]

mod atomic;
pub mod line;
pub mod rendezvous;
