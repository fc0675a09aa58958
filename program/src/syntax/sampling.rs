//! The distance between two samples of a CPU: a time, or a number of events that the CPU counts.

use core::time::Duration;

/// The distance between two samples of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// A time.
    Time(Duration),
    /// Events that the CPU counts.
    Events {
        /// The event.
        event: HardwareEvent,
        /// The number of events, not 0.
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

/// An event that the CPU counts. The events are Linux's (include/uapi/linux/perf_event.h, `perf_hw_id`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HardwareEvent {
    /// A cycle of the CPU.
    CpuCycles,
    /// An instruction that has been executed.
    Instructions,
    /// An access to the cache of the first level.
    CacheReferences,
    /// An access that missed the cache of the first level.
    CacheMisses,
    /// A branch that has been executed.
    BranchInstructions,
    /// A mispredicted branch.
    BranchMisses,
    /// A cycle of the bus.
    BusCycles,
    /// A cycle in which no instruction was available to be issued.
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
