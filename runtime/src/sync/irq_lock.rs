//! The lock for data that tasks share with interrupt handlers, the scheduler or the rendezvous.

use core::ops::{Deref, DerefMut};

use spin::mutex::{SpinMutex, SpinMutexGuard};

use super::IrqMask;

/// A spin lock that masks interrupts on its CPU while it is held.
///
/// A handler that interrupted the holder and asked for the same lock would spin forever, and so would a task that
/// preempted the holder. Neither can happen while interrupts are masked. They stay masked until the last of several
/// locks is free, in whatever order the locks are released.
///
/// A CPU that holds such a lock cannot be held in a rendezvous, because it has interrupts masked. So code that runs
/// during a rendezvous may take one. Hold the lock for a few instructions only, and never take it twice. Breakpoints
/// cannot be masked, so probe handlers must not take one.
pub struct IrqLock<T> {
    data: SpinMutex<T>,
}

/// Access to the data of an [`IrqLock`] until it is dropped.
pub struct IrqGuard<'a, T> {
    // Fields drop in the order of their declaration: the lock is released before interrupts are unmasked.
    data: SpinMutexGuard<'a, T>,
    _mask: IrqMask,
}

impl<T> IrqLock<T> {
    /// Creates a free lock around `data`.
    pub const fn new(data: T) -> Self {
        Self { data: SpinMutex::new(data) }
    }

    /// Masks interrupts and waits for the lock.
    #[inline]
    pub fn lock(&self) -> IrqGuard<'_, T> {
        let mask = IrqMask::new();
        IrqGuard { data: self.data.lock(), _mask: mask }
    }

    /// Calls `look` with the data while the lock is held. All of it is inlined, because some callers must not call a
    /// function that can be probed, and dropping a guard may be such a call.
    #[inline(always)]
    pub(crate) fn with_inlined<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        let mask = IrqMask::new();
        let result = look(SpinMutexGuard::leak(self.data.lock()));
        // SAFETY: the guard was leaked above, so this is the only release, and the reference that `look` got has ended.
        unsafe { self.data.force_unlock() };
        mask.end();
        result
    }

    /// Takes the lock if it is free. For reports of a failure, which may have struck the holder.
    #[inline]
    pub fn try_lock(&self) -> Option<IrqGuard<'_, T>> {
        let mask = IrqMask::new();
        self.data.try_lock().map(|data| IrqGuard { data, _mask: mask })
    }
}

impl<T> Deref for IrqGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.data
    }
}

impl<T> DerefMut for IrqGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.data
    }
}
