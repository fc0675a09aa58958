//! What a function is called with: all that a handler may see that wants its probe to cost little.
//!
//! At the first instruction of a function, x9 to x17 and the flags hold nothing that is needed (AAPCS64, section 6.1), unless the
//! code shows otherwise ([`Live`](crate::insn::Live)); x19 to x28 a handler preserves as any function does. So a *lean* stub, for a
//! handler that sees no more than the rest, saves and restores little more than half of what a full one does. That is all the
//! difference: it is written, found, left and freed like the other stubs (`hit::stub`), and its common routine, `kprobes_lean` in
//! `trampoline/hit.S`, tells the probe, counts, and knows handlers that are running, as theirs does.
//!
//! The routine calls the handler with an [`Entry`], on the stack of the probed code, directly below its stack pointer. What the
//! handler leaves there in x0 to x8, x18, x29 and x30 is what the function finds. A handler of a user gets to read it only;
//! those of the engine may replace the return address.
//!
//! Where there is no lean stub, the same handler is called with an `Entry` that is filled from the trap frame of the hit, by
//! [`call`].

use core::cell::Cell;
use core::mem::offset_of;
use core::ptr;

use super::Hit;
use super::cpu::Cpu;
use super::point::{Kind, Point, Pre, Watcher};
use crate::exception::TrapFrame;

called_by_assembly! {
    /// Called at the entry of a function, before its first instruction.
    pub type ArgumentHandler = fn(&Entry);
}

/// A call of a function, as it begins.
#[derive(Debug)]
#[repr(C, align(16))]
pub struct Entry {
    /// x29, and behind it x30: a frame record (AAPCS64, section 6.4.6), at which x29 points while a handler runs.
    frame_pointer: u64,
    pub(super) return_address: Cell<u64>,
    arguments: [u64; 8],
    indirect_result: u64,
    /// x18, which a platform may give a meaning.
    platform_register: u64,
    /// For the routine of lean stubs; the stack pointer of the probed code where this was filled from a trap frame.
    cpu: *const Cpu,
    watcher: Cell<*const Watcher>,
    /// Where the routine returns to; 0 where this was filled from a trap frame.
    link: u64,
    /// PSTATE.DAIF of the probed code, in the place that it has in SPSR_EL1; all of PSTATE where this was filled from a trap frame.
    masks: u64,
}

impl Entry {
    // For the assembly and for the writer of stubs.
    pub(crate) const SIZE: usize = size_of::<Self>();
    #[cfg(target_os = "none")]
    pub(super) const ARGUMENTS: usize = offset_of!(Self, arguments);
    #[cfg(target_os = "none")]
    pub(super) const CPU: usize = offset_of!(Self, cpu);
    #[cfg(target_os = "none")]
    pub(super) const LINK: usize = offset_of!(Self, link);

    /// From the address of an entry to the word that the probe was registered with: the address at the first offset, the one at
    /// the second from there, the word at the third. In bytes; for handlers that are written while the kernel runs.
    pub const DATA: [u16; 3] = Watcher::data_behind(offset_of!(Self, watcher));

    /// The offset of register `xN` in an entry, in bytes; `None` if an entry does not have it.
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

    /// Calls `act` with what the function of `frame` is called with, for the probe of `watcher`. It is not moved: that may be a
    /// call of
    /// `memcpy`, which can be probed.
    #[inline(always)]
    fn with(frame: &TrapFrame, watcher: &Watcher, act: ArgumentHandler) {
        let mut entry = Self {
            frame_pointer: frame.x[29],
            return_address: Cell::new(frame.x[30]),
            arguments: [0; 8],
            indirect_result: frame.x[8],
            platform_register: frame.x[18],
            cpu: ptr::without_provenance(frame.sp as usize),
            watcher: Cell::new(watcher),
            link: 0,
            masks: frame.pstate,
        };
        for (argument, register) in entry.arguments.iter_mut().zip(&frame.x) {
            // SAFETY: a reference is valid. The store is volatile so that the loop does not become a call of memcpy, which
            // can be probed.
            unsafe { ptr::from_mut(argument).write_volatile(*register) };
        }
        act(&entry);
    }

