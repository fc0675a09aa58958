//! The kernel heap: what `alloc` allocates from. Its size is fixed at boot.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;

use talc::base::Talc;
use talc::base::binning::DefaultBinning;
use talc::source::Manual;

use crate::sync::IrqLock;

/// Interrupt handlers free and allocate too, and so does code that has masked interrupts, so the lock masks them. That also
/// keeps the holder on its CPU: no other CPU, and no other task of this one, waits for longer than an allocation takes.
static HEAP: IrqLock<Talc<Manual, DefaultBinning>> = IrqLock::new(Talc::new(Manual));

/// The allocator of a kernel. [`entry!`](crate::entry) makes it that of the program, not of this crate: a compiler that sees
/// how memory is allocated does not take it for fresh any more, and makes large values on the stack that belong in a box.
#[derive(Debug)]
pub struct Heap;

// SAFETY: Talc fulfils the contract of GlobalAlloc, under a lock.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees that the layout has a size.
        unsafe { HEAP.lock().allocate(layout) }.map_or(ptr::null_mut(), ptr::NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that both are those of an allocation from here.
        unsafe { HEAP.lock().deallocate(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that pointer and layout are those of an allocation from here, and that the
        // size is not 0.
        if unsafe { HEAP.lock().try_realloc_in_place(pointer, layout, size) } {
            return pointer;
        }
        // The lock is free while the contents are copied.
        // SAFETY: the caller guarantees that the size, rounded up to the alignment, is no more than isize::MAX.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both allocations have that many bytes, and the new one is another.
            unsafe { ptr::copy_nonoverlapping(pointer, new, layout.size().min(size)) };
            // SAFETY: as the caller guarantees.
            unsafe { self.dealloc(pointer, layout) };
        }
        new
    }
}

/// Gives the heap memory, forever; too little to be of use is ignored.
///
/// # Safety
///
/// `length` bytes at `start` are mapped for reading and writing, and belong to the heap alone.
pub(super) unsafe fn add(start: *mut u8, length: usize) {
    // SAFETY: as the caller guarantees.
    let _ = unsafe { HEAP.lock().claim(start, length) };
}

/// How much of the heap is in use.
pub(super) struct Use {
    /// Bytes that are allocated.
    pub used: usize,
    /// Bytes in all.
    pub size: usize,
    /// Number of allocations.
    pub allocations: usize,
}

/// How much of the heap is in use now.
pub(super) fn statistics() -> Use {
    let heap = HEAP.lock();
    let counters = heap.counters();
    Use { used: counters.allocated_bytes, size: counters.claimed_bytes, allocations: counters.allocation_count }
}
