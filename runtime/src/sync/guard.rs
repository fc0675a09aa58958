//! Access to the data of a lock.

use core::ops::{Deref, DerefMut};

use spin::mutex::{SpinMutex, SpinMutexGuard};

/// Access to the data of a lock, with a mask for that time. Dropping it releases the lock.
pub struct Guard<'a, T, M> {
    // Fields drop in the order of their declaration: the lock is released before the mask ends.
    data: SpinMutexGuard<'a, T>,
    _mask: M,
}

impl<'a, T, M> Guard<'a, T, M> {
    /// Waits for `data`.
    #[inline]
    pub(super) fn wait(data: &'a SpinMutex<T>, mask: M) -> Self {
        Self { data: data.lock(), _mask: mask }
    }

    /// Takes `data` if it is free.
    #[inline]
    pub(super) fn take(data: &'a SpinMutex<T>, mask: M) -> Option<Self> {
        data.try_lock().map(|data| Self { data, _mask: mask })
    }
}

impl<T, M> Deref for Guard<'_, T, M> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.data
    }
}

impl<T, M> DerefMut for Guard<'_, T, M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.data
    }
}
