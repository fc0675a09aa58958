//! The CPU: its number and its interrupt mask. Starts the others and switches the machine off: by PSCI (Arm DEN 0022),
//! or on QEMU's `raspi3b` by a word in memory and the watchdog.

use core::arch::asm;

/// The number of CPUs, which are numbered by MPIDR_EL1.Aff0.
pub const CPUS: usize = 4;

/// Returns the number of this CPU. With interrupts unmasked, the caller may be on another one when this returns.
#[inline(always)]
pub fn number() -> usize {
    let mpidr: usize;
    // SAFETY: reads an identification register.
    unsafe { asm!("mrs {}, mpidr_el1", out(reg) mpidr, options(nomem, nostack, preserves_flags)) };
    // No other CPUs are started. The remainder spares arrays the check of their bounds, which could panic in a hit.
    mpidr % CPUS
}

/// Calls `action` with interrupts masked. The code stays on this CPU meanwhile.
#[inline(always)]
pub fn masked<T>(action: impl FnOnce() -> T) -> T {
    let daif: u64;
    // SAFETY: masking is always allowed. No `nomem`: `action` must not move out of the masked region.
    unsafe { asm!("mrs {}, daif", "msr daifset, #0b0010", out(reg) daif, options(nostack, preserves_flags)) };
    let result = action();
    // SAFETY: restores the masks that were read above.
    unsafe { asm!("msr daif, {}", in(reg) daif, options(nostack, preserves_flags)) };
    result
}

/// Unmasks all interrupts and debug exceptions. Handlers of probes call neither this nor [`idle`].
pub(super) fn unmask() {
    // SAFETY: the callers have set up what the handlers use.
    unsafe { asm!("msr daifclr, #0b1111", options(nostack, preserves_flags)) };
}

/// Waits for interrupts, which give the CPU to other tasks.
pub(super) fn idle() -> ! {
    unmask();
    loop {
        // SAFETY: WFI only waits.
        unsafe { asm!("wfi", options(nomem, nostack, preserves_flags)) };
    }
}

/// Starts the CPU with this number.
#[cfg(not(feature = "raspi3b"))]
pub fn start(cpu: usize) {
    unsafe extern "C" {
        safe static start: u8;
    }
    let mut result: i64 = 0xc400_0003;
    // SAFETY: CPU_ON. The entry expects the MMU off, as PSCI leaves it, and takes a stack that is the CPU's own. What
    // it reads with the MMU off is the text, which was in memory before this CPU had caches. The barrier completes the
    // stores that it finds then.
    unsafe {
        asm!("dsb ishst", "hvc #0", inout("x0") result, in("x1") cpu, in("x2") &raw const start, in("x3") 0, clobber_abi("C"))
    };
    assert!(result == 0, "CPU {cpu} does not start: PSCI says {result}");
}

/// Starts the CPU with this number, after those with lower numbers. All wait in the first instructions of `raspi3b.S`.
#[cfg(feature = "raspi3b")]
pub fn start(cpu: usize) {
    use core::sync::atomic::{AtomicUsize, Ordering};

    unsafe extern "C" {
        #[link_name = "last_started"]
        safe static LAST_STARTED: AtomicUsize;
    }
    LAST_STARTED.store(cpu, Ordering::Relaxed);
    // SAFETY: writes the word back to memory, where a CPU with its MMU off reads it, and wakes that CPU.
    unsafe { asm!("dc cvac, {}", "dsb sy", "sev", in(reg) &raw const LAST_STARTED, options(nostack, preserves_flags)) };
}

pub fn power_off() -> ! {
    if cfg!(feature = "raspi3b") {
        // SAFETY: registers of the watchdog, which are mapped as device memory: a reset, with the boot partition that
        // means to stay off.
        unsafe {
            (0x3f10_0020 as *mut u32).write_volatile(0x5a00_0555);
            (0x3f10_001c as *mut u32).write_volatile(0x5a00_0020);
        }
        loop {
            core::hint::spin_loop();
        }
    }
    // SAFETY: the hypervisor call is SYSTEM_OFF of PSCI, which does not return.
    unsafe { asm!("hvc #0", in("x0") 0x8400_0008_u64, options(noreturn)) }
}
