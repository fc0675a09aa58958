//! Makes probe points known to the hit path: the writing side of `hit::table`.
//!
//! All functions are called with the registry's lock held, so there is only one writer. Readers may come at any time.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use super::hit::point::Point;
use super::hit::table::{self, EMPTY, PAGE_SHIFT, Page, TABLE, WORDS};
use super::registry::RegistryEntry;
use crate::atomic::AtomicPtr;
use crate::kernel;

/// Adds the page for the virtual address `address`, which is in the text, to the table, which it makes if there is
/// none. Returns the page, which is never freed; `None` if there is no memory.
pub(super) fn add_page(address: usize) -> Option<&'static Page> {
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
    let text = kernel::text();
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

/// Makes a page without entries; `None` if there is no memory.
fn make_page() -> Option<Box<Page>> {
    let mut cells = Vec::new();
    cells.try_reserve_exact(WORDS).ok()?;
    cells.resize_with(WORDS, || AtomicPtr::new(EMPTY));
    let cells: Box<[AtomicPtr<Point>; WORDS]> = cells.into_boxed_slice().try_into().ok()?;
    // SAFETY: a `Page` is `repr(transparent)` over the array of its cells, which the box holds.
    Some(unsafe { Box::from_raw(Box::into_raw(cells).cast()) })
}

/// Returns the entry to which `found`, from a cell of the table, leads.
///
/// # Safety
///
/// The caller holds the registry's lock, and has loaded `found` from a cell since it took the lock.
#[inline]
unsafe fn entry(found: *mut Point) -> Option<NonNull<RegistryEntry>> {
    // SAFETY: `found` was loaded from a cell (see # Safety).
    match unsafe { table::point(found) } {
        // SAFETY: only the holder of the registry's lock, which is the caller (see # Safety), frees points.
        Some(point) => Some(unsafe { point.as_ref() }.registered),
        None => NonNull::new(found.map_addr(|address| address & !1).cast()),
    }
}

impl Page {
    /// Returns the entry of the word at the virtual address `address`, if it has one.
    ///
    /// # Safety
    ///
    /// The caller holds the registry's lock.
    #[inline]
    pub(super) unsafe fn entry(&self, address: usize) -> Option<NonNull<RegistryEntry>> {
        // SAFETY: the caller holds the registry's lock (see # Safety), and this loads from a cell.
        unsafe { entry(self.cell(address).load(Ordering::Relaxed)) }
    }

    /// Makes `entry` the entry of the word at the virtual address `address`, and withdraws the point that is there, if
    /// there is one. `None` if the word is to have no entry.
    ///
    /// # Safety
    ///
    /// The caller holds the registry's lock. `entry` is an entry, and stays one as long as the cell leads to it.
    #[inline]
    pub(super) unsafe fn set_entry(&self, address: usize, entry: Option<NonNull<RegistryEntry>>) {
        let held = entry.map_or(EMPTY, |entry| entry.as_ptr().cast::<Point>().map_addr(|address| address | 1));
        self.cell(address).store(held, Ordering::Relaxed);
    }

    /// Makes `point` the point that is found at the virtual address `address`, which has an entry. Returns the previous
    /// point, which hits that have already begun may still use.
    ///
    /// # Safety
    ///
    /// The caller holds the registry's lock. `point` is a point, and was not published before.
    #[inline]
    pub(super) unsafe fn publish(&self, address: usize, mut point: NonNull<Point>) -> Option<NonNull<Point>> {
        let found = self.cell(address).load(Ordering::Relaxed);
        // SAFETY: the caller holds the registry's lock (see # Safety), and `found` was loaded from a cell.
        let entry = unsafe { entry(found) };
        debug_assert!(entry.is_some(), "there is no entry for the point at {address:#x}");
        if let Some(entry) = entry {
            // SAFETY: `point` is a point that was not published before (see # Safety), so no CPU uses it.
            unsafe { point.as_mut() }.registered = entry;
        }
        self.cell(address).store(point.as_ptr(), Ordering::Release);
        // SAFETY: `found` was loaded from a cell.
        unsafe { table::point(found) }
    }

    /// Withdraws the point at the virtual address `address`, if there is one, and returns it: hits that have already
    /// begun may still use it.
    ///
    /// # Safety
    ///
    /// The caller holds the registry's lock.
    #[inline]
    pub(super) unsafe fn withdraw(&self, address: usize) -> Option<NonNull<Point>> {
        let point = self.locked_point(address)?;
        // SAFETY: only the holder of the registry's lock, which is the caller (see # Safety), frees points.
        unsafe { self.set_entry(address, Some(point.as_ref().registered)) };
        Some(point)
    }
}
