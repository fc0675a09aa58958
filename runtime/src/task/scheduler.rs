//! Which task runs on a CPU, and when another does.
//!
//! Every CPU has its own scheduler, behind an [`IrqLock`]: a queue of ready tasks, taken in turn; the sleepers, by
//! deadline; and the task that runs, which is in no queue. A task belongs to one CPU, and only that CPU takes it out
//! of the ready queue. So a task that is woken on another CPU, while it is still on its way to sleep here, cannot
//! start there before its registers are saved here.
//!
//! The timer is programmed for the next thing that is to happen, not to tick: the end of the running task's quantum
//! if another task is ready, or the first sleeper's deadline, whichever comes first. On a CPU where one task computes
//! and nobody sleeps, it is silent.
//!
//! The state of a task says what becomes of it when it leaves the CPU: whoever wants it to wait says so there before
//! it calls [`reschedule`], with interrupts masked in between.

use alloc::sync::Arc;
use core::ptr;
use core::sync::atomic::Ordering;
use core::time::Duration;

use super::{Queue, State, Task, context, current_cpu, current_task, idle, reaper};
use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::sync::{IrqLock, IrqMask};
use crate::time;

/// How long a task runs while others are ready.
const QUANTUM: Duration = Duration::from_millis(4);

static SCHEDULERS: PerCpu<IrqLock<Scheduler>> = PerCpu::new([const { IrqLock::new(Scheduler::new()) }; MAX_CPUS]);

struct Scheduler {
    ready: Queue,
    /// Ordered by deadline.
    sleepers: Queue,
    /// The task that runs; none when it is the idle task.
    running: Option<Arc<Task>>,
    /// The task that ran before, if it has exited: it cannot be released before the CPU has left its stack.
    departed: Option<Arc<Task>>,
    /// The counter when the running task was switched to.
    since: u64,
    /// The counter at the end of its quantum.
    quantum_end: u64,
    /// Whether to switch at the end of the interrupt that is being handled: the quantum is over, or a task came to
    /// an idle CPU.
    preempt: bool,
}

impl Scheduler {
    const fn new() -> Self {
        Self {
            ready: Queue::new(),
            sleepers: Queue::new(),
            running: None,
            departed: None,
            since: 0,
            quantum_end: 0,
            preempt: false,
        }
    }

    /// Programs this CPU's timer for what is to happen next. It must be this CPU's scheduler.
    fn program_timer(&self) {
        let quantum = (!self.ready.is_empty()).then_some(self.quantum_end);
        let sleeper = self.sleepers.first().map(Task::deadline);
        match quantum.into_iter().chain(sleeper).min() {
            Some(event) => time::set_event(event),
            None => time::clear_event(),
        }
    }

    fn make_ready(&mut self, task: Arc<Task>) {
        task.set_state(State::Ready);
        self.ready.push(task);
        self.preempt |= self.running.is_none();
    }
}

/// Masks interrupts for a task that is about to give up its CPU by itself.
///
/// # Panics
///
/// Where they are masked already: the code above holds a lock, or is an interrupt handler, and must not wait.
pub(crate) fn mask_to_switch() -> IrqMask {
    let mask = IrqMask::new();
    assert!(mask.was_enabled(), "a task gave up its CPU with interrupts masked");
    mask
}

/// Says that the current task is about to leave the CPU for `state`, and returns it for the queue that it waits in.
///
/// # Panics
///
/// In an idle task: it has nowhere to go.
pub(crate) fn leave_for(state: State) -> Arc<Task> {
    let task = SCHEDULERS.here().lock().running.clone().expect("the idle task of a CPU cannot wait");
    task.set_state(state);
    task
}

/// Puts the current task to sleep until the counter reads `deadline`.
pub(super) fn sleep_until(deadline: u64) {
    let mask = mask_to_switch();
    let task = leave_for(State::Sleeping);
    task.deadline.store(deadline, Ordering::Relaxed);
    SCHEDULERS.here().lock().sleepers.insert(task, |other| other.deadline() > deadline);
    reschedule(&mask);
}

