//! A box whose value may be pointed to while the box moves.
//!
//! Moving a `Box` asserts that it is the only pointer to its value: pointers that were made before must not be used after the
//! move. Hits find values by such pointers, so an [`AliasableBox`] owns them, which asserts nothing.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

/// Owns a value on the heap, at a place that it keeps. Pointers to the value are good until this is dropped, also where this is
/// moved: what the handlers of a probe are to find by [`Hit::data`](super::Hit::data) is owned by one.
pub struct AliasableBox<T: ?Sized>(NonNull<T>, PhantomData<T>);

// SAFETY: it owns the value, and gives out no reference but shared ones, as a box does that is not borrowed alone.
unsafe impl<T: ?Sized + Send> Send for AliasableBox<T> {}
// SAFETY: it owns the value, and gives out shared references only.
unsafe impl<T: ?Sized + Sync> Sync for AliasableBox<T> {}

impl<T: ?Sized> AliasableBox<T> {
    /// The value, in the place where it is.
    #[must_use]
    pub fn new(value: Box<T>) -> Self {
        Self(NonNull::from(Box::leak(value)), PhantomData)
    }

    /// Where the value is.
    #[must_use]
    pub const fn place(&self) -> NonNull<T> {
        self.0
    }
}

impl<T: ?Sized> Deref for AliasableBox<T> {
    type Target = T;

    // Hits dereference it, and it lies outside of the region in which nothing is probed.
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the value is there until `drop`, and this type gives out shared references only.
        unsafe { self.0.as_ref() }
    }
}

impl<T: ?Sized> Drop for AliasableBox<T> {
    fn drop(&mut self) {
        // SAFETY: it is what `new` has leaked.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for AliasableBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
