//! A queue of tasks that wait for a condition.

use core::mem;

use super::IrqLock;
use crate::task::{Queue, TaskState, scheduler};

/// Tasks that wait for a condition, in the order in which they came.
///
/// No wake-up is lost if the code that makes the condition true does so before it calls [`wake_one`](Self::wake_one) or
/// [`wake_all`](Self::wake_all). The condition is evaluated under the lock that a wake-up takes. A wake-up before that
/// makes the task see a true condition. A wake-up after that finds the task in the queue, perhaps still on its way to
/// sleep on another CPU; then the scheduler lets the task keep its CPU (`task::scheduler`).
pub struct WaitQueue {
    waiting: IrqLock<Queue>,
}

impl WaitQueue {
    /// Creates an empty queue.
    pub const fn new() -> Self {
        Self { waiting: IrqLock::new(Queue::new()) }
    }

    /// Returns the value of `condition`: at once if it returns one, otherwise after waiting until it does.
    ///
    /// `condition` is called with interrupts masked and the queue locked; it may take other locks.
    ///
    /// # Panics
    ///
    /// Panics if interrupts or preemption are masked, as in a handler or under a lock, or if called on an idle CPU.
    pub fn wait_until<T>(&self, mut condition: impl FnMut() -> Option<T>) -> T {
        loop {
            let mask = scheduler::mask_to_switch();
            let mut waiting = self.waiting.lock();
            if let Some(value) = condition() {
                return value;
            }
            waiting.push(scheduler::prepare_to_wait(TaskState::Waiting, &mask));
            drop(waiting);
            scheduler::reschedule(&mask);
        }
    }

    /// Wakes the task that has waited longest. Returns whether there was one. Interrupt handlers may call this.
    pub fn wake_one(&self) -> bool {
        let task = self.waiting.lock().pop();
        task.map(scheduler::wake).is_some()
    }

    /// Wakes all tasks that wait now. Interrupt handlers may call this.
    pub fn wake_all(&self) {
        let mut woken = mem::take(&mut *self.waiting.lock());
        while let Some(task) = woken.pop() {
            scheduler::wake(task);
        }
    }
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}
