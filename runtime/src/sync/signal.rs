//! Wakes a task that sleeps until a deadline of its own.

use fallible::Arc;

use super::IrqLock;
use crate::task::{Task, scheduler};

/// A signal to one task, which waits for it until a deadline. The signal stays set until the task has seen it, so none
/// is lost. Signals that are set again before that are merged into one.
///
/// A task that waits enters the sleepers of its CPU and the state of the signal before it releases the lock. So code
/// that sets the signal later finds the task: it is asleep, or on its way to sleep on another CPU. If the signal was
/// set earlier, the task finds it set. The task leaves the state before `wait_until` returns, under the lock that is
/// held while it is woken. So a signal never wakes it from another sleep.
pub struct Signal {
    state: IrqLock<SignalState>,
}

struct SignalState {
    is_set: bool,
    /// The task that waits, if one does.
    sleeper: Option<Arc<Task>>,
}

impl Signal {
    /// Creates a signal that is not set.
    pub const fn new() -> Self {
        Self { state: IrqLock::new(SignalState { is_set: false, sleeper: None }) }
    }

    /// Sets the signal and wakes the task that waits for it. Interrupt handlers may call this.
    pub fn set(&self) {
        let mut state = self.state.lock();
        state.is_set = true;
        if let Some(task) = &state.sleeper {
            scheduler::wake_sleeper(task);
        }
    }

    /// Waits until the signal is set, or until the counter reads `deadline`. Returns at once if the signal is set
    /// already. Clears the signal. Only one task may wait.
    ///
    /// # Panics
    ///
    /// Panics if interrupts or preemption are masked, as in a handler or under a lock: such code cannot wait.
    pub fn wait_until(&self, deadline: u64) {
        let mask = scheduler::mask_to_switch();
        let mut state = self.state.lock();
        if !state.is_set {
            state.sleeper = Some(scheduler::prepare_to_sleep(deadline, &mask));
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
