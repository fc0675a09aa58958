//! Fast interrupts (FIQ) for profilers: one timer of each CPU interrupts even code that has interrupts masked.
//!
//! ```ignore
//! // SAFETY: `sample` only adds to atomics of its own.
//! let _owner = unsafe { fast::set_handler(sample) }?;
//! fast::arm(ticks)?;
//! ```
//!
//! An [`IrqMask`](crate::sync::IrqMask), and so every lock of the kernel, masks only PSTATE.I. So a fast interrupt also
//! comes inside the kernel's critical sections. It does not come while an exception is handled, a probe is hit or an
//! instruction is stepped, because PSTATE.F is masked there, too.
//!
//! The timer is the EL1 physical timer (Arm ARM, D12.2), which the kernel uses for nothing else. The controller decides
//! how its interrupt becomes a fast one:
//!
//! | controller | fast interrupts |
//! |---|---|
//! | GICv2 without the Security Extensions | the timer and the counters are in group 0, all other interrupts in group 1 |
//! | GICv2 with them, as in a Raspberry Pi 4 | [`FastError::Secure`]: group 0 belongs to secure state |
//! | GICv3 with one security state | the timer and the counters are in group 0, all other interrupts in group 1 |
//! | GICv3 with two, or with FIQs taken at EL3 | [`FastError::Secure`] |
//! | BCM2836 | the bits for FIQ of the timer and of the counters are set |
//!
//! The interrupt is not acknowledged before the handler is called: it is level-sensitive, and gone when the timer is
//! disarmed.
//!
//! The event [`counters`] of the CPU interrupt in the same way, and call the same handler.
//!
//! Where secure state keeps group 0, both interrupt by IRQ. Only [`sampling`](crate::sampling) makes use of that;
//! [`arm`] refuses.

use core::mem;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{CNTP_CTL_EL0, CNTP_CVAL_EL0, CNTPCT_EL0, Readable, Writeable};
use aarch64_kprobes::exception::TrapFrame;
use device_tree::Interrupt;
use spin::Once;

use super::counters::{self, Mode};
use super::delivery::{Delivery, FastError, enable};
use super::{Controller, IN_HANDLER, without};
use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::{smp, task, time};

/// A handler of fast interrupts. It is called with the registers of the interrupted code.
pub type Handler = fn(&TrapFrame);

/// How the timer's interrupt reaches each CPU.
static DELIVERY: PerCpu<Once<Result<Delivery, FastError>>> = PerCpu::new([const { Once::new() }; MAX_CPUS]);
/// The address of the [`Handler`]; 0 before there is an [`Owner`].
static HANDLER: AtomicUsize = AtomicUsize::new(0);
/// Whether there is an [`Owner`].
static IS_OWNED: AtomicBool = AtomicBool::new(false);

/// Enables the timer's interrupt on this CPU, with the timer disarmed.
pub(super) fn initialize_cpu(controller: &Controller, timer: Option<Interrupt>) {
    // The firmware may have armed the timer.
    disarm();
    let delivery = timer.ok_or(FastError::NoTimer).and_then(|interrupt| enable(controller, interrupt));
    DELIVERY.here().call_once(|| delivery);
}

/// Returns whether this CPU takes fast interrupts.
///
/// # Errors
///
/// A [`FastError`] with the reason why it does not.
pub fn check() -> Result<(), FastError> {
    match delivery_on(task::current_cpu())? {
        Delivery::Fast => Ok(()),
        Delivery::Ordinary(why) => Err(why),
    }
}

/// Returns how the timer's interrupt reaches the CPU with the dense number `cpu`.
///
/// # Errors
///
/// A [`FastError`] with the reason why it does not.
pub(crate) fn delivery_on(cpu: usize) -> Result<Delivery, FastError> {
    DELIVERY.of(cpu).get().copied().unwrap_or(Err(FastError::NoController))
}

/// The owner of the fast interrupts of all CPUs. There is one at a time. Its handler is called until it is dropped.
#[derive(Debug)]
#[must_use = "fast interrupts have their handler until this is dropped"]
pub struct Owner(());

impl Drop for Owner {
    /// Disarms the timers of all CPUs, and ends their counting. When this returns, the handler runs on no CPU.
    ///
    /// # Panics
    ///
    /// Panics if interrupts are masked: see [`on_each_cpu`](crate::smp::on_each_cpu).
    fn drop(&mut self) {
        HANDLER.store(ignore as *const () as usize, Ordering::Release);
        // A CPU that answers is not in the handler, and does not call it any more.
        smp::on_each_cpu(|| {
            without(|| {
                disarm();
                counters::end();
            });
        });
        IS_OWNED.store(false, Ordering::Release);
    }
}

/// Handles an interrupt of a timer that was armed for an earlier owner.
fn ignore(_: &TrapFrame) {}

/// Returns whether there is an [`Owner`].
pub(crate) fn is_owned() -> bool {
    IS_OWNED.load(Ordering::Relaxed)
}

