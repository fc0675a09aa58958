//! Device registers as values: a handle, which can be copied, to the mapped registers of a device.

use core::marker::PhantomData;
use core::ops::Deref;

use super::{MapError, map_device};

/// The registers `T` of a device, mapped forever.
pub(crate) struct Mmio<T> {
    address: usize,
    registers: PhantomData<*const T>,
}

// SAFETY: the address is valid on every CPU, because the mapping is shared. Accesses from several CPUs are single loads
// and stores; what concurrent ones do depends on the device, not on memory.
unsafe impl<T> Send for Mmio<T> {}
// SAFETY: shared use is as safe as sending, because each access is a single load or store.
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
    /// `T` is a structure of registers, and registers of that layout are at the address.
    pub(crate) unsafe fn map(physical: u64) -> Result<Self, MapError> {
        Ok(Self { address: map_device(physical, size_of::<T>() as u64)?, registers: PhantomData })
    }
}

impl<T> Deref for Mmio<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `map` has mapped the registers at this address, forever, and its caller guarantees that they are a
        // `T`.
        unsafe { &*core::ptr::with_exposed_provenance::<T>(self.address) }
    }
}
