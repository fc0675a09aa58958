//! The running task of a CPU and its queues.
//!
//! The queues are protected by a lock that is held across a switch. Beside the lock are copies of a few values that
//! other CPUs read without it. The copies may be out of date when they are read. So they only decide whose lock is
//! worth taking, and whether a CPU has to be told ([`scheduler`](super::scheduler)).

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use fallible::Arc;
use kprobes_smp::line::NO_TASK;

use super::{Queue, Task, current_cpu, idle};
use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::sync::{IrqMask, MaskedGuard, MaskedLock};
use crate::{smp, time};

/// How long a task runs while others are ready.
pub const QUANTUM: Duration = Duration::from_millis(4);

/// The time after which an idle task that was interrupted in a probe's stub has left the stub.
pub const LEAVE_STUB: Duration = Duration::from_micros(50);

/// The scheduler's data of a CPU. It has cache lines of its own because every switch writes to it.
#[repr(align(128))]
pub struct Cpu {
    queues: MaskedLock<Queues>,
    /// The counter when the first of the movable tasks became ready; [`NO_TASK`] if there is none.
    first: AtomicU64,
    /// The number of tasks that are ready or running here.
    load: AtomicUsize,
    /// Whether to switch at the end of the interrupt that is being handled, or at once. Only this CPU accesses it, with
    /// interrupts masked. Initially true: a CPU first looks for tasks.
    pub is_due: AtomicBool,
}

static CPUS: PerCpu<Cpu> = PerCpu::new(
    [const {
        Cpu {
            queues: MaskedLock::new(Queues::new()),
            first: AtomicU64::new(NO_TASK),
            load: AtomicUsize::new(0),
            is_due: AtomicBool::new(true),
        }
    }; MAX_CPUS],
);

/// The queues of a CPU.
pub struct Queues {
    /// Ready tasks that other CPUs may take, in the order in which they became ready.
    movable: Queue,
    /// Ready tasks that may run only on this CPU, in the order in which they became ready.
    pinned: Queue,
    /// Sleeping tasks, ordered by deadline.
    sleepers: Queue,
    /// The running task; `None` when the idle task runs.
    pub running: Option<Arc<Task>>,
    /// The task that ran before, if it has exited. It cannot be released before the CPU has left its stack.
    pub departed: Option<Arc<Task>>,
    /// The counter when the running task was switched to.
    pub since: u64,
    /// The counter at the end of the running task's quantum.
    pub quantum_end: u64,
}

impl Cpu {
    /// Returns the CPU with the dense number `number`.
    pub fn of(number: usize) -> &'static Self {
        CPUS.of(number)
    }

    /// Returns this CPU's number and data. They are valid as long as interrupts are masked.
    pub fn here(_masked: &IrqMask) -> (usize, &'static Self) {
        let number = current_cpu();
        (number, CPUS.of(number))
    }

    /// Waits for the lock. No CPU holds two of them at a time.
    pub fn lock<'a>(&'a self, masked: &'a IrqMask) -> MaskedGuard<'a, Queues> {
        self.queues.lock(masked)
    }

    /// Returns the lock itself, for unlocking it after a switch.
    pub fn across_switch(&self) -> &MaskedLock<Queues> {
        &self.queues
    }

    /// Returns the counter when the first of the movable tasks became ready; [`NO_TASK`] if there is none.
    pub fn first(&self) -> u64 {
        self.first.load(Ordering::SeqCst)
    }

    /// Returns the number of tasks that are ready or running here.
    pub fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Publishes the state of `queues` to other CPUs.
    pub fn publish(&self, queues: &Queues) {
        let load = queues.movable.len() + queues.pinned.len() + usize::from(queues.running.is_some());
        self.load.store(load, Ordering::Relaxed);
        // This store precedes the read of the idle CPUs: see `scheduler`.
        self.first.store(queues.movable.first().map_or(NO_TASK, Task::ready_since), Ordering::SeqCst);
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

    /// Returns whether `task`, which belongs to this CPU or is its idle task, has the CPU. Its registers are not saved
    /// then.
    pub fn runs(&self, task: &Task) -> bool {
        match &self.running {
            Some(running) => ptr::eq(Arc::as_ptr(running), task),
            None => ptr::eq(idle::of(task.cpu()), task),
        }
    }

    /// Returns whether any task is ready here.
    pub fn has_ready(&self) -> bool {
        !(self.movable.is_empty() && self.pinned.is_empty())
    }

    /// Returns the counter when the next task of this CPU became ready; [`NO_TASK`] if there is none.
    pub fn next_since(&self) -> u64 {
        let since = |queue: &Queue| queue.first().map_or(NO_TASK, Task::ready_since);
        since(&self.movable).min(since(&self.pinned))
    }

    /// Adds a ready task that belongs to this CPU, in the order of its ready time.
    pub fn push(&mut self, task: Arc<Task>) {
        let since = task.ready_since();
        let queue = if task.is_pinned { &mut self.pinned } else { &mut self.movable };
        queue.insert(task, |other| other.ready_since() > since);
    }

    /// Removes the task that has been ready longest.
    pub fn pop(&mut self) -> Option<Arc<Task>> {
        let pinned = self.pinned.first().map_or(NO_TASK, Task::ready_since);
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

    /// Removes the sleeper with the earliest deadline, if that is not after `now`.
    pub fn pop_sleeper(&mut self, now: u64) -> Option<Arc<Task>> {
        self.sleepers.first().filter(|task| task.deadline() <= now)?;
        self.sleepers.pop()
    }

    /// Removes `task` if it sleeps here.
    pub fn remove_sleeper(&mut self, task: &Task) -> Option<Arc<Task>> {
        self.sleepers.remove(task)
    }

    /// Programs the timer for the next event. These must be the queues of the CPU that runs this.
    pub fn program_timer(&self) {
        let others_may_wait = self.has_ready() || smp::running().nth(1).is_some();
        let quantum = (self.running.is_some() && others_may_wait).then_some(self.quantum_end);
        let sleeper = self.sleepers.first().map(Task::deadline);
        match quantum.into_iter().chain(sleeper).min() {
            Some(event) => time::set_event(event),
            None => time::clear_event(),
        }
    }
}
