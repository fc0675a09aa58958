//! The idle task of a CPU: the context that the CPU was started in, which runs when no task is ready.

use aarch64_cpu::registers::{Readable, SP, TPIDR_EL1, Writeable};

use super::{Task, preempt_now};
use crate::memory::layout::STACK_SIZE;
use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::sync::IrqMask;

static IDLE: PerCpu<Task> = PerCpu::new([const { Task::idle() }; MAX_CPUS]);

/// Returns the idle task of the CPU with the dense number `cpu`.
pub fn of(cpu: usize) -> &'static Task {
    IDLE.of(cpu)
}

/// Iterates over the idle tasks of all CPUs that have been started.
pub fn all() -> impl Iterator<Item = &'static Task> {
    IDLE.iter().filter(|task| task.id() != 0)
}

/// Makes the running code the idle task of this CPU, so that the CPU has a current task and a number. A CPU calls this
/// before any other Rust code.
///
/// # Safety
///
/// `cpu` is the dense number of this CPU, and this is the only call for it. The stack is the upper half of a window of
/// twice its size, as all stacks are.
pub unsafe fn adopt_cpu(cpu: usize) {
    let task = IDLE.of(cpu);
    task.adopt(cpu, SP.get() as usize & !(STACK_SIZE - 1));
    TPIDR_EL1.set((&raw const *task) as u64);
}

/// Ends the boot of a CPU: unmasks interrupts, then becomes the idle task.
pub(crate) fn run_idle() -> ! {
    IrqMask::enable_all();
    run()
}

/// Runs the idle task. The first `preempt_now` looks for tasks, and tells the other CPUs that this CPU is idle. From
/// then on, an interrupt that makes a task due switches to it before the loop goes on. So the CPU never waits while it
/// overlooks a ready task.
fn run() -> ! {
    loop {
        preempt_now();
        aarch64_cpu::asm::wfi();
    }
}
