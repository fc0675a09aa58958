//! What a CPU runs, and the tasks that are to run on it.
//!
//! The tasks are behind a lock that is held across a switch; beside it stands what other CPUs read without the lock. That
//! is out of date when it is read, and so decides only whose lock is worth taking, and whether a CPU has to be told
//! ([`scheduler`](super::scheduler)).

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use fallible::Arc;

use super::line::NOBODY;
use super::{Queue, Task, current_cpu, idle};
use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::sync::{IrqMask, MaskedGuard, MaskedLock};
use crate::{smp, time};

/// How long a task runs while others are ready.
pub const QUANTUM: Duration = Duration::from_millis(4);

/// After which time an idle task that was interrupted in the stub of a probe has left it.
pub const LEAVE_STUB: Duration = Duration::from_micros(50);

/// A CPU, as far as tasks go. Cache lines of its own, as it is written at every switch.
#[repr(align(128))]
pub struct Cpu {
    queues: MaskedLock<Queues>,
    /// Since when the first of the tasks that other CPUs may take is ready; [`NOBODY`] if there is none.
    first: AtomicU64,
    /// How many tasks are ready or run here.
    load: AtomicUsize,
    /// Whether to switch at the end of the interrupt that is being handled, or at once. This CPU's own, with interrupts
    /// masked. True at first: a CPU begins with a look around.
    pub is_due: AtomicBool,
}

static CPUS: PerCpu<Cpu> = PerCpu::new(
    [const {
        Cpu {
            queues: MaskedLock::new(Queues::new()),
            first: AtomicU64::new(NOBODY),
            load: AtomicUsize::new(0),
            is_due: AtomicBool::new(true),
        }
    }; MAX_CPUS],
);

/// The tasks of a CPU.
pub struct Queues {
    /// Ready, in the order in which they became so.
    movable: Queue,
    /// The tasks that are ready and may run on this CPU alone.
    pinned: Queue,
    /// Ordered by deadline.
    sleepers: Queue,
    /// The task that runs; none when it is the idle task.
    pub running: Option<Arc<Task>>,
    /// The task that ran before, if it has exited: it cannot be released before the CPU has left its stack.
    pub departed: Option<Arc<Task>>,
    /// The counter when the running task was switched to.
    pub since: u64,
    /// The counter at the end of its quantum.
    pub quantum_end: u64,
}

impl Cpu {
    /// The CPU with the dense number `number`.
    pub fn of(number: usize) -> &'static Self {
        CPUS.of(number)
    }

    /// This CPU and its number, for as long as interrupts are masked.
    pub fn here(_masked: &IrqMask) -> (usize, &'static Self) {
        let number = current_cpu();
        (number, CPUS.of(number))
    }

    /// Waits for the lock. No CPU holds two of them.
    pub fn lock<'a>(&'a self, masked: &'a IrqMask) -> MaskedGuard<'a, Queues> {
        self.queues.lock(masked)
    }

    /// The lock itself, for a switch.
    pub fn across_switch(&self) -> &MaskedLock<Queues> {
        &self.queues
    }

    /// Since when the first of the tasks that other CPUs may take is ready.
    pub fn first(&self) -> u64 {
        self.first.load(Ordering::SeqCst)
    }

    /// How many tasks are ready or run here.
    pub fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Tells other CPUs of a change to the queues.
    pub fn publish(&self, queues: &Queues) {
        let load = queues.movable.len() + queues.pinned.len() + usize::from(queues.running.is_some());
        self.load.store(load, Ordering::Relaxed);
        // Before a look at which CPUs are idle: see `scheduler`.
        self.first.store(queues.movable.first().map_or(NOBODY, Task::ready_since), Ordering::SeqCst);
    }
}

impl Queues {
    const fn new() -> Self {
        Self {
            movable: Queue::new(),
            pinned: Queue::new(),
            sleepers: Queue::new(),
            running: None,
            departed: None,
            since: 0,
            quantum_end: 0,
        }
    }

    /// Whether `task`, one of this CPU or its idle task, has the CPU: its registers are not saved.
    pub fn runs(&self, task: &Task) -> bool {
        match &self.running {
            Some(running) => ptr::eq(Arc::as_ptr(running), task),
            None => ptr::eq(idle::of(task.cpu()), task),
        }
    }

    /// Whether a task is ready here.
    pub fn has_ready(&self) -> bool {
        !(self.movable.is_empty() && self.pinned.is_empty())
    }

    /// Since when the task is ready that is next here; [`NOBODY`] if there is none.
    pub fn next_since(&self) -> u64 {
        let since = |queue: &Queue| queue.first().map_or(NOBODY, Task::ready_since);
        since(&self.movable).min(since(&self.pinned))
    }

    /// Adds a task that is ready and belongs to this CPU, in its place in the line.
    pub fn push(&mut self, task: Arc<Task>) {
        let since = task.ready_since();
        let queue = if task.is_pinned { &mut self.pinned } else { &mut self.movable };
        queue.insert(task, |other| other.ready_since() > since);
    }

    /// Removes the task that is next here.
    pub fn pop(&mut self) -> Option<Arc<Task>> {
        let pinned = self.pinned.first().map_or(NOBODY, Task::ready_since);
        if self.movable.first().is_some_and(|task| task.ready_since() <= pinned) {
            self.movable.pop()
        } else {
            self.pinned.pop()
        }
    }

    /// Removes the first of the tasks that other CPUs may take.
    pub fn pop_movable(&mut self) -> Option<Arc<Task>> {
        self.movable.pop()
    }

    /// Adds a task that sleeps until its deadline.
    pub fn push_sleeper(&mut self, task: Arc<Task>) {
        let deadline = task.deadline();
        self.sleepers.insert(task, |other| other.deadline() > deadline);
    }

    /// Removes a sleeper whose deadline is not after `now`, in the order of the deadlines.
    pub fn pop_sleeper(&mut self, now: u64) -> Option<Arc<Task>> {
        self.sleepers.first().filter(|task| task.deadline() <= now)?;
        self.sleepers.pop()
    }

    /// Removes `task`, if it sleeps here.
    pub fn remove_sleeper(&mut self, task: &Task) -> Option<Arc<Task>> {
        self.sleepers.remove(task)
    }

    /// Programs the timer for what is to happen next. They must be the queues of this CPU.
    pub fn program_timer(&self) {
        let somebody_may_wait = self.has_ready() || smp::running().nth(1).is_some();
        let quantum = (self.running.is_some() && somebody_may_wait).then_some(self.quantum_end);
        let sleeper = self.sleepers.first().map(Task::deadline);
        match quantum.into_iter().chain(sleeper).min() {
            Some(event) => time::set_event(event),
            None => time::clear_event(),
        }
    }
}
