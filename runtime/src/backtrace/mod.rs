//! Who called whom: the chain of return addresses from a place in the code to the start of its task.
//!
//! Every function links a frame record {caller's x29, return address} into a chain that begins in x29 (AAPCS64,
//! section 6.4.6). Three things make a walk along it more than a loop:
//!
//! - It runs when something is broken, so nothing is believed: a record must lie in the stack of the task or in the
//!   emergency stack of the CPU, be aligned to 16 bytes, and lie above the one before it. So every walk ends, and
//!   none faults.
//! - An exception puts a record of the interrupted x29 and pc into its trap frame. The interrupted function need not
//!   have made its own record yet; the console's `prologue` tells, and then x30 of the trap frame is the caller.
//! - A function that has a return probe returns to a trampoline. The engine knows where it will go then.
//!
//! A backtrace needs no memory but its own, takes no lock of the runtime except for another task's, and may be made
//! by probe handlers.

#[cfg(target_os = "none")]
mod walk;

#[cfg(target_os = "none")]
pub use walk::{Backtrace, TraceError, current, of_frame, of_task};
