//! Exception handling, after `trampoline/vectors.S` has saved the registers.
//!
//! Two kinds of exception are expected. An interrupt runs its handler and may switch to another task. A synchronous
//! exception goes to the probe engine first. Every other exception is a defect: the kernel reports it in full, and the
//! machine stops. A report must come out whatever is broken. So it takes no lock that the interrupted code may hold,
//! needs no memory, and follows no pointer that it has not checked.

#[cfg(any(target_os = "none", test))]
mod cause;
#[cfg(any(target_os = "none", test))]
mod pstate;
#[cfg(any(target_os = "none", test))]
mod syndrome;

#[cfg(target_os = "none")]
mod entry;
#[cfg(target_os = "none")]
mod report;

#[cfg(target_os = "none")]
pub(crate) use entry::is_interrupt_entry;
#[cfg(target_os = "none")]
pub use entry::{FaultHandler, set_fault_handler};
#[cfg(target_os = "none")]
pub use report::fatal;
