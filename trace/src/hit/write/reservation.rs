//! Writing to a ring in the order that `ring` explains: reserve room, fill it, publish it.

use core::mem;
use core::sync::atomic::Ordering;

use crate::atomic::{AtomicU64, fence};
use crate::ring::{PAGE, PAGE_HEADER, Page, Ring};

const BYTES: u64 = PAGE as u64;

/// Returns the offset of `position` in its page, in bytes; at the end of a page, the size of a page.
#[inline(always)]
fn place(position: u64) -> usize {
    (position.wrapping_sub(8) & (BYTES - 8)) as usize + 8
}

impl Ring {
    /// Makes this hit the one that records on this CPU. If another hit is recording, counts this one as refused and
    /// returns false.
    #[inline(always)]
    pub(crate) fn enter(&self) -> bool {
        if self.busy.load(Ordering::Relaxed) != 0 {
            self.refuse();
            return false;
        }
        self.busy.store(1, Ordering::Relaxed);
        true
    }

    /// Ends the recording that [`enter`](Self::enter) began.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        self.busy.store(0, Ordering::Relaxed);
    }

    /// Counts a hit that interrupts the recording of another, or a pending record that finds no room or is longer than
    /// a page.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&self) {
        self.interrupting.fetch_add(1, Ordering::Relaxed);
    }

    /// Reserves room for a record of `size` bytes including its header, a multiple of 8 up to
    /// [`RECORD_MAX`](crate::ring::RECORD_MAX). If there is no room, counts the record and returns `None`. Valid only
    /// between [`enter`](Self::enter) and [`leave`](Self::leave).
    #[inline(always)]
    pub(crate) fn reserve(&self, size: usize) -> Option<Reservation<'_>> {
        let mut position = self.position(Ordering::Relaxed);
        if place(position) + size > PAGE {
            position = self.turn(position)?;
        }
        // SAFETY: the page of `position` belongs to the ring, and has room for the record at this offset. Only this CPU
        // writes the pointer, while it has entered the ring, and `exchange` moves pages only while nothing is recorded.
        let words = unsafe { (*self.page.get()).add(place(position) / 8) };
        Some(Reservation { ring: self, words, end: position + size as u64 })
    }

    /// Makes this hit the one that records on this CPU, and reserves room in the current page. Returns `None`, and has
    /// changed nothing, if another hit is recording or the page has no room.
    #[inline(always)]
    pub(crate) fn reserve_here(&self, size: usize) -> Option<Reservation<'_>> {
        if self.busy.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.busy.store(1, Ordering::Relaxed);
        // Loaded after `busy` is set. An earlier hit has moved the position already; a later hit finds the ring busy.
        let position = self.position(Ordering::Relaxed);
        if place(position) + size > PAGE {
            self.leave();
            return None;
        }
        // SAFETY: the page of `position` belongs to the ring, and has room for the record at this offset. Only this CPU
        // writes the pointer, while it has entered the ring, and `exchange` moves pages only while nothing is recorded.
        let words = unsafe { (*self.page.get()).add(place(position) / 8) };
        Some(Reservation { ring: self, words, end: position + size as u64 })
    }

    /// Begins the page after the one of `position`, and returns the position of its first record.
    #[cold]
    #[inline(never)]
    fn turn(&self, position: u64) -> Option<u64> {
        // SAFETY: only `exchange` changes the pages, and its caller guarantees that no hit is recording. This hit is
        // recording.
        let pages = unsafe { &*self.pages.get() };
        let count = pages.len() as u64;
        let start = position.wrapping_add(BYTES - 1) & !(BYTES - 1);
        let number = start / BYTES;
        if position != start {
            // SAFETY: the page of `position` belongs to the ring, and the position is inside it.
            unsafe { &*(*self.page.get()).add(place(position) / 8) }.store(0, Ordering::Relaxed);
        }
        // Acquire: the reader has copied the records that it has taken.
        let oldest = self.taken.load(Ordering::Acquire) / BYTES;
        if self.discard.load(Ordering::Relaxed) != 0 && number.wrapping_sub(oldest) >= count {
            // Move to the page's end, so that a smaller record that comes later finds no room either. All missing
            // records are then in one place.
            self.publish(start);
            self.refused.store(self.refused.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            return None;
        }
        let page = pages.get(number.checked_rem(count)? as usize)?;
        self.begun.store(number, Ordering::Relaxed);
        // An atomic swap, because another hit may interrupt this one at any moment.
        let interrupting = self.interrupting.swap(0, Ordering::Relaxed);
        let refused = self.refused.load(Ordering::Relaxed).wrapping_add(interrupting);
        self.refused.store(0, Ordering::Relaxed);
        // Release: `begun` becomes visible before the words of the new page, and `refused` before the number that it is
        // added to.
        fence(Ordering::Release);
        let first = self.number.load(Ordering::Relaxed).wrapping_add(refused);
        self.number.store(first, Ordering::Relaxed);
        page.first()?.store(first, Ordering::Relaxed);
        // SAFETY: only the hit that has entered the ring accesses the pointer. This hit has: `reserve`, the only
        // caller, is valid only between `enter` and `leave`.
        unsafe { *self.page.get() = page.as_ptr() };
        Some(start + PAGE_HEADER as u64)
    }

    /// Exchanges the pages with `other`, into which it moves the newest of the old pages. Returns the position of the
    /// oldest page that was not overwritten before.
    ///
    /// # Safety
    ///
    /// Nothing may be recorded meanwhile, and the caller must hold the lock of the reader.
    pub(crate) unsafe fn exchange(&self, other: &mut alloc::vec::Vec<Page>) -> u64 {
        // SAFETY: the caller guarantees that nothing is recorded and that no reader looks at the pages (see # Safety).
        let pages = unsafe { &mut *self.pages.get() };
        let newest = self.begun.load(Ordering::Relaxed);
        let (old, new) = (pages.len() as u64, other.len() as u64);
        let oldest = newest.wrapping_add(1).saturating_sub(old).max(1);
        let mut number = newest;
        while number >= oldest && newest.wrapping_sub(number) < new {
            let places = number.checked_rem(old).zip(number.checked_rem(new));
            let Some((from, to)) = places else { break };
            if let (Some(from), Some(to)) = (pages.get_mut(from as usize), other.get_mut(to as usize)) {
                mem::swap(from, to);
            }
            number = number.wrapping_sub(1);
        }
        mem::swap(pages, other);
        // The page that is being filled was moved, which invalidates the old pointer to it.
        if let Some(page) = newest.checked_rem(new).filter(|_| newest > 0).and_then(|at| pages.get(at as usize)) {
            // SAFETY: the caller guarantees that nothing is recorded (see # Safety), so no hit accesses the pointer.
            unsafe { *self.page.get() = page.as_ptr() };
        }
        oldest.wrapping_mul(BYTES)
    }
}

/// Reserved room for a record, which is being filled.
pub(crate) struct Reservation<'a> {
    ring: &'a Ring,
    words: *const AtomicU64,
    end: u64,
}

impl Reservation<'_> {
    /// Stores a word of the record.
    ///
    /// # Safety
    ///
    /// `index` must be below the number of words of the record.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, index: usize, word: u64) {
        // SAFETY: the caller guarantees that the record has this word (see # Safety), and the reservation covers the
        // record.
        unsafe { &*self.words.add(index) }.store(word, Ordering::Relaxed);
    }

    /// Publishes the record.
    #[inline(always)]
    pub(crate) fn commit(self) {
        let number = self.ring.number.load(Ordering::Relaxed).wrapping_add(1);
        self.ring.number.store(number, Ordering::Relaxed);
        self.ring.publish(self.end);
    }
}
