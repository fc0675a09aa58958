//! Runs a workload in several tasks.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fallible::{Arc, OutOfMemory};

use super::{Report, Workload, share};
use crate::{task, time};

/// Runs `iterations` of `workload`, spread evenly over `tasks` new tasks, which run at the same time, or fewer if `is_enough`
/// becomes true before. Returns when all have ended.
///
/// # Errors
///
/// There is no memory for the tasks. Those that have begun end after an iteration.
pub fn run(
    workload: &'static Workload,
    iterations: u64,
    tasks: u64,
    is_enough: fn() -> bool,
) -> Result<Report, OutOfMemory> {
    let counts = Arc::try_new([AtomicU64::new(0), AtomicU64::new(0)])?;
    let is_lacking = Arc::try_new(AtomicBool::new(false))?;
    let mut handles = Vec::new();
    handles.try_reserve_exact(tasks as usize)?;
    let start = time::now();
    let mut started = Ok(());
    for index in 0..tasks {
        let (counts, is_over) = (counts.clone(), is_lacking.clone());
        let work = move || {
            // Counted apart, so that the CPUs share no memory but that of the kernel.
            let mut mine = [0, 0];
            let is_wanted = |_: &u64| !is_enough() && !is_over.load(Ordering::Relaxed);
            for _ in (0..share(iterations, tasks, index)).take_while(is_wanted) {
                mine[usize::from((workload.iterate)())] += 1;
            }
            for (count, mine) in counts.iter().zip(mine) {
                count.fetch_add(mine, Ordering::Relaxed);
            }
        };
        let name = fallible::format(format_args!("{}/{index}", workload.name));
        started = name.and_then(|name| task::try_spawn(&name, work)).map(|handle| handles.push(handle));
        if started.is_err() {
            is_lacking.store(true, Ordering::Relaxed);
            break;
        }
    }
    handles.into_iter().for_each(task::JoinHandle::join);
    let elapsed = time::now() - start;
    let [wrong, right] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    started.map(|()| Report { workload, tasks, right, wrong, elapsed })
}
