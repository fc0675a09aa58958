//! Backtraces: the chain of return addresses from a place in the code to the start of its task.
//!
//! Every function links a frame record {caller's x29, return address} into a chain that begins in x29 (AAPCS64, section
//! 6.4.6). Three things make a walk along it more than a loop:
//!
//! - The walk runs when something is broken, so it trusts nothing. A record must lie in the stack of the task or in the
//!   emergency stack of the CPU, be aligned to 16 bytes, and lie above the one before it. So every walk ends, and none
//!   faults.
//! - An exception puts a record of the interrupted x29 and pc into its trap frame. The interrupted function may not
//!   have made its own record yet. The console's `prologue` tells whether it has; if not, x30 of the trap frame is the
//!   caller.
//! - A function that has a return probe returns to a trampoline. The engine knows the true return address.
//!
//! A backtrace allocates nothing. It takes a lock of the runtime only for another task's stack. Probe handlers may make
//! one.

mod walk;

pub use walk::{Backtrace, TraceError, current, of_frame, of_task};
