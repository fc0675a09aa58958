//! Boxed slices of numbers that are 0. The allocator clears the memory at once, which takes a fraction of the time of
//! storing one number after the other.

use alloc::alloc::Layout;
use alloc::boxed::Box;
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

use super::OutOfMemory;

/// A type for which bytes that are all 0 are a valid value.
///
/// # Safety
///
/// Bytes that are all 0 are a valid value of the type. Its size is not 0.
pub unsafe trait Zeroed {}

macro_rules! zeroed {
    ($($number:ty)*) => {$(
        // SAFETY: numbers, and atomics, which have the representation of their numbers, may have any bytes.
        unsafe impl Zeroed for $number {}
    )*};
}

zeroed!(u8 u16 u32 u64 usize AtomicU8 AtomicU16 AtomicU32 AtomicU64 AtomicUsize);

/// Makes a boxed slice of `count` numbers that are 0.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory for the slice.
pub fn zeroed<T: Zeroed>(count: usize) -> Result<Box<[T]>, OutOfMemory> {
    if count == 0 {
        return Ok(Box::default());
    }
    let layout = Layout::array::<T>(count).map_err(|_| OutOfMemory)?;
    // SAFETY: the size of the layout is not zero: neither is `count`, as checked above, nor the size of `T`, which
    // `Zeroed` guarantees.
    let first = unsafe { alloc::alloc::alloc_zeroed(layout) }.cast::<T>();
    if first.is_null() {
        return Err(OutOfMemory);
    }
    // SAFETY: the memory was allocated by the global allocator with the layout of the slice, as `Box` demands, and its
    // bytes are 0, which are values of `T`, as `Zeroed` guarantees.
    Ok(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, count)) })
}
