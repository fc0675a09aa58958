//! The lock for data that interrupt handlers, the scheduler or the rendezvous share with tasks.

use core::ops::{Deref, DerefMut};

use spin::mutex::{SpinMutex, SpinMutexGuard};

use super::IrqMask;

/// A spin lock that masks interrupts on its CPU while it is held.
///
/// A handler that interrupted the holder and asked for the same lock would spin forever; so would a task that
/// preempted it. Neither can happen with interrupts masked, and they stay so until the last of several locks is free, in
/// whatever order that comes about. Nor can a CPU be held in a rendezvous while it has such a lock, as it has interrupts
/// masked: what runs meanwhile may take one. Hold it for a few instructions, and take no lock twice.
/// Breakpoints cannot be masked: probe handlers must not take one.
pub struct IrqLock<T> {
    data: SpinMutex<T>,
}

/// Access to the data of an [`IrqLock`], until dropped.
pub struct IrqGuard<'a, T> {
    // Fields drop in the order of their declaration: the lock is free before interrupts come back.
    data: SpinMutexGuard<'a, T>,
    _mask: IrqMask,
}

impl<T> IrqLock<T> {
    /// A free lock around `data`.
    pub const fn new(data: T) -> Self {
        Self { data: SpinMutex::new(data) }
    }

    /// Masks interrupts and waits for the lock.
    #[inline]
    pub fn lock(&self) -> IrqGuard<'_, T> {
        let mask = IrqMask::new();
        IrqGuard { data: self.data.lock(), _mask: mask }
    }

    /// Calls `look` with the data while the lock is held. All of it is inlined, for code from which no function may be called that
    /// can be probed: to drop a guard may be such a call.
    #[inline(always)]
    pub(crate) fn with_inlined<R>(&self, look: impl FnOnce(&mut T) -> R) -> R {
        let mask = IrqMask::new();
        let result = look(SpinMutexGuard::leak(self.data.lock()));
        // SAFETY: the guard that was leaked above is not used any more.
        unsafe { self.data.force_unlock() };
        mask.end();
        result
    }

    /// Takes the lock if it is free: for reports of a failure, which may have struck the holder.
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
