//! Runs the clauses that belong to no hit. A task runs them, with interrupts masked as at a hit.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::time::Duration;

use fallible::{Arc, OutOfMemory};
use kprobes_program::syntax::Probe;

use super::hit;
use super::shared::Shared;
use crate::host::{Task, host};
use crate::{host, time};

/// The maximum time that the task sleeps between checks whether the program has ended.
const NAP: Duration = Duration::from_millis(20);

/// Runs once each clause of `shared` whose probe satisfies `wanted`, in the order of the text.
pub(super) fn run(shared: &Shared, wanted: impl Fn(&Probe) -> bool) {
    for &(clause, name) in &shared.alone {
        if shared.named_probe(name).is_some_and(&wanted) {
            run_masked(shared, clause, name);
        }
    }
}

/// Runs the clause with all interrupts masked. Otherwise an interrupt handler could hit a probe whose clause waits
/// forever for a lock that this clause holds. After `exit`, only `END` runs, even if the clause has other probes.
fn run_masked(shared: &Shared, clause: usize, name: usize) {
    if !shared.store.is_over() || shared.named_probe(name) == Some(&Probe::End) {
        host::masked(&mut || hit::run_alone(shared, clause, name as u64));
    }
}

/// A clause that runs periodically.
pub(super) struct Interval {
    clause: usize,
    name: usize,
    /// The period, in nanoseconds. `next` is the time of the next run, in nanoseconds since the clock's origin.
    period: u64,
    next: u64,
}

/// The `interval:` clauses of a program.
pub(super) enum Intervals {
    /// A task runs the clauses.
    Task(Box<dyn Task>),
    /// [`turn`](Self::turn) runs the clauses.
    Here(Vec<Interval>),
}

/// Starts to run the `interval:` clauses until the program ends, in a task if the kernel has tasks.
///
/// # Errors
///
/// There is no memory for the list of clauses, or for the task.
pub(super) fn start_intervals(shared: &Arc<Shared>) -> Result<Intervals, OutOfMemory> {
    let now = time::nanoseconds();
    let interval = |&(clause, name): &(usize, usize)| match shared.named_probe(name) {
        Some(Probe::Interval { count, unit }) => {
            let period = unit.period(*count)?;
            Some(Interval { clause, name, period, next: now.saturating_add(period) })
        }
        _ => None,
    };
    let mut intervals = fallible::collect(shared.alone.iter().filter_map(interval))?;
    match host().spawn() {
        Some(spawn) if !intervals.is_empty() => {
            let shared = shared.clone();
            let body = fallible::boxed(move || keep(&shared, &mut intervals))?;
            spawn("interval", body).map(Intervals::Task)
        }
        _ => Ok(Intervals::Here(intervals)),
    }
}

impl Intervals {
    /// Runs the clauses that are due, if no task does. Returns how long to sleep until the next call.
    pub fn turn(&mut self, shared: &Shared) -> Duration {
        match self {
            Self::Task(_) => NAP,
            Self::Here(intervals) => run_due(shared, intervals).unwrap_or_default(),
        }
    }

    /// Waits until no clause runs any more. The program must have been told to end.
    pub fn end(self, shared: &Shared) {
        match self {
            Self::Task(mut task) => task.join(),
            Self::Here(mut intervals) => {
                run_due(shared, &mut intervals);
            }
        }
    }
}

/// Runs once each clause that is due. Periods that were missed up to the end of the program are counted, and their runs
/// are not made up for. Returns the maximum time until the next call, or `None` if the program has ended.
fn run_due(shared: &Shared, intervals: &mut [Interval]) -> Option<Duration> {
    let end = shared.end();
    let now = time::nanoseconds().min(end);
    for interval in intervals.iter_mut().filter(|interval| interval.next <= now) {
        let missed = (now - interval.next) / interval.period;
        interval.next = interval.next.saturating_add(interval.period.saturating_mul(missed + 1));
        shared.late.fetch_add(missed, Ordering::Relaxed);
        if end == u64::MAX {
            run_masked(shared, interval.clause, interval.name);
        }
    }
    let next = intervals.iter().map(|interval| interval.next).min().unwrap_or(u64::MAX);
    (end == u64::MAX).then(|| Duration::from_nanos(next.saturating_sub(time::nanoseconds())).min(NAP))
}

/// Runs the clauses when they are due, until the program ends.
fn keep(shared: &Shared, intervals: &mut [Interval]) {
    while let Some(idle) = run_due(shared, intervals) {
        host::sleep(idle);
    }
}
