//! The kernel heap, which backs `alloc`. Its size is fixed at boot.

use core::alloc::{GlobalAlloc, Layout};
use core::arch::asm;
use core::ptr;

use aarch64_kprobes::emit;
use talc::base::binning::DefaultBinning;
use talc::base::{CHUNK_UNIT, Counters, Talc};
use talc::source::Manual;

use crate::event::{Kfree, Kmalloc};
use crate::sync::IrqLock;

/// The heap's allocator. Its lock masks interrupts because interrupt handlers, and code that has masked interrupts,
/// allocate and free, too. Masking also keeps the holder on its CPU, so no CPU or task waits for longer than an
/// allocation takes.
static HEAP: IrqLock<Talc<Manual, DefaultBinning>> = IrqLock::new(Talc::new(Manual));

/// Returns how many bytes an allocation of `size` bytes has: Talc rounds up so that the allocation and the word after
/// it, which Talc keeps for itself, are a multiple of [`CHUNK_UNIT`].
fn bytes_of(size: usize) -> usize {
    (size + size_of::<usize>()).next_multiple_of(CHUNK_UNIT) - size_of::<usize>()
}

/// Returns the return address of the function that this is inlined into: the address of the code that allocates or
/// frees.
#[inline(always)]
fn call_site() -> u64 {
    let address;
    // SAFETY: the image is compiled with frame pointers, and the function around this makes calls: x29 is the address
    // of its frame record, whose second word is the return address (AAPCS64, 6.4.6).
    unsafe { asm!("ldr {}, [x29, #8]", out(reg) address, options(nostack, preserves_flags, readonly)) };
    address
}

/// The allocator of a kernel.
///
/// [`entry!`](crate::entry) makes it the global allocator in the program, not in this crate. A compiler that sees how
/// memory is allocated no longer takes it for fresh, and builds large values on the stack before it moves them to a
/// box.
#[derive(Debug)]
pub struct Heap;

// SAFETY: Talc fulfils the contract of `GlobalAlloc`, and the lock serializes its calls.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees that the size of the layout is not 0.
        let pointer = unsafe { HEAP.lock().allocate(layout) }.map_or(ptr::null_mut(), ptr::NonNull::as_ptr);
        let bytes_req = layout.size();
        let bytes_alloc = if pointer.is_null() { 0 } else { bytes_of(bytes_req) };
        emit!(Kmalloc { call_site: call_site(), ptr: pointer, bytes_req, bytes_alloc });
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        emit!(Kfree { call_site: call_site(), ptr: pointer });
        // SAFETY: the caller guarantees that pointer and layout are those of an allocation from here.
        unsafe { HEAP.lock().deallocate(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that pointer and layout are those of an allocation from here, and that the size
        // is not 0.
        if unsafe { HEAP.lock().try_realloc_in_place(pointer, layout, size) } {
            return pointer;
        }
        // The lock is not held while the contents are copied.
        // SAFETY: the caller guarantees that the size, rounded up to the alignment, is no more than isize::MAX.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both allocations have at least that many bytes, and they do not overlap.
            unsafe { ptr::copy_nonoverlapping(pointer, new, layout.size().min(size)) };
            // SAFETY: the caller guarantees that pointer and layout are those of an allocation from here.
            unsafe { self.dealloc(pointer, layout) };
        }
        new
    }
}

/// Gives memory to the heap, forever. Ignores memory that is too small to be of use.
///
/// # Safety
///
/// `length` bytes at `start` are mapped for reading and writing, and belong to the heap alone.
pub(super) unsafe fn add(start: *mut u8, length: usize) {
    // SAFETY: the caller guarantees that the memory is mapped and belongs to the heap alone (see # Safety).
    let _ = unsafe { HEAP.lock().claim(start, length) };
}

/// Returns the current use of the heap.
pub(super) fn counters() -> Counters {
    *HEAP.lock().counters()
}
