//! Time, from the generic timer: the virtual counter and the EL1 virtual timer (Arm ARM, D12).
//!
//! EL1 can use the virtual timer both with a hypervisor and without one.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use device_tree::Interrupt;
use spin::Once;

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{CNTFRQ_EL0, CNTV_CTL_EL0, CNTV_CVAL_EL0, CNTVCT_EL0, Readable, Writeable};

use crate::interrupt::{self, Handler, InterruptError};
use crate::task;

const NANOSECONDS: u128 = 1_000_000_000;

/// The counter value when the kernel started.
static START: AtomicU64 = AtomicU64::new(0);

/// Counter ticks per second. The boot CPU reads the value once for all CPUs, because firmware may have set the register
/// on that CPU only.
static FREQUENCY: AtomicU64 = AtomicU64::new(1);
/// The timer's interrupt, which is private to each CPU.
static INTERRUPT: Once<Interrupt> = Once::new();

/// Starts the clock at 0. Called once, on the boot CPU.
pub(crate) fn initialize() {
    START.store(counter(), Ordering::Relaxed);
    // If firmware has not set the frequency, times are wrong, but nothing divides by 0.
    FREQUENCY.store(CNTFRQ_EL0.get().max(1), Ordering::Relaxed);
}

/// Stores which interrupt the timer raises. Called once, on the boot CPU.
pub(crate) fn set_interrupt(timer: Interrupt) {
    INTERRUPT.call_once(|| timer);
}

/// Registers the scheduler for this CPU's timer interrupt. Called on every CPU.
pub(crate) fn initialize_cpu() -> Result<(), InterruptError> {
    clear_event();
    let timer = *INTERRUPT.get().ok_or(InterruptError::None("timer"))?;
    interrupt::register(timer, &HANDLER)
}

static HANDLER: Handler = Handler { name: "arch_timer", handle: handle_interrupt };

fn handle_interrupt() {
    // Clearing the event deasserts the interrupt line until the next event is set.
    clear_event();
    task::timer_interrupt();
}

/// Returns the virtual counter, which never goes backwards on any CPU. Safe to call from code that cannot be probed.
#[inline(always)]
#[must_use]
pub fn counter() -> u64 {
    // Without the barrier, the CPU may read the counter earlier than program order (Arm ARM, D12.2).
    barrier::isb(barrier::SY);
    CNTVCT_EL0.get()
}

/// Returns the counter ticks per second.
#[inline(always)]
#[must_use]
pub(crate) fn frequency() -> u64 {
    FREQUENCY.load(Ordering::Relaxed)
}

/// Converts `ticks` of the counter to a duration.
#[must_use]
pub fn duration(ticks: u64) -> Duration {
    let nanoseconds = u128::from(ticks) * NANOSECONDS / u128::from(frequency());
    Duration::from_nanos_u128(nanoseconds)
}

/// Converts `duration` to ticks of the counter, rounded up.
#[must_use]
pub fn ticks(duration: Duration) -> u64 {
    (duration.as_nanos() * u128::from(frequency())).div_ceil(NANOSECONDS).try_into().unwrap_or(u64::MAX)
}

/// Returns the counter value when the kernel started, which is time 0 of [`now`] and of the console's clock.
#[inline(always)]
#[must_use]
pub(crate) fn start() -> u64 {
    START.load(Ordering::Relaxed)
}

/// Returns the time since the kernel started.
#[must_use]
pub fn now() -> Duration {
    duration(counter() - start())
}

/// Sets this CPU's timer interrupt to come when the counter reaches `deadline`, or at once if it has.
pub(crate) fn set_event(deadline: u64) {
    CNTV_CVAL_EL0.set(deadline);
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::SET + CNTV_CTL_EL0::IMASK::CLEAR);
    barrier::isb(barrier::SY);
}

/// Cancels this CPU's timer event.
pub(crate) fn clear_event() {
    CNTV_CTL_EL0.write(CNTV_CTL_EL0::ENABLE::CLEAR);
    barrier::isb(barrier::SY);
}
