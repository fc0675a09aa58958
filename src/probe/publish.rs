//! Making probe points known to the hit path: the writing side of `hit::table`.
//!
//! All of it is called with the registry's lock held, so there is one writer; readers may come at any time.

#[cfg(not(all(test, loom)))]
use alloc::alloc::{Layout, alloc_zeroed};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use super::hit::table::{PAGE_SHIFT, Page, TABLE};
use crate::atomic::AtomicPtr;
use crate::platform;

/// Makes room for a point at the virtual address `address`, which is in the text, if there is memory for it: the page in
/// which it is found, which stays for as long as the kernel runs.
pub(super) fn prepare(address: usize) -> Option<&'static Page> {
    if TABLE.pages().is_empty() && !make_table() {
        return None;
    }
    let entry = TABLE.entry(address)?;
    let page = match NonNull::new(entry.load(Ordering::Relaxed)) {
        Some(page) => page,
        None => {
            let page = NonNull::from(Box::leak(make_page()?));
            entry.store(page.as_ptr(), Ordering::Release);
            page
        }
    };
    // SAFETY: it is a page, and never freed.
    Some(unsafe { page.as_ref() })
}

/// Bytes of memory that the table takes.
pub(super) fn memory() -> usize {
    let pages = TABLE.pages();
    let made = pages.iter().filter(|entry| !entry.load(Ordering::Relaxed).is_null()).count();
    size_of_val(pages) + made * size_of::<Page>()
}

/// Makes the table, if there is memory for it.
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

/// A page without points, if there is memory for it.
#[cfg(not(all(test, loom)))]
fn make_page() -> Option<Box<Page>> {
    // SAFETY: the layout has a size.
    let page = unsafe { alloc_zeroed(Layout::new::<Page>()) }.cast::<Page>();
    // SAFETY: it was allocated as a box is, and zeroes are null pointers and numbers.
    (!page.is_null()).then(|| unsafe { Box::from_raw(page) })
}

/// The atomics of a model are not zeroes.
#[cfg(all(test, loom))]
fn make_page() -> Option<Box<Page>> {
    Some(Box::default())
}
