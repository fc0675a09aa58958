//! Tasks, and the scheduler: all CPUs take the tasks in turn, a millisecond each.
//!
//! One lock is held from before a switch until after it: the task that comes releases it. So a task that another CPU
//! finds ready has its registers saved, and what it did before it left is visible there. Interrupts are masked
//! meanwhile.

use core::arch::{asm, global_asm};
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use super::cpu::{self, CPUS};
use crate::probes; // probes

/// The number of tasks. The first are the idle tasks of the CPUs, which are the contexts that the CPUs started in.
const TASKS: usize = CPUS + 9;
pub const STACK_SIZE: usize = 0x4000;

/// A task. TPIDR_EL1 has the address of the one that runs.
#[repr(C)]
pub struct Task {
    /// The stack pointer, while the task does not run. The registers that calls preserve are above it.
    stack_pointer: AtomicUsize,
    state: AtomicU8,
    pub probes: probes::State, // probes
}

// The values of `Task::state`, which changes with the lock held. A task that has ended is free.
const FREE: u8 = 0;
const READY: u8 = 1;
const RUNNING: u8 = 2;

#[repr(align(16))]
pub struct Stack(UnsafeCell<[u8; STACK_SIZE]>);

// SAFETY: only the task with the stack uses it, after `spawn`.
unsafe impl Sync for Stack {}

pub static ALL: [Task; TASKS] = [const {
    Task {
        stack_pointer: AtomicUsize::new(0),
        state: AtomicU8::new(FREE),
        probes: probes::State::new(), // probes
    }
}; TASKS];
pub static STACKS: [Stack; TASKS] = [const { Stack(UnsafeCell::new([0; STACK_SIZE])) }; TASKS];
static LOCK: AtomicBool = AtomicBool::new(false);
static PREEMPTIONS: AtomicUsize = AtomicUsize::new(0);

global_asm!(
    // In: x0 = the task that runs, x1 = the next task, interrupts masked. Out: returns in the next task, x0 = the task
    // that ran.
    ".section .text.task_switch, \"ax\"",
    ".global task_switch",
    ".type task_switch, %function",
    "task_switch:",
    "stp x29, x30, [sp, #-96]!",
    "stp x19, x20, [sp, #16]",
    "stp x21, x22, [sp, #32]",
    "stp x23, x24, [sp, #48]",
    "stp x25, x26, [sp, #64]",
    "stp x27, x28, [sp, #80]",
    "mov x2, sp",
    "str x2, [x0, #{STACK_POINTER}]",
    "ldr x2, [x1, #{STACK_POINTER}]",
    // The stack and the identity change together: a function that is entered by one task returns in that task.
    "mov sp, x2",
    "msr tpidr_el1, x1",
    "ldp x19, x20, [sp, #16]",
    "ldp x21, x22, [sp, #32]",
    "ldp x23, x24, [sp, #48]",
    "ldp x25, x26, [sp, #64]",
    "ldp x27, x28, [sp, #80]",
    "ldp x29, x30, [sp], #96",
    "ret",
    ".size task_switch, . - task_switch",
    // Where a new task begins. In: x0 = the task that ran, x19 = the function, x20 = the argument.
    ".type task_entry, %function",
    "task_entry:",
    "mov x1, x19",
    "mov x2, x20",
    "b {first}",
    ".size task_entry, . - task_entry",
    STACK_POINTER = const offset_of!(Task, stack_pointer),
    first = sym first,
);

#[expect(improper_ctypes, reason = "the assembly knows where the stack pointer is, and nothing else of a task")]
unsafe extern "C" {
    fn task_switch<'a>(from: &'a Task, to: &Task) -> &'a Task;
    safe fn task_entry();
}

/// Returns the task that runs.
pub fn current() -> &'static Task {
    let task: *const Task;
    // SAFETY: `adopt` and `task_switch` keep the address of a static in the register.
    unsafe {
        asm!("mrs {}, tpidr_el1", out(reg) task, options(nomem, nostack, preserves_flags));
        &*task
    }
}

/// Makes the context that this CPU has started in its idle task.
pub fn adopt(cpu: usize) {
    ALL[cpu].probes.runs_on(cpu); // probes
    // SAFETY: nothing else uses the register, and tasks are static.
    unsafe { asm!("msr tpidr_el1, {}", in(reg) &ALL[cpu], options(nostack, preserves_flags)) };
}

/// Starts a task that calls `function` with `argument`, and ends.
pub fn spawn(function: extern "C" fn(usize), argument: usize) {
    cpu::masked(|| {
        lock();
        let free = (CPUS..TASKS).find(|&number| ALL[number].state.load(Ordering::Relaxed) == FREE);
        let number = free.expect("all tasks are in use");
        // What `task_switch` loads: x29, x30, x19 and x20.
        let frame = [0, task_entry as *const () as usize, function as usize, argument];
        let at = STACKS[number].0.get() as usize + STACK_SIZE - 96;
        // SAFETY: the frame is at the top of a stack that no task uses yet.
        unsafe { (at as *mut [usize; 4]).write(frame) };
        ALL[number].stack_pointer.store(at, Ordering::Relaxed);
        ALL[number].state.store(READY, Ordering::Relaxed);
        unlock();
    });
}

/// The first function of a task: `schedule` on some CPU has switched to it from the task `left`.
extern "C" fn first(left: &Task, function: extern "C" fn(usize), argument: usize) -> ! {
    finish_switch(left);
    cpu::unmask();
    function(argument);
    cpu::masked(|| schedule(FREE));
    unreachable!("a task has ended, and runs")
}

/// Returns how many times an interrupt has given the CPU to another task.
pub fn preemptions() -> usize {
    PREEMPTIONS.load(Ordering::Relaxed)
}

/// Lets the next task run, if there is one. Called by an interrupt, and by no handler of a probe.
pub(super) fn preempt() {
    if schedule(READY) {
        PREEMPTIONS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Gives the CPU to the next task, with interrupts masked: `state` says what becomes of the current one. Returns in the
/// current task when it runs again, or false if it has kept the CPU.
fn schedule(state: u8) -> bool {
    lock();
    let (cpu, this) = (cpu::number(), current());
    let number = (&raw const *this as usize - &raw const ALL as usize) / size_of::<Task>();
    let others = (1..TASKS).map(|distance| (number + distance) % TASKS);
    let ready = others.filter(|&other| other >= CPUS).find(|&other| ALL[other].state.load(Ordering::Relaxed) == READY);
    let next = match ready {
        Some(ready) => &ALL[ready],
        None if state == READY => this,
        None => &ALL[cpu],
    };
    let switches = !core::ptr::eq(this, next);
    if switches {
        this.state.store(state, Ordering::Relaxed);
        next.state.store(RUNNING, Ordering::Relaxed);
        next.probes.runs_on(cpu); // probes
        // SAFETY: interrupts are masked, the lock is held, and the registers of `next` are saved: it was ready, or it
        // is the idle task of this CPU.
        finish_switch(unsafe { task_switch(this, next) });
    } else {
        unlock();
    }
    switches
}

/// Ends the switch from the task `left`, whose registers are saved, and whose stack is not in use.
fn finish_switch(left: &Task) {
    probes::task_has_left(left, left.state.load(Ordering::Relaxed) == FREE); // probes
    unlock();
}

fn lock() {
    while LOCK.swap(true, Ordering::Acquire) {
        spin_loop();
    }
}

fn unlock() {
    LOCK.store(false, Ordering::Release);
}
