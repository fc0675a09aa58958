//! How the interrupts of profilers reach a CPU: as fast ones (FIQ), or as ordinary ones (IRQ) where secure state keeps
//! the fast ones.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use device_tree::Interrupt;

use super::Controller;
use crate::per_cpu::{MAX_CPUS, PerCpu};

/// Why a CPU takes no fast interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastError {
    /// The device tree names no interrupt for the physical timer.
    NoTimer,
    /// The interrupt controller has not been set up on this CPU.
    NoController,
    /// The interrupt controller keeps fast interrupts for secure state.
    Secure,
    /// There is no [`Owner`](super::fast::Owner) of the interrupts.
    NoHandler,
    /// There is another [`Owner`](super::fast::Owner) of the interrupts.
    Busy,
}

impl FastError {
    /// Returns the reason as a clause of a sentence.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoTimer => "the device tree describes no interrupt of the physical timer",
            Self::NoController => "the interrupt controller has not been set up on this CPU",
            Self::Secure => "the interrupt controller keeps fast interrupts for secure state",
            Self::NoHandler => "fast interrupts have no handler",
            Self::Busy => "fast interrupts have another handler",
        }
    }
}

impl fmt::Display for FastError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl core::error::Error for FastError {}

/// How an interrupt reaches a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// By FIQ: also where interrupts are masked.
    Fast,
    /// By IRQ, for this reason.
    Ordinary(FastError),
}

/// The numbers of the interrupts that reach each CPU by IRQ instead: of the timer and of the counters.
static ORDINARY: PerCpu<[AtomicU32; 2]> = PerCpu::new([const { [const { AtomicU32::new(u32::MAX) }; 2] }; MAX_CPUS]);

/// Makes an interrupt a fast one on this CPU, or an ordinary one with the same handler. If it is a shared one, the lock
/// on the controller's shared registers is held.
///
/// # Errors
///
/// The reason why it is not a fast one, if it cannot be an ordinary one either.
pub(super) fn enable(controller: &Controller, interrupt: Interrupt) -> Result<Delivery, FastError> {
    match controller.enable_fast(interrupt) {
        Ok(()) => Ok(Delivery::Fast),
        Err(why @ FastError::Secure) if controller.enable(interrupt).is_ok() => {
            let free = ORDINARY.here().iter().find(|number| number.load(Ordering::Relaxed) == u32::MAX);
            free.ok_or(why)?.store(interrupt.number, Ordering::Relaxed);
            Ok(Delivery::Ordinary(why))
        }
        Err(why) => Err(why),
    }
}

/// Returns whether this is the number of an interrupt that would be a fast one, and reaches this CPU by IRQ.
pub(super) fn is_ordinary(number: u32) -> bool {
    ORDINARY.here().iter().any(|ordinary| ordinary.load(Ordering::Relaxed) == number)
}
