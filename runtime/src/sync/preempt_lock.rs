//! The lock for data that only tasks share and that no interrupt handler accesses.

use spin::mutex::SpinMutex;

use super::{Guard, PreemptMask};
use crate::task;

/// A spin lock that masks preemption on its CPU while it is held, and while a task waits for it.
///
/// A task that preempted the holder and asked for the same lock would spin until its quantum is over, and tasks on
/// other CPUs would spin as long. Masked preemption prevents that. Interrupts still come, so a CPU that waits can be
/// held in a rendezvous, and the lock may be held for longer than interrupts can be masked. Interrupt handlers, probe
/// handlers and code that runs while other CPUs are held must not take one.
pub struct PreemptLock<T> {
    data: SpinMutex<T>,
}

impl<T> PreemptLock<T> {
    /// Creates a free lock around `data`.
    pub const fn new(data: T) -> Self {
        Self { data: SpinMutex::new(data) }
    }

    /// Masks preemption and waits for the lock.
    ///
    /// # Panics
    ///
    /// Panics if there is an [`IrqMask`](super::IrqMask): see the order of locks in [`sync`](super).
    #[inline]
    pub fn lock(&self) -> Guard<'_, T, PreemptMask> {
        let depth = task::current_task().irq_nesting.depth();
        assert_eq!(depth, 0, "a lock that masks preemption was taken with interrupts masked");
        Guard::wait(&self.data, PreemptMask::new())
    }
}
