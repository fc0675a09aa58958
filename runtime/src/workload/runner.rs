//! Runs a workload in several tasks.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{Report, Workload, share};
use crate::{task, time};

/// Runs `iterations` of `workload`, spread evenly over `tasks` new tasks, which run at the same time, or fewer if `is_enough`
/// becomes true before. Returns when all have ended.
#[must_use]
pub fn run(workload: &'static Workload, iterations: u64, tasks: u64, is_enough: fn() -> bool) -> Report {
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let start = time::now();
    let handles: Vec<_> = (0..tasks)
        .map(|index| {
            let counts = counts.clone();
            task::spawn(&format!("{}/{index}", workload.name), move || {
                // Counted apart, so that the CPUs share no memory but that of the kernel.
                let mut mine = [0, 0];
                for _ in (0..share(iterations, tasks, index)).take_while(|_| !is_enough()) {
                    mine[usize::from((workload.iterate)())] += 1;
                }
                for (count, mine) in counts.iter().zip(mine) {
                    count.fetch_add(mine, Ordering::Relaxed);
                }
            })
        })
        .collect();
    handles.into_iter().for_each(task::JoinHandle::join);
    let elapsed = time::now() - start;
    let [wrong, right] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    Report { workload, tasks, right, wrong, elapsed }
}
