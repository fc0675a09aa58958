//! Memory that devices read and write by themselves.
//!
//! It comes from the heap. It is physically contiguous, because the linear map is, and its physical address follows
//! from the virtual one. A driver that gives it to a device keeps it until the device has answered.
//!
//! There is no cache maintenance here. Only devices that see the contents of the CPUs' caches get memory. The device
//! tree marks them (`dma-coherent`, Devicetree Specification 2.3.9).

use alloc::alloc::{alloc_zeroed, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;

use super::layout::{LINEAR_BASE, LINEAR_END, PAGE_SIZE};

/// Allocates `pages` zeroed pages. Returns `None` if there is no memory, or if `pages` is 0.
pub(crate) fn allocate(pages: usize) -> Option<NonNull<u8>> {
    let layout = layout(pages)?;
    if layout.size() == 0 {
        return None;
    }
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { alloc_zeroed(layout) })
}

/// Frees memory from [`allocate`].
///
/// # Safety
///
/// `memory` came from [`allocate`] with the same `pages`, and neither the kernel nor a device uses it any more.
pub(crate) unsafe fn free(memory: NonNull<u8>, pages: usize) {
    if let Some(layout) = layout(pages) {
        // SAFETY: `memory` was allocated with this layout, and the caller guarantees that nothing uses it any more
        // (see # Safety).
        unsafe { dealloc(memory.as_ptr(), layout) };
    }
}

fn layout(pages: usize) -> Option<Layout> {
    Layout::from_size_align(pages.checked_mul(PAGE_SIZE)?, PAGE_SIZE).ok()
}

/// Returns the physical address for the virtual address `address`, or `None` if it is not in the linear map. All of the
/// heap is.
pub(crate) fn physical(address: usize) -> Option<u64> {
    let physical = address.checked_sub(LINEAR_BASE)? as u64;
    (physical < LINEAR_END).then_some(physical)
}