/// Makes `handler` the handler of fast interrupts on all CPUs, until the result is dropped.
///
/// The handler runs with all of PSTATE.DAIF masked, on the stack of the interrupted task, and in its name. The timer is
/// disarmed by then, and the counters are paused: a handler that samples periodically [arms](arm) the timer again and
/// sets the counters (`counters::set`).
///
/// # Errors
///
/// [`FastError::Busy`] if there is another owner, whose handler stays.
///
/// # Safety
///
/// The handler interrupts code that has interrupts masked and relies on being alone on its CPU. So the handler:
///
/// - takes no lock, and wakes no task;
/// - neither allocates nor frees memory;
/// - prints nothing, and does not panic;
/// - registers, arms and disarms no probe.
///
/// It may read the frame, make a [backtrace](crate::backtrace::of_frame) of it, add to atomics, and hit probes.
pub unsafe fn set_handler(handler: Handler) -> Result<Owner, FastError> {
    // Acquire: the timers that the previous owner has armed are disarmed.
    if IS_OWNED.swap(true, Ordering::Acquire) {
        return Err(FastError::Busy);
    }
    HANDLER.store(handler as *const () as usize, Ordering::Release);
    Ok(Owner(()))
}

/// Makes this CPU take one fast interrupt after `ticks` ticks of its counter ([`time::ticks`](crate::time::ticks)).
///
/// Replaces an earlier setting. If the task moves meanwhile, the CPU that it moves to is armed.
///
/// # Errors
///
/// A [`FastError`] in the same cases as for [`check`], or [`FastError::NoHandler`].
#[inline]
pub fn arm(ticks: u64) -> Result<(), FastError> {
    without(|| {
        check()?;
        if !is_owned() {
            return Err(FastError::NoHandler);
        }
        set_deadline(counter().saturating_add(ticks));
        Ok(())
    })
}

/// Returns the physical counter, which the timer compares with its deadline.
pub(crate) fn counter() -> u64 {
    // Without the barrier, the CPU may read the counter earlier than program order (Arm ARM, D12.2).
    barrier::isb(barrier::SY);
    CNTPCT_EL0.get()
}

/// Makes this CPU's timer interrupt once when the counter reaches `deadline`, or at once if it has.
pub(crate) fn set_deadline(deadline: u64) {
    CNTP_CVAL_EL0.set(deadline);
    CNTP_CTL_EL0.write(CNTP_CTL_EL0::ENABLE::SET + CNTP_CTL_EL0::IMASK::CLEAR);
    barrier::isb(barrier::SY);
}

/// Cancels the fast interrupt of this CPU until it is [armed](arm) again.
#[inline]
pub fn disarm() {
    CNTP_CTL_EL0.write(CNTP_CTL_EL0::ENABLE::CLEAR);
    barrier::isb(barrier::SY);
}

/// Fast interrupts of one CPU that nothing requests, in close succession.
struct Unexplained {
    count: AtomicU32,
    /// When the last one came, by the physical counter.
    last: AtomicU64,
}

static UNEXPLAINED: PerCpu<Unexplained> =
    PerCpu::new([const { Unexplained { count: AtomicU32::new(0), last: AtomicU64::new(0) } }; MAX_CPUS]);

impl Unexplained {
    /// The most in succession. On hardware, a signal outlasts its request by less.
    const MOST: u32 = 10_000;

    /// Counts one more. Returns false if there have been too many in succession.
    fn is_passing(&self) -> bool {
        let now = counter();
        let distance = now.saturating_sub(self.last.swap(now, Ordering::Relaxed));
        // In succession: within a millisecond.
        let before = if distance < time::frequency() / 1000 { self.count.load(Ordering::Relaxed) } else { 0 };
        self.count.store(before + 1, Ordering::Relaxed);
        before < Self::MOST
    }
}

/// Handles the interrupt of the timer or of the counters. Returns false in two cases: one of them is due, and there has
/// never been a handler; or too many interrupts have come in succession that neither of them requests.
pub(crate) fn dispatch(frame: &TrapFrame) -> bool {
    let timer = CNTP_CTL_EL0.extract();
    let is_timer_due = timer.is_set(CNTP_CTL_EL0::ENABLE) && timer.is_set(CNTP_CTL_EL0::ISTATUS);
    // On hardware, the signal may outlast the request for a while.
    if !is_timer_due && !counters::is_due() {
        return UNEXPLAINED.here().is_passing();
    }
    let handler = HANDLER.load(Ordering::Acquire);
    if handler == 0 {
        return false;
    }
    // This also withdraws the requests.
    disarm();
    counters::set(Mode::Paused);
    let state = &IN_HANDLER[task::current_cpu()];
    let was_in_handler = state.swap(true, Ordering::Relaxed);
    // SAFETY: the value is not 0, so `set_handler` or the drop of an `Owner` has stored it, from a `Handler`.
    unsafe { mem::transmute::<usize, Handler>(handler)(frame) };
    state.store(was_in_handler, Ordering::Relaxed);
    true
}