    #[inline]
    fn watcher(&self) -> &Watcher {
        // SAFETY: the routine that calls a handler stores the address there. Watchers are freed only after every CPU has been held
        // outside the hit path, in which the handler is, and which the entry does not leave.
        unsafe { &*self.watcher.get() }
    }

    /// The arguments of the function that are passed in registers: x0 to x7.
    #[inline]
    #[must_use]
    pub fn arguments(&self) -> &[u64; 8] {
        &self.arguments
    }

    /// Where the function is to store what it returns, if that does not fit into registers: x8.
    #[inline]
    #[must_use]
    pub fn indirect_result(&self) -> u64 {
        self.indirect_result
    }

    /// What the platform keeps in x18, if it gives that a meaning.
    #[inline]
    #[must_use]
    pub fn platform_register(&self) -> u64 {
        self.platform_register
    }

    /// The virtual address of the caller's frame record: x29.
    #[inline]
    #[must_use]
    pub fn frame_pointer(&self) -> u64 {
        self.frame_pointer
    }

    /// The virtual address that the function returns to: x30. Where a return probe follows the call already, it is that of
    /// a trampoline of return probes.
    #[inline]
    #[must_use]
    pub fn return_address(&self) -> u64 {
        self.return_address.get()
    }

    /// The stack pointer, a virtual address: the first argument that is not passed in a register lies there.
    #[inline]
    #[must_use]
    pub fn stack_pointer(&self) -> u64 {
        match self.link {
            0 => self.cpu.addr() as u64,
            _ => ptr::from_ref(self).addr() as u64 + Self::SIZE as u64,
        }
    }

    /// Whether interrupts were masked for the function: the I bit of PSTATE.DAIF.
    #[inline]
    #[must_use]
    pub fn irqs_masked(&self) -> bool {
        self.masks & TrapFrame::IRQ_MASKED != 0
    }

    /// The virtual address of the function: the pc.
    #[inline]
    #[must_use]
    pub fn address(&self) -> usize {
        self.watcher().address
    }

    /// The word that the probe was registered with.
    #[inline]
    #[must_use]
    pub fn data(&self) -> usize {
        self.watcher().probe.data
    }
}

const _: () = {
    assert!(offset_of!(Entry, return_address) == 8 && offset_of!(Entry, indirect_result) == 80);
    assert!(offset_of!(Entry, watcher) == offset_of!(Entry, cpu) + 8);
    assert!(offset_of!(Entry, masks) == offset_of!(Entry, link) + 8);
};

called_by_assembly! {
    /// The pre-handler of a probe whose own takes an [`Entry`], where its stub is not a lean one.
    #[inline(never)]
    pub(crate) fn call(hit: &mut Hit<'_>) {
        let watcher = Watcher::of(hit);
        if let Kind::Kprobe { pre: Pre::Entry(handler), .. } = watcher.probe.kind {
            Entry::with(hit.frame(), watcher, handler);
        }
    }
}

called_by_assembly! {
    /// The handler for a lean stub that a CPU has come to before another probe was armed here than such a stub serves: calls those
    /// of the probes that one serves, or counts a miss of all if there is none.
    #[inline(never)]
    pub(crate) fn call_earlier(entry: &Entry) {
        // SAFETY: this is the hit path, and the routine of lean stubs gives the first watcher.
        let point = unsafe { Point::beginning_with(entry.watcher.get()) };
        let cpu = Cpu::current();
        let mut is_any_called = false;
        for watcher in point.watchers() {
            if let Kind::Kprobe { pre: Pre::Entry(handler), post: None } = watcher.probe.kind {
                watcher.counters.hit(cpu);
                entry.watcher.set(watcher);
                handler(entry);
                is_any_called = true;
            }
        }
        if !is_any_called {
            point.miss(cpu);
        }
    }
}
