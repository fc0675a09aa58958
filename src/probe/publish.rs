//! Makes probe points known to the hit path: the writing side of `hit::table`.
//!
//! All functions are called with the registry's lock held, so there is only one writer. Readers may come at any time.

#[cfg(not(all(test, loom)))]
use alloc::alloc::{Layout, alloc_zeroed};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use super::hit::table::{PAGE_SHIFT, Page, TABLE};
use crate::atomic::AtomicPtr;
use crate::platform;

/// Makes room for a point at the virtual address `address`, which is in the text. Returns the page for it, which is
/// never freed; `None` if there is no memory.
#[inline]
pub(super) fn prepare(address: usize) -> Option<&'static Page> {
    TABLE.page(address).or_else(|| add_page(address))
}

/// Adds the page for the virtual address `address` to the table, which it makes if there is none; `None` if there is no
/// memory.
#[cold]
fn add_page(address: usize) -> Option<&'static Page> {
    if TABLE.pages().is_empty() && !make_table() {
        return None;
    }
    let entry = TABLE.entry(address)?;
    let page = NonNull::from(Box::leak(make_page()?));
    entry.store(page.as_ptr(), Ordering::Release);
    // SAFETY: the pointer leads to a page, and pages are never freed.
    Some(unsafe { page.as_ref() })
}

/// Returns the bytes of memory that the table takes.
pub(super) fn memory() -> usize {
    let pages = TABLE.pages();
    let made = pages.iter().filter(|entry| !entry.load(Ordering::Relaxed).is_null()).count();
    size_of_val(pages) + made * size_of::<Page>()
}

/// Makes the table. Returns false if there is no memory.
fn make_table() -> bool {
    let text = platform::text();
    let base = text.start & !((1 << PAGE_SHIFT) - 1);
    let count = (text.end - base).div_ceil(1 << PAGE_SHIFT);
    let mut pages = Vec::new();
    if pages.try_reserve_exact(count).is_err() {
        return false;
    }
    pages.resize_with(count, AtomicPtr::default);
    TABLE.set(base, pages.leak());
    true
}

/// Makes a page without points; `None` if there is no memory.
#[cfg(not(all(test, loom)))]
fn make_page() -> Option<Box<Page>> {
    // SAFETY: the size of the layout is not zero.
    let page = unsafe { alloc_zeroed(Layout::new::<Page>()) }.cast::<Page>();
    // SAFETY: it was allocated with the layout and the allocator of a box, and zeroes are valid null pointers and
    // numbers.
    (!page.is_null()).then(|| unsafe { Box::from_raw(page) })
}

/// Makes a page without points. The atomics of a model are not valid as zeroes.
#[cfg(all(test, loom))]
fn make_page() -> Option<Box<Page>> {
    Some(Box::default())
}
