//! Kernel tasks: threads of the kernel, each with its own stack, that take turns on a CPU.
//!
//! **Life.** [`spawn`] makes a [`Task`]: a number that is never given again, a name, a stack with a guard page below
//! it, and a closure. It is ready and queued on the CPU that spawned it. It runs, and may wait ([`WaitQueue`]) or
//! sleep; when its closure returns, or it calls [`exit`], its state is exited. The next task on that CPU hands it to
//! the reaper, which frees its stack; [`JoinHandle::join`] returns after that.
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
//! in three situations: a task gives up its CPU in a call (yield, sleep, wait, exit), or at the end of an interrupt
//! ([`preempt`]). All run with interrupts masked from before the decision until after the switch; code that must not
//! be preempted masks interrupts ([`IrqMask`](crate::sync::IrqMask)). There is no other preemption control.
//!
//! **The current task** is where TPIDR_EL1 points. That register changes with the stack pointer, so that whatever a
//! CPU executes, be it a probe handler, finds the task and the CPU by two instructions and without a lock.
//!
//! **The idle task** of a CPU is what booted it: it needs no memory, is there before the allocator is, and once
//! [`start`] was called does nothing but wait for interrupts. It is in no queue and never waits.
//!
//! Here is what a user of tasks sees; `scheduler` decides who runs, `context` switches, `queue` links tasks,
//! `reaper` keeps the books.

mod context;
mod queue;
mod reaper;
pub(crate) mod scheduler;

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;

use aarch64_cpu::registers::{Readable, SP, TPIDR_EL1, Writeable};

use crate::memory::layout::STACK_SIZE;
use crate::memory::stack::Stack;
use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::sync::{IrqLock, IrqMask, WaitQueue};
use crate::time;
use context::{Context, ContextCell};
use queue::Link;
pub(crate) use queue::Queue;
pub use scheduler::{preempt, timer_interrupt};

static IDLE: PerCpu<Task> = PerCpu::new([const { Task::idle() }; MAX_CPUS]);
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It could run, and another does.
    Ready,
    /// It runs.
    Running,
    /// It waits for a deadline.
    Sleeping,
    /// It waits in a [`WaitQueue`].
    Waiting,
    /// It has run.
    Exited,
}

/// A task. `cpu` and `id` come first: they are what a probe hit reads.
#[repr(C)]
pub(crate) struct Task {
    /// The dense number of the CPU that the task belongs to.
    cpu: AtomicUsize,
    id: AtomicU64,
    context: ContextCell,
    link: Link,
    name: Cow<'static, str>,
    state: AtomicU8,
    /// The counter at which a sleeper wakes.
    deadline: AtomicU64,
    /// For how many ticks of the counter it has run, until it was last switched away from.
    run_ticks: AtomicU64,
    /// The lowest address of the stack. It remains when the stack is gone.
    stack_base: AtomicUsize,
    /// None for the idle tasks, which do not own theirs, and once the task is released.
    stack: IrqLock<Option<Stack>>,
    body: IrqLock<Option<Box<dyn FnOnce() + Send>>>,
    is_released: AtomicBool,
    released: WaitQueue,
}

impl Task {
    const fn idle() -> Self {
        Self {
            cpu: AtomicUsize::new(0),
            id: AtomicU64::new(0),
            context: ContextCell::running(),
            link: Link::new(),
            name: Cow::Borrowed("idle"),
            state: AtomicU8::new(State::Running as u8),
            deadline: AtomicU64::new(0),
            run_ticks: AtomicU64::new(0),
            stack_base: AtomicUsize::new(0),
            stack: IrqLock::new(None),
            body: IrqLock::new(None),
            is_released: AtomicBool::new(false),
            released: WaitQueue::new(),
        }
    }

    fn new(name: &str, stack: Stack, body: Box<dyn FnOnce() + Send>) -> Self {
        let bounds = stack.range();
        Self {
            cpu: AtomicUsize::new(current_cpu()),
            id: AtomicU64::new(NEXT_ID.fetch_add(1, Ordering::Relaxed)),
            context: ContextCell::new(bounds.end),
            name: Cow::Owned(name.to_owned()),
            state: AtomicU8::new(State::Ready as u8),
            stack_base: AtomicUsize::new(bounds.start),
            stack: IrqLock::new(Some(stack)),
            body: IrqLock::new(Some(body)),
            ..Self::idle()
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    pub(crate) fn cpu(&self) -> usize {
        self.cpu.load(Ordering::Relaxed)
    }

    fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    pub(crate) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Ready,
            1 => State::Running,
            2 => State::Sleeping,
            3 => State::Waiting,
            _ => State::Exited,
        }
    }

