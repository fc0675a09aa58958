//! The hit path: the code between a probe and its record in the ring.
//!
//! Everything in this module and below runs while a probe is handled, with interrupts masked: no lock, no allocation,
//! no panic, no unbounded loop, and no call out of the region that is closed to probes. The linker script finds this
//! code by its module path. Therefore only functions of the hit path are here, and no types over which other code is
//! generic. [`write`](mod@write) writes a record to the ring of this CPU.

// | module | what it owns |
// |---|---|
// | `handler` | the handlers that the engine calls; only for the bare-metal target |
// | `write` | writing a record to the ring of this CPU |
// | `action` | carrying out filters, triggers and histograms |
// | `tracer` | what the tracers do that records alone do not |
// | `role` | which calls belong to a graph with limits |
// | `usage` | keeping the deepest stack |
// | `registers` | the registers of the probed code |

pub(crate) mod action;
pub(crate) mod handler;
mod registers;
mod role;
pub(crate) mod tracer;
mod usage;
pub mod write;

pub use registers::Registers;
