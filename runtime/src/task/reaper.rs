//! The reaper, which frees the memory of tasks that have exited.
//!
//! A task cannot free the stack that it runs on. So after it has left its CPU forever, the scheduler hands it to the
//! reaper ([`exited`]). The reaper is a task like any other, on any CPU. It frees the stack and wakes the tasks that
//! join. A join returns when the joining task holds the last reference, so that all memory of the task is free again
//! after it.

use core::sync::atomic::Ordering;

use super::{exited, registry};

/// The body of the reaper task. Never returns.
#[inline(never)]
pub fn reap() {
    loop {
        let task = exited::next();
        // SAFETY: the task exited and left its CPU forever before the reaper took it over, so none of its calls will
        // ever return.
        unsafe { aarch64_kprobes::probe::task_exited(&task.calls) };
        let stack = task.stack.lock().take();
        drop(stack);
        registry::remove(&task);
        task.is_released.store(true, Ordering::Release);
        task.released.wake_all();
    }
}
