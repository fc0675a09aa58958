//! What tests ask of the machine.
//!
//! A test declares which [`Trait`]s of a machine can make a difference to its result; the host decides by that where to run
//! it. Some tests [`Need`] what not every machine has. Such a test is not run where it is missing, and the host is told so; the
//! host knows of every board what it lacks, so that a disk that is not found is not taken for one that is not there.

use runtime::{block, smp};

use crate::protected;

/// What of a machine can make a difference to a test.
#[derive(Clone, Copy)]
pub enum Trait {
    /// How many CPUs run.
    Cpus,
    /// The model of the CPUs, which is what they implement of the architecture.
    Core,
    /// Whether atomic operations are single instructions (FEAT_LSE) or loops of exclusives.
    Atomics,
    /// The interrupt controller.
    Interrupts,
    /// The exception level at which the kernel is entered.
    Entry,
    /// The board: its memory, its UART, how its CPUs are started, how it is reset.
    Board,
}

impl Trait {
    /// What the host calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpus => "cpus",
            Self::Core => "core",
            Self::Atomics => "atomics",
            Self::Interrupts => "interrupts",
            Self::Entry => "entry",
            Self::Board => "board",
        }
    }
}

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
/// FEAT_PAuth.
pub const POINTER_AUTHENTICATION: Need =
    Need { name: "pointer authentication", is_met: protected::has_pointer_authentication };
