//! What TPIDR_EL1 leads to, for a kernel that keeps nothing of its own there.

use core::cell::Cell;
use core::mem::offset_of;

#[cfg(target_os = "none")]
use crate::platform;
use crate::platform::{CpuState, TaskCalls};

/// The engine's state of a CPU and its number, and the task that runs on it, with its calls: what the defaults of
/// [`Platform`](crate::platform::Platform) find from TPIDR_EL1, and those of the trace layer.
///
/// A kernel without tasks has one for each CPU. One with tasks has one in each task, and [installs](Self::install) that of the task
/// that is to run, or has the two fields of [`Platform::CPU_OFFSET`](crate::platform::Platform::CPU_OFFSET) and
/// [`Platform::CALLS_OFFSET`](crate::platform::Platform::CALLS_OFFSET) in a structure of its own.
#[derive(Debug)]
#[repr(C)]
pub struct Context {
    cpu: Cell<*const CpuState>,
    cpu_number: Cell<usize>,
    task: u64,
    name: [u8; Self::NAME_LENGTH],
    /// The calls of return-probed functions that the task is in.
    pub calls: TaskCalls,
}

// SAFETY: `install` alone writes `cpu` and `cpu_number`, on the only CPU that has the context then, as its caller guarantees.
unsafe impl Sync for Context {}
// SAFETY: as for `Sync`.
unsafe impl Send for Context {}

impl Context {
    pub(crate) const CPU: usize = offset_of!(Self, cpu);
    pub(crate) const CALLS: usize = offset_of!(Self, calls);
    /// Where the number of the CPU is, a `usize`, in bytes from the beginning.
    #[doc(hidden)]
    pub const CPU_NUMBER: usize = offset_of!(Self, cpu_number);
    /// Where the number of the task is, a `u64`.
    #[doc(hidden)]
    pub const TASK: usize = offset_of!(Self, task);
    /// Where the name of the task is.
    #[doc(hidden)]
    pub const NAME: usize = offset_of!(Self, name);
    /// How many bytes of the name of a task are kept.
    const NAME_LENGTH: usize = 16;

    /// A context that no CPU has yet, of a task that has the number 0 and no name.
    #[cfg(not(all(test, loom)))]
    #[must_use]
    pub const fn new() -> Self {
        Self::of_task(0, "")
    }

    /// A context that no CPU has yet, of the task with this number. Of its name as much is kept as fits into 16 bytes.
    #[cfg(not(all(test, loom)))]
    #[must_use]
    pub const fn of_task(number: u64, name: &str) -> Self {
        let mut kept = [0; Self::NAME_LENGTH];
        let mut length = if name.len() < Self::NAME_LENGTH { name.len() } else { Self::NAME_LENGTH };
        while !name.is_char_boundary(length) {
            length -= 1;
        }
        while length > 0 {
            length -= 1;
            kept[length] = name.as_bytes()[length];
        }
        let (cpu, cpu_number) = (Cell::new(core::ptr::null()), Cell::new(0));
        Self { cpu, cpu_number, task: number, name: kept, calls: TaskCalls::new() }
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
        self.cpu_number.set(cpu);
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
