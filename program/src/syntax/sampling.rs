//! The probes that sample all CPUs, `profile:`, `software:` and `hardware:`: what lies between two samples, and how it
//! is written.

use core::time::Duration;

use super::probe::period;
use super::token::number;
use super::tree::Probe;
use crate::error::Problem;
use crate::foreign;

/// The shortest period, in nanoseconds or in events. A sample takes a few microseconds, and the CPUs have other work.
const PERIOD_MIN: u64 = 10_000;
/// The largest number of events. A counter of 32 bits then counts at least as many again before it is where it began.
const EVENTS_MAX: u64 = (1 << 31) - 1;
/// The period of `software:cpu-clock` without a number, in nanoseconds, as bpftrace has it.
const CLOCK_PERIOD: u64 = 1_000_000;

/// What lies between two samples of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// A time.
    Time(Duration),
    /// Events that the CPU counts.
    Events {
        /// The event.
        event: HardwareEvent,
        /// How many, not 0.
        count: u32,
    },
}

impl Period {
    /// Returns the event that the CPU counts; `None` for a time.
    #[must_use]
    pub fn event(self) -> Option<HardwareEvent> {
        match self {
            Self::Time(_) => None,
            Self::Events { event, .. } => Some(event),
        }
    }
}

/// An event that hardware counts, as Linux has them (include/uapi/linux/perf_event.h, `perf_hw_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HardwareEvent {
    /// A cycle of the CPU.
    CpuCycles,
    /// An instruction that has been executed.
    Instructions,
    /// An access to the cache of the first level.
    CacheReferences,
    /// An access that this cache had to load for.
    CacheMisses,
    /// A branch that has been executed.
    BranchInstructions,
    /// A branch that was predicted wrong.
    BranchMisses,
    /// A cycle of the bus.
    BusCycles,
    /// A cycle in which no instruction was there to be issued.
    FrontendStalls,
    /// A cycle in which no instruction could be issued.
    BackendStalls,
}

impl HardwareEvent {
    /// All events.
    pub const ALL: [Self; 9] = [
        Self::CpuCycles,
        Self::Instructions,
        Self::CacheReferences,
        Self::CacheMisses,
        Self::BranchInstructions,
        Self::BranchMisses,
        Self::BusCycles,
        Self::FrontendStalls,
        Self::BackendStalls,
    ];

    /// Returns the name after `hardware:`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuCycles => "cpu-cycles",
            Self::Instructions => "instructions",
            Self::CacheReferences => "cache-references",
            Self::CacheMisses => "cache-misses",
            Self::BranchInstructions => "branch-instructions",
            Self::BranchMisses => "branch-misses",
            Self::BusCycles => "bus-cycles",
            Self::FrontendStalls => "frontend-stalls",
            Self::BackendStalls => "backend-stalls",
        }
    }
}

/// Parses what follows `profile:`, in the forms of `interval:`.
pub(super) fn profile(text: &str) -> Option<Probe> {
    let (count, unit) = period(text)?;
    unit.period(count).filter(|&period| period >= PERIOD_MIN)?;
    Some(Probe::Profile { count, unit })
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

/// Parses what follows `hardware:`: an event, and possibly a number after it.
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

/// Returns the number of events without one in the probe, as bpftrace has it.
fn default_count(event: HardwareEvent) -> u64 {
    match event {
        HardwareEvent::BranchInstructions | HardwareEvent::BranchMisses | HardwareEvent::BusCycles => 100_000,
        _ => 1_000_000,
    }
}
