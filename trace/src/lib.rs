//! Trace events on kprobes: definitions in the grammar of Linux's `dynamic_events`, hits recorded in rings, and the
//! text of Linux's `trace`.
//!
//! | module | what it owns |
//! |---|---|
//! | [`definition`] | the grammar: what a definition probes, and what it records at a hit |
//! | [`format`](mod@format) | the layout of a record, and its fields |
//! | [`hit`] | the code at a hit: from a probe to a record in its CPU's ring, with filters, triggers and histograms |
//! | [`ring`] | the rings: their layout, their readers and their changes |
//! | [`switch`] | switches that hits can change |
//! | [`functions`] | the index of function names for the hit path |
//! | [`fetch`], [`recorder`] | an event as the hit path sees it: the values to fetch, and the record they go to |
//! | [`filter`], [`histogram`], [`trigger`] | which hits count, and what else an event does at a hit |
//! | [`errno`], [`error_log`] | why a write to a file was refused |
//! | [`tracer`] | the tracers `function` and `function_graph`: every function that is called, in place of defined events |
//! | [`text`] | records and counts as text |
//! | [`mark`] | messages among the records |
//! | [`print`](mod@print) | a static event as text, as its `print fmt` says it |
//! | [`options`] | how a trace is printed, and its clock |
//! | [`events`] | the defined events and their probes |
//! | [`context`], [`symbols`], [`clock`] | what the kernel provides: CPU and task of a hit, names, time |
//! | [`engine`] | the probes of events, registered with the engine |
//!
//! The crate does not know where definitions are typed, nor where the text goes.
//!
//! A kernel does three things. It implements [`ContextLayout`](context::ContextLayout) and exports it with
//! [`context_layout!`]. It implements [`Symbols`](symbols::Symbols), the names of its functions. It creates
//! [`Rings`](ring::Rings), one for every CPU that can run, and [`Events`](events::Events) of [`engine::Probe`], with its
//! clock and its other [`Services`](events::Services). The engine's `kprobes.x` places [`hit`] where nothing is probed.

#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod atomic;
pub mod clock;
pub mod context;
pub mod definition;
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
pub mod mark;
pub mod options;
pub mod print;
mod problems;
pub mod recorder;
pub mod ring;
mod shown;
// The actions of an event as a snippet for the stub of its probe, where that is possible.
mod snippet;
pub mod switch;
pub mod symbols;
pub mod text;
pub mod tracer;
pub mod trigger;
