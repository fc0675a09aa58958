//! How a task that has deadlines of its own is told of something before.

use fallible::Arc;

use super::IrqLock;
use crate::task::{Task, scheduler};

/// A signal to one task, which waits for it until a deadline. It stays set until the task has seen it, so none is lost; several
/// that come before are one.
///
/// The task is among the sleepers of its CPU, and known here, from before the lock is free: who sets the signal finds it set
/// by no CPU and the task asleep, or on its way there, on another CPU; or the task finds the signal. And the task is
/// forgotten before it returns, under the lock that is held while it is woken: it is not woken from another sleep.
pub struct Signal {
    state: IrqLock<State>,
}

struct State {
    is_set: bool,
    /// The task that waits.
    sleeper: Option<Arc<Task>>,
}

impl Signal {
    /// A signal that is not set.
    pub const fn new() -> Self {
        Self { state: IrqLock::new(State { is_set: false, sleeper: None }) }
    }

    /// Sets it. Interrupt handlers may call it.
    pub fn set(&self) {
        let mut state = self.state.lock();
        state.is_set = true;
        if let Some(task) = &state.sleeper {
            scheduler::wake_sleeper(task);
        }
    }

    /// Returns when it is set, at once if it is already, or when the counter reads `deadline`. It is not set then. One task
    /// alone may wait.
    ///
    /// # Panics
    ///
    /// Where interrupts or preemption are masked, so in a handler or under a lock: neither can wait.
    pub fn wait_until(&self, deadline: u64) {
        let mask = scheduler::mask_to_switch();
        let mut state = self.state.lock();
        if !state.is_set {
            state.sleeper = Some(scheduler::leave_until(deadline, &mask));
            drop(state);
            scheduler::reschedule(&mask);
            state = self.state.lock();
            state.sleeper = None;
        }
        state.is_set = false;
    }
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}
