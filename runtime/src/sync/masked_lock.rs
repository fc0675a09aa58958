//! The lock of a CPU's scheduler data, which is held across a switch.

use spin::mutex::{SpinMutex, SpinMutexGuard};

use super::IrqMask;

/// A spin lock for code that has already masked interrupts, and proves it with its [`IrqMask`].
///
/// It can be left locked for the next task on the same CPU, which unlocks it. So code that takes the lock of another
/// CPU finds that CPU before a switch or after it, but never within one.
pub(crate) struct MaskedLock<T>(SpinMutex<T>);

/// Access to the data of a [`MaskedLock`] until it is dropped.
pub(crate) type MaskedGuard<'a, T> = SpinMutexGuard<'a, T>;

impl<T> MaskedLock<T> {
    /// Creates a free lock around `data`.
    pub(crate) const fn new(data: T) -> Self {
        Self(SpinMutex::new(data))
    }

    /// Waits for the lock.
    #[inline]
    pub(crate) fn lock<'a>(&'a self, _masked: &'a IrqMask) -> MaskedGuard<'a, T> {
        self.0.lock()
    }

    /// Leaves the lock of `guard` locked. [`unlock`](Self::unlock) must follow on the same CPU.
    #[inline]
    pub(crate) fn keep(guard: MaskedGuard<'_, T>) {
        SpinMutexGuard::leak(guard);
    }

    /// Calls `finish` with the data, then unlocks.
    ///
    /// # Safety
    ///
    /// [`keep`](Self::keep) has left the lock locked on behalf of the code that calls this.
    #[inline]
    pub(crate) unsafe fn unlock<R>(&self, finish: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the caller guarantees that `keep` left the lock locked for it (see # Safety), and `keep` has consumed
        // the guard.
        let result = finish(unsafe { &mut *self.0.as_mut_ptr() });
        // SAFETY: the caller guarantees that the lock is held (see # Safety), and the reference to the data has ended.
        unsafe { self.0.force_unlock() };
        result
    }
}
