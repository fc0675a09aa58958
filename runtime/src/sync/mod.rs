//! How tasks and interrupt handlers share data and wait for each other.
//!
//! Each lock type keeps something away from the holder's CPU while it is held:
//!
//! | lock | masks | for data accessed by | waits by | held for |
//! |---|---|---|---|---|
//! | [`IrqLock`] | interrupts | also interrupt handlers, scheduler or rendezvous | spinning | a few instructions |
//! | [`PreemptLock`] | preemption | only tasks | spinning, interruptibly | as long as an interrupt may take, or longer |
//! | `MaskedLock` | nothing: the caller has masked interrupts | a CPU's scheduler | spinning | a switch |
//!
//! No lock can be held by a task that does not run: another CPU would spin for as long as that task waits for its turn.
//! So all three keep the holder on its CPU. A wait that takes longer does not spin. [`WaitQueue`] puts a task to sleep
//! until another task, or an interrupt handler, has something for it. [`Signal`] does so until that or a deadline.
//!
//! **Order.** Take the lock that masks less first. Taking a [`PreemptLock`] within an [`IrqLock`] is a defect and stops
//! the machine: the holder of the [`PreemptLock`] may be held in a rendezvous, and the rendezvous would wait for the
//! CPU that waits for the lock.

mod guard;
mod irq_lock;
mod irq_mask;
mod masked_lock;
mod preempt_lock;
mod preempt_mask;
mod signal;
mod wait_queue;

pub use guard::Guard;
pub use irq_lock::IrqLock;
pub use irq_mask::IrqMask;
pub(crate) use irq_mask::Nesting as IrqNesting;
pub(crate) use masked_lock::{MaskedGuard, MaskedLock};
pub use preempt_lock::PreemptLock;
pub(crate) use preempt_mask::Nesting as PreemptNesting;
pub use preempt_mask::PreemptMask;
pub use signal::Signal;
pub use wait_queue::WaitQueue;
