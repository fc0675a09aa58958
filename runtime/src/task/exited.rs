//! The tasks that have exited and left their CPUs, on their way from the scheduler to the reaper.

use fallible::Arc;

use super::{Queue, Task};
use crate::sync::{IrqLock, WaitQueue};

static EXITED: IrqLock<Queue> = IrqLock::new(Queue::new());
static EXITS: WaitQueue = WaitQueue::new();

/// Hands a task that has exited and whose stack its CPU has left to the reaper. Callers may have interrupts masked.
pub fn hand_over(task: Arc<Task>) {
    EXITED.lock().push(task);
    EXITS.wake_one();
}

/// Returns the next exited task. Waits until there is one.
pub fn next() -> Arc<Task> {
    EXITS.wait_until(|| EXITED.lock().pop())
}
