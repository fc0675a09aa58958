//! A value that several owners share.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::fence;

use super::{OutOfMemory, boxed};

/// A shared value, as in `alloc::sync::Arc` without weak references: the last owner to go drops it.
pub struct Arc<T> {
    /// From [`boxed`], and given back by the last owner.
    shared: NonNull<Shared<T>>,
    _owns: PhantomData<Shared<T>>,
}

struct Shared<T> {
    owners: AtomicUsize,
    value: T,
}

// SAFETY: as of the `Arc` of the standard library: an owner on any thread can read the value, and the last drops it.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: likewise.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

impl<T> Arc<T> {
    /// `value`, with its first owner.
    ///
    /// # Errors
    ///
    /// There is no memory for it; the value is dropped.
    pub fn try_new(value: T) -> Result<Self, OutOfMemory> {
        let shared = boxed(Shared { owners: AtomicUsize::new(1), value })?;
        Ok(Self { shared: NonNull::from(Box::leak(shared)), _owns: PhantomData })
    }

    /// Where the value is, for as long as it has an owner.
    #[must_use]
    pub fn as_ptr(this: &Self) -> *const T {
        // SAFETY: it is there, as this is an owner; no reference to it comes between.
        unsafe { &raw const (*this.shared.as_ptr()).value }
    }

    /// Whether both own the same value.
    #[must_use]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        this.shared == other.shared
    }

    /// The value, if it has no other owner.
    #[must_use]
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        // Acquire: what owners that have gone did with the value precedes what is done with it here.
        if this.shared().owners.load(Acquire) > 1 {
            return None;
        }
        // SAFETY: an owner comes from another one alone, and this one is borrowed.
        Some(unsafe { &mut this.shared.as_mut().value })
    }

    /// How many owners there are. Another may come or go meanwhile.
    #[must_use]
    pub fn strong_count(this: &Self) -> usize {
        this.shared().owners.load(Relaxed)
    }

    #[inline(always)]
    fn shared(&self) -> &Shared<T> {
        // SAFETY: it is there while it has an owner, as this is one.
        unsafe { self.shared.as_ref() }
    }
}

impl<T> Clone for Arc<T> {
    fn clone(&self) -> Self {
        // Relaxed: the new owner has the value from this one.
        let owners = self.shared().owners.fetch_add(1, Relaxed);
        // Only owners that are forgotten can be as many. The standard library aborts here, too.
        assert!(owners < isize::MAX as usize, "a shared value has too many owners");
        Self { shared: self.shared, _owns: PhantomData }
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        if self.shared().owners.fetch_sub(1, Release) == 1 {
            // What the other owners did with the value precedes its end.
            fence(Acquire);
            // SAFETY: from `boxed`, in `try_new`; there is no other owner.
            drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
        }
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;

    // Hits look at shared values, and call nothing that can be probed.
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
