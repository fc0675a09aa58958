//! A heap for tests: the number and the bytes of each thread's allocations can be limited, and its bytes are counted.
//!
//! ```no_run
//! #[global_allocator]
//! static HEAP: kprobes_fallible::failing::Heap = kprobes_fallible::failing::Heap;
//! ```

use core::fmt::Debug;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;

/// The system's heap, with limits for each thread.
#[derive(Debug)]
pub struct Heap;

/// The memory of a thread.
struct Memory {
    /// The number of allocations that will still succeed.
    left: Cell<usize>,
    /// The number of bytes that the thread may have allocated, minus those that it has freed.
    most: Cell<isize>,
    /// Bytes that the thread has allocated, minus those that it has freed.
    allocated: Cell<isize>,
}

std::thread_local! {
    static MEMORY: Memory =
        const { Memory { left: Cell::new(usize::MAX), most: Cell::new(isize::MAX), allocated: Cell::new(0) } };
}

// SAFETY: every allocation comes from the system's heap, which fulfils the contract, or fails.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MEMORY.with(|Memory { left, most, allocated }| {
            let Some(rest) = left.get().checked_sub(1) else { return ptr::null_mut() };
            if allocated.get().saturating_add_unsigned(layout.size()) > most.get() {
                return ptr::null_mut();
            }
            left.set(rest);
            // SAFETY: the caller guarantees that the size of the layout is not zero, as `GlobalAlloc` demands.
            let memory = unsafe { System.alloc(layout) };
            if !memory.is_null() {
                allocated.set(allocated.get() + layout.size() as isize);
            }
            memory
        })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        MEMORY.with(|Memory { allocated, .. }| allocated.set(allocated.get() - layout.size() as isize));
        // SAFETY: the caller guarantees that the memory was allocated here with this layout, so it is from the system's
        // heap.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Restores the limits when it is dropped, also if a test panics: a panic needs memory for its message.
struct Limits {
    left: usize,
    most: isize,
}

impl Drop for Limits {
    fn drop(&mut self) {
        MEMORY.with(|Memory { left, most, .. }| {
            left.set(self.left);
            most.set(self.most);
        });
    }
}

/// Runs `action`, in which the first `allocations` allocations succeed and all others fail. May be nested: the
/// allocations of the inner `action` do not count for the outer one.
pub fn with_memory<T>(allocations: usize, action: impl FnOnce() -> T) -> T {
    let _limits = MEMORY.with(|Memory { left, most, .. }| Limits { left: left.replace(allocations), most: most.get() });
    action()
}

/// Runs `action`, in which an allocation fails if this thread would then have more than `bytes` bytes more than now.
pub fn with_bytes<T>(bytes: usize, action: impl FnOnce() -> T) -> T {
    let _limits = MEMORY.with(|Memory { left, most, allocated }| {
        let bound = allocated.get().saturating_add_unsigned(bytes);
        Limits { left: left.get(), most: most.replace(bound) }
    });
    action()
}

/// Returns the bytes that this thread has allocated, minus those that it has freed.
#[must_use]
pub fn allocated() -> isize {
    MEMORY.with(|memory| memory.allocated.get())
}

/// Runs `operation` without memory for its first allocation, then for its second, and so on, until it succeeds. After
/// each failure, `is_failure` checks the error, and checks that everything is as it was.
///
/// A failure may leave room for the next attempt, such as a longer list, and the next attempt may free it. So each
/// failure is repeated until the number of allocated bytes is one that was seen before.
///
/// Returns the result of the operation, and the number of allocations that could fail; in Miri, which skips some, up to
/// twice as many.
///
/// # Panics
///
/// If a failure leaks memory each time, or if the operation fails for another reason.
pub fn each_allocation<T, E: Debug>(
    mut operation: impl FnMut() -> Result<T, E>,
    mut is_failure: impl FnMut(&E) -> bool,
) -> (T, usize) {
    // More than the number of lists that one operation extends.
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
        // Miri is a thousand times slower: it tries the first allocations, and then skips ever more.
        allocations += if cfg!(miri) { 1 + allocations } else { 1 };
    }
}
