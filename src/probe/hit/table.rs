//! Maps an address to its probe point, by a few loads, whose number does not depend on the number of probes.
//!
//! The probed text is one range, and A64 instructions are words at multiples of four, so the address is the index. One
//! array has an entry for each page of the text; each page that has ever had a probe has an array with a cell for each
//! word. A reader does two dependent loads and takes no lock. The arrays of pages are never freed, so a reader can
//! never use one that is being freed.
//!
//! The registry finds its entries in the same cells:
//!
//! | the word has | its cell holds |
//! |---|---|
//! | no entry | [`EMPTY`] |
//! | an entry, and no probe is enabled | the address of the entry, and 1 |
//! | an entry, and a probe is enabled | the address of the point, which leads to the entry |
//!
//! So the cell is odd if a hit finds no point there.
//!
//! `probe::publish` makes the table.

use core::hint;
#[cfg(not(all(test, loom)))]
use core::mem::offset_of;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::Ordering;

use super::point::{Execution, Point};
use crate::atomic::{AtomicPtr, AtomicUsize};

/// log2 of the size of a page of text. Smaller than a memory page, so that the first probes take little memory. Models
/// use still smaller pages, because each of their executions makes a page anew.
pub(crate) const PAGE_SHIFT: usize = if cfg!(all(test, loom)) { 6 } else { 10 };
pub(crate) const WORDS: usize = 1 << (PAGE_SHIFT - 2);

/// The cells of one page of text.
#[repr(transparent)]
pub(crate) struct Page([AtomicPtr<Point>; WORDS]);

/// What the cell of a word without an entry holds.
pub(crate) const EMPTY: *mut Point = ptr::without_provenance_mut(1);

/// The table of all points, made at the first registration. `trampoline/hit.S` knows the layout.
#[repr(C)]
#[cfg_attr(all(test, loom), derive(Default))]
pub(crate) struct Table {
    /// The virtual address of the first word of the first page; until it is known, one that is far from all text. The
    /// assembly does not order its load after that of `length`.
    pub(super) base: AtomicUsize,
    /// The number of pages; 0 until the other fields are valid.
    length: AtomicUsize,
    pub(super) pages: AtomicPtr<AtomicPtr<Page>>,
}

#[cfg(not(all(test, loom)))]
pub(crate) static TABLE: Table =
    Table { base: AtomicUsize::new(NOWHERE), length: AtomicUsize::new(0), pages: AtomicPtr::new(ptr::null_mut()) };
#[cfg(all(test, loom))]
kprobes_models::loom::lazy_static! {
    pub(crate) static ref TABLE: Table = Table::default();
}

/// An address that is far from all virtual addresses of instructions, which are at the ends of the address space (Arm
/// ARM, D8.1).
#[cfg(not(all(test, loom)))]
const NOWHERE: usize = 1 << 63;

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

    /// Returns the virtual address of the first word of the first page.
    pub(crate) fn base(&self) -> usize {
        self.base.load(Ordering::Relaxed)
    }

    /// Returns the entry for the page that contains the virtual address `address`.
    #[inline]
    pub(crate) fn entry(&self, address: usize) -> Option<&'static AtomicPtr<Page>> {
        let pages = self.pages();
        pages.get(address.wrapping_sub(self.base()) >> PAGE_SHIFT)
    }

    /// Returns the page that contains the virtual address `address`, if there has been a probe in it.
    #[inline]
    pub(crate) fn page(&self, address: usize) -> Option<&'static Page> {
        // SAFETY: the pointer is null or a page, and a page is never freed once it is in the table.
        unsafe { self.entry(address)?.load(Ordering::Acquire).as_ref() }
    }
}

// The assembly uses the address of a page as that of its first cell.
#[cfg(not(all(test, loom)))]
const _: () = assert!(offset_of!(Table, length) == offset_of!(Table, base) + 8);

/// Returns the point, if that is what was found in a cell.
///
/// # Safety
///
/// `found` was loaded from a cell.
#[inline]
pub(crate) unsafe fn point(found: *mut Point) -> Option<NonNull<Point>> {
    // SAFETY: no cell holds null: `probe::publish`, which alone stores in cells, stores `EMPTY`, an address and 1, or
    // the address of a point.
    unsafe { hint::assert_unchecked(!found.is_null()) };
    NonNull::new(found).filter(|_| found.addr() & 1 == 0)
}

impl Page {
    // The mask keeps the index in bounds, so no check, and no panic, is compiled in.

    /// Returns the cell of the word at the virtual address `address`.
    #[inline]
    pub(crate) fn cell(&self, address: usize) -> &AtomicPtr<Point> {
        &self.0[(address >> 2) & (WORDS - 1)]
    }

    /// Returns the point at the virtual address `address`, if there is one.
    #[inline]
    pub(crate) fn point(&self, address: usize) -> Option<NonNull<Point>> {
        // SAFETY: this loads from a cell.
        unsafe { point(self.cell(address).load(Ordering::Acquire)) }
    }

    /// Does what [`point`](Self::point) does, for the holder of the registry's lock: no other CPU changes a cell.
    #[inline]
    pub(crate) fn locked_point(&self, address: usize) -> Option<NonNull<Point>> {
        // SAFETY: this loads from a cell.
        unsafe { point(self.cell(address).load(Ordering::Relaxed)) }
    }
}

/// Looks up the point at the virtual address `address`.
///
/// # Safety
///
/// The caller is in the hit path, and uses the result only there.
#[inline]
pub(crate) unsafe fn lookup<'a>(address: usize) -> Option<&'a Point> {
    let point = TABLE.page(address)?.point(address)?;
    // SAFETY: a point is freed only after every CPU has been held outside the hit path since it was replaced. The
    // caller is in the hit path (see # Safety).
    Some(unsafe { point.as_ref() })
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
        for cell in &page.0 {
            // SAFETY: this loads from a cell.
            let Some(point) = (unsafe { point(cell.load(Ordering::Acquire)) }) else { continue };
            // SAFETY: as in `lookup`, a point is not freed before every CPU has been held, and a CPU with interrupts
            // masked cannot be held.
            let point = unsafe { point.as_ref() };
            if matches!(point.execution, Execution::Stepped { slot: own } if own == slot) {
                return Some(point.first.address);
            }
        }
    }
    None
}

/// Returns the original instruction of the point at the virtual address `address`, if there is a point.
///
/// Suppose that the caller also reads the word at `address`, with no interrupt in between. Then `None` means that the
/// word was not written by a probe: a point is in the table before all CPUs are held and its instruction is replaced,
/// and is withdrawn after they were held and the instruction was restored.
///
/// # Safety
///
/// The caller is in the hit path, or has interrupts masked.
#[inline]
pub(crate) unsafe fn original(address: usize) -> Option<u32> {
    let point = TABLE.page(address)?.point(address)?;
    // SAFETY: as in `stepped_in`, the point is not freed while the caller has interrupts masked.
    Some(unsafe { point.as_ref() }.word)
}
