//! The heap of a test: each thread gets memory as often as it is allowed, and its bytes are counted.
//!
//! ```ignore
//! #[global_allocator]
//! static HEAP: kprobes_fallible::failing::Heap = kprobes_fallible::failing::Heap;
//! ```

use core::fmt::Debug;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

/// The system's heap, with the limit of the thread.
#[derive(Debug)]
pub struct Heap;

std::thread_local! {
    /// How many more allocations of this thread succeed.
    static LEFT: Cell<usize> = const { Cell::new(usize::MAX) };
    /// Bytes that this thread has allocated, without those that it has freed.
    static ALLOCATED: Cell<isize> = const { Cell::new(0) };
}

// SAFETY: the system's heap fulfils the contract; where it is not asked, there is no memory.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(left) = LEFT.get().checked_sub(1) else { return ptr::null_mut() };
        LEFT.set(left);
        // SAFETY: the layout has a size, by the caller.
        let memory = unsafe { System.alloc(layout) };
        if !memory.is_null() {
            ALLOCATED.set(ALLOCATED.get() + layout.size() as isize);
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        ALLOCATED.set(ALLOCATED.get() - layout.size() as isize);
        // SAFETY: both are of an allocation from here, by the caller, and so from the system's heap.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Lifts the limit when it goes, as a test that panics needs memory to say so.
struct Limit;

impl Drop for Limit {
    fn drop(&mut self) {
        LEFT.set(usize::MAX);
    }
}

/// Carries out `action`, of which so many allocations succeed, and no more.
pub fn with_memory<T>(allocations: usize, action: impl FnOnce() -> T) -> T {
    let _limit = Limit;
    LEFT.set(allocations);
    action()
}

/// Bytes that this thread has allocated, without those that it has freed.
#[must_use]
pub fn allocated() -> isize {
    ALLOCATED.get()
}

/// Carries out `operation` without memory for its first allocation, for its second, and so on, until it succeeds. After each
/// failure the same bytes are allocated as before, and `is_failure` accepts the error and finds everything as it was. Returns what
/// the operation returned, and how often it failed.
///
/// # Panics
///
/// A failure leaves memory behind, or has freed some; or the operation fails for another reason.
pub fn each_allocation<T, E: Debug>(
    mut operation: impl FnMut() -> Result<T, E>,
    mut is_failure: impl FnMut(&E) -> bool,
) -> (T, usize) {
    let mut failures = 0;
    loop {
        let before = allocated();
        match with_memory(failures, &mut operation) {
            Ok(result) => return (result, failures),
            Err(error) => {
                assert!(is_failure(&error), "without allocation {failures}: {error:?}");
                drop(error);
                assert_eq!(allocated(), before, "bytes, without allocation {failures}");
            }
        }
        failures += 1;
    }
}
