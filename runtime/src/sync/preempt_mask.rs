//! Masked preemption as a value: while a [`PreemptMask`] lives, its task can be interrupted, but keeps its CPU.
//!
//! The task counts its values, as it does with [`IrqMask`](super::IrqMask), so they nest in any order. A preemption
//! that falls due meanwhile takes place when the last value is dropped.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use aarch64_cpu::registers::DAIF;
use tock_registers::interfaces::Readable;

use crate::task;

/// The state that decides whether a task may be preempted.
///
/// Only the task itself and the interrupts that it takes access it, on the CPU that the task runs on. So program order
/// is enough.
pub(crate) struct Nesting {
    /// The number of [`PreemptMask`]s that live.
    depth: AtomicU32,
    /// Whether an interrupt would have preempted the task.
    is_due: AtomicBool,
}

impl Nesting {
    /// Creates the state of a task that has no [`PreemptMask`].
    pub(crate) const fn new() -> Self {
        Self { depth: AtomicU32::new(0), is_due: AtomicBool::new(false) }
    }

    /// Returns the number of [`PreemptMask`]s that live. Correct for the current task only.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Returns whether the current task may be preempted. If it may not, the preemption is marked as due.
    #[inline]
    pub(crate) fn permits(&self) -> bool {
        let permits = self.depth() == 0;
        if !permits {
            self.is_due.store(true, Ordering::Relaxed);
        }
        permits
    }
}

/// Keeps the task on its CPU until this value and all others that live have been dropped.
///
/// The count is the task's own, so the value cannot be sent to another task.
pub struct PreemptMask {
    _not_send: PhantomData<*const ()>,
}

impl PreemptMask {
    /// Masks preemption.
    // Not inlined, because inlining would enlarge every lock.
    #[inline(never)]
    #[must_use]
    pub fn new() -> Self {
        // The task may be preempted before the store and continue on another CPU. The count goes with it.
        let nesting = &task::current_task().preempt_nesting;
        nesting.depth.store(nesting.depth() + 1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        Self { _not_send: PhantomData }
    }
}

impl Default for PreemptMask {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for PreemptMask {
    #[inline(never)]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        let nesting = &task::current_task().preempt_nesting;
        let depth = nesting.depth() - 1;
        nesting.depth.store(depth, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // An interrupt before the store has set `is_due`. An interrupt after the store has preempted the task itself.
        // If interrupts are masked, the preemption waits for the end of the next interrupt.
        if depth == 0 && nesting.is_due.load(Ordering::Relaxed) && !DAIF.is_set(DAIF::I) {
            nesting.is_due.store(false, Ordering::Relaxed);
            task::preempt_now();
        }
    }
}
