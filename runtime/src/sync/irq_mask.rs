//! Masked interrupts as a value: who has one runs without being interrupted or preempted, and drops it to go back.

use core::marker::PhantomData;
use core::sync::atomic::{Ordering, compiler_fence};

use aarch64_cpu::registers::{DAIF, Readable, Writeable};

/// Interrupts are masked on this CPU as long as this lives; it then restores the masks that it found.
///
/// They nest when they are dropped in the reverse order. PSTATE belongs to the CPU and the code that runs on it, so
/// the value cannot be sent to another task.
pub struct IrqMask {
    found: u64,
    _not_send: PhantomData<*const ()>,
}

impl IrqMask {
    /// Masks interrupts.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        let found = DAIF.get();
        DAIF.set(found | DAIF::I::Masked.value);
        // The register accesses do not tell the compiler that memory is concerned: nothing that belongs after them
        // may be moved before.
        compiler_fence(Ordering::SeqCst);
        Self { found, _not_send: PhantomData }
    }

    /// Whether interrupts were unmasked before.
    #[inline]
    #[must_use]
    pub fn was_enabled(&self) -> bool {
        self.found & DAIF::I::Masked.value == 0
    }

    /// Lets SErrors, interrupts and fast interrupts come, whatever was masked: the first thing that a task does.
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

impl Drop for IrqMask {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        DAIF.set(self.found);
    }
}
