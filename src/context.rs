//! The structure that TPIDR_EL1 points to, for a kernel that keeps nothing of its own there.

use core::mem::offset_of;
#[cfg(target_os = "none")]
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicPtr, AtomicUsize};

#[cfg(target_os = "none")]
use crate::kernel;
use crate::probe::hit::cpu::Cpu as CpuState;
use crate::probe::hit::list::TaskCalls;

/// What the engine and the trace layer need to know of the current CPU and task: the engine's state of the CPU, the
/// CPU's number, the task's number and name, and the task's calls. The defaults of
/// [`Platform`](crate::platform::Platform), and those of the trace layer, find it by TPIDR_EL1.
///
/// A kernel without tasks has one context for each CPU. A kernel with tasks has one in each task, and
/// [installs](Self::install) the context of the task that it switches to. Alternatively, it keeps the two fields of
/// [`Platform::CPU_OFFSET`](crate::platform::Platform::CPU_OFFSET) and
/// [`Platform::CALLS_OFFSET`](crate::platform::Platform::CALLS_OFFSET) in a structure of its own.
#[derive(Debug)]
#[repr(C)]
pub struct Context {
    // Atomic, because any CPU may look at a context that another CPU installs. Only `install` writes them.
    cpu: AtomicPtr<CpuState>,
    cpu_number: AtomicUsize,
    task: u64,
    name: [u8; Self::NAME_LENGTH],
    /// The calls in progress of return-probed functions, for this task.
    pub calls: TaskCalls,
}

impl Context {
    pub(crate) const CPU: usize = offset_of!(Self, cpu);
    pub(crate) const CALLS: usize = offset_of!(Self, calls);
    /// Offset of the number of the CPU, a `usize`, in bytes from the beginning of a context.
    #[doc(hidden)]
    pub const CPU_NUMBER: usize = offset_of!(Self, cpu_number);
    /// Offset of the number of the task, a `u64`, in bytes from the beginning of a context.
    #[doc(hidden)]
    pub const TASK: usize = offset_of!(Self, task);
    /// Offset of the name of the task, in bytes from the beginning of a context. Shorter names are padded with
    /// zeroes.
    #[doc(hidden)]
    pub const NAME: usize = offset_of!(Self, name);
    /// Bytes of a task's name that are kept.
    const NAME_LENGTH: usize = 16;

    /// Makes a context that no CPU uses yet, for a task with the number 0 and no name.
    #[cfg(not(all(test, loom)))]
    #[must_use]
    pub const fn new() -> Self {
        Self::of_task(0, "")
    }

    /// Makes a context that no CPU uses yet, for the task with this number. The name is cut to 16 bytes, at a
    /// character boundary.
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
        let (cpu, cpu_number) = (AtomicPtr::new(core::ptr::null_mut()), AtomicUsize::new(0));
        Self { cpu, cpu_number, task: number, name: kept, calls: TaskCalls::new() }
    }

    /// Makes this the context of the calling CPU, whose number is `cpu`. CPUs are numbered from 0 without gaps. A
    /// return probe on this function is refused: it may return in another task than it was called in.
    ///
    /// # Safety
    ///
    /// No other CPU has this context or this number until the CPU has installed another context. Nothing else uses
    /// TPIDR_EL1. Interrupts are masked, or no interrupt handler hits a probe.
    ///
    /// A function of the text that is entered in one task returns in that task, unless a return probe on it is refused.
    /// A caller that installs another task's context must switch to that task's stack before it returns, or lie outside
    /// of the text.
    ///
    /// # Panics
    ///
    /// If `cpu` is not below [`Platform::cpus`](crate::platform::Platform::cpus).
    #[cfg(target_os = "none")]
    pub unsafe fn install(&'static self, cpu: usize) {
        assert!(cpu < kernel::cpus(), "the `Platform` says that fewer CPUs run");
        self.cpu.store(core::ptr::from_ref(CpuState::of(cpu)).cast_mut(), Relaxed);
        self.cpu_number.store(cpu, Relaxed);
        // SAFETY: the caller guarantees that nothing else uses TPIDR_EL1 (see # Safety), and `self` lives forever.
        unsafe { core::arch::asm!("msr tpidr_el1, {}", in(reg) &raw const *self, options(nostack, preserves_flags)) };
    }
}

#[cfg(not(all(test, loom)))]
impl Default for Context {
    fn default() -> Self {
        Self::new()
    }
}
