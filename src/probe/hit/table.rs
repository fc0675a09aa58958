//! From an address to its probe point, in the same few loads however many probes there are.
//!
//! The probed text is one range, and A64 instructions are words at multiples of four, so the address itself is
//! the index: one array with an entry for each page of the text, and for each page in which there has been a probe
//! an entry for each word. A reader does two dependent loads and takes no lock. Pages of the second kind stay, so that
//! a reader can never meet one that is being freed. They also hold the instructions that points stand for: what is at an
//! address without probes can be told without touching its point, which may be about to be freed.
//!
//! `probe::publish` fills the table.

#[cfg(not(all(test, loom)))]
use core::mem::offset_of;
#[cfg(not(all(test, loom)))]
use core::ptr;
use core::slice;
use core::sync::atomic::Ordering;

use super::point::{Execution, Point};
use crate::atomic::{AtomicPtr, AtomicU32, AtomicUsize};

/// Pages of text are smaller here than those of memory: so the first probes take little. Models have smaller ones, as all of one is made
/// anew in each of their executions.
pub(crate) const PAGE_SHIFT: usize = if cfg!(all(test, loom)) { 6 } else { 10 };
pub(crate) const WORDS: usize = 1 << (PAGE_SHIFT - 2);

/// What is known of one page of text.
#[repr(C)]
pub(crate) struct Page {
    points: [AtomicPtr<Point>; WORDS],
    /// The instructions that there are points for.
    originals: [AtomicU32; WORDS],
}

/// The table. It is made at the first registration. `trampoline/hit.S` knows its fields.
#[repr(C)]
#[cfg_attr(all(test, loom), derive(Default))]
pub(crate) struct Table {
    /// The address of the first word of the first page.
    pub(super) base: AtomicUsize,
    /// The number of pages: none until the other fields are good.
    length: AtomicUsize,
    pub(super) pages: AtomicPtr<AtomicPtr<Page>>,
}

#[cfg(not(all(test, loom)))]
pub(crate) static TABLE: Table =
    Table { base: AtomicUsize::new(0), length: AtomicUsize::new(0), pages: AtomicPtr::new(ptr::null_mut()) };
#[cfg(all(test, loom))]
kprobes_models::loom::lazy_static! {
    pub(crate) static ref TABLE: Table = Table::default();
}

impl Table {
    /// Gives the table its pages, which begin at the virtual address `base`. Once.
    #[inline]
    pub(crate) fn set(&self, base: usize, pages: &'static [AtomicPtr<Page>]) {
        self.base.store(base, Ordering::Relaxed);
        // Of itself: nothing orders the load of the pages in the assembly after that of their number.
        self.pages.store(pages.as_ptr().cast_mut(), Ordering::Release);
        self.length.store(pages.len(), Ordering::Release);
    }

    /// The entries for all pages.
    #[inline]
    pub(crate) fn pages(&self) -> &'static [AtomicPtr<Page>] {
        match self.length.load(Ordering::Acquire) {
            0 => &[],
            // SAFETY: as `set` was given them, before the length.
            length => unsafe { slice::from_raw_parts(self.pages.load(Ordering::Relaxed), length) },
        }
    }

    /// The entry for the page around the virtual address `address`.
    #[inline]
    pub(crate) fn entry(&self, address: usize) -> Option<&'static AtomicPtr<Page>> {
        let pages = self.pages();
        pages.get(address.wrapping_sub(self.base.load(Ordering::Relaxed)) >> PAGE_SHIFT)
    }

    /// The page around the virtual address `address`, if there has been a probe in it.
    #[inline]
    pub(crate) fn page(&self, address: usize) -> Option<&'static Page> {
        // SAFETY: null, or a page, which is never freed once it is here.
        unsafe { self.entry(address)?.load(Ordering::Acquire).as_ref() }
    }
}

#[cfg(all(test, loom))]
impl Default for Page {
    fn default() -> Self {
        Self { points: [(); WORDS].map(|()| AtomicPtr::default()), originals: [(); WORDS].map(|()| AtomicU32::new(0)) }
    }
}

// The assembly takes a page for the array of its points.
#[cfg(not(all(test, loom)))]
const _: () = assert!(offset_of!(Page, points) == 0 && offset_of!(Table, length) == offset_of!(Table, base) + 8);

impl Page {
    // In all of them, the mask keeps the index in bounds, so that no check, and no panic, is compiled in.

    #[inline]
    pub(crate) fn point(&self, address: usize) -> &AtomicPtr<Point> {
        &self.points[(address >> 2) & (WORDS - 1)]
    }

    #[inline]
    fn original(&self, address: usize) -> &AtomicU32 {
        &self.originals[(address >> 2) & (WORDS - 1)]
    }

    /// Makes `point` the one that is found at the virtual address `address`, for the instruction `word`. Returns the one
    /// that was there, which hits that have begun may still use.
    #[inline]
    pub(crate) fn set(&self, address: usize, point: *mut Point, word: u32) -> *mut Point {
        self.original(address).store(word, Ordering::Relaxed);
        self.point(address).swap(point, Ordering::Release)
    }
}

/// The point at the virtual address `address`.
///
/// # Safety
///
/// The caller is in the hit path, and uses the result only there.
#[inline]
pub(crate) unsafe fn lookup<'a>(address: usize) -> Option<&'a Point> {
    let page = TABLE.page(address)?;
    // SAFETY: a point is freed only after every CPU has been held outside the hit path since it was replaced, and the
    // caller is inside it.
    unsafe { page.point(address).load(Ordering::Acquire).as_ref() }
}

/// The virtual address of the instruction that is stepped in the slot at the virtual address `slot`, if a point has it. It looks at
/// all points.
///
/// # Safety
///
/// The caller is in the hit path, or has interrupts masked.
#[inline(never)]
pub(super) unsafe fn stepped_in(slot: usize) -> Option<usize> {
    for page in TABLE.pages() {
        // SAFETY: as in `Table::page`.
        let Some(page) = (unsafe { page.load(Ordering::Acquire).as_ref() }) else { continue };
        for point in &page.points {
            // SAFETY: as in `lookup`: a CPU with interrupts masked is held no sooner than one in the hit path.
            let point = unsafe { point.load(Ordering::Acquire).as_ref() };
            if let Some(point) = point
                && matches!(point.execution, Execution::Stepped { slot: own } if own == slot)
            {
                return Some(point.first.address);
            }
        }
    }
    None
}

/// The instruction that a point at the virtual address `address` stands for, if there is a point.
///
/// If the word there is read, too, with no interrupt taken in between, or with the registry's lock held, then nothing means
/// that the word is no probe's: a point is there before all CPUs are held and its instruction replaced, and is withdrawn
/// after they were held and the instruction put back.
#[inline]
pub(crate) fn original(address: usize) -> Option<u32> {
    let page = TABLE.page(address)?;
    let is_probed = !page.point(address).load(Ordering::Acquire).is_null();
    is_probed.then(|| page.original(address).load(Ordering::Relaxed))
}
