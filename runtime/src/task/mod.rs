//! Kernel tasks: threads of the kernel, each with its own stack, that take turns on a CPU.
//!
//! **Life.** [`spawn`] makes a task: a number that is never given again, a name, a stack that is not mapped below, and
//! a closure. It is ready and queued on the CPU that spawned it. It runs, and may sleep, or wait in a
//! [`WaitQueue`](crate::sync::WaitQueue); when its closure returns, or it calls [`exit`], it has exited. The next task
//! on that CPU hands it to the reaper, which frees its stack; [`JoinHandle::join`] returns after that.
//!
//! ```text
//!             spawn                  wake / deadline
//!               |           +------------------------------+
//!               v           v                              |
//!             ready <--- quantum over, yield ---+    waiting, sleeping
//!               |                               |          ^
//!               +----------> running -----------+----------+
//!                               |
//!                               +--> exited --> (reaper) --> released
//! ```
//!
//! **Running.** Tasks of a CPU run in turn, for a quantum of 4 ms each while others are ready. A switch takes place
//! when a task gives up its CPU in a call (yield, sleep, wait, exit), or at the end of an interrupt ([`preempt`]).
//! Interrupts are masked from before the decision until after the switch; code that must not be preempted masks them
//! too ([`IrqMask`]). There is no other control of preemption.
//!
//! **The current task** is where TPIDR_EL1 points. That register changes with the stack pointer, so that whatever a
//! CPU executes, be it a probe handler, finds the task and the CPU by two instructions and without a lock.
//!
//! **The idle task** of a CPU is what booted it: it needs no memory, is there before the allocator is, and once
//! [`start`] was called does nothing but wait for interrupts. It is in no queue and never waits.
//!
//! | module | what it owns |
//! |---|---|
//! | here | what a user of tasks calls |
//! | `control_block` | what is kept of a task |
//! | `scheduler` | who runs on a CPU, and when another does |
//! | `context` | the switch |
//! | `queue` | tasks in a row |
//! | `idle` | a CPU without a task |
//! | `reaper` | the end of a task |
//! | `registry` | which tasks there are |

mod context;
mod control_block;
mod idle;
mod queue;
mod reaper;
mod registry;
pub(crate) mod scheduler;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::marker::PhantomData;
use core::ops::Range;
use core::sync::atomic::Ordering;
use core::time::Duration;

use aarch64_cpu::registers::{Readable, TPIDR_EL1};

use crate::memory::stack::Stack;
use crate::sync::IrqMask;
use crate::time;
pub use control_block::State;
pub(crate) use control_block::Task;
pub(crate) use idle::run_idle;
pub use idle::{adopt_cpu, start};
pub(crate) use queue::Queue;
pub(crate) use registry::inspect;
pub use registry::{TaskInfo, list};
pub use scheduler::{preempt, timer_interrupt};

/// The dense number of the CPU that runs this; it stays that only as long as interrupts are masked. Fit for probe
/// handlers.
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

    /// Waits until the task has exited and what it had is free again.
    pub fn join(self) {
        self.task.released.wait_until(|| self.task.is_released.load(Ordering::Acquire).then_some(()));
    }
}

/// Starts a task that runs `body` and exits.
///
/// # Panics
///
/// Where there is no memory for the task's stack.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle {
    let Ok(stack) = Stack::allocate() else {
        panic!("no memory for the stack of a new task {name:?}");
    };
    let task = Arc::new(Task::new(name, stack, Box::new(body)));
    registry::add(task.clone());
    scheduler::wake(task.clone());
    JoinHandle { task }
}

/// Where a task begins, from `trampoline/context.S`, with interrupts masked.
#[unsafe(no_mangle)]
extern "C" fn task_main() -> ! {
    scheduler::finish_switch();
    IrqMask::enable_all();
    let body = current_task().body.lock().take();
    if let Some(body) = body {
        body();
    }
    exit()
}

/// Lets the other ready tasks of this CPU run first.
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
    drop(scheduler::leave_for(State::Exited));
    scheduler::reschedule(&mask);
    unreachable!("a task that has exited ran again");
}
