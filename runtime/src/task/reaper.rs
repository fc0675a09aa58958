//! The end of tasks.
//!
//! A task cannot free the stack that it stands on. Once it has left its CPU forever it is handed to the reaper, a
//! task like any other, on any CPU, which releases what it had and lets those go on that join it. After a join all memory of
//! the task is free again: the task that joins waits until it holds the last reference.

use core::sync::atomic::Ordering;
use fallible::Arc;

use super::{Queue, Task, registry};
use crate::sync::{IrqLock, WaitQueue};

static DEAD: IrqLock<Queue> = IrqLock::new(Queue::new());
static DEATHS: WaitQueue = WaitQueue::new();

/// Takes over a task that has exited and whose stack its CPU has left. Interrupts may be masked.
pub fn bury(task: Arc<Task>) {
    DEAD.lock().push(task);
    DEATHS.wake_one();
}

/// What the reaper does.
#[inline(never)]
pub fn reap() {
    loop {
        let task = DEATHS.wait_until(|| DEAD.lock().pop());
        // SAFETY: it has exited and left its CPU forever before it was buried: calls that it was in will never return.
        unsafe { aarch64_kprobes::probe::task_exited(&task.calls) };
        let stack = task.stack.lock().take();
        drop(stack);
        registry::remove(&task);
        task.is_released.store(true, Ordering::Release);
        task.released.wake_all();
    }
}
