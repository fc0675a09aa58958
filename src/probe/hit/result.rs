//! The return of a function, as seen by the handlers of return probes that are to cost little.
//!
//! After a call, x9 to x17 and the flags hold no value that is needed (AAPCS64, section 6.1), unless the code of a
//! caller shows otherwise ([`Live`](crate::insn::Live)), and any handler preserves x19 to x28, as every function does.
//! So where a function returns to `kretprobe_lean`, `kretprobe_result` in `trampoline/kretprobe.S` saves and restores
//! the other registers only, and calls the handler with a [`CallResult`]. It lies on the stack of the probed code,
//! directly below its stack pointer.
//!
//! Where a function returns to `kretprobe_trampoline`, [`call`] calls the same handler, with a `CallResult` that is
//! filled from the trap frame.

use core::mem::offset_of;
use core::ptr;

use super::arguments::copy_registers;
use super::cpu::Cpu;
use super::instance::Instance;
use super::list::TaskCalls;
use super::returns::{Call, ReturnProbe, true_return_address};
use super::trampoline;
use crate::exception::frame::TrapFrame;

called_by_assembly! {
    /// Called when a function has returned, before its caller continues. [`Hit`](super::Hit) says what a handler may
    /// do.
    pub type ResultHandler = fn(&CallResult);
}

/// What a return-probed function has returned, as a [`ResultHandler`] sees it.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct CallResult {
    /// x29, followed by the address at which the task goes on: a frame record (AAPCS64, section 6.4.6), to which x29
    /// points while a handler runs.
    frame_pointer: u64,
    return_address: u64,
    results: [u64; 8],
    /// x8, which a call may change, but which is not shown to be dead.
    _x8: u64,
    /// x18, to which a platform may give a meaning.
    platform_register: u64,
    /// For the routine; null if the result was filled from a trap frame.
    cpu: *const Cpu,
    instance: *const Instance,
    /// For the routine: the value of TPIDR_EL1. If the result was filled from a trap frame: the stack pointer.
    thread: u64,
    /// PSTATE.DAIF of the probed code, at its position in SPSR_EL1. If the result was filled from a trap frame: all of
    /// PSTATE.
    masks: u64,
}

impl CallResult {
    // For the assembly: the size, and byte offsets.
    #[cfg(target_os = "none")]
    pub(super) const SIZE: usize = size_of::<Self>();
    #[cfg(target_os = "none")]
    pub(super) const X0: usize = offset_of!(Self, results);
    #[cfg(target_os = "none")]
    pub(super) const CPU: usize = offset_of!(Self, cpu);

    /// Calls `handler` with the result of the call of `instance`, whose registers are in `frame`.
    ///
    /// The result is passed by reference and never moved, because a move may be a call of `memcpy`, which can be
    /// probed.
    #[inline(always)]
    fn with(frame: &TrapFrame, instance: &Instance, handler: ResultHandler) {
        let mut returned = Self {
            frame_pointer: frame.x[29],
            return_address: frame.x[30],
            results: [0; 8],
            _x8: frame.x[8],
            platform_register: frame.x[18],
            cpu: ptr::null(),
            instance,
            thread: frame.sp,
            masks: frame.pstate,
        };
        copy_registers(&mut returned.results, frame);
        handler(&returned);
    }

    #[inline]
    fn probe(&self) -> &ReturnProbe {
        // SAFETY: the address is that of the instance of this call, from the routine that calls the handler or from
        // `with`. The instance is in the list of the task until the handler has returned, and so held, and the result
        // does not outlive the handler.
        unsafe { &*self.instance }.owner()
    }

    /// Returns the returned value, if it fits into x0.
    #[inline]
    #[must_use]
    pub fn return_value(&self) -> u64 {
        self.results[0]
    }

    /// Returns the registers in which a function returns values: x0 to x7.
    #[inline]
    #[must_use]
    pub fn results(&self) -> &[u64; 8] {
        &self.results
    }

    /// Returns x18, which holds a value of the platform if the platform gives it a meaning.
    #[inline]
    #[must_use]
    pub fn platform_register(&self) -> u64 {
        self.platform_register
    }

    /// Returns the virtual address of the caller's frame record: x29.
    #[inline]
    #[must_use]
    pub fn frame_pointer(&self) -> u64 {
        self.frame_pointer
    }

    /// Returns the virtual address in the caller at which the task goes on.
    #[inline]
    #[must_use]
    pub fn return_address(&self) -> usize {
        let mut address = Some(self.return_address);
        // A return-probed function has ended in a tail call of this one: its trampoline comes next.
        if trampoline::is_kretprobe(self.return_address) {
            // SAFETY: a handler runs with interrupts masked, in the task whose calls these are.
            address = unsafe { true_return_address(TaskCalls::current(), self.stack_pointer()) };
        }
        address.unwrap_or(self.return_address) as usize
    }

    /// Returns the stack pointer, a virtual address.
    #[inline]
    #[must_use]
    pub fn stack_pointer(&self) -> u64 {
        if self.cpu.is_null() { self.thread } else { ptr::from_ref(self).addr() as u64 + size_of::<Self>() as u64 }
    }

    /// Returns whether interrupts were masked at the return: the I bit of PSTATE.DAIF.
    #[inline]
    #[must_use]
    pub fn irqs_masked(&self) -> bool {
        self.masks & TrapFrame::IRQ_MASKED != 0
    }

    /// Returns the virtual address of the function that has returned.
    #[inline]
    #[must_use]
    pub fn function(&self) -> usize {
        self.probe().function()
    }

    /// Returns the word that the probe was registered with.
    #[inline]
    #[must_use]
    pub fn data(&self) -> usize {
        self.probe().data()
    }
}

const _: () = {
    assert!(offset_of!(CallResult, results) == 16 && offset_of!(CallResult, _x8) == 80);
    assert!(offset_of!(CallResult, platform_register) == 88);
    assert!(offset_of!(CallResult, instance) == offset_of!(CallResult, cpu) + 8);
    assert!(offset_of!(CallResult, thread) == offset_of!(CallResult, cpu) + 16);
    assert!(offset_of!(CallResult, masks) == offset_of!(CallResult, cpu) + 24);
};

called_by_assembly! {
    /// The handler of a return probe with a [`ResultHandler`], where a function returns to
    /// `kretprobe_trampoline`.
    #[inline(never)]
    pub(crate) fn call(call: &mut Call<'_>) {
        let instance = call.instance();
        if let Some(handler) = instance.owner().result() {
            CallResult::with(call.frame(), instance, handler);
        }
    }
}
