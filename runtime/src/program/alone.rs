//! Clauses that run at no hit: a task runs them, with interrupts masked, as they would be at one.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::time::Duration;

use fallible::{Arc, OutOfMemory};
use kprobes_program::syntax::Probe;

use super::hit;
use super::running::Shared;
use crate::interrupt::fast;
use crate::sync::IrqMask;
use crate::task::{self, JoinHandle};
use crate::time;

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
    let _mask = IrqMask::new();
    fast::without(|| hit::run_alone(shared, clause, name as u64));
}

/// A clause that runs again and again.
struct Interval {
    clause: usize,
    name: usize,
    /// In nanoseconds, as the next.
    period: u64,
    next: u64,
}

/// Starts a task that runs the clauses with an interval, if there are any, until the program ends.
///
/// # Errors
///
/// There is no memory for a list of the clauses, or for the task.
pub(super) fn start_intervals(shared: &Arc<Shared>) -> Result<Option<JoinHandle>, OutOfMemory> {
    let now = time::nanoseconds();
    let interval = |&(clause, name): &(usize, usize)| match shared.names.get(name) {
        Some(Probe::Interval { count, unit }) => {
            let period = unit.period(*count)?;
            Some(Interval { clause, name, period, next: now.saturating_add(period) })
        }
        _ => None,
    };
    let intervals = fallible::collect(shared.alone.iter().filter_map(interval))?;
    let shared = shared.clone();
    (!intervals.is_empty()).then(|| task::try_spawn("interval", move || keep(&shared, intervals))).transpose()
}

/// What was not run in time is run once, and not for each time that was missed: these are counted, up to the end of the program.
fn keep(shared: &Shared, mut intervals: Vec<Interval>) {
    loop {
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
        if end != u64::MAX {
            return;
        }
        let next = intervals.iter().map(|interval| interval.next).min().unwrap_or(u64::MAX);
        task::sleep(Duration::from_nanos(next.saturating_sub(time::nanoseconds())).min(NAP));
    }
}
