//! Parses the probes that sample all CPUs: `profile:` and `software:`.

use super::probe::period;
use super::token::number;
use super::tree::Probe;
use crate::error::Problem;
use crate::foreign;

/// The shortest period, in nanoseconds. A sample takes a few microseconds, and the CPUs have other work.
const PERIOD_MIN: u64 = 10_000;
/// The period of `software:cpu-clock` without a number, in nanoseconds, as bpftrace has it.
const CLOCK_PERIOD: u64 = 1_000_000;

/// Parses what follows `profile:`, in the forms of `interval:`.
pub(super) fn profile(text: &str) -> Option<Probe> {
    let (count, unit) = period(text)?;
    let probe = Probe::Profile { count, unit };
    probe.sampling_period().filter(|&period| period >= PERIOD_MIN)?;
    Some(probe)
}

/// Parses what follows `software:`: an event, and possibly a number after it.
pub(super) fn software(text: &str) -> Result<Probe, Problem> {
    let (event, count) = text.split_once(':').unwrap_or((text, ""));
    if !matches!(event, "cpu-clock" | "cpu") {
        return Err(foreign::software(event).unwrap_or(Problem::SoftwareEvent));
    }
    let period = if count.is_empty() { Some(CLOCK_PERIOD) } else { number(count) };
    let period = period.filter(|&period| period >= PERIOD_MIN).ok_or(Problem::SoftwareEvent)?;
    Ok(Probe::CpuClock { period })
}
