//! The CPUs of the machine: which run, how the others come up, and how all but one are held.
//!
//! The device tree numbers them: the CPU that boots is 0, the others follow in the order of the tree. All that do start
//! have started before the first task runs, and none joins or leaves after that. So the set of CPUs that run is constant
//! for whoever runs as a task, and who sends every one of them an interrupt has sent it to all.
//!
//! | module | what it owns |
//! |---|---|
//! | here | which CPUs run |
//! | `start` | how they come up |
//! | `rendezvous`, `round` | how they are held |

mod rendezvous;
mod round;
mod start;

use core::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use rendezvous::answer;
pub use rendezvous::{hold_cpus, interrupted};
pub use start::{CpuInfo, StartError, list, possible, surplus, unwanted};
pub(crate) use start::{Entry, SMP_ENTRIES, start_others};

use round::Members;

/// One bit for each CPU that runs, by its dense number.
static RUNNING: AtomicUsize = AtomicUsize::new(1);

/// Whether the CPU with the dense number `cpu` runs: it takes interrupts and has its idle task.
#[inline(always)]
#[must_use]
pub fn is_running(cpu: usize) -> bool {
    RUNNING.load(Ordering::Acquire).checked_shr(cpu as u32).is_some_and(|bits| bits & 1 != 0)
}

/// The dense numbers of the CPUs that run, in order.
#[inline(always)]
pub fn running() -> impl Iterator<Item = usize> {
    Members::of(RUNNING.load(Ordering::Acquire))
}

/// How many numbers of CPUs there are, up to the last that runs: the length of a table that has an entry for each.
#[must_use]
pub fn count() -> usize {
    (usize::BITS - RUNNING.load(Ordering::Acquire).leading_zeros()) as usize
}

/// This CPU takes interrupts from now on.
fn set_running(cpu: usize) {
    RUNNING.fetch_or(1 << cpu, Ordering::Release);
}
