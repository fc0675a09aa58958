//! The scheduler: which task runs on a CPU, and when another one does.
//!
//! Every CPU has its own queues of tasks ([`run_queue`](super::run_queue)). Together they are one line
//! ([`line`](kprobes_smp::line)). A ready task is in the queue of the CPU that it ran on last, or that it was started
//! on. It moves when another CPU picks it. There is no other balancing: a CPU that would be idle takes the task that
//! has waited longest anywhere, and a CPU that computes looks at the end of every quantum.
//!
//! # A task does not run on two CPUs
//!
//! The lock of a CPU is held across a switch. The task that leaves takes it. The task that comes releases it, after the
//! registers of the first are saved. Code that moves a task first takes the lock of the CPU that the task was on last:
//!
//! - A task that is *ready* is found in the queue of a CPU, under that CPU's lock. If the task put itself there before
//!   its switch, the lock became free only after the switch. Otherwise, the code that woke the task put it there.
//! - A task that *waits* is woken only by the code that has taken it out of its wait queue. That may happen before the
//!   task has left its CPU: it puts itself into the wait queue first and switches later, with interrupts masked in
//!   between. So [`wake`] takes the lock of the task's CPU. If the task still has the CPU, [`wake`] sets its state back
//!   to running. It does so under the lock under which [`reschedule`] is going to read the state, so the task stays. If
//!   the task does not have the CPU, its switch is over.
//!
//! So when a CPU finds a task to run, the CPU that saved the registers has released that lock before. The release
//! happens before the acquisition, so the registers are visible. No barriers are needed except those of the locks.
//!
//! # A ready task is not overlooked by an idle CPU
//!
//! Only an idle CPU is told of a new task; a busy one looks at the end of its quantum. The code that adds a task first
//! publishes it in the queue, and then reads which CPUs are idle. A CPU that is about to be idle first sets its bit,
//! and then reads what is published. These four accesses are sequentially consistent, so at least one side sees the
//! other. (A pinned task is in its CPU's own queue, which that CPU reads under its lock. So the CPU either finds the
//! task, or is marked as idle before the task is added.)
//!
//! The code that sees an idle CPU clears the CPU's bit, so that the CPU is told only once, and interrupts it. If the
//! interrupt comes before the CPU waits, the CPU looks again at the end of the interrupt. Otherwise, the interrupt ends
//! the wait.
//!
//! # Preemption
//!
//! The timer is programmed for the next event: the end of the running task's quantum, if another task may wait, or the
//! first sleeper's deadline, whichever comes first. It is silent on an idle CPU without sleepers, and on a machine with
//! one CPU where one task computes.
//!
//! The state of a task says what becomes of it when it leaves the CPU. Code that wants the task to wait sets the state
//! before it calls [`reschedule`], with interrupts masked in between.

use aarch64_kprobes::emit;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use fallible::Arc;
use kprobes_smp::line::{NO_TASK, first_in_line, least_loaded};

use super::run_queue::{Cpu, LEAVE_STUB, QUANTUM, Queues};
use super::{Task, TaskState, context, current_task, exited, idle};
use crate::event::{
    self, HrtimerExpireEntry, HrtimerExpireExit, PRIORITY, SchedMigrateTask, SchedSwitch, SchedWakeup, SchedWakeupNew,
    SchedWaking,
};
use crate::interrupt::{self, Ipi};
use crate::sync::{IrqMask, MaskedGuard, MaskedLock};
use crate::{smp, time};

/// A bit for each CPU, by dense number, that is idle and has not been told of a task.
static IDLE: AtomicUsize = AtomicUsize::new(0);

/// Masks interrupts for a task that is about to give up its CPU voluntarily.
///
/// # Panics
///
/// Panics if interrupts are masked already: the caller holds a lock or is an interrupt handler, and must not wait.
pub(crate) fn mask_to_switch() -> IrqMask {
    let mask = IrqMask::new();
    assert!(mask.was_enabled(), "a task gave up its CPU with interrupts masked");
    mask
}

