//! The engine in this kernel, and the probes.

use core::arch::asm;
use core::hint::spin_loop;
use core::mem::offset_of;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use aarch64_kprobes::platform::{CpuState, Platform, TaskCalls};
use aarch64_kprobes::{embedding, probe};

use crate::kernel::cpu::{self, CPUS};
use crate::kernel::task::{self, Task};
use crate::kernel::{DATA_PAGE, gic, symbols};

unsafe extern "C" {
    safe static __text_start: u8;
    safe static __text_end: u8;
}

/// What each task has for the engine.
#[repr(C)]
pub struct State {
    /// The engine's state of the CPU that the task runs on.
    cpu: AtomicPtr<CpuState>,
    calls: TaskCalls,
    /// Where an interrupt has stopped the task; 0 if none has.
    pc: AtomicUsize,
}

impl State {
    pub const fn new() -> Self {
        Self { cpu: AtomicPtr::new(core::ptr::null_mut()), calls: TaskCalls::new(), pc: AtomicUsize::new(0) }
    }

    /// The task is about to run on this CPU.
    pub fn runs_on(&self, cpu: usize) {
        self.cpu.store((&raw const *CpuState::of(cpu)).cast_mut(), Ordering::Relaxed);
    }
}

/// The current task is interrupted at `pc`; or at 0, it goes on.
pub fn set_interrupted(pc: usize) {
    task::current().probes.pc.store(pc, Ordering::Relaxed);
}

pub fn task_ended(task: &Task) {
    // SAFETY: the task has left its stack, and its slot begins anew.
    unsafe { probe::task_exited(&task.probes.calls) };
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
        let function = symbols::lookup(address)?;
        Some(function.address as usize..(function.address + function.size) as usize)
    }
    fn has_data(addresses: Range<usize>) -> bool {
        symbols::has_data(addresses)
    }
    #[inline(always)]
    fn with_writable(address: usize, _: usize, write: &mut dyn FnMut(*mut u8)) {
        cpu::masked(|| with_alias(address, write));
    }
    #[inline(always)]
    fn hold_cpus(action: &mut dyn FnMut()) {
        hold(action);
    }
    #[inline(always)]
    fn interrupted(each: &mut dyn FnMut(usize)) {
        task::ALL.iter().for_each(|task| each(task.probes.pc.load(Ordering::Relaxed)));
    }
}

/// The table of level 3 for the aliases. Each CPU has an entry, and the page after its alias is not mapped.
#[repr(align(4096))]
pub struct Aliases([AtomicU64; 512]);
pub static ALIASES: Aliases = Aliases([const { AtomicU64::new(0) }; 512]);
/// The virtual address that `boot.rs` has mapped [`ALIASES`] at.
const ALIASES_START: usize = 0x7fe0_0000;

/// Calls `write` with a writable alias of `address`. Interrupts are masked.
#[inline(always)]
fn with_alias(address: usize, write: &mut dyn FnMut(*mut u8)) {
    let index = 2 * cpu::number();
    let (page, offset) = (ALIASES_START + 4096 * index, address % 4096);
    ALIASES.0[index].store((address - offset) as u64 | DATA_PAGE, Ordering::Relaxed);
    // SAFETY: barriers. They make the descriptor visible to the walks for the accesses below (Arm ARM, D8.2.6).
    unsafe { asm!("dsb ishst", "isb", options(nostack, preserves_flags)) };
    write((page + offset) as *mut u8);
    ALIASES.0[index].store(0, Ordering::Relaxed);
    // SAFETY: the page is not used any more. Other CPUs may have walked the table speculatively: hence `is`.
    unsafe {
        asm!("dsb ishst", "tlbi vae1is, {}", "dsb ish", "isb", in(reg) page >> 12, options(nostack, preserves_flags));
    }
}

/// Whether a task is in [`hold`].
static IS_HOLDING: AtomicBool = AtomicBool::new(false);
/// The number of CPUs that wait, and how many times they were released.
static WAITING: AtomicUsize = AtomicUsize::new(0);
static RELEASES: AtomicUsize = AtomicUsize::new(0);

/// Calls `action` while the other CPUs are in [`wait_while_held`].
#[inline(always)]
fn hold(action: &mut dyn FnMut()) {
    // Interrupts are not masked here: the task that holds the CPUs waits for this one, too.
    while IS_HOLDING.swap(true, Ordering::Acquire) {
        spin_loop();
    }
    cpu::masked(|| {
        gic::interrupt_others(gic::HOLD);
        // Acquire: what the CPUs did before they came is visible, the pcs of tasks included.
        while WAITING.load(Ordering::Acquire) < CPUS - 1 {
            spin_loop();
        }
        action();
        WAITING.store(0, Ordering::Relaxed);
        // Release: a CPU that goes on sees what `action` has done, and the zero that it may add to.
        RELEASES.fetch_add(1, Ordering::Release);
        // SAFETY: the barrier completes the store before the event (Arm ARM, D1.6.1).
        unsafe { asm!("dsb ishst", "sev", options(nostack, preserves_flags)) };
    });
    IS_HOLDING.store(false, Ordering::Release);
}

/// Ends the interrupt `acknowledged`, and waits until the CPU that has sent it releases this one.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.wait_while_held")]
pub fn wait_while_held(acknowledged: u32) {
    gic::end(acknowledged);
    // This CPU has seen the last release, or made it.
    let releases = RELEASES.load(Ordering::Relaxed);
    WAITING.fetch_add(1, Ordering::Release);
    while RELEASES.load(Ordering::Acquire) == releases {
        // SAFETY: waits for the event, which may have come already.
        unsafe { asm!("wfe", options(nomem, nostack, preserves_flags)) };
    }
    // SAFETY: a context synchronization event, after which this CPU fetches what was written (Arm ARM, B2.4.4).
    unsafe { asm!("isb", options(nostack, preserves_flags)) };
}
