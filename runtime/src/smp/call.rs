//! Calls a function on each CPU: on this one, and on the others by an interrupt.

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use core::time::Duration;

use crate::interrupt::{self, Ipi};
use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::sync::IrqMask;
use crate::task;

/// How often to check whether a CPU has made its call.
const PAUSE: Duration = Duration::from_millis(1);
/// How many times to check without a pause. A CPU that has interrupts unmasked answers at once.
const CHECKS: usize = 1000;

/// Whether a task is in [`on_each_cpu`].
static CALLING: AtomicBool = AtomicBool::new(false);
/// The function to call, a `fn()`.
static ACTION: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// Whether a CPU has yet to call it.
static IS_PENDING: PerCpu<AtomicBool> = PerCpu::new([const { AtomicBool::new(false) }; MAX_CPUS]);

/// Calls `action` once on each running CPU, with interrupts masked, and returns when all calls have returned.
///
/// Only tasks may call this; several take turns.
///
/// # Panics
///
/// Panics if interrupts are masked: a CPU that does not answer could be waiting for the caller.
pub fn on_each_cpu(action: fn()) {
    while CALLING.swap(true, Ordering::Acquire) {
        task::yield_now();
    }
    ACTION.store(action as *mut (), Ordering::Relaxed);
    {
        // The task stays on this CPU until the CPU has made its call.
        let mask = IrqMask::new();
        assert!(mask.was_enabled(), "a task called on_each_cpu with interrupts masked");
        let this = task::current_cpu();
        for cpu in super::running().filter(|&cpu| cpu != this) {
            // Release: the CPU sees the action.
            IS_PENDING.of(cpu).store(true, Ordering::Release);
            interrupt::send(cpu, Ipi::Call);
        }
        action();
    }
    // Acquire: what the CPUs have done happens before this returns.
    let is_pending = || super::running().any(|cpu| IS_PENDING.of(cpu).load(Ordering::Acquire));
    let mut checks = 0;
    while is_pending() {
        checks += 1;
        if checks < CHECKS { core::hint::spin_loop() } else { task::sleep(PAUSE) }
    }
    CALLING.store(false, Ordering::Release);
}

/// Makes the call of this CPU, whose dense number is `cpu`, after it has taken the interrupt.
pub(crate) fn answer_call(cpu: usize) {
    let is_pending = IS_PENDING.of(cpu);
    if is_pending.load(Ordering::Acquire) {
        // SAFETY: `on_each_cpu` has stored a `fn()` before it set the flag.
        let action = unsafe { core::mem::transmute::<*mut (), fn()>(ACTION.load(Ordering::Relaxed)) };
        action();
        is_pending.store(false, Ordering::Release);
    }
}
