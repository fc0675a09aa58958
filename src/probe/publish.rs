//! Making probe points known to the hit path: the writing side of `hit::table`.
//!
//! All of it is called with the registry's lock held, so there is one writer; readers may come at any time.

use alloc::alloc::{Layout, alloc_zeroed};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::hit::point::Point;
use super::hit::table::{PAGE_SHIFT, Page, TABLE, Table};
use crate::platform;

/// Makes room for a point at the virtual address `address`, which is in the text. Returns false if there is no memory
/// for it.
pub(super) fn prepare(address: usize) -> bool {
    let Some(entry) = table().and_then(|table| table.entry(address)) else { return false };
    if entry.load(Ordering::Relaxed).is_null() {
        let Some(page) = make_page() else { return false };
        entry.store(Box::into_raw(page), Ordering::Release);
    }
    true
}

/// Makes `point`, for the instruction `word`, the one that is found at its address, for which there is room; with null,
/// none is found any more.
pub(super) fn set(address: usize, point: *const Point, word: u32) {
    if let Some(page) = Table::current().and_then(|table| table.page(address)) {
        page.set(address, point, word);
    }
}

/// Bytes of memory that the table takes.
pub(super) fn memory() -> usize {
    let Some(table) = Table::current() else { return 0 };
    let pages = table.pages.iter().filter(|entry| !entry.load(Ordering::Relaxed).is_null()).count();
    size_of_val(&*table.pages) + pages * size_of::<Page>()
}

/// The table; a new one if there is none, and memory for it.
fn table() -> Option<&'static Table> {
    if let Some(table) = Table::current() {
        return Some(table);
    }
    let text = platform::text();
    let base = text.start & !((1 << PAGE_SHIFT) - 1);
    let count = (text.end - base).div_ceil(1 << PAGE_SHIFT);
    let mut pages = Vec::new();
    pages.try_reserve_exact(count).ok()?;
    pages.resize_with(count, AtomicPtr::default);
    TABLE.store(Box::into_raw(Box::new(Table { base, pages: pages.into_boxed_slice() })), Ordering::Release);
    Table::current()
}

/// A page without points, if there is memory for it.
fn make_page() -> Option<Box<Page>> {
    // SAFETY: the layout has a size.
    let page = unsafe { alloc_zeroed(Layout::new::<Page>()) }.cast::<Page>();
    // SAFETY: it was allocated as a box is, and zeroes are null pointers and numbers.
    (!page.is_null()).then(|| unsafe { Box::from_raw(page) })
}