/// Records that the current task is about to leave the CPU for `state`. Returns the task, for the queue that it waits
/// in.
///
/// # Panics
///
/// Panics in an idle task, which cannot wait.
pub(crate) fn prepare_to_wait(state: TaskState, mask: &IrqMask) -> Arc<Task> {
    let (_, here) = Cpu::here(mask);
    let task = here.lock(mask).running.clone().expect("the idle task of a CPU cannot wait");
    task.set_state(state);
    task
}

/// Records that the current task is about to sleep until the counter reads `deadline`. Returns the task, for code that
/// may call [`wake_sleeper`] earlier.
pub(crate) fn prepare_to_sleep(deadline: u64, mask: &IrqMask) -> Arc<Task> {
    let task = prepare_to_wait(TaskState::Sleeping, mask);
    task.deadline.store(deadline, Ordering::Relaxed);
    // The sleepers of this CPU, whose timer wakes the task. The timer cannot do so before the switch, as interrupts are
    // masked.
    Cpu::here(mask).1.lock(mask).push_sleeper(task.clone());
    task
}

/// Puts the current task to sleep until the counter reads `deadline`.
pub(super) fn sleep_until(deadline: u64) {
    let mask = mask_to_switch();
    drop(prepare_to_sleep(deadline, &mask));
    reschedule(&mask);
}

/// Emits an event of a task that is woken.
macro_rules! emit_wakeup {
    ($event:ident, $task:expr) => {
        emit!($event {
            comm: $task.short_name(),
            pid: $task.id() as i32,
            prio: PRIORITY,
            target_cpu: $task.cpu() as i32,
        })
    };
}

/// Starts a new task: on its CPU if it is pinned to one, otherwise on the CPU with the fewest tasks.
pub(super) fn start(task: Arc<Task>) {
    let mask = IrqMask::new();
    if !task.is_pinned {
        let loads = smp::running().map(|cpu| (cpu, Cpu::of(cpu).load()));
        let cpu = least_loaded(loads).unwrap_or_default();
        // The task is registered, so `while_stopped` may be looking at it.
        let _left = Cpu::of(task.cpu()).lock(&mask);
        task.set_cpu(cpu);
    }
    emit_wakeup!(SchedWakeupNew, task);
    let queues = Cpu::of(task.cpu()).lock(&mask);
    make_ready(task, queues, &mask);
}

/// Makes `task` ready. The caller has taken it out of the queue that it waited in.
pub(crate) fn wake(task: Arc<Task>) {
    let mask = IrqMask::new();
    // A task that waits does not move, so its CPU stays the same.
    let queues = Cpu::of(task.cpu()).lock(&mask);
    continue_or_make_ready(task, queues, &mask);
}

/// Makes `task` ready before its deadline, if it still sleeps. Otherwise its deadline has come already.
pub(crate) fn wake_sleeper(task: &Task) {
    let mask = IrqMask::new();
    // A task that sleeps does not move. A task that has moved is no longer asleep, and is not found.
    let mut queues = Cpu::of(task.cpu()).lock(&mask);
    if let Some(task) = queues.remove_sleeper(task) {
        continue_or_make_ready(task, queues, &mask);
    }
}

/// Lets `task` keep the CPU if it has not left it yet; otherwise makes it ready. The task is in no queue any more.
fn continue_or_make_ready(task: Arc<Task>, queues: MaskedGuard<'_, Queues>, mask: &IrqMask) {
    emit_wakeup!(SchedWaking, task);
    emit_wakeup!(SchedWakeup, task);
    if queues.runs(&task) {
        task.set_state(TaskState::Running);
    } else {
        make_ready(task, queues, mask);
    }
}

