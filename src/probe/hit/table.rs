//! Maps an address to its probe point, in the same few loads however many probes there are.
//!
//! The probed text is one range, and A64 instructions are words at multiples of four, so the address is the index. One
//! array has an entry for each page of the text; each page that has ever had a probe has an array with an entry for
//! each word. A reader does two dependent loads and takes no lock. The arrays of pages are never freed, so a reader can
//! never use one that is being freed. They also hold the original instructions of the points. So the instruction at an
//! address can be read without touching its point, which may be about to be freed.
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

/// log2 of the size of a page of text. Smaller than a memory page, so that the first probes take little memory. Models
/// use still smaller pages, because each of their executions makes a page anew.
pub(crate) const PAGE_SHIFT: usize = if cfg!(all(test, loom)) { 6 } else { 10 };
pub(crate) const WORDS: usize = 1 << (PAGE_SHIFT - 2);

/// The points and the original instructions of one page of text.
#[repr(C)]
pub(crate) struct Page {
    points: [AtomicPtr<Point>; WORDS],
    /// The original instructions, valid where there are points.
    originals: [AtomicU32; WORDS],
}

/// The table of all points, made at the first registration. `trampoline/hit.S` knows the layout.
#[repr(C)]
#[cfg_attr(all(test, loom), derive(Default))]
pub(crate) struct Table {
    /// The virtual address of the first word of the first page.
    pub(super) base: AtomicUsize,
    /// The number of pages; 0 until the other fields are valid.
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
    /// Gives the table its pages, which begin at the virtual address `base`. Called once.
    #[inline]
    pub(crate) fn set(&self, base: usize, pages: &'static [AtomicPtr<Page>]) {
        self.base.store(base, Ordering::Relaxed);
        // Release in its own right: the assembly does not order the load of `pages` after that of `length`.
        self.pages.store(pages.as_ptr().cast_mut(), Ordering::Release);
        self.length.store(pages.len(), Ordering::Release);
    }

    /// Returns the entries for all pages; none before the first registration.
    #[inline]
    pub(crate) fn pages(&self) -> &'static [AtomicPtr<Page>] {
        match self.length.load(Ordering::Acquire) {
            0 => &[],
            // SAFETY: `set` stored the pointer and the length of a static slice, and the pointer before the length.
            length => unsafe { slice::from_raw_parts(self.pages.load(Ordering::Relaxed), length) },
        }
    }

    /// Returns the entry for the page that contains the virtual address `address`.
    #[inline]
    pub(crate) fn entry(&self, address: usize) -> Option<&'static AtomicPtr<Page>> {
        let pages = self.pages();
        pages.get(address.wrapping_sub(self.base.load(Ordering::Relaxed)) >> PAGE_SHIFT)
    }

    /// Returns the page that contains the virtual address `address`, if there has been a probe in it.
    #[inline]
    pub(crate) fn page(&self, address: usize) -> Option<&'static Page> {
        // SAFETY: the pointer is null or a page, and a page is never freed once it is in the table.
        unsafe { self.entry(address)?.load(Ordering::Acquire).as_ref() }
    }
}

#[cfg(all(test, loom))]
impl Default for Page {
    fn default() -> Self {
        Self { points: [(); WORDS].map(|()| AtomicPtr::default()), originals: [(); WORDS].map(|()| AtomicU32::new(0)) }
    }
}

// The assembly uses the address of a page as that of its array of points.
#[cfg(not(all(test, loom)))]
const _: () = assert!(offset_of!(Page, points) == 0 && offset_of!(Table, length) == offset_of!(Table, base) + 8);

impl Page {
    // The mask keeps the index in bounds, so no check, and no panic, is compiled in.

    #[inline]
    pub(crate) fn point(&self, address: usize) -> &AtomicPtr<Point> {
        &self.points[(address >> 2) & (WORDS - 1)]
    }

    #[inline]
    fn original(&self, address: usize) -> &AtomicU32 {
        &self.originals[(address >> 2) & (WORDS - 1)]
    }

    /// Returns the original instruction of the point at the virtual address `address`, which there is.
    #[inline]
    pub(super) fn word(&self, address: usize) -> u32 {
        self.original(address).load(Ordering::Relaxed)
    }

    /// Makes `point` the point that is found at the virtual address `address`, for the instruction `word`. Returns the
    /// previous point, which hits that have already begun may still use.
    #[inline]
    pub(crate) fn set(&self, address: usize, point: *mut Point, word: u32) -> *mut Point {
        self.original(address).store(word, Ordering::Relaxed);
        self.point(address).swap(point, Ordering::Release)
    }
}

/// Looks up the point at the virtual address `address`.
///
/// # Safety
///
/// The caller is in the hit path, and uses the result only there.
#[inline]
pub(crate) unsafe fn lookup<'a>(address: usize) -> Option<&'a Point> {
    let page = TABLE.page(address)?;
    // SAFETY: a point is freed only after every CPU has been held outside the hit path since it was replaced. The
    // caller is in the hit path (see # Safety).
    unsafe { page.point(address).load(Ordering::Acquire).as_ref() }
}

/// Returns the virtual address of the instruction that is stepped in the slot at the virtual address `slot`, if there
/// is one. Looks at all points.
///
/// # Safety
///
/// The caller is in the hit path, or has interrupts masked.
#[inline(never)]
pub(super) unsafe fn stepped_in(slot: usize) -> Option<usize> {
    for page in TABLE.pages() {
        // SAFETY: as in `Table::page`, the pointer is null or a page, and pages are never freed.
        let Some(page) = (unsafe { page.load(Ordering::Acquire).as_ref() }) else { continue };
        for point in &page.points {
            // SAFETY: as in `lookup`, a point is not freed before every CPU has been held, and a CPU with interrupts
            // masked cannot be held.
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

/// Returns the original instruction of the point at the virtual address `address`, if there is a point.
///
/// Suppose that the caller also reads the word at `address`, with no interrupt in between, or with the registry's lock
/// held. Then `None` means that the word was not written by a probe: a point is in the table before all CPUs are held
/// and its instruction is replaced, and is withdrawn after they were held and the instruction was restored.
#[inline]
pub(crate) fn original(address: usize) -> Option<u32> {
    let page = TABLE.page(address)?;
    let is_probed = !page.point(address).load(Ordering::Acquire).is_null();
    is_probed.then(|| page.word(address))
}
