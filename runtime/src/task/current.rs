//! The current task and its CPU.

use core::marker::PhantomData;
use core::ops::Range;

use aarch64_cpu::registers::{Readable, TPIDR_EL1};

use super::Task;

/// The byte offset in a task of the pointer to the engine's state for its CPU.
pub(crate) const CPU_OFFSET: usize = 0;
/// The byte offset in a task of the calls whose returns the engine follows.
pub(crate) const CALLS_OFFSET: usize = 8;
/// The byte offset in a task of its number.
pub(crate) const NUMBER_OFFSET: usize = 16;
/// The byte offset in a task of the dense number of its CPU.
pub(crate) const CPU_NUMBER_OFFSET: usize = 24;
/// The byte offset in a task of the beginning of its name, 16 bytes.
pub(crate) const NAME_OFFSET: usize = 32;

/// Returns the dense number of the CPU that runs the caller. The number stays valid only as long as interrupts or
/// preemption are masked. Probe handlers may call this.
#[inline(always)]
#[must_use]
pub fn current_cpu() -> usize {
    current_task().cpu()
}

/// Returns the number of the current task. Probe handlers may call this.
#[inline(always)]
#[must_use]
pub fn current_task_number() -> u64 {
    current_task().id()
}

/// Returns the current task. Use the reference only while this task runs the code that holds it.
#[inline(always)]
pub(crate) fn current_task() -> &'static Task {
    // SAFETY: TPIDR_EL1 holds the address of a task from `adopt_cpu` on, and nothing calls this earlier. A running task
    // is not released. No reference outlives the code that the task runs, as all users are private to this crate.
    unsafe { &*(TPIDR_EL1.get() as *const Task) }
}

/// The current task, as [`current`] returns it. It cannot be sent to another task.
pub struct CurrentTask {
    task: &'static Task,
    _not_send: PhantomData<*const ()>,
}

impl CurrentTask {
    /// Returns the task's number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.task.id()
    }

    /// Returns the task's full name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.task.name
    }

    /// Returns the virtual addresses of the task's stack.
    #[must_use]
    pub fn stack(&self) -> Range<usize> {
        self.task.stack_bounds()
    }
}

/// Returns the current task. Probe handlers and interrupt handlers may call this, and get the task that was
/// interrupted.
#[must_use]
pub fn current() -> CurrentTask {
    CurrentTask { task: current_task(), _not_send: PhantomData }
}