    /// The saved registers, of use while it does not run.
    pub(crate) fn context(&self) -> Context {
        self.context.read()
    }

    /// The virtual addresses of its stack.
    pub(crate) fn stack_bounds(&self) -> Range<usize> {
        let base = self.stack_base.load(Ordering::Relaxed);
        base..base + STACK_SIZE
    }
}

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

/// The idle task of this CPU.
fn idle_task() -> &'static Task {
    IDLE.here()
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
    reaper::register(task.clone());
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

/// What [`list`] tells of a task.
#[derive(Clone, Debug)]
pub struct TaskInfo {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: State,
    /// The dense number of the CPU that it belongs to.
    pub cpu: usize,
    /// For how long it has run, in nanoseconds, interrupts that it was interrupted by included.
    pub run_time_ns: u64,
}

/// All tasks that have not been released, the idle ones included, by number.
#[must_use]
pub fn list() -> Vec<TaskInfo> {
    let tasks = reaper::all();
    let idle = IDLE.iter().filter(|task| task.id() != 0);
    let mut list: Vec<_> = idle.chain(tasks.iter().map(|task| &**task)).map(Task::info).collect();
    list.sort_unstable_by_key(|task| task.id);
    list
}

/// Calls `f` with the task with the number `id`, if there is one; its stack stays meanwhile. Interrupts are masked.
pub(crate) fn inspect<R>(id: u64, f: impl FnOnce(&Task) -> R) -> Option<R> {
    if let Some(idle) = IDLE.iter().find(|task| id != 0 && task.id() == id) {
        return Some(f(idle));
    }
    let task = reaper::find(id)?;
    let stack = task.stack.lock();
    stack.as_ref().map(|_| f(&task))
}

impl Task {
    fn info(&self) -> TaskInfo {
        let state = self.state();
        let running = if state == State::Running { scheduler::running_ticks(self.cpu()) } else { 0 };
        let ticks = self.run_ticks.load(Ordering::Relaxed) + running;
        let run_time_ns = u64::try_from(time::duration(ticks).as_nanos()).unwrap_or(u64::MAX);
        TaskInfo { id: self.id(), name: self.name.clone().into_owned(), state, cpu: self.cpu(), run_time_ns }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Sleeping => "sleeping",
            Self::Waiting => "waiting",
            Self::Exited => "exited",
        })
    }
}

/// Makes what this CPU executes its idle task, so that everything that asks for the current task or CPU has an
/// answer: the first thing that a CPU does in Rust.
///
/// # Safety
///
/// `cpu` is the dense number of this CPU, and it is called once for each. The stack is the upper half of a window
/// of twice its size, as all stacks are.
pub unsafe fn adopt_cpu(cpu: usize) {
    let task = IDLE.of(cpu);
    task.cpu.store(cpu, Ordering::Relaxed);
    task.id.store(NEXT_ID.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
    task.stack_base.store(SP.get() as usize & !(STACK_SIZE - 1), Ordering::Relaxed);
    TPIDR_EL1.set((&raw const *task) as u64);
}

/// Ends the boot of the first CPU: starts the reaper, and the task `name` that runs `main`; and is the idle task from
/// then on.
pub fn start(name: &str, main: fn()) -> ! {
    spawn("reaper", reaper::reap);
    spawn(name, main);
    IrqMask::enable_all();
    idle()
}

/// What an idle task does. An interrupt that makes a task ready switches to it before the loop goes on, so there is
/// no moment at which a ready task is overlooked and the CPU waits.
fn idle() -> ! {
    loop {
        preempt();
        aarch64_cpu::asm::wfi();
    }
}

const _: () = {
    assert!(offset_of!(Task, cpu) == 0);
    assert!(offset_of!(Task, id) == 8);
};
