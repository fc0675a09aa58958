//! The heap of a test: each thread gets memory as often as it is allowed, and its bytes are counted.
//!
//! ```no_run
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

/// Sets the limit to what it was when this goes, also where a test panics: to say so it needs memory.
struct Limit(usize);

impl Drop for Limit {
    fn drop(&mut self) {
        LEFT.set(self.0);
    }
}

/// Carries out `action`, of which so many allocations succeed, and no more. Within another `action` its allocations are not
/// those of that.
pub fn with_memory<T>(allocations: usize, action: impl FnOnce() -> T) -> T {
    let _limit = Limit(LEFT.replace(allocations));
    action()
}

/// Bytes that this thread has allocated, without those that it has freed.
#[must_use]
pub fn allocated() -> isize {
    ALLOCATED.get()
}

/// Carries out `operation` without memory for its first allocation, for its second, and so on, until it succeeds. After each
/// failure `is_failure` accepts the error and finds everything as it was. A failure may leave room for the next attempt, such as
/// a longer list, and the next may free it. So each failure is repeated until as many bytes are allocated as at some time before.
/// Returns what the operation returned, and how many allocations could fail; in Miri, which leaves some out, up to 7 more.
///
/// # Panics
///
/// A failure leaves memory behind each time; or the operation fails for another reason.
pub fn each_allocation<T, E: Debug>(
    mut operation: impl FnMut() -> Result<T, E>,
    mut is_failure: impl FnMut(&E) -> bool,
) -> (T, usize) {
    // More than there are lists that one operation makes longer.
    const TIMES: usize = 16;
    let mut allocations = 0;
    loop {
        let mut found = [allocated(); TIMES + 1];
        for time in 1.. {
            match with_memory(allocations, &mut operation) {
                Ok(result) => return (result, allocations),
                Err(error) => assert!(is_failure(&error), "with {allocations} allocations: {error:?}"),
            }
            let now = allocated();
            if found[..time].contains(&now) {
                break;
            }
            assert!(time < TIMES, "a failure leaves memory behind, with {allocations} allocations: {found:?}, {now}");
            found[time] = now;
        }
        // Miri is a thousand times as slow: it tries the first ones, and of the others each eighth.
        allocations += if cfg!(miri) && allocations >= 24 { 8 } else { 1 };
    }
}
