//! Which task runs on a CPU, and when another does.
//!
//! Every CPU has its own queues of tasks ([`run_queue`](super::run_queue)); together they are one line
//! ([`line`](super::line)). A ready task is in the queue of the CPU that it ran on last, or that it was started on, and
//! goes to another when that one picks it. So there is no other balancing: a CPU that would be idle takes the task that waits
//! longest anywhere, and one that computes looks at the end of every quantum.
//!
//! # A task does not run on two CPUs
//!
//! The lock of a CPU is held across a switch: the task that leaves takes it, and the one that comes unlocks it, when the
//! registers of the first are saved. Code that moves a task first takes the lock of the CPU that the task was on last:
//!
//! - A task that is *ready* is found in the queue of a CPU, under its lock. It was put there by itself, before its switch,
//!   in which case the lock was free again only after that; or by who woke it.
//! - A task that *waits* is woken only by the code that has taken it out of the queue that it waited in. That may be
//!   before it has left its CPU: it puts itself into that queue, and switches later, with interrupts masked in between. So
//!   [`wake`] takes the lock of its CPU. Either the task still has the CPU; then its state is set back, under the lock
//!   under which [`reschedule`] is going to look, and it stays. Or it has not; then its switch is over.
//!
//! So when a CPU finds a task to run, the release of that lock by the CPU that saved the registers happens before its own
//! acquisition, and the registers are seen: no barrier but those of the locks is needed.
//!
//! # A ready task is not overlooked by an idle CPU
//!
//! A CPU is told of a task only if it is idle: others look at the end of their quantum. Who adds a task first publishes it
//! in the queue, and then reads which CPUs are idle; a CPU that is about to be idle first says so, and then reads what is
//! published. These four accesses are sequentially consistent, so at least one of the two sees the other. (What only one CPU
//! may run is in its own queue, which it looks into under its lock, and so either finds, or is idle before it is added.) Who
//! sees an idle CPU takes its bit, so that it is told once, and interrupts it; the interrupt comes before the CPU waits, and
//! then it looks again at the end of that, or it ends the wait.
//!
//! # Preemption
//!
//! The timer is programmed for the next thing that is to happen: the end of the running task's quantum, where a task may
//! wait, or the first sleeper's deadline, whichever comes first. It is silent on an idle CPU where no task sleeps, and on a
//! machine of one CPU where one task computes.
//!
//! The state of a task says what becomes of it when it leaves the CPU: code that wants it to wait says so there before
//! it calls [`reschedule`], with interrupts masked in between.

use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};
use fallible::Arc;

use super::line::{NOBODY, first_in_line, least_loaded};
use super::run_queue::{Cpu, LEAVE_STUB, QUANTUM, Queues};
use super::{State, Task, context, current_task, idle, reaper};
use crate::interrupt::{self, Ipi};
use crate::sync::{IrqMask, MaskedGuard, MaskedLock};
use crate::{smp, time};

/// One bit for each CPU that is idle and has not been told of a task, by its dense number.
static IDLE: AtomicUsize = AtomicUsize::new(0);

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
pub(crate) fn leave_for(state: State, mask: &IrqMask) -> Arc<Task> {
    let (_, here) = Cpu::here(mask);
    let task = here.lock(mask).running.clone().expect("the idle task of a CPU cannot wait");
    task.set_state(state);
    task
}

/// Says that the current task is about to leave the CPU until the counter reads `deadline`, and returns it for whoever may
/// [`wake_sleeper`] before.
pub(crate) fn leave_until(deadline: u64, mask: &IrqMask) -> Arc<Task> {
    let task = leave_for(State::Sleeping, mask);
    task.deadline.store(deadline, Ordering::Relaxed);
    // Of this CPU, whose timer wakes it: not before the switch, as interrupts are masked.
    Cpu::here(mask).1.lock(mask).push_sleeper(task.clone());
    task
}

/// Puts the current task to sleep until the counter reads `deadline`.
pub(super) fn sleep_until(deadline: u64) {
    let mask = mask_to_switch();
    drop(leave_until(deadline, &mask));
    reschedule(&mask);
}

/// Starts a new task, on its CPU if it is pinned to one, else where the fewest are.
pub(super) fn start(task: Arc<Task>) {
    let mask = IrqMask::new();
    if !task.is_pinned {
        let loads = smp::running().map(|cpu| (cpu, Cpu::of(cpu).load()));
        task.set_cpu(least_loaded(loads).unwrap_or_default());
    }
    let queues = Cpu::of(task.cpu()).lock(&mask);
    make_ready(task, queues, &mask);
}

