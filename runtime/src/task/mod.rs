//! Kernel tasks: threads of the kernel, each with its own stack, that take turns on a CPU.
//!
//! **Life.** [`spawn`] makes a task: a number that is never given again, a name, a stack that is not mapped below, and
//! a closure. It is ready, on the CPU that has the fewest tasks, or on one that it is pinned to ([`spawn_on`]). It runs, and
//! may sleep, or wait in a [`WaitQueue`](crate::sync::WaitQueue); when its closure returns, or it calls [`exit`], it has
//! exited. The next task on its CPU hands it to the reaper, which frees its stack; [`JoinHandle::join`] returns after that.
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
//! **Running.** Ready tasks run in turn, on whichever CPU is free first, for a quantum of 4 ms each while others are ready.
//! A switch takes place when a task gives up its CPU in a call (yield, sleep, wait, exit), or at the end of an interrupt
//! ([`preempt`]). Interrupts are masked from before the decision until after the switch. Code that must not be preempted
//! says so by a value: [`IrqMask`], where interrupts must not come either, or [`PreemptMask`](crate::sync::PreemptMask).
//!
//! **Moving.** A task can be on another CPU after each of its instructions, unless interrupts or preemption are masked. So
//! the number of a CPU, and what [`PerCpu::here`](crate::per_cpu::PerCpu::here) gives, are of use only while they are.
//!
//! **The current task** is where TPIDR_EL1 points. That register changes with the stack pointer, so that whatever a
//! CPU executes, be it a probe handler, finds the task and the CPU by two instructions and without a lock. A task may be
//! moved after it has read the register, and before it uses what it has read: but what is read is the same on every CPU
//! that runs the task. And the number of the CPU, which is kept in the task, is changed only while no CPU runs it.
//!
//! **The idle task** of a CPU is what booted it: it needs no memory, is there before the allocator is, and once
//! [`start`] was called does nothing but wait for interrupts. It is in no queue and never waits.
//!
//! | module | what it owns |
//! |---|---|
//! | `current` | the task that calls |
//! | `life` | how tasks begin and end, and what one does with itself |
//! | `control_block` | what is kept of a task |
//! | `line` | who is next: the decisions |
//! | `run_queue` | the tasks of a CPU |
//! | `scheduler` | who runs on a CPU, and when another does |
//! | `context` | the switch |
//! | `queue` | tasks in a row |
//! | `idle` | a CPU without a task |
//! | `reaper` | the end of a task |
//! | `registry` | which tasks there are |

#[cfg(any(target_os = "none", test))]
mod line;

#[cfg(target_os = "none")]
mod context;
#[cfg(target_os = "none")]
mod control_block;
#[cfg(target_os = "none")]
mod current;
#[cfg(target_os = "none")]
mod idle;
#[cfg(target_os = "none")]
mod life;
#[cfg(target_os = "none")]
mod queue;
#[cfg(target_os = "none")]
mod reaper;
#[cfg(target_os = "none")]
mod registry;
#[cfg(target_os = "none")]
mod run_queue;
#[cfg(target_os = "none")]
pub(crate) mod scheduler;

#[cfg(target_os = "none")]
pub use target::*;

#[cfg(target_os = "none")]
mod target {
    pub use super::control_block::State;
    pub(crate) use super::control_block::Task;
    pub(crate) use super::current::{
        CALLS_OFFSET, CPU_NUMBER_OFFSET, CPU_OFFSET, NAME_OFFSET, NUMBER_OFFSET, current_task,
    };
    pub use super::current::{CurrentTask, current, current_cpu, current_task_number};
    pub(crate) use super::idle::run_idle;
    pub use super::idle::{adopt_cpu, start};
    pub use super::life::{JoinHandle, exit, sleep, spawn, spawn_on, try_spawn, yield_now};
    pub(crate) use super::queue::Queue;
    pub(crate) use super::registry::inspect_stopped;
    pub use super::registry::{TaskInfo, list, preempted_pcs};
    pub use super::scheduler::{preempt, timer_interrupt};
    pub(crate) use super::scheduler::{preempt_now, reschedule_interrupt};
}
