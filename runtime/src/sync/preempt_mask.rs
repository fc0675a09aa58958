//! Forbidden preemption as a value: who has one is interrupted, but keeps its CPU, and drops it to go back.
//!
//! It is counted in the task how many there are, as with [`IrqMask`](super::IrqMask), so they nest in any order. A
//! preemption that was due meanwhile takes place when the last is dropped.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use aarch64_cpu::registers::DAIF;
use tock_registers::interfaces::Readable;

use crate::task;

/// What a task has to know to be preempted or not.
///
/// Touched by the task itself and by the interrupts that it takes, on the CPU that it runs on. So no order is needed but
/// the program's.
pub(crate) struct Nesting {
    /// How many [`PreemptMask`]s there are.
    depth: AtomicU32,
    /// An interrupt would have preempted the task.
    is_due: AtomicBool,
}

impl Nesting {
    /// Of a task that has no [`PreemptMask`].
    pub(crate) const fn new() -> Self {
        Self { depth: AtomicU32::new(0), is_due: AtomicBool::new(false) }
    }

    /// How many [`PreemptMask`]s there are. It is that of the current task only.
    #[inline]
    pub(crate) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Whether the current task may be preempted. If not, that is made up for when it may.
    #[inline]
    pub(crate) fn permits(&self) -> bool {
        let permits = self.depth() == 0;
        if !permits {
            self.is_due.store(true, Ordering::Relaxed);
        }
        permits
    }
}

/// The task keeps its CPU as long as this lives, and until all others that live have been dropped.
///
/// The count is the task's own, so the value cannot be sent to another.
pub struct PreemptMask {
    _not_send: PhantomData<*const ()>,
}

impl PreemptMask {
    /// Forbids preemption.
    // Not inlined, as every lock would be larger by it.
    #[inline(never)]
    #[must_use]
    pub fn new() -> Self {
        // The task may be preempted up to the store, and go on on another CPU: the count goes with it.
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
        // An interrupt before the store has left word; one after it has preempted the task itself. With interrupts masked
        // it must wait for the end of the next interrupt.
        if depth == 0 && nesting.is_due.load(Ordering::Relaxed) && !DAIF.is_set(DAIF::I) {
            nesting.is_due.store(false, Ordering::Relaxed);
            task::preempt_now();
        }
    }
}