/// Makes `task` ready, which has been taken out of the queue that it waited in.
pub(crate) fn wake(task: Arc<Task>) {
    let mask = IrqMask::new();
    // A task that waits does not move.
    let queues = Cpu::of(task.cpu()).lock(&mask);
    stay_or_make_ready(task, queues, &mask);
}

/// Makes `task` ready before its deadline, if it sleeps. Where it does not, its deadline has come.
pub(crate) fn wake_sleeper(task: &Task) {
    let mask = IrqMask::new();
    // A task that sleeps does not move; one that has moved is not found.
    let mut queues = Cpu::of(task.cpu()).lock(&mask);
    if let Some(task) = queues.remove_sleeper(task) {
        stay_or_make_ready(task, queues, &mask);
    }
}

/// Lets `task` keep the CPU, if it has not left it yet, or makes it ready. It is in no queue any more.
fn stay_or_make_ready(task: Arc<Task>, queues: MaskedGuard<'_, Queues>, mask: &IrqMask) {
    if queues.runs(&task) {
        task.set_state(State::Running);
    } else {
        make_ready(task, queues, mask);
    }
}

/// Adds `task`, which does not run, to the `queues` of its CPU, and sees that it is not overlooked.
fn make_ready(task: Arc<Task>, mut queues: MaskedGuard<'_, Queues>, mask: &IrqMask) {
    let (number, is_pinned) = (task.cpu(), task.is_pinned);
    task.set_ready(time::counter());
    queues.push(task);
    Cpu::of(number).publish(&queues);
    if number == Cpu::here(mask).0 {
        queues.program_timer();
    }
    drop(queues);
    rouse(number, is_pinned, mask);
}

/// Has an idle CPU, if there is one, look for tasks: rather the one with the number `preferred`, or `only` that.
fn rouse(preferred: usize, only: bool, mask: &IrqMask) {
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

/// Handles the interrupt by which another CPU says that there is a task for this one.
pub(crate) fn reschedule_interrupt() {
    let mask = IrqMask::new();
    let (_, here) = Cpu::here(&mask);
    // Where a task runs, it has been found meanwhile, or has been taken by another.
    if here.lock(&mask).running.is_none() {
        here.is_due.store(true, Ordering::Relaxed);
    }
}

/// The CPU with the number `this` takes a task out of the queue of another CPU, if one has been ready there for longer than
/// all that are ready here. Nobody has it then but the caller.
fn take_from_another(this: usize, mask: &IrqMask) -> Option<Arc<Task>> {
    let own = Cpu::of(this).lock(mask).next_since();
    let other = first_in_line(own, others(this).map(|(cpu, other)| (cpu, other.first())))?;
    let other = Cpu::of(other);
    let mut queues = other.lock(mask);
    let task = queues.pop_movable()?;
    other.publish(&queues);
    // Under the lock of the one, so that it is not sought there any more.
    task.set_cpu(this);
    Some(task)
}

fn others(this: usize) -> impl Iterator<Item = (usize, &'static Cpu)> {
    smp::running().filter(move |cpu| *cpu != this).map(|cpu| (cpu, Cpu::of(cpu)))
}

/// Whether a task is published that this CPU could take from another.
// Not inlined: a probe can then make the time long between this look and what it leads to.
#[inline(never)]
fn somebody_waits_elsewhere(this: usize) -> bool {
    others(this).any(|(_, other)| other.first() != NOBODY)
}

/// Locks the queues of this CPU when a task is ready there, or `previous` goes on, or nobody waits anywhere and the others
/// know that this CPU is idle.
fn lock_to_pick<'a>(this: usize, here: &'a Cpu, previous: &Task, mask: &'a IrqMask) -> MaskedGuard<'a, Queues> {
    loop {
        let taken = take_from_another(this, mask);
        let mut queues = here.lock(mask);
        if let Some(task) = taken {
            queues.push(task);
        }
        if queues.has_ready() || queues.running.is_some() && previous.state() == State::Running {
            if IDLE.load(Ordering::Relaxed) & 1 << this != 0 {
                IDLE.fetch_and(!(1 << this), Ordering::SeqCst);
            }
            return queues;
        }
        IDLE.fetch_or(1 << this, Ordering::SeqCst);
        if !somebody_waits_elsewhere(this) {
            return queues;
        }
    }
}

/// Gives the CPU to the next ready task. Returns when the current task, in whose name it is called, runs again, on whatever
/// CPU; at once if that is the next one.
///
/// # Panics
///
/// Where there is another [`IrqMask`] than the caller's, or a [`PreemptMask`](crate::sync::PreemptMask): a lock is held, for
/// which the next task might wait.
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
        (State::Running, Some(task)) => {
            task.set_ready(now);
            queues.push(task);
        }
        (State::Running, None) => previous.set_state(State::Ready),
        (State::Exited, leaving) => queues.departed = leaving,
        // The registry has it, and others do: the queue that it waits in, or whoever has taken it from there.
        (State::Ready | State::Sleeping | State::Waiting, leaving) => drop(leaving),
    }
    queues.running = queues.pop();
    let next: *const Task = match &queues.running {
        Some(task) => Arc::as_ptr(task),
        None => idle::of(this),
    };
    here.publish(queues);
    queues.program_timer();
    if here.first() != NOBODY {
        // The task that leaves waits now, and would not have to where a CPU is idle. That one waits for the lock.
        rouse(this, false, mask);
    }
    // SAFETY: a running task is kept alive by the registry until the reaper has it, and the idle tasks are static.
    let next = unsafe { &*next };
    next.set_state(State::Running);
    MaskedLock::keep(guard);
    if !ptr::eq(previous, next) {
        next.turns.fetch_add(1, Ordering::Relaxed);
        // SAFETY: interrupts are masked by the caller. `next` comes from a queue of this CPU, under its lock, so its
        // registers are saved and no other CPU has it (see above); or is this CPU's idle task, left by this CPU. The next
        // task unlocks, in `finish_switch`.
        unsafe { context::switch(previous, next) };
    }
    // SAFETY: the lock of the CPU that this task has been switched to was left locked by the task that it had before.
    unsafe { finish_switch() };
}

