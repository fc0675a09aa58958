//! Shared ownership of a value.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::fence;

use super::{OutOfMemory, boxed};

/// A shared value, like `alloc::sync::Arc` but without weak references. The last owner that goes drops the value.
pub struct Arc<T> {
    /// Allocated by [`boxed`], and freed by the last owner.
    shared: NonNull<Shared<T>>,
    _owns: PhantomData<Shared<T>>,
}

struct Shared<T> {
    owners: AtomicUsize,
    value: T,
}

// SAFETY: an owner on any thread can read the value, which is `Sync`, and the last owner drops it, which is `Send`.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: another thread can clone an owner that it shares, so the value has the bounds that `Send` has above.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

impl<T> Arc<T> {
    /// Makes a shared value with one owner.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for it; the value is dropped.
    pub fn try_new(value: T) -> Result<Self, OutOfMemory> {
        let shared = boxed(Shared { owners: AtomicUsize::new(1), value })?;
        Ok(Self { shared: NonNull::from(Box::leak(shared)), _owns: PhantomData })
    }

    /// Returns the address of the value, which is valid as long as it has an owner.
    #[must_use]
    pub fn as_ptr(this: &Self) -> *const T {
        // SAFETY: `this` is an owner, so the value exists. No reference to it is made.
        unsafe { &raw const (*this.shared.as_ptr()).value }
    }

    /// Returns whether both own the same value.
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.shared == other.shared
    }

    /// Returns the value, if it has no other owner.
    #[must_use]
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        // Acquire: everything that former owners did with the value happens before the caller uses it.
        if this.shared().owners.load(Acquire) > 1 {
            return None;
        }
        // SAFETY: this is the only owner. Another owner can only be made from an owner, and this one is borrowed
        // mutably.
        Some(unsafe { &mut this.shared.as_mut().value })
    }

    /// Returns the number of owners. It may change at any time.
    #[must_use]
    pub fn strong_count(this: &Self) -> usize {
        this.shared().owners.load(Relaxed)
    }

    #[inline(always)]
    fn shared(&self) -> &Shared<T> {
        // SAFETY: `self` is an owner, so the value exists.
        unsafe { self.shared.as_ref() }
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        // Relaxed: the new owner gets the value from this one.
        let owners = self.shared().owners.fetch_add(1, Relaxed);
        // Only owners that were leaked by `forget` can reach this number. The standard library aborts here, too.
        assert!(owners < isize::MAX as usize, "a shared value has too many owners");
        Self { shared: self.shared, _owns: PhantomData }
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        if self.shared().owners.fetch_sub(1, Release) == 1 {
            // Everything that the other owners did with the value happens before it is dropped.
            fence(Acquire);
            // SAFETY: `try_new` got the pointer from `boxed`, and there is no other owner.
            drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
        }
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    // Always inlined: hits read shared values, and call nothing that can be probed.
    #[inline(always)]
    fn deref(&self) -> &T {
        &self.shared().value
    }
}

impl<T: fmt::Display> fmt::Display for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