/// Makes `task` ready, which has been taken out of the queue that it waited in, on the CPU that it belongs to.
pub(crate) fn wake(task: Arc<Task>) {
    let _mask = IrqMask::new();
    let cpu = task.cpu();
    let mut scheduler = SCHEDULERS.of(cpu).lock();
    scheduler.make_ready(task);
    if cpu == current_cpu() {
        scheduler.program_timer();
    } else {
        drop(scheduler);
        kick(cpu);
    }
}

/// Interrupts the CPU with the dense number `cpu`, another one, so that it looks into its ready queue now.
///
/// # Panics
///
/// Always, as tasks run on the CPU that boots alone: there is none to be woken on another.
fn kick(cpu: usize) {
    panic!("a task of CPU {cpu} was woken on CPU {}, and no CPU can interrupt another", current_cpu());
}

/// Gives the CPU to the next ready task. Returns when the current task, in whose name it is called, runs again; at
/// once if that is the next one.
///
/// # Panics
///
/// Where there is another [`IrqMask`] than the caller's: a lock is held, for which the next task might wait.
pub(crate) fn reschedule(_masked: &IrqMask) {
    let previous = current_task();
    assert_eq!(previous.irq_nesting.depth(), 1, "a task that held a lock gave up its CPU");
    let mut guard = SCHEDULERS.here().lock();
    let scheduler = &mut *guard;
    let now = time::counter();
    previous.run_ticks.fetch_add(now.saturating_sub(scheduler.since), Ordering::Relaxed);
    scheduler.since = now;
    scheduler.quantum_end = now + time::ticks(QUANTUM);
    scheduler.preempt = false;

    let leaving = scheduler.running.take();
    match previous.state() {
        State::Running => {
            previous.set_state(State::Ready);
            if let Some(task) = leaving {
                scheduler.ready.push(task);
            }
        }
        State::Exited => scheduler.departed = leaving,
        // Others keep it: the queue that it waits in, or the ready queue, if it was woken already.
        State::Ready | State::Sleeping | State::Waiting => {}
    }
    scheduler.running = scheduler.ready.pop();
    let next: *const Task = match &scheduler.running {
        Some(task) => Arc::as_ptr(task),
        None => idle::here(),
    };
    scheduler.program_timer();
    drop(guard);

    // SAFETY: a running task is kept alive by the registry until the reaper has it, and the idle tasks are static.
    let next = unsafe { &*next };
    next.set_state(State::Running);
    if !ptr::eq(previous, next) {
        // SAFETY: interrupts are masked by the caller. `next` comes from the ready queue of this CPU, which is the
        // only one that runs it, or is this CPU's idle task; so it is not running, and left by this very switch.
        unsafe { context::switch(previous, next) };
        finish_switch();
    }
}

/// The first thing that a task does when it runs again, on its own stack: hands over the task before it, if it has
/// exited. Interrupts are masked.
pub(super) fn finish_switch() {
    let departed = SCHEDULERS.here().lock().departed.take();
    if let Some(task) = departed {
        reaper::bury(task);
    }
}

/// Handles the interrupt of this CPU's timer.
pub fn timer_interrupt() {
    let mut scheduler = SCHEDULERS.here().lock();
    let now = time::counter();
    while scheduler.sleepers.first().is_some_and(|task| task.deadline() <= now) {
        if let Some(task) = scheduler.sleepers.pop() {
            scheduler.make_ready(task);
        }
    }
    if !scheduler.ready.is_empty() && scheduler.quantum_end <= now {
        scheduler.preempt = true;
        scheduler.quantum_end = now + time::ticks(QUANTUM);
    }
    scheduler.program_timer();
}

/// Lets other tasks run, if an interrupt has given a reason to; called at the end of every interrupt. The interrupted
/// code had interrupts unmasked, and nothing else forbids preemption.
pub fn preempt() {
    let mask = IrqMask::new();
    while SCHEDULERS.here().lock().preempt {
        reschedule(&mask);
    }
}

/// For how many ticks the task that runs on `cpu` has had it since it was switched to.
pub(super) fn running_ticks(cpu: usize) -> u64 {
    let scheduler = SCHEDULERS.of(cpu).lock();
    time::counter().saturating_sub(scheduler.since)
}