/// The first thing that a task does when it runs again, on its own stack: unlocks the queues of its CPU, and hands over the
/// task before it, if that has exited. Interrupts are masked.
///
/// # Safety
///
/// The lock of this CPU was left locked by the switch to the current task.
pub(super) unsafe fn finish_switch() {
    let task = current_task();
    let here = Cpu::of(task.cpu());
    // SAFETY: the caller's promise.
    let departed = unsafe { here.across_switch().unlock(|queues| queues.departed.take()) };
    if let Some(task) = departed {
        reaper::bury(task);
    }
}

/// Handles the interrupt of this CPU's timer.
pub fn timer_interrupt() {
    let mask = IrqMask::new();
    let (this, here) = Cpu::here(&mask);
    let now = time::counter();
    loop {
        let mut queues = here.lock(&mask);
        let Some(task) = queues.pop_sleeper(now) else { break };
        make_ready(task, queues, &mask);
    }
    let mut queues = here.lock(&mask);
    if queues.running.is_some() && queues.quantum_end <= now {
        let somebody_waits = queues.has_ready() || somebody_waits_elsewhere(this);
        here.is_due.fetch_or(somebody_waits, Ordering::Relaxed);
        queues.quantum_end = now + time::ticks(QUANTUM);
    }
    queues.program_timer();
}

/// Lets other tasks run, if an interrupt has given a reason to; called at the end of every interrupt, which the current task
/// took before the instruction at the virtual address `pc`. The interrupted code had interrupts unmasked.
pub fn preempt(pc: usize) {
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
        // Who takes a probe away waits until nobody is in its stub, and where another task is always ready, an idle one that was
        // switched from there would not run again.
        time::set_event(time::counter() + time::ticks(LEAVE_STUB));
        return;
    }
    // Of the CPU that the task is on then.
    while Cpu::here(&mask).1.is_due.load(Ordering::Relaxed) {
        task.set_preempted_at(pc);
        reschedule(&mask);
        task.set_preempted_at(0);
    }
}

/// The same for a task that gives up its CPU in a call, if it is due.
pub(crate) fn preempt_now() {
    preempt(0);
}

/// Calls `f` while `task` is on no CPU, or returns the dense number of the CPU that it runs on. A task that is about to wait is
/// waited for.
pub(super) fn while_stopped<R>(task: &Task, f: impl FnOnce(&Task) -> R) -> Result<R, usize> {
    let mask = IrqMask::new();
    loop {
        let cpu = task.cpu();
        let queues = Cpu::of(cpu).lock(&mask);
        // Under this lock it moves to no other CPU, and is not switched to or from.
        if task.cpu() == cpu && !queues.runs(task) {
            return Ok(f(task));
        }
        drop(queues);
        if task.state() == State::Running {
            return Err(cpu);
        }
        core::hint::spin_loop();
    }
}

/// For how many ticks of the counter `task` has run.
pub(super) fn run_ticks(task: &Task) -> u64 {
    let mask = IrqMask::new();
    let queues = Cpu::of(task.cpu()).lock(&mask);
    let running = if queues.runs(task) { time::counter().saturating_sub(queues.since) } else { 0 };
    task.run_ticks.load(Ordering::Relaxed) + running
}
