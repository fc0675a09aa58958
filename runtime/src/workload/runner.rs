//! Runs a workload in several tasks.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use super::{Report, Workload, share};
use crate::{task, time};

/// Runs `iterations` of `workload`, spread evenly over `tasks` new tasks, which run at the same time. Returns
/// when all have ended.
#[must_use]
pub fn run(workload: &'static Workload, iterations: u64, tasks: u64) -> Report {
    let right = Arc::new(AtomicU64::new(0));
    let start = time::now();
    let handles: Vec<_> = (0..tasks)
        .map(|index| {
            let right = right.clone();
            task::spawn(&format!("{}/{index}", workload.name), move || {
                // Counted apart, so that the CPUs share no memory but that of the kernel.
                let mine = (0..share(iterations, tasks, index)).filter(|_| (workload.iterate)()).count();
                right.fetch_add(mine as u64, Ordering::Relaxed);
            })
        })
        .collect();
    handles.into_iter().for_each(task::JoinHandle::join);
    let elapsed = time::now() - start;
    let right = right.load(Ordering::Relaxed);
    Report { workload, tasks, right, wrong: iterations - right, elapsed }
}
