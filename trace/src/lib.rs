//! Trace events on kprobes: definitions in the grammar of Linux's `kprobe_events`, hits recorded in rings, and
//! the text of Linux's `trace`.
//!
//! | module | what it owns |
//! |---|---|
//! | [`definition`] | the grammar: what is probed, and what is recorded of a hit |
//! | [`format`](mod@format) | how a record is laid out, and its fields |
//! | [`hit`] | what runs at a hit: from a probe to a record in the ring of its CPU, with filters, triggers and histograms |
//! | [`ring`] | the rings: how they are laid out, read and changed |
//! | [`functions`] | the names of functions, as the hit path looks them up |
//! | [`fetch`], [`recorder`] | what the hit path needs of an event: what it fetches, and where that goes |
//! | [`filter`], [`histogram`], [`trigger`] | at which hits, and what else an event does when it is hit |
//! | `compiled` | what an event does at a hit as code for the stub of its probe, where that is possible |
//! | [`errno`], [`error_log`] | why a file was not written |
//! | [`text`] | records and counts as text |
//! | `mark` | texts among the records; for the bare-metal target only |
//! | [`options`] | how a trace is printed, and its clock |
//! | [`events`] | the events that are defined, with their probes |
//! | [`host`](mod@host) | what the kernel provides |
//! | `engine` | the probes themselves; for the bare-metal target only, unlike the rest |
//!
//! It knows nothing of how definitions are typed, nor of where the text goes.
//!
//! A kernel implements [`host::Host`] and exports it with [`host!`]; makes [`Rings`](ring::Rings), with
//! one for every CPU that can run, and [`Events`](events::Events) of `engine::Probe`; and places [`hit`] where nothing is
//! probed.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod atomic;
mod compiled;
pub mod definition;
#[cfg(target_os = "none")]
pub mod engine;
pub mod errno;
pub mod error_log;
pub mod events;
pub mod fetch;
pub mod filter;
pub mod format;
pub mod functions;
pub mod histogram;
pub mod hit;
pub mod host;
#[cfg(target_os = "none")]
pub mod mark;
pub mod options;
pub mod recorder;
pub mod ring;
pub mod text;
pub mod trigger;
