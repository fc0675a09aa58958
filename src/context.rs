//! What TPIDR_EL1 leads to, for a kernel that keeps nothing of its own there.

use core::cell::Cell;
use core::mem::offset_of;

#[cfg(target_os = "none")]
use crate::platform;
use crate::platform::{CpuState, TaskCalls};

/// The engine's state of a CPU, and the calls of the task that runs on it: what the defaults of
/// [`Platform`](crate::platform::Platform) find from TPIDR_EL1.
///
/// A kernel without tasks has one for each CPU. One with tasks has one in each task, and [installs](Self::install) that of the task
/// that is to run, or has the two fields of [`Platform::CPU_OFFSET`](crate::platform::Platform::CPU_OFFSET) and
/// [`Platform::CALLS_OFFSET`](crate::platform::Platform::CALLS_OFFSET) in a structure of its own.
#[derive(Debug)]
#[repr(C)]
pub struct Context {
    cpu: Cell<*const CpuState>,
    /// The calls of return-probed functions that the task is in.
    pub calls: TaskCalls,
}

// SAFETY: `install` alone writes `cpu`, on the only CPU that has the context then, as its caller guarantees.
unsafe impl Sync for Context {}
// SAFETY: as for `Sync`.
unsafe impl Send for Context {}

impl Context {
    pub(crate) const CPU: usize = offset_of!(Self, cpu);
    pub(crate) const CALLS: usize = offset_of!(Self, calls);

    /// A context that no CPU has yet.
    #[cfg(not(all(test, loom)))]
    #[must_use]
    pub const fn new() -> Self {
        Self { cpu: Cell::new(core::ptr::null()), calls: TaskCalls::new() }
    }

    /// Makes this the context of the CPU that this runs on, whose number is `cpu`: dense from 0.
    ///
    /// # Safety
    ///
    /// No other CPU has the context, or the number, until this one has installed another. Nothing else uses TPIDR_EL1.
    /// Interrupts are masked, or no interrupt hits a probe.
    #[cfg(target_os = "none")]
    pub unsafe fn install(&'static self, cpu: usize) {
        assert!(cpu < platform::cpus(), "the `Platform` says that fewer CPUs run");
        self.cpu.set(CpuState::of(cpu));
        // SAFETY: by the caller, the register is the engine's.
        unsafe { core::arch::asm!("msr tpidr_el1, {}", in(reg) &raw const *self, options(nostack, preserves_flags)) };
    }
}

#[cfg(not(all(test, loom)))]
impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}
