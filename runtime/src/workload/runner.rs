//! Runs a workload in several tasks.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fallible::{Arc, OutOfMemory};

use super::{Report, Workload, share};
use crate::{task, time};

/// Runs `iterations` of `workload`, spread evenly over `tasks` new tasks that run at the same time. Runs fewer if
/// `is_enough` becomes true meanwhile. Returns when all tasks have ended.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for the tasks. Tasks that have begun end after an iteration. A workload that
/// itself lacks memory is not covered.
pub fn run(
    workload: &'static Workload,
    iterations: u64,
    tasks: u64,
    is_enough: fn() -> bool,
) -> Result<Report, OutOfMemory> {
    let counts = Arc::try_new([AtomicU64::new(0), AtomicU64::new(0)])?;
    let is_lacking = Arc::try_new(AtomicBool::new(false))?;
    let begin = |index: u64| {
        let (counts, is_lacking) = (counts.clone(), is_lacking.clone());
        let name = fallible::format(format_args!("{}/{index}", workload.name))?;
        task::try_spawn(&name, move || {
            // Each task counts on its own, so that CPUs share no memory except the kernel's.
            let mut mine = [0, 0];
            let is_wanted = |_: &u64| !is_enough() && !is_lacking.load(Ordering::Relaxed);
            for _ in (0..share(iterations, tasks, index)).take_while(is_wanted) {
                mine[usize::from((workload.iterate)())] += 1;
            }
            for (count, mine) in counts.iter().zip(mine) {
                count.fetch_add(mine, Ordering::Relaxed);
            }
        })
    };
    let mut handles = Vec::new();
    handles.try_reserve_exact(tasks as usize)?;
    let start = time::now();
    let started = (0..tasks).try_for_each(|index| begin(index).map(|handle| handles.push(handle)));
    is_lacking.store(started.is_err(), Ordering::Relaxed);
    handles.into_iter().for_each(task::JoinHandle::join);
    let elapsed = time::now() - start;
    let [wrong, right] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    started.map(|()| Report { workload, tasks, right, wrong, elapsed })
}
