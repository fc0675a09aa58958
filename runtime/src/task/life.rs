//! How tasks begin and end, and what a task does with itself in between.

use core::sync::atomic::Ordering;
use core::time::Duration;

use fallible::{Arc, OutOfMemory};

use super::{State, Task, current_task, registry, scheduler};
use crate::memory::stack::Stack;
use crate::sync::IrqMask;
use crate::{smp, time};

/// A task that was spawned. To drop it leaves the task to itself.
pub struct JoinHandle {
    task: Arc<Task>,
}

impl JoinHandle {
    /// The number of the task.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.task.id()
    }

    /// Waits until the task has exited and all memory that it had is free again.
    pub fn join(self) {
        self.task.released.wait_until(|| self.task.is_released.load(Ordering::Acquire).then_some(()));
        // The reaper still has it, for a moment, and so may a list of tasks. The last reference that is dropped frees it.
        while Arc::strong_count(&self.task) > 1 {
            yield_now();
        }
    }
}

/// Starts a task that runs `body` and exits.
///
/// # Panics
///
/// Where there is no memory for the task, and where interrupts or preemption are masked.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle {
    try_spawn(name, body).unwrap_or_else(|error| panic!("the task {name:?} cannot be started: {error}"))
}

/// The same, where memory may be scarce.
///
/// # Errors
///
/// There is no memory for the task, or for its stack.
///
/// # Panics
///
/// Where interrupts or preemption are masked.
pub fn try_spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle, OutOfMemory> {
    start(name, None, body)
}

/// Starts a task that runs `body` on the CPU with the dense number `cpu`, and there alone, and exits.
///
/// # Panics
///
/// Where that CPU does not run, and as [`spawn`] does.
pub fn spawn_on(cpu: usize, name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle {
    assert!(smp::is_running(cpu), "there is no CPU {cpu} for a new task {name:?}");
    start(name, Some(cpu), body).unwrap_or_else(|error| panic!("the task {name:?} cannot be started: {error}"))
}

fn start(name: &str, cpu: Option<usize>, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle, OutOfMemory> {
    let task = Task::new(fallible::copy(name)?, cpu, Stack::allocate()?, fallible::boxed(body)?);
    let task = Arc::try_new(task)?;
    registry::add(task.clone())?;
    scheduler::start(task.clone());
    Ok(JoinHandle { task })
}

/// Where a task begins, from `trampoline/context.S`, with interrupts masked.
#[unsafe(no_mangle)]
extern "C" fn task_main() -> ! {
    // SAFETY: the task has just been switched to for the first time.
    unsafe { scheduler::finish_switch() };
    IrqMask::enable_all();
    let body = current_task().body.lock().take();
    if let Some(body) = body {
        body();
    }
    exit()
}

/// Lets the other tasks that are ready run first.
pub fn yield_now() {
    scheduler::reschedule(&scheduler::mask_to_switch());
}

/// Sleeps for `duration` at least.
pub fn sleep(duration: Duration) {
    scheduler::sleep_until(time::counter().saturating_add(time::ticks(duration)));
}

/// Ends the current task. Values that its functions own are not dropped.
pub fn exit() -> ! {
    let mask = scheduler::mask_to_switch();
    drop(scheduler::leave_for(State::Exited, &mask));
    scheduler::reschedule(&mask);
    unreachable!("a task that has exited ran again");
}
