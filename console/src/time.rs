//! The clock of records and programs.

use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use kprobes_trace::host::Clock;
use kprobes_vm::compile;

static ORIGIN: AtomicU64 = AtomicU64::new(0);
static FREQUENCY: AtomicU64 = AtomicU64::new(1);
/// Nanoseconds of a tick, times 2³².
static NANOSECONDS_PER_TICK: AtomicU64 = AtomicU64::new(0);

/// Has this clock from now on.
pub(crate) fn init(clock: Clock) {
    let frequency = clock.frequency.max(1);
    ORIGIN.store(clock.origin, Ordering::Relaxed);
    FREQUENCY.store(frequency, Ordering::Relaxed);
    NANOSECONDS_PER_TICK.store(((1_000_000_000_u128 << 32) / u128::from(frequency)) as u64, Ordering::Relaxed);
}

/// The clock. It is the same at every call, so a record has one time.
#[must_use]
pub fn clock() -> Clock {
    Clock { frequency: FREQUENCY.load(Ordering::Relaxed), origin: ORIGIN.load(Ordering::Relaxed) }
}

/// What [`nanoseconds`] computes with, for code that does so itself.
pub(crate) fn of_code() -> compile::Clock {
    compile::Clock { start: ORIGIN.load(Ordering::Relaxed), per_tick: NANOSECONDS_PER_TICK.load(Ordering::Relaxed) }
}

/// What firmware says that the generic timer's frequency is, in Hz.
pub(crate) fn timer_frequency() -> u64 {
    let frequency;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack, preserves_flags)) };
    frequency
}

/// The virtual counter, not read ahead of what stands before (Arm ARM, D12.2).
pub(crate) fn counter() -> u64 {
    let ticks;
    // SAFETY: reads a register.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack, preserves_flags)) };
    ticks
}

/// The time since the clock's origin.
pub(crate) fn now() -> Duration {
    Duration::from_nanos(clock().nanoseconds(counter()))
}

/// Nanoseconds since the clock's origin, to a few instructions: without a division, and without a barrier. Fit for the hit path.
#[inline(always)]
#[must_use]
pub fn nanoseconds() -> u64 {
    let ticks: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
    let ticks = ticks.wrapping_sub(ORIGIN.load(Ordering::Relaxed));
    ((u128::from(ticks) * u128::from(NANOSECONDS_PER_TICK.load(Ordering::Relaxed))) >> 32) as u64
}
