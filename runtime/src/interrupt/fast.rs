//! Fast interrupts (FIQ): one timer of each CPU that interrupts also where interrupts are masked, for profilers.
//!
//! ```ignore
//! // SAFETY: `sample` only adds to atomics of its own.
//! unsafe { fast::set_handler(sample) };
//! fast::arm(ticks)?;
//! ```
//!
//! An [`IrqMask`](crate::sync::IrqMask), and so every lock of the kernel, masks PSTATE.I alone. So a fast interrupt comes inside
//! the critical sections of the kernel. It does not come while an exception is handled, a probe is hit or an instruction is
//! stepped: there PSTATE.F is masked as well.
//!
//! The timer is the EL1 physical timer (Arm ARM, D12.2), which the kernel uses for nothing else. What its interrupt needs, for it
//! to be a fast one, depends on the controller:
//!
//! | controller | |
//! |---|---|
//! | GICv2 without the Security Extensions | it is in group 0, all others in group 1 |
//! | GICv2 with them, as in a Raspberry Pi 4 | [`FastError::Secure`]: group 0 is that of secure state |
//! | GICv3 with one security state | it is in group 0, all others in group 1 |
//! | GICv3 with two, or with FIQs taken at EL3 | [`FastError::Secure`] |
//! | BCM2836 | its bit for FIQ is set |
//!
//! The handler is called without the interrupt being acknowledged: it is level-sensitive, and gone when the timer is disarmed.

use core::arch::asm;
use core::fmt;
use core::mem;
use core::sync::atomic::{AtomicUsize, Ordering};

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{CNTP_CTL_EL0, CNTP_CVAL_EL0, CNTPCT_EL0, Readable, Writeable};
use aarch64_kprobes::exception::TrapFrame;
use spin::Once;

use super::{Controller, IN_HANDLER};
use crate::device_tree::Interrupt;
use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::task;

/// Why a CPU takes no fast interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastError {
    /// The device tree names no interrupt for the physical timer.
    NoTimer,
    /// The interrupt controller has not been set up on this CPU.
    NoController,
    /// The interrupt controller keeps fast interrupts for secure state.
    Secure,
    /// [`set_handler`] has not been called.
    NoHandler,
}

impl fmt::Display for FastError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::NoTimer => "the device tree gives the physical timer no interrupt",
            Self::NoController => "the interrupt controller has not been set up on this CPU",
            Self::Secure => "the interrupt controller keeps fast interrupts for secure state",
            Self::NoHandler => "fast interrupts have no handler",
        })
    }
}

impl core::error::Error for FastError {}

/// Called with the registers of what has been interrupted.
pub type Handler = fn(&TrapFrame);

/// The interrupt of the physical timer, if there is one. Set on the CPU that boots.
static INTERRUPT: Once<Option<Interrupt>> = Once::new();
/// Whether each CPU takes the interrupt as a fast one.
static AVAILABILITY: PerCpu<Once<Result<(), FastError>>> = PerCpu::new([const { Once::new() }; MAX_CPUS]);
/// The [`Handler`], or 0.
static HANDLER: AtomicUsize = AtomicUsize::new(0);

pub(super) fn set_interrupt(interrupt: Option<Interrupt>) {
    INTERRUPT.call_once(|| interrupt);
}

/// Makes the timer's interrupt a fast one on this CPU, where that is possible, with the timer disarmed.
pub(super) fn initialize_cpu(controller: &Controller) {
    // The firmware may have armed it.
    disarm();
    let enable = |interrupt| match controller {
        Controller::V2(gic) => gic.enable_fast(interrupt),
        Controller::V3(gic) => gic.enable_fast(interrupt),
        Controller::Bcm2836(local) => {
            local.enable_fast(interrupt);
            Ok(())
        }
    };
    let result = INTERRUPT.get().copied().flatten().ok_or(FastError::NoTimer).and_then(enable);
    AVAILABILITY.here().call_once(|| result);
}

/// Whether this CPU takes fast interrupts.
///
/// # Errors
///
/// Why it does not.
pub fn check() -> Result<(), FastError> {
    AVAILABILITY.here().get().copied().unwrap_or(Err(FastError::NoController))
}

/// Has `handler` called for the fast interrupts of all CPUs from now on. A CPU may still be in the handler before it.
///
/// The handler runs with all of PSTATE.DAIF masked, on the stack of the interrupted task, and in its name. The timer is disarmed
/// then: a handler that samples periodically [arms](arm) it again.
///
/// # Safety
///
/// The handler interrupts code that has interrupts masked, and relies on being alone on its CPU. So the handler
///
/// - takes no lock, and wakes no task;
/// - allocates nothing, and gives no memory back;
/// - prints nothing, and does not panic;
/// - registers, arms and disarms no probe.
///
/// It may read the frame, make a [backtrace](crate::backtrace::of_frame) of it, add to atomics, and run into probes.
pub unsafe fn set_handler(handler: Handler) {
    HANDLER.store(handler as *const () as usize, Ordering::Release);
}

/// Makes this CPU take a fast interrupt, once, when its counter has gone on by `ticks` ([`time::ticks`](crate::time::ticks)).
/// Replaces what it was armed for before. A task that is moved meanwhile arms the CPU that it is moved to.
///
/// # Errors
///
/// The CPU takes none, or there is no handler.
#[inline]
pub fn arm(ticks: u64) -> Result<(), FastError> {
    without(|| {
        check()?;
        if HANDLER.load(Ordering::Relaxed) == 0 {
            return Err(FastError::NoHandler);
        }
        barrier::isb(barrier::SY);
        CNTP_CVAL_EL0.set(CNTPCT_EL0.get().saturating_add(ticks));
        CNTP_CTL_EL0.write(CNTP_CTL_EL0::ENABLE::SET + CNTP_CTL_EL0::IMASK::CLEAR);
        barrier::isb(barrier::SY);
        Ok(())
    })
}

/// Makes this CPU take no fast interrupt until it is [armed](arm) again.
#[inline]
pub fn disarm() {
    CNTP_CTL_EL0.write(CNTP_CTL_EL0::ENABLE::CLEAR);
    barrier::isb(barrier::SY);
}

/// Calls `f` with all interrupts masked, the fast ones as well: for what the handlers of probes must not find half done, as a fast
/// interrupt may hit probes.
#[inline]
pub fn without<R>(f: impl FnOnce() -> R) -> R {
    let daif: u64;
    // SAFETY: masking is always allowed. No `nomem`: what `f` does must not move out of where they are masked.
    unsafe { asm!("mrs {}, daif", "msr daifset, #0b0011", out(reg) daif, options(nostack, preserves_flags)) };
    let result = f();
    // SAFETY: puts back what was read above.
    unsafe { asm!("msr daif, {}", in(reg) daif, options(nostack, preserves_flags)) };
    result
}

/// Handles a fast interrupt. Returns false if there is no handler for it.
pub(crate) fn dispatch(frame: &TrapFrame) -> bool {
    let handler = HANDLER.load(Ordering::Acquire);
    if handler == 0 {
        return false;
    }
    // On hardware the signal may outlast the request for a while.
    if !CNTP_CTL_EL0.is_set(CNTP_CTL_EL0::ISTATUS) {
        return true;
    }
    // The request goes with it.
    disarm();
    let state = &IN_HANDLER[task::current_cpu()];
    let was_in_handler = state.swap(true, Ordering::Relaxed);
    // SAFETY: it is not 0, so `set_handler` has stored it, from a `Handler`.
    unsafe { mem::transmute::<usize, Handler>(handler)(frame) };
    state.store(was_in_handler, Ordering::Relaxed);
    true
}
