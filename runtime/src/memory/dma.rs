//! Memory that devices read and write by themselves.
//!
//! It is memory of the heap: physically contiguous, as the linear map is, and at a physical address that the virtual one
//! tells. A driver that gives it to a device keeps it until the device has answered.
//!
//! Caches are not maintained here. Only devices are given memory that see what the CPUs see in their caches, which the
//! device tree says of them (`dma-coherent`, Devicetree Specification 2.3.9).

use alloc::alloc::{alloc_zeroed, dealloc};
use core::alloc::Layout;
use core::ptr::NonNull;

use super::layout::{LINEAR_BASE, LINEAR_END, PAGE_SIZE};

/// Allocates `pages` pages, zeroed.
pub(crate) fn allocate(pages: usize) -> Option<NonNull<u8>> {
    let layout = layout(pages)?;
    if layout.size() == 0 {
        return None;
    }
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { alloc_zeroed(layout) })
}

/// Gives back what [`allocate`] has given.
///
/// # Safety
///
/// `memory` came from [`allocate`] with the same `pages`, and neither the kernel nor a device uses it any more.
pub(crate) unsafe fn free(memory: NonNull<u8>, pages: usize) {
    if let Some(layout) = layout(pages) {
        // SAFETY: it was allocated with this layout, and no driver or device uses it any more, as the caller promises.
        unsafe { dealloc(memory.as_ptr(), layout) };
    }
}

fn layout(pages: usize) -> Option<Layout> {
    Layout::from_size_align(pages.checked_mul(PAGE_SIZE)?, PAGE_SIZE).ok()
}

/// The physical address of the byte at the virtual address `address`, if it is in the linear map, as all of the heap is.
pub(crate) fn physical(address: usize) -> Option<u64> {
    let physical = address.checked_sub(LINEAR_BASE)? as u64;
    (physical < LINEAR_END).then_some(physical)
}
