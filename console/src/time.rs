//! The clock of records and programs.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use kprobes_trace::clock::Clock;
use kprobes_vm::jit;
pub(crate) use timer::{counter, frequency as timer_frequency};

static ORIGIN: AtomicU64 = AtomicU64::new(0);
static FREQUENCY: AtomicU64 = AtomicU64::new(1);
/// The nanoseconds of a tick, times 2³².
static NANOSECONDS_PER_TICK: AtomicU64 = AtomicU64::new(0);

/// Sets the clock.
pub(crate) fn init(clock: Clock) {
    let frequency = clock.frequency.max(1);
    ORIGIN.store(clock.origin, Ordering::Relaxed);
    FREQUENCY.store(frequency, Ordering::Relaxed);
    NANOSECONDS_PER_TICK.store(((1_000_000_000_u128 << 32) / u128::from(frequency)) as u64, Ordering::Relaxed);
}

/// Returns the clock. The clock is the same at every call, so the time of a record does not depend on when it is read.
#[must_use]
pub fn clock() -> Clock {
    Clock { frequency: FREQUENCY.load(Ordering::Relaxed), origin: ORIGIN.load(Ordering::Relaxed) }
}

/// Returns the parameters of [`nanoseconds`], for generated code that does the same computation.
pub(crate) fn of_code() -> jit::Clock {
    jit::Clock { start: ORIGIN.load(Ordering::Relaxed), per_tick: NANOSECONDS_PER_TICK.load(Ordering::Relaxed) }
}

/// Returns the time since the clock's origin.
pub(crate) fn now() -> Duration {
    Duration::from_nanos(clock().nanoseconds(counter()))
}

/// Returns the nanoseconds since the clock's origin. For the hit path: it takes a few instructions, without a division
/// or a barrier, and is accurate to a few instructions.
#[inline(always)]
#[must_use]
pub fn nanoseconds() -> u64 {
    let ticks = timer::ticks().wrapping_sub(ORIGIN.load(Ordering::Relaxed));
    ((u128::from(ticks) * u128::from(NANOSECONDS_PER_TICK.load(Ordering::Relaxed))) >> 32) as u64
}

/// The generic timer.
#[cfg(target_os = "none")]
mod timer {
    use core::arch::asm;

    /// Returns the frequency in Hz, as firmware has set it.
    pub fn frequency() -> u64 {
        let frequency;
        // SAFETY: the instruction reads a system register that EL1 can read, and has no other effect.
        unsafe { asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack, preserves_flags)) };
        frequency
    }

    /// Returns the virtual counter. The ISB orders the read after preceding instructions (Arm ARM, D12.2).
    pub fn counter() -> u64 {
        let ticks;
        // SAFETY: the instructions read a system register that EL1 can read, after a barrier, and have no other effect.
        unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags)) };
        ticks
    }

    /// Returns the virtual counter, without a barrier: the read may happen a few instructions earlier or later.
    #[inline(always)]
    pub fn ticks() -> u64 {
        let ticks;
        // SAFETY: the instruction reads a system register that EL1 can read, and has no other effect.
        unsafe { asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
        ticks
    }
}

/// The tests on the host have no timer: their time stands still.
#[cfg(not(target_os = "none"))]
mod timer {
    pub fn frequency() -> u64 {
        1
    }

    pub fn counter() -> u64 {
        0
    }

    pub fn ticks() -> u64 {
        0
    }
}
