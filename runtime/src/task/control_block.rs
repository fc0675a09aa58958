//! The task control block: all data that the kernel keeps for a task.

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
pub enum TaskState {
    /// The task could run, and another task does.
    Ready,
    /// The task has a CPU.
    Running,
    /// The task waits for a deadline.
    Sleeping,
    /// The task waits in a [`WaitQueue`].
    Waiting,
    /// The task has ended.
    Exited,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A task. `cpu_state`, `calls`, `id`, `cpu` and `short_name` come first because a probe hit uses them. The task has
/// cache lines of its own because its CPU writes to it.
#[repr(C, align(64))]
pub struct Task {
    /// The engine's state for `cpu`. It changes whenever `cpu` changes.
    cpu_state: AtomicPtr<CpuState>,
    /// The engine's state for this task: the calls whose returns it follows.
    pub(crate) calls: TaskCalls,
    id: AtomicU64,
    /// The dense number of the CPU that runs the task, or ran it last, or is to run it first. It changes only while the
    /// registers are saved and no CPU runs the task, under the lock of the CPU that the task leaves.
    cpu: AtomicUsize,
    /// The first bytes of the name, padded with zeros.
    short_name: [u8; 16],
    pub(super) context: ContextCell,
    pub(super) link: Link,
    pub(super) name: Cow<'static, str>,
    state: AtomicU8,
    /// The state of its [`IrqMask`](crate::sync::IrqMask)s.
    pub(crate) irq_nesting: IrqNesting,
    /// The state of its [`PreemptMask`](crate::sync::PreemptMask)s.
    pub(crate) preempt_nesting: PreemptNesting,
    /// Whether the task must stay on its CPU.
    pub(super) is_pinned: bool,
    /// The virtual address at which an interrupt preempted the task. 0 if it runs, or gave up its CPU in a call.
    preempted_at: AtomicUsize,
    /// The counter when the task became ready. Valid while it is ready.
    ready_since: AtomicU64,
    /// The counter at which the task wakes. Valid while it sleeps.
    pub(super) deadline: AtomicU64,
    /// The counter ticks for which the task has run, up to when it was last switched away from.
    pub(super) run_ticks: AtomicU64,
    /// How often the task has been switched to.
    pub(super) turns: AtomicU64,
    /// The lowest address of the stack. It stays set after the stack has been freed.
    stack_base: AtomicUsize,
    /// `None` for idle tasks, which do not own their stacks, and after the task has been released.
    pub(super) stack: IrqLock<Option<Stack>>,
    pub(super) body: IrqLock<Option<Box<dyn FnOnce() + Send>>>,
    pub(super) is_released: AtomicBool,
    pub(super) released: WaitQueue,
}

impl Task {
    /// Creates the idle task of a CPU, before the CPU adopts it.
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
            state: AtomicU8::new(TaskState::Running as u8),
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

    /// Creates a task that is to run `body`: only on the CPU with the dense number `cpu`, or on any CPU if `cpu` is
    /// `None`.
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
            state: AtomicU8::new(TaskState::Ready as u8),
            stack_base: AtomicUsize::new(bounds.start),
            stack: IrqLock::new(Some(stack)),
            body: IrqLock::new(Some(body)),
            ..Self::idle()
        };
        task.set_cpu(cpu.unwrap_or_default());
        task
    }

    /// Returns the task's number, which no other task ever has.
    #[inline(always)]
    pub fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Returns the first bytes of the name, as many as a record has room for, padded with zeros.
    pub fn short_name(&self) -> [u8; 16] {
        self.short_name
    }

    /// Returns the dense number of the CPU that the task belongs to.
    #[inline(always)]
    pub fn cpu(&self) -> usize {
        self.cpu.load(Ordering::Relaxed)
    }

    /// Moves the task to the CPU with the dense number `cpu`. No CPU runs the task. The caller holds the lock of the
    /// CPU that the task has belonged to, or has just created it, and not registered it.
    pub(super) fn set_cpu(&self, cpu: usize) {
        self.cpu.store(cpu, Ordering::Relaxed);
        self.cpu_state.store(ptr::from_ref(CpuState::of(cpu)).cast_mut(), Ordering::Relaxed);
    }

    /// Marks the task as ready since the counter read `now`.
    pub(super) fn set_ready(&self, now: u64) {
        self.ready_since.store(now, Ordering::Relaxed);
        self.set_state(TaskState::Ready);
    }

    /// Returns the counter when the task became ready. Valid while it is ready.
    pub(super) fn ready_since(&self) -> u64 {
        self.ready_since.load(Ordering::Relaxed)
    }

    /// Returns the virtual address at which an interrupt preempted the task. 0 if it runs, or gave up its CPU in a
    /// call.
    pub(super) fn preempted_at(&self) -> usize {
        self.preempted_at.load(Ordering::Relaxed)
    }

    /// Stores the virtual address at which the task is about to be preempted. Only the task itself calls this, with
    /// interrupts masked.
    pub(super) fn set_preempted_at(&self, pc: usize) {
        self.preempted_at.store(pc, Ordering::Relaxed);
    }

    /// Returns the counter at which the task wakes. Valid while it sleeps.
    pub fn deadline(&self) -> u64 {
        self.deadline.load(Ordering::Relaxed)
    }

    /// Sets the state, with release ordering.
    pub fn set_state(&self, state: TaskState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Returns the state, with acquire ordering.
    pub fn state(&self) -> TaskState {
        match self.state.load(Ordering::Acquire) {
            0 => TaskState::Ready,
            1 => TaskState::Running,
            2 => TaskState::Sleeping,
            3 => TaskState::Waiting,
            _ => TaskState::Exited,
        }
    }

    /// Gives an idle task its CPU, its number, and the lowest address of the stack that it is running on.
    pub fn adopt(&self, cpu: usize, stack_base: usize) {
        self.set_cpu(cpu);
        self.id.store(NEXT_ID.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        self.stack_base.store(stack_base, Ordering::Relaxed);
    }

    /// Returns the saved registers. They are valid only while the task does not run.
    pub fn context(&self) -> Context {
        self.context.read()
    }

    /// Returns the virtual addresses of the stack.
    pub fn stack_bounds(&self) -> Range<usize> {
        let base = self.stack_base.load(Ordering::Relaxed);
        base..base + STACK_SIZE
    }
}

impl fmt::Display for TaskState {
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
