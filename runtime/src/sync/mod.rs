//! How tasks and interrupt handlers share data and wait for each other.
//!
//! Two things, because two are needed. [`IrqLock`] protects data that interrupt handlers touch, or that the
//! scheduler touches while it switches: it spins and masks interrupts, so it is held for a few instructions.
//! [`WaitQueue`] makes a task sleep until another task, or an interrupt handler, has something for it.

mod irq_lock;
mod irq_mask;
mod wait_queue;

pub use irq_lock::{IrqGuard, IrqLock};
pub use irq_mask::IrqMask;
pub(crate) use irq_mask::Nesting;
pub use wait_queue::WaitQueue;
