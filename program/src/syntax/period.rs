//! Parses the probes with a period: the text after `interval:`, `profile:`, `software:` and `hardware:`.

use super::sampling::HardwareEvent;
use super::token::{number, time};
use super::tree::{Probe, Unit};
use crate::error::Problem;
use crate::foreign;

/// The shortest period, in nanoseconds or in events. A sample takes a few microseconds, and the CPUs have other work.
const PERIOD_MIN: u64 = 10_000;
/// The largest number of events. A counter of 32 bits overflows after this number, and is back at its start only after
/// at least as many events again.
const EVENTS_MAX: u64 = (1 << 31) - 1;
/// The period of `software:cpu-clock` without a number, in nanoseconds, as in bpftrace.
const CLOCK_PERIOD: u64 = 1_000_000;

/// Parses the text after `interval:`.
pub(super) fn interval(text: &str) -> Option<Probe> {
    period(text).map(|(count, unit)| Probe::Interval { count, unit })
}

/// Parses the text after `profile:`, which has the forms of `interval:`.
pub(super) fn profile(text: &str) -> Option<Probe> {
    let (count, unit) = period(text)?;
    unit.period(count).filter(|&period| period >= PERIOD_MIN)?;
    Some(Probe::Profile { count, unit })
}

/// Parses the text after `software:`: an event, and possibly a number.
pub(super) fn software(text: &str) -> Result<Probe, Problem> {
    let (event, count) = text.split_once(':').unwrap_or((text, ""));
    if !matches!(event, "cpu-clock" | "cpu") {
        return Err(foreign::software(event).unwrap_or(Problem::SoftwareEvent));
    }
    let period = if count.is_empty() { Some(CLOCK_PERIOD) } else { number(count) };
    let period = period.filter(|&period| period >= PERIOD_MIN).ok_or(Problem::SoftwareEvent)?;
    Ok(Probe::CpuClock { period })
}

/// Parses the text after `hardware:`: an event, and possibly a number.
pub(super) fn hardware(text: &str) -> Result<Probe, Problem> {
    let (name, count) = text.split_once(':').unwrap_or((text, ""));
    let event = match name {
        "cycles" => Some(HardwareEvent::CpuCycles),
        "branches" => Some(HardwareEvent::BranchInstructions),
        _ => HardwareEvent::ALL.into_iter().find(|event| event.name() == name),
    };
    let event = event.ok_or_else(|| foreign::hardware(name).unwrap_or(Problem::HardwareEvent))?;
    let count = if count.is_empty() { Some(default_count(event)) } else { number(count) };
    let count = count.filter(|count| (PERIOD_MIN..=EVENTS_MAX).contains(count)).and_then(|count| count.try_into().ok());
    Ok(Probe::Hardware { event, count: count.ok_or(Problem::HardwareCount)? })
}

/// Returns the number of events of a probe that gives none, as in bpftrace.
fn default_count(event: HardwareEvent) -> u64 {
    match event {
        HardwareEvent::BranchInstructions | HardwareEvent::BranchMisses | HardwareEvent::BusCycles => 100_000,
        _ => 1_000_000,
    }
}

/// Parses `s:N` with any unit, a time such as `5ms`, or nanoseconds.
fn period(text: &str) -> Option<(u64, Unit)> {
    let (count, unit) = match text.split_once(':') {
        Some((name, count)) => (number(count)?, Unit::ALL.into_iter().find(|unit| unit.name() == name)?),
        None => {
            let period = time(text).or_else(|| number(text))?;
            let whole = |unit: &Unit| unit.nanoseconds().is_some_and(|unit| period.is_multiple_of(unit));
            let unit = Unit::ALL.into_iter().find(whole)?;
            (period.checked_div(unit.nanoseconds()?)?, unit)
        }
    };
    unit.period(count)?;
    Some((count, unit))
}
