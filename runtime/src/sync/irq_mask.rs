//! Masked interrupts as a value: who has one runs without being interrupted or preempted, and drops it to go back.
//!
//! The values nest in any order: `let a = A.lock(); let b = B.lock(); drop(a);` leaves interrupts masked for `b`. So no
//! value knows what it goes back to. It is counted how many there are, and the last to be dropped restores the masks
//! that the first found.
//!
//! The count and the masks belong to the task. An exception that comes while there are values runs in the name of the
//! same task, and drops those that it makes before it returns, so it finds a count and leaves it. A switch finds
//! exactly one value, that of the code that switches: every other one would be masking interrupts for a lock that
//! the next task might wait for in vain. It is left in the task that is left, with the masks to be restored on that
//! task's way out, be they those of a call or of an interrupt; and the next task finds its own. A new task has none: it
//! runs with interrupts masked by the switch to it until it unmasks them itself, as the idle task does at the end of
//! the boot.
//!
//! That the count is the task's is right where tasks move between CPUs, because a task moves only while it does not run:
//! with interrupts masked it keeps its CPU, and the count that is left in it at a switch is that one of the code that
//! switches, which goes on with it on whatever CPU.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use aarch64_cpu::registers::{DAIF, Readable, Writeable};

use crate::task;

/// What a task has to know to unmask interrupts.
///
/// Touched by the task itself and by the exceptions that it takes. All that a breakpoint could find half done, it
/// leaves as it was: the masks are written when the count says that they are taken, and read while it still does.
pub(crate) struct Nesting {
    /// How many [`IrqMask`]s there are.
    depth: AtomicU32,
    /// PSTATE.DAIF before the first of them.
    found: AtomicU64,
}

impl Nesting {
    /// Of a task that has no [`IrqMask`].
    pub(crate) const fn new() -> Self {
        Self { depth: AtomicU32::new(0), found: AtomicU64::new(0) }
    }

    /// How many [`IrqMask`]s there are. It is that of the current task only.
    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }
}

/// Interrupts are masked on this CPU as long as this lives, and until all others that live have been dropped.
///
/// PSTATE belongs to the CPU and the code that runs on it, so the value cannot be sent to another task.
pub struct IrqMask {
    was_enabled: bool,
    _not_send: PhantomData<*const ()>,
}

impl IrqMask {
    /// Masks interrupts.
    // Not inlined, as every lock would be larger by it; and with the code that refuses probes, as text is written with
    // interrupts masked.
    #[inline(never)]
    #[unsafe(link_section = ".kprobes.text.irq_mask_new")]
    #[must_use]
    pub fn new() -> Self {
        let found = DAIF.get();
        DAIF.set(found | DAIF::I::Masked.value);
        // The register accesses do not tell the compiler that memory is concerned: nothing that belongs after them
        // may be moved before.
        compiler_fence(Ordering::SeqCst);
        let nesting = &task::current_task().irq_nesting;
        let depth = nesting.depth();
        nesting.depth.store(depth + 1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if depth == 0 {
            nesting.found.store(found, Ordering::Relaxed);
        }
        Self { was_enabled: found & DAIF::I::Masked.value == 0, _not_send: PhantomData }
    }

    /// Whether interrupts were unmasked before.
    #[inline]
    #[must_use]
    pub fn was_enabled(&self) -> bool {
        self.was_enabled
    }

    /// Lets SErrors, interrupts and fast interrupts come, whatever was masked: the first thing that a task does. It has
    /// no [`IrqMask`].
    #[inline]
    pub(crate) fn enable_all() {
        compiler_fence(Ordering::SeqCst);
        DAIF.set(DAIF::D::Masked.value);
    }
}

impl Default for IrqMask {
    fn default() -> Self {
        Self::new()
    }
}

impl IrqMask {
    /// Drops this without the compiler's function that drops a value, which may be one by itself that can be probed.
    #[inline(always)]
    pub(crate) fn end(self) {
        core::mem::forget(self);
        Self::restore();
    }

    #[inline(never)]
    #[unsafe(link_section = ".kprobes.text.irq_mask_drop")]
    fn restore() {
        let nesting = &task::current_task().irq_nesting;
        let found = nesting.found.load(Ordering::Relaxed);
        let depth = nesting.depth() - 1;
        compiler_fence(Ordering::SeqCst);
        nesting.depth.store(depth, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if depth == 0 {
            DAIF.set(found);
        }
    }
}

impl Drop for IrqMask {
    #[inline]
    fn drop(&mut self) {
        Self::restore();
    }
}
