//! What a CPU does when there is nothing to do: the context that it was started in.

use aarch64_cpu::registers::{Readable, SP, TPIDR_EL1, Writeable};

use super::{Task, preempt_now, reaper, spawn};
use crate::memory::layout::STACK_SIZE;
use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::sync::IrqMask;

static IDLE: PerCpu<Task> = PerCpu::new([const { Task::idle() }; MAX_CPUS]);

/// The idle task of the CPU with the dense number `cpu`.
pub fn of(cpu: usize) -> &'static Task {
    IDLE.of(cpu)
}

/// The idle tasks of all CPUs that have been started.
pub fn all() -> impl Iterator<Item = &'static Task> {
    IDLE.iter().filter(|task| task.id() != 0)
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
    task.adopt(cpu, SP.get() as usize & !(STACK_SIZE - 1));
    TPIDR_EL1.set((&raw const *task) as u64);
}

/// Ends the boot of the first CPU: starts the reaper, and the task `name` that runs `main`; and is the idle task from
/// then on.
pub fn start(name: &str, main: fn()) -> ! {
    spawn("reaper", reaper::reap);
    spawn(name, main);
    run_idle()
}

/// Ends the boot of a CPU: lets interrupts come, and is the idle task from then on.
pub(crate) fn run_idle() -> ! {
    IrqMask::enable_all();
    run()
}

/// What an idle task does. The first call looks for tasks, and tells the others that this CPU is idle. From then on an
/// interrupt that is due to a task switches to it before the loop goes on, so there is no moment at which a ready task is
/// overlooked and the CPU waits.
fn run() -> ! {
    loop {
        preempt_now();
        aarch64_cpu::asm::wfi();
    }
}
