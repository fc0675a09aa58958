//! The hit path: what happens between a probe and its record in the ring.
//!
//! Everything in this module and below runs while a probe is handled, with interrupts masked: no lock, no
//! allocation, no panic, no loop without a bound, and no call out of the closed region of the image. The linker script places it
//! there by its path, so only functions of the hit path are here, and none of the types that others are generic over.
//!
//! | module | what it owns |
//! |---|---|
//! | `handler` | what the engine calls, for the bare-metal target only |
//! | [`write`](mod@write) | a record, in the ring of this CPU |
//! | `action` | filters, triggers and histograms, carried out |
//! | `registers` | the registers of the probed code |

pub(crate) mod action;
#[cfg(target_os = "none")]
pub(crate) mod handler;
mod registers;
pub mod write;

pub use registers::Registers;
