//! Device registers as values.

use core::marker::PhantomData;
use core::ops::Deref;

use super::{MapError, map_device};

/// The registers `T` of a device, mapped forever.
pub(crate) struct Mmio<T> {
    address: usize,
    registers: PhantomData<*const T>,
}

// SAFETY: it is an address that is good on every CPU. What accesses at the same time from several CPUs do, each of which
// is one load or store, is a matter of the device, not of memory.
unsafe impl<T> Send for Mmio<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Mmio<T> {}

impl<T> Clone for Mmio<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Mmio<T> {}

impl<T> Mmio<T> {
    /// Maps the registers at the physical address `physical`.
    ///
    /// # Safety
    ///
    /// `T` is a structure of registers, and such are there.
    pub(crate) unsafe fn map(physical: u64) -> Result<Self, MapError> {
        Ok(Self { address: map_device(physical, size_of::<T>() as u64)?, registers: PhantomData })
    }
}

impl<T> Deref for Mmio<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the registers were mapped at this address, forever, and the caller of `map` says what they are.
        unsafe { &*core::ptr::with_exposed_provenance::<T>(self.address) }
    }
}