/// Adds `task`, which does not run, to the `queues` of its CPU, and makes sure that no idle CPU overlooks it.
fn make_ready(task: Arc<Task>, mut queues: MaskedGuard<'_, Queues>, mask: &IrqMask) {
    let (number, is_pinned) = (task.cpu(), task.is_pinned);
    task.set_ready(time::counter());
    queues.push(task);
    Cpu::of(number).publish(&queues);
    if number == Cpu::here(mask).0 {
        queues.program_timer();
    }
    drop(queues);
    wake_idle_cpu(number, is_pinned, mask);
}

/// Tells an idle CPU, if there is one, to look for tasks. The CPU with the number `preferred` comes first; with `only`,
/// no other CPU is told.
fn wake_idle_cpu(preferred: usize, only: bool, mask: &IrqMask) {
    let candidates = if only { 1 << preferred } else { usize::MAX };
    loop {
        let idle = IDLE.load(Ordering::SeqCst) & candidates;
        if idle == 0 {
            return;
        }
        let number = if idle & 1 << preferred != 0 { preferred } else { idle.trailing_zeros() as usize };
        if IDLE.fetch_and(!(1 << number), Ordering::SeqCst) & 1 << number != 0 {
            let (this, here) = Cpu::here(mask);
            if number == this {
                here.is_due.store(true, Ordering::Relaxed);
            } else {
                interrupt::send(number, Ipi::Reschedule);
            }
            return;
        }
    }
}

/// Handles the interrupt by which another CPU announces a task for this one.
pub(crate) fn reschedule_interrupt() {
    let mask = IrqMask::new();
    let (_, here) = Cpu::here(&mask);
    // If a task runs here, the announced task has been found meanwhile, or another CPU has taken it.
    if here.lock(&mask).running.is_none() {
        here.is_due.store(true, Ordering::Relaxed);
    }
}

/// Takes a task out of the queue of another CPU, for the CPU with the number `this`. Takes it only if it has been ready
/// for longer than all tasks that are ready here. Only the caller holds the task then.
fn steal(this: usize, mask: &IrqMask) -> Option<Arc<Task>> {
    let own = Cpu::of(this).lock(mask).next_since();
    let other = first_in_line(own, others(this).map(|(cpu, other)| (cpu, other.first())))?;
    let other = Cpu::of(other);
    let mut queues = other.lock(mask);
    let task = queues.pop_movable()?;
    other.publish(&queues);
    emit!(SchedMigrateTask {
        comm: task.short_name(),
        pid: task.id() as i32,
        prio: PRIORITY,
        orig_cpu: task.cpu() as i32,
        dest_cpu: this as i32,
    });
    // Still under the lock of the other CPU, so that no code looks for the task there any more.
    task.set_cpu(this);
    Some(task)
}

fn others(this: usize) -> impl Iterator<Item = (usize, &'static Cpu)> {
    smp::running().filter(move |cpu| *cpu != this).map(|cpu| (cpu, Cpu::of(cpu)))
}

/// Returns whether another CPU has published a task that this CPU could take.
// Not inlined, so that a test can place a probe here and prolong the time between this look and its consequence.
#[inline(never)]
fn another_cpu_has_ready(this: usize) -> bool {
    others(this).any(|(_, other)| other.first() != NO_TASK)
}

/// Locks the queues of this CPU when the next task can be decided. That is the case when a task is ready here, when
/// `previous` goes on, or when no task waits anywhere and the other CPUs know that this CPU is idle.
fn lock_to_pick<'a>(this: usize, here: &'a Cpu, previous: &Task, mask: &'a IrqMask) -> MaskedGuard<'a, Queues> {
    loop {
        let taken = steal(this, mask);
        let mut queues = here.lock(mask);
        if let Some(task) = taken {
            queues.push(task);
        }
        if queues.has_ready() || queues.running.is_some() && previous.state() == TaskState::Running {
            if IDLE.load(Ordering::Relaxed) & 1 << this != 0 {
                IDLE.fetch_and(!(1 << this), Ordering::SeqCst);
            }
            return queues;
        }
        IDLE.fetch_or(1 << this, Ordering::SeqCst);
        if !another_cpu_has_ready(this) {
            return queues;
        }
    }
}

