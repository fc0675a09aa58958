//! Time: the generic timer's virtual counter and EL1 virtual timer (Arm ARM, D12).
//!
//! The virtual timer, which EL1 can use under a hypervisor and without one.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use spin::Once;

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{CNTFRQ_EL0, CNTV_CTL_EL0, CNTV_CVAL_EL0, CNTVCT_EL0, Readable, Writeable};

use kprobes_vm::compile::Clock;

use crate::device_tree::Interrupt;
use crate::interrupt::{self, InterruptError};
use crate::task;

const NANOSECONDS: u128 = 1_000_000_000;

/// The counter when the kernel started.
static START: AtomicU64 = AtomicU64::new(0);

/// Ticks of the counter in a second, which is one for all CPUs, as the CPU that boots knows it: firmware may have told
/// only that one.
static FREQUENCY: AtomicU64 = AtomicU64::new(1);
/// Nanoseconds of a tick, times 2³².
static NANOSECONDS_PER_TICK: AtomicU64 = AtomicU64::new(0);
/// The timer's interrupt, which each CPU has of its own.
static INTERRUPT: Once<Interrupt> = Once::new();

/// Makes time begin now. On the CPU that boots, once.
pub(crate) fn initialize() {
    START.store(counter(), Ordering::Relaxed);
    // Where firmware has not said so, time is wrong, but nothing divides by 0.
    FREQUENCY.store(CNTFRQ_EL0.get().max(1), Ordering::Relaxed);
    NANOSECONDS_PER_TICK.store(((NANOSECONDS << 32) / u128::from(frequency())) as u64, Ordering::Relaxed);
}

/// Tells which interrupt the timer has. On the CPU that boots, once.
pub(crate) fn set_interrupt(timer: Interrupt) {
    INTERRUPT.call_once(|| timer);
}

/// Makes this CPU's timer interrupt call the scheduler. On every CPU.
pub(crate) fn initialize_cpu() -> Result<(), InterruptError> {
    clear_event();
    let timer = *INTERRUPT.get().ok_or(InterruptError::None("timer"))?;
    interrupt::register(timer, || {
        // The line goes down with the condition, and the condition comes back with the next event only.
        clear_event();
        task::timer_interrupt();
    })
}

/// The virtual counter. It does not go back, on any CPU. Fit for code that cannot be probed.
#[inline(always)]
#[must_use]
pub fn counter() -> u64 {
    // The counter may be read earlier than the program says (Arm ARM, D12.2).
    barrier::isb(barrier::SY);
    CNTVCT_EL0.get()
}

/// Ticks of the counter in a second.
#[inline(always)]
#[must_use]
pub(crate) fn frequency() -> u64 {
    FREQUENCY.load(Ordering::Relaxed)
}

/// The time that `ticks` of the counter are.
#[must_use]
pub fn duration(ticks: u64) -> Duration {
    let nanoseconds = u128::from(ticks) * NANOSECONDS / u128::from(frequency());
    Duration::from_nanos_u128(nanoseconds)
}

/// The ticks of the counter in `duration`, rounded up.
#[must_use]
pub fn ticks(duration: Duration) -> u64 {
    (duration.as_nanos() * u128::from(frequency())).div_ceil(NANOSECONDS).try_into().unwrap_or(u64::MAX)
}

/// The counter when the kernel started: time 0 of [`now`] and of [`nanoseconds`].
#[inline(always)]
#[must_use]
pub(crate) fn start() -> u64 {
    START.load(Ordering::Relaxed)
}

/// The time since the kernel started.
#[must_use]
pub fn now() -> Duration {
    duration(counter() - start())
}

/// What [`nanoseconds`] computes with, for code that does so itself: on every CPU the same, once the kernel has started.
#[must_use]
pub(crate) fn clock() -> Clock {
    Clock { start: start(), per_tick: NANOSECONDS_PER_TICK.load(Ordering::Relaxed) }
}

/// Nanoseconds since the kernel started, to a few instructions: without a division, and without a barrier. Fit for code that
/// cannot be probed.
#[inline(always)]
#[must_use]
pub fn nanoseconds() -> u64 {
    let ticks = CNTVCT_EL0.get().wrapping_sub(start());
    ((u128::from(ticks) * u128::from(NANOSECONDS_PER_TICK.load(Ordering::Relaxed))) >> 32) as u64
}

/// Makes this CPU's timer interrupt when the counter reaches `deadline`, at once if it has.
pub(crate) fn set_event(deadline: u64) {
    CNTV_CVAL_EL0.set(deadline);
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::SET + CNTV_CTL_EL0::IMASK::CLEAR);
    barrier::isb(barrier::SY);
}

/// Takes this CPU's event back.
pub(crate) fn clear_event() {
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::CLEAR);
    barrier::isb(barrier::SY);
}
