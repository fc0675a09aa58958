//! Clauses that run at no hit: a task runs them, with interrupts masked, as they would be at one.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::time::Duration;

use fallible::{Arc, OutOfMemory};
use kprobes_program::syntax::Probe;

use super::hit;
use super::running::Shared;
use crate::host::{Task, host};
use crate::{host, time};

/// How long the task sleeps at a time: it looks then whether the program has ended.
const NAP: Duration = Duration::from_millis(20);

/// Runs the clauses of `shared` for which `wanted` holds of the name of the probe, in the order of the text, once.
pub(super) fn run(shared: &Shared, wanted: impl Fn(&Probe) -> bool) {
    for &(clause, name) in &shared.alone {
        if shared.names.get(name).is_some_and(&wanted) {
            run_masked(shared, clause, name);
        }
    }
}

/// Runs the clause with all interrupts masked: a fast one may hit a probe, and that wait for what the clause holds.
fn run_masked(shared: &Shared, clause: usize, name: usize) {
    host::masked(&mut || hit::run_alone(shared, clause, name as u64));
}

/// A clause that runs again and again.
pub(super) struct Interval {
    clause: usize,
    name: usize,
    /// In nanoseconds, as the next.
    period: u64,
    next: u64,
}

/// The clauses with an interval of a program.
pub(super) enum Intervals {
    /// A task runs them.
    Task(Box<dyn Task>),
    /// [`turn`](Self::turn) does.
    Here(Vec<Interval>),
}

/// Has the clauses with an interval run, by a task where there are tasks, until the program ends.
///
/// # Errors
///
/// There is no memory for a list of the clauses, or for the task.
pub(super) fn start_intervals(shared: &Arc<Shared>) -> Result<Intervals, OutOfMemory> {
    let now = time::nanoseconds();
    let interval = |&(clause, name): &(usize, usize)| match shared.names.get(name) {
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
    /// Runs those whose time has come, where no task does. Returns how long to sleep until the next turn.
    pub fn turn(&mut self, shared: &Shared) -> Duration {
        match self {
            Self::Task(_) => NAP,
            Self::Here(intervals) => run_due(shared, intervals).unwrap_or_default(),
        }
    }

    /// The program was told to end: none runs when this returns.
    pub fn end(self, shared: &Shared) {
        match self {
            Self::Task(mut task) => task.join(),
            Self::Here(mut intervals) => {
                run_due(shared, &mut intervals);
            }
        }
    }
}

/// What was not run in time is run once, and not for each time that was missed: these are counted, up to the end of the program.
/// Returns how long there is nothing to do, if the program goes on: it has to be asked then at the latest.
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

/// Runs them until the program ends.
fn keep(shared: &Shared, intervals: &mut [Interval]) {
    while let Some(idle) = run_due(shared, intervals) {
        host::sleep(idle);
    }
}
