//! The lock of what the scheduler keeps of a CPU: the one that is held across a switch.

use spin::mutex::{SpinMutex, SpinMutexGuard};

use super::IrqMask;

/// A spin lock for code that has masked interrupts, and says so with its [`IrqMask`].
///
/// It can be left locked for the next task on the same CPU, which unlocks it: so code that takes the lock of another CPU
/// finds that CPU before a switch or after it, never within one.
pub(crate) struct MaskedLock<T>(SpinMutex<T>);

/// Access to the data of a [`MaskedLock`], until dropped.
pub(crate) type MaskedGuard<'a, T> = SpinMutexGuard<'a, T>;

impl<T> MaskedLock<T> {
    /// A free lock around `data`.
    pub(crate) const fn new(data: T) -> Self {
        Self(SpinMutex::new(data))
    }

    /// Waits for the lock.
    #[inline]
    pub(crate) fn lock<'a>(&'a self, _masked: &'a IrqMask) -> MaskedGuard<'a, T> {
        self.0.lock()
    }

    /// Leaves the lock of `guard` locked. [`unlock`](Self::unlock) follows, on the same CPU.
    #[inline]
    pub(crate) fn keep(guard: MaskedGuard<'_, T>) {
        SpinMutexGuard::leak(guard);
    }

    /// Calls `finish` with the data, then unlocks.
    ///
    /// # Safety
    ///
    /// The lock was left locked by [`keep`](Self::keep), in the name of the code that calls this.
    #[inline]
    pub(crate) unsafe fn unlock<R>(&self, finish: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the lock is held for the caller, who promises it, and what `keep` was given is gone.
        let result = finish(unsafe { &mut *self.0.as_mut_ptr() });
        // SAFETY: as above; the reference to the data has ended.
        unsafe { self.0.force_unlock() };
        result
    }
}
