//! What the kernel keeps of a task.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::mem::offset_of;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use aarch64_kprobes::platform::CpuState;
use aarch64_kprobes::probe::TaskCalls;

use super::context::{Context, ContextCell};
use super::queue::Link;
use crate::memory::layout::STACK_SIZE;
use crate::memory::stack::Stack;
use crate::sync::{IrqLock, IrqNesting, PreemptNesting, WaitQueue};

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

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A task. `cpu_state`, `calls`, `id`, `cpu` and `short_name` come first: they are what a probe hit uses. Cache lines of its own,
/// as its CPU writes to it.
#[repr(C, align(64))]
pub struct Task {
    /// What the engine keeps for `cpu`, and changes with it.
    cpu_state: AtomicPtr<CpuState>,
    /// What the engine keeps of it.
    pub(crate) calls: TaskCalls,
    id: AtomicU64,
    /// The dense number of the CPU that runs it, or has run it last, or is to run it first. It changes only while the
    /// registers are saved and no CPU runs it, under the lock of the CPU that it leaves.
    cpu: AtomicUsize,
    /// The beginning of the name, filled up with zeros.
    short_name: [u8; 16],
    pub(super) context: ContextCell,
    pub(super) link: Link,
    pub(super) name: Cow<'static, str>,
    state: AtomicU8,
    /// Its masking of interrupts.
    pub(crate) irq_nesting: IrqNesting,
    /// Its masking of preemption.
    pub(crate) preempt_nesting: PreemptNesting,
    /// Whether it stays on its CPU.
    pub(super) is_pinned: bool,
    /// Where an interrupt has preempted it, a virtual address; 0 while it runs, and if it gave up its CPU in a call.
    preempted_at: AtomicUsize,
    /// The counter when it became ready, of a task that is.
    ready_since: AtomicU64,
    /// The counter at which a sleeper wakes.
    pub(super) deadline: AtomicU64,
    /// For how many ticks of the counter it has run, until it was last switched away from.
    pub(super) run_ticks: AtomicU64,
    /// How often it has been switched to.
    pub(super) turns: AtomicU64,
    /// The lowest address of the stack. It remains when the stack is gone.
    stack_base: AtomicUsize,
    /// None for the idle tasks, which do not own theirs, and once the task is released.
    pub(super) stack: IrqLock<Option<Stack>>,
    pub(super) body: IrqLock<Option<Box<dyn FnOnce() + Send>>>,
    pub(super) is_released: AtomicBool,
    pub(super) released: WaitQueue,
}

impl Task {
    /// The idle task of a CPU, before it is adopted.
    pub const fn idle() -> Self {
        Self {
            cpu_state: AtomicPtr::new(ptr::null_mut()),
            calls: TaskCalls::new(),
            id: AtomicU64::new(0),
            cpu: AtomicUsize::new(0),
            short_name: *b"idle\0\0\0\0\0\0\0\0\0\0\0\0",
            context: ContextCell::running(),
            link: Link::new(),
            name: Cow::Borrowed("idle"),
            state: AtomicU8::new(State::Running as u8),
            irq_nesting: IrqNesting::new(),
            preempt_nesting: PreemptNesting::new(),
            is_pinned: true,
            preempted_at: AtomicUsize::new(0),
            ready_since: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            run_ticks: AtomicU64::new(0),
            turns: AtomicU64::new(0),
            stack_base: AtomicUsize::new(0),
            stack: IrqLock::new(None),
            body: IrqLock::new(None),
            is_released: AtomicBool::new(false),
            released: WaitQueue::new(),
        }
    }

    /// A task that is to run `body`: on the CPU with the dense number `cpu` alone, or on any.
    pub fn new(name: String, cpu: Option<usize>, stack: Stack, body: Box<dyn FnOnce() + Send>) -> Self {
        let bounds = stack.range();
        let mut short_name = [0; 16];
        short_name.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte);
        let task = Self {
            short_name,
            is_pinned: cpu.is_some(),
            id: AtomicU64::new(NEXT_ID.fetch_add(1, Ordering::Relaxed)),
            context: ContextCell::new(bounds.end),
            name: Cow::Owned(name),
            state: AtomicU8::new(State::Ready as u8),
            stack_base: AtomicUsize::new(bounds.start),
            stack: IrqLock::new(Some(stack)),
            body: IrqLock::new(Some(body)),
            ..Self::idle()
        };
        task.set_cpu(cpu.unwrap_or_default());
        task
    }

    /// Its number.
    #[inline(always)]
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// The dense number of the CPU that it belongs to.
    #[inline(always)]
    pub fn cpu(&self) -> usize {
        self.cpu.load(Ordering::Relaxed)
    }

    /// Makes it belong to the CPU with the dense number `cpu`. No CPU runs it, and the caller has the lock of the CPU that
    /// it has belonged to, or has just made it.
    pub(super) fn set_cpu(&self, cpu: usize) {
        self.cpu.store(cpu, Ordering::Relaxed);
        self.cpu_state.store(ptr::from_ref(CpuState::of(cpu)).cast_mut(), Ordering::Relaxed);
    }

    /// It has become ready when the counter read `now`.
    pub(super) fn set_ready(&self, now: u64) {
        self.ready_since.store(now, Ordering::Relaxed);
        self.set_state(State::Ready);
    }

    /// The counter when it became ready, of a task that is.
    pub(super) fn ready_since(&self) -> u64 {
        self.ready_since.load(Ordering::Relaxed)
    }

    /// Where an interrupt has preempted it, a virtual address; 0 while it runs, and if it gave up its CPU in a call.
    pub(super) fn preempted_at(&self) -> usize {
        self.preempted_at.load(Ordering::Relaxed)
    }

    /// Says where it is about to be preempted. It is its own, with interrupts masked.
    pub(super) fn set_preempted_at(&self, pc: usize) {
        self.preempted_at.store(pc, Ordering::Relaxed);
    }

    /// The counter at which it wakes, of a sleeper.
    pub fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    /// Says what it is doing from now on.
    pub fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// What it is doing.
    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Ready,
            1 => State::Running,
            2 => State::Sleeping,
            3 => State::Waiting,
            _ => State::Exited,
        }
    }

    /// Gives an idle task its CPU, its number and the lowest address of the stack that it is running on.
    pub fn adopt(&self, cpu: usize, stack_base: usize) {
        self.set_cpu(cpu);
        self.id.store(NEXT_ID.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.stack_base.store(stack_base, Ordering::Relaxed);
    }

    /// The saved registers, of use while it does not run.
    pub fn context(&self) -> Context {
        self.context.read()
    }

    /// The virtual addresses of its stack.
    pub fn stack_bounds(&self) -> Range<usize> {
        let base = self.stack_base.load(Ordering::Relaxed);
        base..base + STACK_SIZE
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

const _: () = {
    assert!(offset_of!(Task, cpu_state) == super::CPU_OFFSET);
    assert!(offset_of!(Task, calls) == super::CALLS_OFFSET);
    assert!(offset_of!(Task, id) == super::NUMBER_OFFSET);
    assert!(offset_of!(Task, cpu) == super::CPU_NUMBER_OFFSET);
    assert!(offset_of!(Task, short_name) == super::NAME_OFFSET);
};
