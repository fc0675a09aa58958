//! Masked interrupts as a value: while an [`IrqMask`] lives, its task is neither interrupted nor preempted.
//!
//! The values nest in any order: `let a = A.lock(); let b = B.lock(); drop(a);` leaves interrupts masked for `b`. So no
//! value can store the state to go back to. Instead, the task counts its values. Dropping the last one restores the
//! masks that the first one found.
//!
//! The count and the masks belong to the task. An exception that comes while there are values runs in the name of the
//! same task. It drops the values that it makes before it returns, so it leaves the count as it found it.
//!
//! A switch finds exactly one value, that of the code that switches. Any other value would mask interrupts for a lock
//! that the next task might wait for in vain. The one value stays with the task that is left, with the masks to restore
//! on that task's way out of its call or interrupt. The next task finds its own value. A new task has none: the switch
//! to it leaves interrupts masked, and the task unmasks them itself, as the idle task does at the end of the boot.
//!
//! A count per task is right although tasks move between CPUs, because a task moves only while it does not run. With
//! interrupts masked, it keeps its CPU. The count that a switch leaves in the task is the one of the code that
//! switches, and that code goes on with it on whichever CPU runs the task next.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

use aarch64_cpu::registers::{DAIF, Readable, Writeable};

use crate::task;

/// The state that a task needs to unmask interrupts.
///
/// Only the task itself and the exceptions that it takes access it. A breakpoint may come between any two accesses. Its
/// handlers leave `depth` as they found it, and write `found` only if `depth` was 0. So `found` is written after
/// `depth` says that interrupts are masked, and read while it still says so.
pub(crate) struct Nesting {
    /// The number of [`IrqMask`]s that live.
    depth: AtomicU32,
    /// PSTATE.DAIF before the first of them.
    found: AtomicU64,
}

impl Nesting {
    /// Creates the state of a task that has no [`IrqMask`].
    pub(crate) const fn new() -> Self {
        Self { depth: AtomicU32::new(0), found: AtomicU64::new(0) }
    }

    /// Returns the number of [`IrqMask`]s that live. Correct for the current task only.
    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }
}

/// Masks interrupts on this CPU until this value and all others that live have been dropped.
///
/// PSTATE belongs to the CPU and the code that runs on it, so the value cannot be sent to another task.
pub struct IrqMask {
    was_enabled: bool,
    _not_send: PhantomData<*const ()>,
}

impl IrqMask {
    /// Masks interrupts.
    // Not inlined, because inlining would enlarge every lock. In the section that refuses probes, because instructions
    // are patched with interrupts masked.
    #[inline(never)]
    #[unsafe(link_section = ".kprobes.text.irq_mask_new")]
    #[must_use]
    pub fn new() -> Self {
        let found = DAIF.get();
        DAIF.set(found | DAIF::I::Masked.value);
        // The compiler does not know that the register accesses concern memory. The fence keeps memory accesses from
        // moving before them.
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

    /// Returns whether interrupts were unmasked before this value was made.
    #[inline]
    #[must_use]
    pub fn was_enabled(&self) -> bool {
        self.was_enabled
    }

    /// Unmasks debug exceptions, SErrors, interrupts and fast interrupts, whatever was masked. A new task calls this
    /// first, without any [`IrqMask`]. Debug exceptions come only from watchpoints.
    #[inline]
    pub(crate) fn enable_all() {
        compiler_fence(Ordering::SeqCst);
        DAIF.set(0);
    }
}

impl Default for IrqMask {
    fn default() -> Self {
        Self::new()
    }
}

impl IrqMask {
    /// Drops this value without the compiler's drop function, which may be a separate function that can be probed.
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
