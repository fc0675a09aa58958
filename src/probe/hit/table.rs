//! From an address to its probe point, in the same few loads however many probes there are.
//!
//! The probed text is one range, and A64 instructions are words at multiples of four, so the address itself is
//! the index: one array with an entry for each page of the text, and for each page in which there is a probe
//! an array with an entry for each word. A reader does two dependent loads and takes no lock. Pages of the
//! second kind are made when they are first needed and stay, so that a reader can never meet one that is being
//! freed; they cost twice the size of the text that has ever been probed, at most.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::point::Point;

const PAGE_SHIFT: usize = 12;
const WORDS: usize = 1 << (PAGE_SHIFT - 2);

/// The points in one page of text.
type Page = [AtomicPtr<Point>; WORDS];

struct Table {
    /// The address of the first word of the first page.
    base: usize,
    pages: Vec<AtomicPtr<Page>>,
}

/// Made at the first registration.
static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

impl Table {
    #[inline]
    fn page(&self, address: usize) -> Option<&AtomicPtr<Page>> {
        self.pages.get(address.wrapping_sub(self.base) >> PAGE_SHIFT)
    }
}

#[inline]
fn entry(page: &Page, address: usize) -> &AtomicPtr<Point> {
    // The mask keeps the index in bounds, so that no check, and no panic, is compiled in.
    &page[(address >> 2) & (WORDS - 1)]
}

#[inline]
fn table() -> Option<&'static Table> {
    // SAFETY: the pointer is null or that of a table that `initialize` has leaked.
    unsafe { TABLE.load(Ordering::Acquire).as_ref() }
}

/// The point at the virtual address `address`.
///
/// # Safety
///
/// The caller masks interrupts, or holds the registry's lock, for as long as it uses the result.
#[inline]
pub(crate) unsafe fn lookup<'a>(address: usize) -> Option<&'a Point> {
    let page = table()?.page(address)?.load(Ordering::Acquire);
    // SAFETY: a page that has been published is never freed.
    let page = unsafe { page.as_ref() }?;
    // SAFETY: a point is freed under the registry's lock, and only after every CPU has been seen with interrupts
    // unmasked since it was withdrawn; the caller holds the one or prevents the other.
    unsafe { entry(page, address).load(Ordering::Acquire).as_ref() }
}

/// Makes the table for the range of virtual addresses `text`, unless there is one. Not for the hit path, and
/// not for two callers at a time.
pub(crate) fn initialize(text: &Range<usize>) {
    if table().is_some() {
        return;
    }
    let base = text.start & !((1 << PAGE_SHIFT) - 1);
    let count = (text.end - base).div_ceil(1 << PAGE_SHIFT);
    let pages = (0..count).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
    TABLE.store(Box::into_raw(Box::new(Table { base, pages })), Ordering::Release);
}

/// Makes `point` the one that is found at its address. Not for the hit path, and not for two callers at a time.
///
/// Returns false if there is no memory, or the address is outside the text that the table was made for.
pub(crate) fn publish(point: &'static Point) -> bool {
    let Some(slot) = table().and_then(|table| table.page(point.address)) else { return false };
    let mut page = slot.load(Ordering::Acquire);
    if page.is_null() {
        let Some(made) = make_page() else { return false };
        page = Box::into_raw(made);
        slot.store(page, Ordering::Release);
    }
    // SAFETY: not null, and never freed.
    let entry = entry(unsafe { &*page }, point.address);
    entry.store(ptr::from_ref(point).cast_mut(), Ordering::Release);
    true
}

/// A page without points, if there is memory for it.
fn make_page() -> Option<Box<Page>> {
    let mut page = Vec::new();
    page.try_reserve_exact(WORDS).ok()?;
    page.resize_with(WORDS, AtomicPtr::default);
    page.into_boxed_slice().try_into().ok()
}

/// Withdraws the point at the virtual address `address`; readers that have found it may still use it.
pub(crate) fn withdraw(address: usize) {
    let page =
        table().and_then(|table| table.page(address)).map_or(ptr::null_mut(), |page| page.load(Ordering::Acquire));
    // SAFETY: null, or a page, which is never freed.
    if let Some(page) = unsafe { page.as_ref() } {
        entry(page, address).store(ptr::null_mut(), Ordering::Release);
    }
}
