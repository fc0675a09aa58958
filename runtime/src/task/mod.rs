//! Kernel tasks: threads of the kernel, each with its own stack, that take turns on the CPUs.
//!
//! **Life.** [`spawn`] makes a task. It has a number that is never reused, a name, a stack with unmapped memory below
//! it, and a closure. It is ready on the CPU that has the fewest tasks, or on the CPU that it is pinned to
//! ([`spawn_on`]). It runs, and may sleep, or wait in a [`WaitQueue`](crate::sync::WaitQueue). When its closure
//! returns, or it calls [`exit`], it has exited. The next task on its CPU hands it to the reaper, which frees its
//! stack. [`JoinHandle::join`] returns after that.
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
//! **Running.** Ready tasks run in turn, on whichever CPU is free first. While others are ready, each runs for a
//! quantum of 4 ms. A switch takes place when a task gives up its CPU in a call (yield, sleep, wait, exit), or at the
//! end of an interrupt (`preempt`). Interrupts are masked from before the decision until after the switch. Code that
//! must not be preempted holds a value: an [`IrqMask`](crate::sync::IrqMask) if interrupts must not come either,
//! otherwise a [`PreemptMask`](crate::sync::PreemptMask).
//!
//! **Moving.** A task can move to another CPU after any instruction, unless interrupts or preemption are masked. So the
//! number of a CPU, and the result of [`PerCpu::here`](crate::per_cpu::PerCpu::here), are valid only while they are
//! masked.
//!
//! **The current task** is the one that TPIDR_EL1 points to. The register changes together with the stack pointer. So
//! any code on a CPU, even a probe handler, finds the task and the CPU with two instructions and without a lock. A task
//! may move between reading the register and using the value. That is harmless: the value is the same on every CPU that
//! runs the task, and the CPU number, which is kept in the task, changes only while no CPU runs it.
//!
//! **The idle task** of a CPU is the context that booted it. It needs no memory, and exists before the allocator does.
//! After [`start`], it only waits for interrupts. It is in no queue and never blocks.
//!
//! | module | what it owns |
//! |---|---|
//! | `current` | the current task |
//! | `start` | the first tasks |
//! | `life` | spawning, yielding, sleeping and exiting |
//! | `control_block` | the data of a task |
//! | `kprobes_smp::line` | the decisions which task is next |
//! | `run_queue` | the tasks of a CPU |
//! | `scheduler` | when a CPU switches, and to which task |
//! | `context` | the switch |
//! | `queue` | linked queues of tasks |
//! | `idle` | the idle tasks |
//! | `exited` | the exited tasks that wait for the reaper |
//! | `reaper` | freeing of exited tasks |
//! | `registry` | the list of all tasks |

mod context;
mod control_block;
mod current;
mod exited;
mod idle;
mod life;
mod queue;
mod reaper;
mod registry;
mod run_queue;
pub(crate) mod scheduler;
mod start;

pub(crate) use control_block::Task;
pub use control_block::TaskState;
pub(crate) use current::{CALLS_OFFSET, CPU_NUMBER_OFFSET, CPU_OFFSET, NAME_OFFSET, NUMBER_OFFSET, current_task};
pub use current::{CurrentTask, current, current_cpu, current_task_number};
pub use idle::adopt_cpu;
pub(crate) use idle::run_idle;
pub use life::{JoinHandle, exit, sleep, spawn, spawn_on, try_spawn, yield_now};
pub(crate) use queue::Queue;
pub(crate) use registry::inspect_stopped;
pub use registry::{TaskInfo, exists, list, preempted_pcs};
pub use scheduler::timer_interrupt;
pub(crate) use scheduler::{preempt, preempt_now, reschedule_interrupt};
pub use start::start;