/// Gives the CPU to the next ready task. Returns when the current task, which calls this, runs again, on whichever CPU.
/// Returns at once if the current task is the next one.
///
/// # Panics
///
/// Panics if there is an [`IrqMask`] other than the caller's, or a [`PreemptMask`](crate::sync::PreemptMask): a lock is
/// held then, and the next task might wait for it.
pub(crate) fn reschedule(mask: &IrqMask) {
    let previous = current_task();
    let locks = previous.irq_nesting.depth() - 1 + previous.preempt_nesting.depth();
    assert_eq!(locks, 0, "a task that held a lock gave up its CPU");
    let (this, here) = Cpu::here(mask);
    let mut guard = lock_to_pick(this, here, previous, mask);
    let queues = &mut *guard;
    here.is_due.store(false, Ordering::Relaxed);
    let now = time::counter();
    previous.run_ticks.fetch_add(now.saturating_sub(queues.since), Ordering::Relaxed);
    queues.since = now;
    queues.quantum_end = now + time::ticks(QUANTUM);

    let leaving = queues.running.take();
    match (previous.state(), leaving) {
        (TaskState::Running, Some(task)) => {
            task.set_ready(now);
            queues.push(task);
        }
        (TaskState::Running, None) => previous.set_state(TaskState::Ready),
        (TaskState::Exited, leaving) => queues.departed = leaving,
        // Other references remain: the registry has one, and so has the wait queue, or the code that took the task out
        // of it.
        (TaskState::Ready | TaskState::Sleeping | TaskState::Waiting, leaving) => drop(leaving),
    }
    queues.running = queues.pop();
    let next: *const Task = match &queues.running {
        Some(task) => Arc::as_ptr(task),
        None => idle::of(this),
    };
    here.publish(queues);
    queues.program_timer();
    if here.first() != NO_TASK {
        // The task that leaves waits now. It would not have to if another CPU is idle. That CPU, once told, waits for
        // this lock.
        wake_idle_cpu(this, false, mask);
    }
    // SAFETY: the registry keeps a running task alive until the reaper has it, and idle tasks are static.
    let next = unsafe { &*next };
    next.set_state(TaskState::Running);
    MaskedLock::keep(guard);
    if !ptr::eq(previous, next) {
        next.turns.fetch_add(1, Ordering::Relaxed);
        emit!(SchedSwitch {
            prev_comm: previous.short_name(),
            prev_pid: previous.id() as i32,
            prev_prio: PRIORITY,
            prev_state: previous_state(previous),
            next_comm: next.short_name(),
            next_pid: next.id() as i32,
            next_prio: PRIORITY,
        });
        // SAFETY: `mask` shows that interrupts are masked. `next` is this CPU's idle task, which this CPU left, or
        // comes from a queue of this CPU, under its lock. So its registers are saved and no other CPU has it (see the
        // module header). The next task unlocks in `finish_switch`.
        unsafe { context::switch(previous, next) };
    }
    // SAFETY: the previous task on this CPU, or this task itself if it is the next one, has left the CPU's lock locked.
    unsafe { finish_switch() };
}

/// Returns the `prev_state` with which [`SchedSwitch`] shows `task`, which leaves its CPU.
fn previous_state(task: &Task) -> i64 {
    match task.state() {
        TaskState::Ready | TaskState::Running if task.preempted_at() != 0 => event::state::PREEMPTED,
        TaskState::Ready | TaskState::Running => event::state::READY,
        TaskState::Sleeping | TaskState::Waiting => event::state::WAITING,
        TaskState::Exited => event::state::EXITED,
    }
}

