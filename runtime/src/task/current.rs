//! The task that calls, and the CPU that it is on.

use core::marker::PhantomData;
use core::ops::Range;

use aarch64_cpu::registers::{Readable, TPIDR_EL1};

use super::Task;

/// Where in a task, in bytes, the address of what the engine keeps for its CPU is.
pub(crate) const CPU_OFFSET: usize = 0;
/// Where the calls are that the engine follows to their returns.
pub(crate) const CALLS_OFFSET: usize = 8;
/// Where its own number is.
pub(crate) const NUMBER_OFFSET: usize = 16;
/// Where the dense number of its CPU is.
pub(crate) const CPU_NUMBER_OFFSET: usize = 24;
/// Where the beginning of its name is, 16 bytes.
pub(crate) const NAME_OFFSET: usize = 32;

/// The dense number of the CPU that runs this; it stays that only as long as interrupts or preemption are masked. Fit for
/// probe handlers.
#[inline(always)]
#[must_use]
pub fn current_cpu() -> usize {
    current_task().cpu()
}

/// The number of the current task. Fit for probe handlers.
#[inline(always)]
#[must_use]
pub fn current_task_number() -> u64 {
    current_task().id()
}

/// The current task, for as long as it can look.
#[inline(always)]
pub(crate) fn current_task() -> &'static Task {
    // SAFETY: TPIDR_EL1 holds the address of a task from `adopt_cpu` on, before which nothing asks; a task that runs
    // is not released, and no reference outlives the code that it runs, as all users are private to this crate.
    unsafe { &*(TPIDR_EL1.get() as *const Task) }
}

/// The current task, as [`current`] gives it. It is the task's own: it cannot be sent to another.
pub struct CurrentTask {
    task: &'static Task,
    _not_send: PhantomData<*const ()>,
}

impl CurrentTask {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.task.id()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.task.name
    }

    /// The virtual addresses of its stack.
    #[must_use]
    pub fn stack(&self) -> Range<usize> {
        self.task.stack_bounds()
    }
}

/// The task that calls. Fit for probe handlers and interrupt handlers, where it is the one that was interrupted.
#[must_use]
pub fn current() -> CurrentTask {
    CurrentTask { task: current_task(), _not_send: PhantomData }
}
