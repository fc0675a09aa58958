//! Exception handling, after `trampoline/vectors.S` has saved the registers.
//!
//! Two kinds of exception are expected. An interrupt runs its handler and may switch to another task. A synchronous
//! exception goes to the probe engine first. Every other exception is a defect: the kernel reports it in full, and the
//! machine stops. A report must come out whatever is broken. So it takes no lock that the interrupted code may hold,
//! needs no memory, and follows no pointer that it has not checked.

mod entry;
mod report;

pub(crate) use entry::is_interrupt_entry;
pub use entry::{FaultHandler, set_fault_handler};
pub use report::fatal;
