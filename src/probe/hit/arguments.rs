//! The call of a function, as seen by the handlers of probes that are to cost little.
//!
//! At the first instruction of a function, x9 to x17 and the flags hold no value that is needed (AAPCS64, section 6.1),
//! unless the code shows otherwise ([`Live`](crate::insn::Live)), and any handler preserves x19 to x28, as every
//! function does. So a *lean* stub, for a handler that sees only the other registers, saves and restores little more
//! than half of what a full stub does. Otherwise it is like every stub: it is written, found, left and freed in the
//! same way (`hit::stub`), and its common routine, `kprobes_lean` in `trampoline/hit.S`, counts hits and recognizes
//! running handlers as the one of full stubs does.
//!
//! The routine calls the handler with the [`CallArguments`], which lie on the stack of the probed code, directly below
//! its stack pointer. A handler can only read them. The function finds x0 to x8, x18, x29 and x30 as they are there.
//!
//! Without a lean stub, [`call`] calls the same handler, with `CallArguments` that are filled from the trap frame of
//! the hit.

use core::cell::Cell;
use core::mem::offset_of;
use core::ptr;

use super::Hit;
use super::cpu::Cpu;
use super::point::{ArmedProbe, Handlers, Point, Pre};
use crate::exception::frame::TrapFrame;

called_by_assembly! {
    /// Called at the entry of a function, before its first instruction. [`Hit`] says what a handler may do.
    pub type ArgumentHandler = fn(&CallArguments);
}

/// What the call of a function passes, as an [`ArgumentHandler`] sees it.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct CallArguments {
    /// x29, followed by x30: a frame record (AAPCS64, section 6.4.6), to which x29 points while a handler runs.
    frame_pointer: u64,
    return_address: u64,
    arguments: [u64; 8],
    indirect_result: u64,
    /// x18, to which a platform may give a meaning.
    platform_register: u64,
    /// For the routine of lean stubs. If the arguments were filled from a trap frame: the stack pointer of the probed
    /// code.
    cpu: *const Cpu,
    armed: Cell<*const ArmedProbe>,
    /// The address in the stub that the routine returns to; 0 if the arguments were filled from a trap frame.
    link: u64,
    /// PSTATE.DAIF of the probed code, at its position in SPSR_EL1. If the arguments were filled from a trap frame: all
    /// of PSTATE.
    masks: u64,
}

impl CallArguments {
    // For the assembly, and for the builder of stubs.
    pub(crate) const SIZE: usize = size_of::<Self>();
    #[cfg(target_os = "none")]
    pub(super) const X0: usize = offset_of!(Self, arguments);
    #[cfg(target_os = "none")]
    pub(super) const CPU: usize = offset_of!(Self, cpu);
    #[cfg(target_os = "none")]
    pub(super) const LINK: usize = offset_of!(Self, link);

    /// Byte offsets that lead from the address of the arguments to the word that the probe was registered with: load
    /// the address at the first offset, from there the address at the second, and from there the word at the third. For
    /// handlers whose code is generated while the kernel runs.
    #[doc(hidden)]
    pub const DATA: [u16; 3] = ArmedProbe::data_path(offset_of!(Self, armed));

    /// Returns the offset of register `xN` in this structure, in bytes; `None` if it does not contain the register.
    #[doc(hidden)]
    #[must_use]
    pub const fn offset_of(register: u8) -> Option<u16> {
        let offset = match register {
            0..8 => offset_of!(Self, arguments) + 8 * register as usize,
            8 => offset_of!(Self, indirect_result),
            18 => offset_of!(Self, platform_register),
            29 => offset_of!(Self, frame_pointer),
            30 => offset_of!(Self, return_address),
            _ => return None,
        };
        Some(offset as u16)
    }

    /// Calls `act`, a handler of the probe of `armed`, with the arguments of the call that enters a function with the
    /// registers of `frame`. If the armed probe is the first one of its point, `armed` may be used as a pointer to the
    /// point.
    ///
    /// The arguments are passed by reference and never moved, because a move may be a call of `memcpy`, which can be
    /// probed.
    ///
    /// # Safety
    ///
    /// The armed probe is there until this returns.
    #[inline(always)]
    pub(in crate::probe) unsafe fn with(frame: &TrapFrame, armed: *const ArmedProbe, act: ArgumentHandler) {
        let mut passed = Self {
            frame_pointer: frame.x[29],
            return_address: frame.x[30],
            arguments: [0; 8],
            indirect_result: frame.x[8],
            platform_register: frame.x[18],
            cpu: ptr::without_provenance(frame.sp as usize),
            armed: Cell::new(armed),
            link: 0,
            masks: frame.pstate,
        };
        copy_registers(&mut passed.arguments, frame);
        act(&passed);
    }

