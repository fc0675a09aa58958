//! What not every machine has, and some tests need. Such a test is not run where it is missing, and the host is told so; the
//! host knows of every board what it lacks, so that a disk that is not found is not taken for one that is not there.

use runtime::interrupt::fast;
use runtime::{block, smp};

use crate::protected;

/// What a test needs of the machine.
pub struct Need {
    /// What it is called; the host has the same names.
    pub name: &'static str,
    /// Whether it is there.
    pub is_met: fn() -> bool,
}

/// A disk.
pub const DISK: Need = Need { name: "disk", is_met: || !block::disks().is_empty() };
/// A second CPU that runs.
pub const SECOND_CPU: Need = Need { name: "second CPU", is_met: || smp::running().count() > 1 };
/// A timer that interrupts by FIQ.
pub const FAST_INTERRUPTS: Need = Need { name: "fast interrupts", is_met: || fast::check().is_ok() };
/// FEAT_PAuth.
pub const POINTER_AUTHENTICATION: Need =
    Need { name: "pointer authentication", is_met: protected::has_pointer_authentication };
