//! The life of a task: spawning, yielding, sleeping and exiting.

use core::sync::atomic::Ordering;
use core::time::Duration;

use aarch64_kprobes::emit;
use fallible::{Arc, OutOfMemory};

use super::{Task, TaskState, current_task, current_task_number, registry, scheduler};
use crate::event::{PRIORITY, SchedProcessExit, SchedProcessFork};
use crate::memory::stack::Stack;
use crate::sync::IrqMask;
use crate::{smp, time};

/// A handle to a spawned task. Dropping the handle detaches the task.
pub struct JoinHandle {
    task: Arc<Task>,
}

impl JoinHandle {
    /// Returns the number of the task.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.task.id()
    }

    /// Waits until the task has exited and all its memory has been freed.
    pub fn join(self) {
        self.task.released.wait_until(|| self.task.is_released.load(Ordering::Acquire).then_some(()));
        // The reaper still holds a reference for a moment, and a task list may. Dropping the last reference frees the
        // task.
        while Arc::strong_count(&self.task) > 1 {
            yield_now();
        }
    }
}

/// Starts a task that runs `body` and exits.
///
/// # Panics
///
/// Panics if there is no memory for the task, or if interrupts or preemption are masked.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle {
    try_spawn(name, body).unwrap_or_else(|error| panic!("the task {name:?} cannot be started: {error}"))
}

/// Starts a task that runs `body` and exits. For callers that can handle a lack of memory.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for the task or for its stack.
///
/// # Panics
///
/// Panics if interrupts or preemption are masked.
pub fn try_spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle, OutOfMemory> {
    start(name, None, body)
}

/// Starts a task that runs `body`, only on the CPU with the dense number `cpu`, and exits.
///
/// # Panics
///
/// Panics if that CPU does not run, if there is no memory for the task, or if interrupts or preemption are masked.
pub fn spawn_on(cpu: usize, name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle {
    assert!(smp::is_running(cpu), "there is no CPU {cpu} for a new task {name:?}");
    start(name, Some(cpu), body).unwrap_or_else(|error| panic!("the task {name:?} cannot be started: {error}"))
}

fn start(name: &str, cpu: Option<usize>, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle, OutOfMemory> {
    let task = Task::new(fallible::copy(name)?, cpu, Stack::allocate()?, fallible::boxed(body)?);
    let task = Arc::try_new(task)?;
    registry::add(task.clone())?;
    emit!(SchedProcessFork {
        parent_comm: current_task().short_name(),
        parent_pid: current_task_number() as i32,
        child_comm: task.short_name(),
        child_pid: task.id() as i32,
    });
    scheduler::start(task.clone());
    Ok(JoinHandle { task })
}

/// The first function of a task. `trampoline/context.S` calls it with interrupts masked.
#[unsafe(no_mangle)]
extern "C" fn task_main() -> ! {
    // SAFETY: a switch has just led here for the first time, and left this CPU's lock locked.
    unsafe { scheduler::finish_switch() };
    IrqMask::enable_all();
    let body = current_task().body.lock().take();
    if let Some(body) = body {
        body();
    }
    // SAFETY: the body has returned, and no other function of the task owns a value.
    unsafe { exit() }
}

/// Lets other ready tasks run before the current task goes on.
pub fn yield_now() {
    scheduler::reschedule(&scheduler::mask_to_switch());
}

/// Sleeps for `duration` at least.
pub fn sleep(duration: Duration) {
    scheduler::sleep_until(time::counter().saturating_add(time::ticks(duration)));
}

/// Ends the current task, and frees its stack. The values that its functions own are not dropped.
///
/// # Safety
///
/// No function of the task owns a value on the stack that has to be dropped before its memory is used again: that is
/// [pinned](core::pin), or that a function lends to others until it returns.
pub unsafe fn exit() -> ! {
    let mask = scheduler::mask_to_switch();
    let task = current_task();
    emit!(SchedProcessExit { comm: task.short_name(), pid: task.id() as i32, prio: PRIORITY });
    drop(scheduler::prepare_to_wait(TaskState::Exited, &mask));
    scheduler::reschedule(&mask);
    unreachable!("a task that has exited ran again");
}