    #[inline]
    fn armed(&self) -> &ArmedProbe {
        // SAFETY: the routine that calls a handler stores the address of its armed probe there. Armed probes are freed
        // only after every CPU has been held outside the hit path. The handler runs in the hit path, and the arguments
        // do not outlive it.
        unsafe { &*self.armed.get() }
    }

    /// Returns the arguments of the function that are passed in registers: x0 to x7.
    #[inline]
    #[must_use]
    pub fn arguments(&self) -> &[u64; 8] {
        &self.arguments
    }

    /// Returns register `xN` if the call passes it: x0 to x8, x18, x29 and x30; `None` for any other.
    #[inline(always)]
    #[must_use]
    pub fn register(&self, number: u8) -> Option<u64> {
        if let Some(&argument) = self.arguments.get(usize::from(number)) {
            return Some(argument);
        }
        match number {
            8 => Some(self.indirect_result),
            18 => Some(self.platform_register),
            29 => Some(self.frame_pointer),
            30 => Some(self.return_address),
            _ => None,
        }
    }

    /// Returns the address at which the function is to store a result that does not fit into registers: x8.
    #[inline]
    #[must_use]
    pub fn indirect_result(&self) -> u64 {
        self.indirect_result
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

    /// Returns the virtual address that the function returns to: x30. If a return probe already follows the call, it is
    /// the address of a return-probe trampoline.
    #[inline]
    #[must_use]
    pub fn return_address(&self) -> u64 {
        self.return_address
    }

    /// Returns the stack pointer, a virtual address. The first argument that is not passed in a register lies there.
    #[inline]
    #[must_use]
    pub fn stack_pointer(&self) -> u64 {
        match self.link {
            0 => self.cpu.addr() as u64,
            _ => ptr::from_ref(self).addr() as u64 + Self::SIZE as u64,
        }
    }

    /// Returns whether interrupts were masked at the call: the I bit of PSTATE.DAIF.
    #[inline]
    #[must_use]
    pub fn irqs_masked(&self) -> bool {
        self.masks & TrapFrame::IRQ_MASKED != 0
    }

    /// Returns the virtual address of the function: the pc.
    #[inline]
    #[must_use]
    pub fn address(&self) -> usize {
        self.armed().address
    }

    /// Returns the word that the probe was registered with.
    #[inline]
    #[must_use]
    pub fn data(&self) -> usize {
        self.armed().probe.data
    }
}

/// Copies x0 to x7 from `frame`.
#[inline(always)]
pub(super) fn copy_registers(to: &mut [u64; 8], frame: &TrapFrame) {
    for (to, register) in to.iter_mut().zip(&frame.x) {
        // SAFETY: `to` is a reference, so it can be written to. The store is volatile so that the loop does not become
        // a call of memcpy, which can be probed.
        unsafe { ptr::from_mut(to).write_volatile(*register) };
    }
}

const _: () = {
    assert!(offset_of!(CallArguments, return_address) == 8 && offset_of!(CallArguments, indirect_result) == 80);
    assert!(offset_of!(CallArguments, armed) == offset_of!(CallArguments, cpu) + 8);
    assert!(offset_of!(CallArguments, masks) == offset_of!(CallArguments, link) + 8);
};

called_by_assembly! {
    /// The pre-handler of a probe with an [`ArgumentHandler`], if the probe has no lean stub.
    #[inline(never)]
    pub(crate) fn call(hit: &mut Hit<'_>) {
        let armed = ArmedProbe::of(hit);
        if let Handlers::Kprobe { pre: Pre::Arguments(handler), .. } = armed.probe.handlers {
            // SAFETY: this is the hit path. Armed probes are freed only after every CPU has been held outside of it.
            unsafe { CallArguments::with(hit.frame(), ArmedProbe::place(hit), handler) };
        }
    }
}

called_by_assembly! {
    /// The handler for a lean stub, at a point to which another probe was added that a lean stub cannot serve, after a
    /// CPU had entered the stub. Calls the handlers of the probes that a lean stub can serve; the others, which were
    /// enabled after the hit had begun, do not miss it.
    #[inline(never)]
    pub(crate) fn call_earlier(call: &CallArguments) {
        // SAFETY: this is the hit path, and the routine of lean stubs passes the first armed probe of the point.
        let point = unsafe { Point::beginning_with(call.armed.get()) };
        let cpu = Cpu::current();
        for armed in point.armed_probes() {
            if let Handlers::Kprobe { pre: Pre::Arguments(handler), post: None } = armed.probe.handlers {
                armed.counters.hit(cpu);
                call.armed.set(armed);
                handler(call);
            }
        }
    }
}
