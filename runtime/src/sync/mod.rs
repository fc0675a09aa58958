//! How tasks and interrupt handlers share data and wait for each other.
//!
//! The type of a lock says what it keeps away while it is held, on the CPU that holds it:
//!
//! | lock | masks | for data that | waits by | to be held for |
//! |---|---|---|---|---|
//! | [`IrqLock`] | interrupts | interrupt handlers, the scheduler or the rendezvous touch too | spinning | a few instructions |
//! | [`PreemptLock`] | preemption | only tasks touch | spinning, interruptibly | as long as an interrupt may take, or longer |
//! | `MaskedLock` | nothing: the caller has masked interrupts | the scheduler of a CPU owns, a switch included | spinning | a switch |
//!
//! No lock can be held by a task that does not run: another CPU would spin for as long as that task waits for its turn.
//! So all three keep the holder on its CPU. What takes longer than that does not spin: [`WaitQueue`] makes a task sleep
//! until another task, or an interrupt handler, has something for it; [`Signal`], until that or a deadline.
//!
//! **Order.** A lock that masks less is taken first. A [`PreemptLock`] within an [`IrqLock`] is a defect, and stops the
//! machine: its holder may be held in a rendezvous, which then waits for the CPU that waits for the lock.

mod irq_lock;
mod irq_mask;
mod masked_lock;
mod preempt_lock;
mod preempt_mask;
mod signal;
mod wait_queue;

pub use irq_lock::{IrqGuard, IrqLock};
pub use irq_mask::IrqMask;
pub(crate) use irq_mask::Nesting as IrqNesting;
pub(crate) use masked_lock::{MaskedGuard, MaskedLock};
pub use preempt_lock::{PreemptGuard, PreemptLock};
pub(crate) use preempt_mask::Nesting as PreemptNesting;
pub use preempt_mask::PreemptMask;
pub use signal::Signal;
pub use wait_queue::WaitQueue;
