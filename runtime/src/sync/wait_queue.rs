//! A queue of tasks that wait for a condition.

use core::mem;

use super::IrqLock;
use crate::task::{Queue, State, scheduler};

/// Tasks that wait for a condition, in the order in which they came.
///
/// No wake-up is lost, if the code that makes the condition true does so before it calls [`wake_one`](Self::wake_one) or
/// [`wake_all`](Self::wake_all): the condition is looked at under the lock that a wake-up takes, so a wake-up comes
/// either before, and the condition is seen to be true, or after, and finds the task in the queue. It may find it on its
/// way to sleep, on another CPU: the scheduler then makes it stay ([`scheduler`]).
pub struct WaitQueue {
    waiting: IrqLock<Queue>,
}

impl WaitQueue {
    /// No task waits.
    pub const fn new() -> Self {
        Self { waiting: IrqLock::new(Queue::new()) }
    }

    /// Returns what `condition` gives, at once if it gives something, else after waiting until it does.
    ///
    /// `condition` is called with interrupts masked and the queue locked; it may take other locks.
    ///
    /// # Panics
    ///
    /// Where interrupts or preemption are masked, so in a handler or under a lock, and on an idle CPU: neither can wait.
    pub fn wait_until<T>(&self, mut condition: impl FnMut() -> Option<T>) -> T {
        loop {
            let mask = scheduler::mask_to_switch();
            let mut waiting = self.waiting.lock();
            if let Some(value) = condition() {
                return value;
            }
            waiting.push(scheduler::leave_for(State::Waiting, &mask));
            drop(waiting);
            scheduler::reschedule(&mask);
        }
    }

    /// Wakes the task that has waited longest. Returns whether there was one. Interrupt handlers may call it.
    pub fn wake_one(&self) -> bool {
        let task = self.waiting.lock().pop();
        task.map(scheduler::wake).is_some()
    }

    /// Wakes all tasks that wait now. Interrupt handlers may call it.
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
