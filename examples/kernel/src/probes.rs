//! The engine in this kernel.

use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

use aarch64_kprobes::platform::{CpuState, Platform, TaskCalls};
use aarch64_kprobes::{embedding, probe};
use kprobes_symbols::image;

use crate::kernel::cpu::CPUS;
use crate::kernel::task::{self, Task};
use crate::patching;

unsafe extern "C" {
    safe static __text_start: u8;
    safe static __text_end: u8;
}

/// What each task has for the engine.
#[repr(C)]
pub struct State {
    /// The engine's state of the CPU that the task runs on.
    cpu: AtomicUsize,
    calls: TaskCalls,
    /// Where an interrupt has stopped the task; 0 if none has.
    pc: AtomicUsize,
}

impl State {
    pub const fn new() -> Self {
        Self { cpu: AtomicUsize::new(0), calls: TaskCalls::new(), pc: AtomicUsize::new(0) }
    }

    /// Records that the task is about to run on this CPU.
    pub fn runs_on(&self, cpu: usize) {
        self.cpu.store(&raw const *CpuState::of(cpu) as usize, Ordering::Relaxed);
    }
}

/// Records that the current task is interrupted at `pc`, or goes on, if `pc` is 0.
pub fn set_interrupted(pc: usize) {
    task::current().probes.pc.store(pc, Ordering::Relaxed);
}

/// Called when the task has left its stack, which is not used again before the caller returns.
pub fn task_has_left(task: &Task, has_ended: bool) {
    if has_ended {
        // SAFETY: the task does not run, and its slot begins anew.
        unsafe { probe::task_exited(&task.probes.calls) };
    }
}

pub fn check_cpu() {
    embedding::check().unwrap_or_else(|error| panic!("{error}"));
}

struct Kernel;
aarch64_kprobes::platform!(Kernel);

// SAFETY: the vector leads to the engine, on the stack of the interrupted code. TPIDR_EL1 has the task that runs, in
// which `runs_on` stores the state of its CPU. The lock of the scheduler orders what a task does on two CPUs.
unsafe impl Platform for Kernel {
    const CPUS: usize = CPUS;
    const CPU_OFFSET: usize = offset_of!(Task, probes.cpu);
    const CALLS_OFFSET: usize = offset_of!(Task, probes.calls);

    fn text() -> Range<usize> {
        &raw const __text_start as usize..&raw const __text_end as usize
    }
    fn function(address: usize) -> Option<Range<usize>> {
        image::function(address)
    }
    fn has_data(addresses: Range<usize>) -> bool {
        image::has_data(addresses)
    }
    fn survey() -> &'static [u8] {
        image::survey()
    }
    #[inline(always)]
    fn with_writable(address: usize, _: usize, write: &mut dyn FnMut(*mut u8)) {
        patching::with_alias(address, write);
    }
    #[inline(always)]
    fn hold_cpus(action: &mut dyn FnMut()) {
        patching::hold_others(action);
    }
    #[inline(always)]
    fn interrupted(each: &mut dyn FnMut(usize)) {
        task::ALL.iter().for_each(|task| each(task.probes.pc.load(Ordering::Relaxed)));
    }
}
