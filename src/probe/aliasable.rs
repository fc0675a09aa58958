//! A box whose value may be pointed to while the box moves.
//!
//! Moving a `Box` asserts that it is the only pointer to its value, so older pointers must not be used after the move.
//! Hits find values by such pointers. An [`AliasableBox`] owns these values instead, and asserts nothing.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr::NonNull;

/// Owns a value on the heap, at a fixed address. Pointers to the value stay valid until the box is dropped, also if the
/// box moves. A probe's owner keeps in one what the handlers find by [`Hit::data`](super::Hit::data).
pub struct AliasableBox<T: ?Sized>(NonNull<T>, PhantomData<T>);

// SAFETY: it owns the value, and gives out only shared references, so sending it sends a `T`.
unsafe impl<T: ?Sized + Send> Send for AliasableBox<T> {}
// SAFETY: it owns the value, and gives out only shared references, so sharing it shares a `T`.
unsafe impl<T: ?Sized + Sync> Sync for AliasableBox<T> {}

impl<T: ?Sized> AliasableBox<T> {
    /// Takes over the value of a box, which stays at its address.
    #[must_use]
    pub fn new(value: Box<T>) -> Self {
        Self(NonNull::from(Box::leak(value)), PhantomData)
    }

    /// Returns the address of the value.
    #[must_use]
    pub const fn place(&self) -> NonNull<T> {
        self.0
    }
}

impl<T: ?Sized> Deref for AliasableBox<T> {
    type Target = T;

    // Always inlined: hits dereference it, but this module lies outside the region in which nothing is probed.
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the value exists until `drop`, and this type gives out only shared references.
        unsafe { self.0.as_ref() }
    }
}

impl<T: ?Sized> Drop for AliasableBox<T> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::leak` in `new`, and `drop` runs once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for AliasableBox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
