//! The tasks that exist, and the end of them.
//!
//! A task cannot free the stack that it stands on. Once it has left its CPU for ever it is handed to the reaper, a
//! task like any other, which releases what it had and lets those go on that join it. So after a join all memory of
//! the task is free again, but for what the handle itself keeps.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::{Queue, Task};
use crate::sync::{IrqLock, WaitQueue};

/// Every task that has been spawned and not been released, by number.
static TASKS: IrqLock<BTreeMap<u64, Arc<Task>>> = IrqLock::new(BTreeMap::new());
static DEAD: IrqLock<Queue> = IrqLock::new(Queue::new());
static DEATHS: WaitQueue = WaitQueue::new();

/// Makes a new task known.
pub fn register(task: Arc<Task>) {
    TASKS.lock().insert(task.id(), task);
}

/// The task with the number `id`.
pub fn find(id: u64) -> Option<Arc<Task>> {
    TASKS.lock().get(&id).cloned()
}

/// All tasks, by number.
pub fn all() -> Vec<Arc<Task>> {
    TASKS.lock().values().cloned().collect()
}

/// Takes over a task that has exited and that no CPU runs. Interrupts may be masked.
pub fn bury(task: Arc<Task>) {
    DEAD.lock().push(task);
    DEATHS.wake_one();
}

/// What the reaper does.
pub fn reap() {
    loop {
        let task = DEATHS.wait_until(|| DEAD.lock().pop());
        // Calls that the task was in when it exited will never return.
        aarch64_kprobes::probe::task_exited(task.id());
        drop(TASKS.lock().remove(&task.id()));
        let stack = task.stack.lock().take();
        drop(stack);
        task.is_released.store(true, Ordering::Release);
        task.released.wake_all();
    }
}