/// Completes a switch. A task that runs again calls this first, on its own stack and with interrupts masked. Unlocks
/// the queues of its CPU, and hands the previous task to the reaper if that has exited.
///
/// # Safety
///
/// The switch to the current task has left the lock of this CPU locked.
pub(super) unsafe fn finish_switch() {
    let task = current_task();
    let here = Cpu::of(task.cpu());
    // SAFETY: the caller guarantees that the switch left the lock locked (see # Safety).
    let departed = unsafe { here.across_switch().unlock(|queues| queues.departed.take()) };
    if let Some(task) = departed {
        exited::hand_over(task);
    }
}

/// Handles the interrupt of this CPU's timer: wakes sleepers and ends quanta.
pub fn timer_interrupt() {
    let mask = IrqMask::new();
    let (this, here) = Cpu::here(&mask);
    let now = time::counter();
    loop {
        let mut queues = here.lock(&mask);
        let Some(task) = queues.pop_sleeper(now) else { break };
        let sleeper: *const Task = Arc::as_ptr(&task);
        emit!(HrtimerExpireEntry {
            hrtimer: sleeper.cast(),
            now: kprobes_console::time::nanoseconds() as i64,
            function: continue_or_make_ready as *const () as *const u8,
        });
        continue_or_make_ready(task, queues, &mask);
        emit!(HrtimerExpireExit { hrtimer: sleeper.cast() });
    }
    let mut queues = here.lock(&mask);
    if queues.running.is_some() && queues.quantum_end <= now {
        let others_wait = queues.has_ready() || another_cpu_has_ready(this);
        here.is_due.fetch_or(others_wait, Ordering::Relaxed);
        queues.quantum_end = now + time::ticks(QUANTUM);
    }
    queues.program_timer();
}

/// Switches to another task if one is due. Called at the end of every interrupt. The current task took the interrupt
/// before the instruction at the virtual address `pc`, with interrupts unmasked.
///
/// Not for other crates: a handler of a probe that called it would leave its CPU.
pub(crate) fn preempt(pc: usize) {
    let task = current_task();
    if !task.preempt_nesting.permits() {
        return;
    }
    let mask = IrqMask::new();
    let (this, here) = Cpu::here(&mask);
    if here.is_due.load(Ordering::Relaxed)
        && ptr::eq(task, idle::of(this))
        && aarch64_kprobes::probe::origin(pc).is_some()
    {
        // Code that removes a probe waits until no task is in the probe's stub. If this idle task were switched away
        // from inside the stub while other tasks are always ready, it would not run again. So the switch is delayed
        // until it has left.
        time::set_event(time::counter() + time::ticks(LEAVE_STUB));
        return;
    }
    // In a loop, because the task may come back on another CPU, whose flag counts then.
    while Cpu::here(&mask).1.is_due.load(Ordering::Relaxed) {
        task.set_preempted_at(pc);
        reschedule(&mask);
        task.set_preempted_at(0);
    }
}

/// Switches to another task if one is due, for a task that gives up its CPU in a call.
pub(crate) fn preempt_now() {
    preempt(0);
}

/// Calls `f` while `task` is on no CPU. Returns the dense number of its CPU as the error if the task runs. Waits for a
/// task that is about to block.
pub(super) fn while_stopped<R>(task: &Task, f: impl FnOnce(&Task) -> R) -> Result<R, usize> {
    let mask = IrqMask::new();
    loop {
        let cpu = task.cpu();
        let queues = Cpu::of(cpu).lock(&mask);
        // Under this lock, the task moves to no other CPU, and no switch to or from it happens.
        if task.cpu() == cpu && !queues.runs(task) {
            return Ok(f(task));
        }
        drop(queues);
        if task.state() == TaskState::Running {
            return Err(cpu);
        }
        core::hint::spin_loop();
    }
}

/// Returns the counter ticks for which `task` has run, including its current turn.
pub(super) fn run_ticks(task: &Task) -> u64 {
    let mask = IrqMask::new();
    let queues = Cpu::of(task.cpu()).lock(&mask);
    let running = if queues.runs(task) { time::counter().saturating_sub(queues.since) } else { 0 };
    task.run_ticks.load(Ordering::Relaxed) + running
}
