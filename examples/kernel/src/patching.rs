//! What a kernel needs to change its own text, with probes or without: a writable alias of a page, and a way to hold
//! the other CPUs. All of it runs while text is changed, so it is code that is not probed, or inlined into such code.

use core::arch::asm;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::kernel::{ALIASES_START, DATA_PAGE, STARTED, cpu, interrupts};

/// The table of level 3 for the aliases. Each CPU has an entry, and the page after its alias is not mapped.
#[repr(align(4096))]
pub struct Aliases([AtomicU64; 512]);
pub static ALIASES: Aliases = Aliases([const { AtomicU64::new(0) }; 512]);

/// Calls `write` with a writable alias of `address`, which is valid to the end of the page, and ends with the call.
#[inline(always)]
pub fn with_alias(address: usize, write: &mut dyn FnMut(*mut u8)) {
    cpu::masked(|| {
        let index = 2 * cpu::number();
        let (page, offset) = (ALIASES_START + 4096 * index, address % 4096);
        ALIASES.0[index].store((address - offset) as u64 | DATA_PAGE, Ordering::Relaxed);
        // SAFETY: barriers, after which the accesses below are translated by the descriptor (Arm ARM, D8.17).
        unsafe { asm!("dsb ishst", "isb", options(nostack, preserves_flags)) };
        write((page + offset) as *mut u8);
        ALIASES.0[index].store(0, Ordering::Relaxed);
        // SAFETY: nothing uses the page any more. Other CPUs may have walked the table speculatively: hence `is`. The
        // operand has bits 55 to 12 of the address; the bits above hold nothing here.
        unsafe { asm!("dsb ishst", "tlbi vae1is, {}", "dsb ish", "isb", in(reg) page << 8 >> 20, options(nostack)) };
    });
}

/// Whether a task is in [`hold_others`].
static IS_HOLDING: AtomicBool = AtomicBool::new(false);
/// The number of CPUs that wait, and how many times they were released.
static WAITING: AtomicUsize = AtomicUsize::new(0);
static RELEASES: AtomicUsize = AtomicUsize::new(0);

/// Calls `action` while the other CPUs are in [`wait_while_held`].
#[inline(always)]
pub fn hold_others(action: &mut dyn FnMut()) {
    // Interrupts are not masked here: the task that holds the CPUs waits for this one, too.
    while IS_HOLDING.swap(true, Ordering::Acquire) {
        spin_loop();
    }
    cpu::masked(|| {
        interrupts::interrupt_others(interrupts::HOLD);
        // No CPU starts now: `main` places the first probe, and begins when all CPUs have started. Acquire: what the
        // CPUs did before they came is visible, the pcs of tasks included.
        while WAITING.load(Ordering::Acquire) < STARTED.load(Ordering::Relaxed) - 1 {
            spin_loop();
        }
        action();
        WAITING.store(0, Ordering::Relaxed);
        // Release: a CPU that goes on sees what `action` has done, and the zero that it may add to.
        RELEASES.fetch_add(1, Ordering::Release);
        // SAFETY: the barrier completes the store before the event (Arm ARM, D1.6).
        unsafe { asm!("dsb ishst", "sev", options(nostack, preserves_flags)) };
    });
    IS_HOLDING.store(false, Ordering::Release);
}

/// Ends the interrupt `acknowledged`, and waits until the CPU that has sent it releases this one. All of PSTATE.DAIF
/// has been masked since the interrupt was taken.
#[inline(never)]
#[unsafe(link_section = ".kprobes.text.wait_while_held")]
pub fn wait_while_held(acknowledged: u32) {
    interrupts::end(acknowledged);
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
