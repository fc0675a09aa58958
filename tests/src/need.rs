//! Requirements of tests that not every machine meets. A test is skipped where its requirement is not met, and the host
//! is told so. The host knows for every board which requirements it does not meet, so that a disk that is not detected
//! is not mistaken for a missing one.

use kprobes_console::host::{HardwareEvent, Period};
use runtime::interrupt::fast;
use runtime::{block, sampling, smp};

use crate::random::features::Features;

/// A requirement of a test.
pub struct Need {
    /// The name; the host has the same names.
    pub name: &'static str,
    /// Returns whether the machine meets the requirement.
    pub is_met: fn() -> bool,
}

/// A disk.
pub const DISK: Need = Need { name: "disk", is_met: || !block::disks().is_empty() };
/// A second running CPU.
pub const SECOND_CPU: Need = Need { name: "second CPU", is_met: || smp::running().count() > 1 };
/// A timer that interrupts by FIQ.
pub const FAST_INTERRUPTS: Need = Need { name: "fast interrupts", is_met: || fast::check().is_ok() };
/// Counters of cycles that interrupt.
pub const COUNTER_INTERRUPTS: Need = Need {
    name: "counter interrupts",
    is_met: || sampling::delivery(&[Period::Events { event: HardwareEvent::CpuCycles, count: 10_000 }]).is_ok(),
};
/// FEAT_PAuth.
pub const POINTER_AUTHENTICATION: Need =
    Need { name: "pointer authentication", is_met: || Features::read().pointer_authentication() };
