//! The CPUs of the machine: which of them run, how they start, and how all but one are held.
//!
//! CPUs are numbered by the device tree: the boot CPU is 0, and the others follow in the order of the tree. All CPUs
//! that start have started before the first task runs, and none starts or stops after that. So the set of running CPUs
//! is constant for every task, and an interrupt sent to each of them reaches all CPUs.
//!
//! | module | what it owns |
//! |---|---|
//! | this module | the set of running CPUs |
//! | `start` | starting the other CPUs |
//! | `rendezvous` | holding the other CPUs, by the protocol of `kprobes_smp` |
//! | `call` | calling a function on each CPU |

mod call;
mod rendezvous;
mod start;

use core::sync::atomic::{AtomicUsize, Ordering};

use kprobes_smp::rendezvous::Members;

pub(crate) use call::answer_call;
pub use call::on_each_cpu;
pub(crate) use rendezvous::answer;
pub use rendezvous::{hold_cpus, interrupted};
pub(crate) use start::{CpuEntry, SMP_ENTRIES, start_others};
pub use start::{CpuInfo, StartError, list, possible, surplus, unwanted};

/// A bit for each CPU that runs, by dense number.
static RUNNING: AtomicUsize = AtomicUsize::new(1);

/// Returns whether the CPU with the dense number `cpu` runs: it has its idle task, and takes interrupts, or is about
/// to.
#[inline(always)]
#[must_use]
pub fn is_running(cpu: usize) -> bool {
    RUNNING.load(Ordering::Acquire).checked_shr(cpu as u32).is_some_and(|bits| bits & 1 != 0)
}

/// Iterates over the dense numbers of the CPUs that run, in ascending order.
#[inline(always)]
pub fn running() -> impl Iterator<Item = usize> {
    Members::of(RUNNING.load(Ordering::Acquire))
}

/// Returns one more than the highest dense number of a running CPU: the length of a table with an entry for each.
#[must_use]
pub fn count() -> usize {
    (usize::BITS - RUNNING.load(Ordering::Acquire).leading_zeros()) as usize
}

/// Marks a CPU as running. It has its idle task, and is about to take interrupts.
fn set_running(cpu: usize) {
    RUNNING.fetch_or(1 << cpu, Ordering::Release);
}
