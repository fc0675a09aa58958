//! From an address to its probe point, in the same few loads however many probes there are.
//!
//! The probed text is one range, and A64 instructions are words at multiples of four, so the address itself is
//! the index: one array with an entry for each page of the text, and for each page in which there has been a probe
//! an entry for each word. A reader does two dependent loads and takes no lock. Pages of the second kind stay, so that
//! a reader can never meet one that is being freed. They also hold the instructions that points stand for: what is at an
//! address without probes can be told without touching its point, which may be about to be freed.
//!
//! `probe::publish` fills the table.

use alloc::boxed::Box;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::point::Point;

pub(crate) const PAGE_SHIFT: usize = 12;
pub(crate) const WORDS: usize = 1 << (PAGE_SHIFT - 2);

/// What is known of one page of text.
pub(crate) struct Page {
    points: [AtomicPtr<Point>; WORDS],
    /// The instructions that there are points for.
    originals: [AtomicU32; WORDS],
}

pub(crate) struct Table {
    /// The address of the first word of the first page.
    pub(crate) base: usize,
    pub(crate) pages: Box<[AtomicPtr<Page>]>,
}

/// Made at the first registration, and never freed.
pub(crate) static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());

impl Table {
    #[inline]
    pub(crate) fn current() -> Option<&'static Self> {
        // SAFETY: the pointer is null or that of a table that `probe::publish` has leaked.
        unsafe { TABLE.load(Ordering::Acquire).as_ref() }
    }

    /// The entry for the page around the virtual address `address`.
    #[inline]
    pub(crate) fn entry(&self, address: usize) -> Option<&AtomicPtr<Page>> {
        self.pages.get(address.wrapping_sub(self.base) >> PAGE_SHIFT)
    }

    /// The page around the virtual address `address`, if there has been a probe in it.
    #[inline]
    pub(crate) fn page(&self, address: usize) -> Option<&'static Page> {
        // SAFETY: null, or a page, which is never freed once it is here.
        unsafe { self.entry(address)?.load(Ordering::Acquire).as_ref() }
    }
}

impl Page {
    // In all of them, the mask keeps the index in bounds, so that no check, and no panic, is compiled in.

    #[inline]
    fn point(&self, address: usize) -> &AtomicPtr<Point> {
        &self.points[(address >> 2) & (WORDS - 1)]
    }

    #[inline]
    fn original(&self, address: usize) -> &AtomicU32 {
        &self.originals[(address >> 2) & (WORDS - 1)]
    }

    /// Makes `point` the one that is found at the virtual address `address`, for the instruction `word`.
    #[inline]
    pub(crate) fn set(&self, address: usize, point: *const Point, word: u32) {
        self.original(address).store(word, Ordering::Relaxed);
        self.point(address).store(point.cast_mut(), Ordering::Release);
    }
}

/// The point at the virtual address `address`.
///
/// # Safety
///
/// The caller is in the hit path, and uses the result only there.
#[inline]
pub(crate) unsafe fn lookup<'a>(address: usize) -> Option<&'a Point> {
    let page = Table::current()?.page(address)?;
    // SAFETY: a point is freed only after every CPU has been held outside the hit path since it was withdrawn, and the
    // caller is inside it.
    unsafe { page.point(address).load(Ordering::Acquire).as_ref() }
}

/// The instruction that a point at the virtual address `address` stands for, if there is a point.
///
/// If the word there was read before, and no interrupt was taken since, or the registry's lock is held, then nothing means
/// that the word is no probe's: an instruction is put back before all CPUs are held, and its point withdrawn after.
#[inline]
pub(crate) fn original(address: usize) -> Option<u32> {
    let page = Table::current()?.page(address)?;
    let is_probed = !page.point(address).load(Ordering::Acquire).is_null();
    is_probed.then(|| page.original(address).load(Ordering::Relaxed))
}
