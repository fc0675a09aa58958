//! Writing to a ring, in the order that `ring` explains: room is made, filled and published.

use core::mem;
use core::sync::atomic::Ordering;

use crate::atomic::{AtomicU64, fence};
use crate::ring::{PAGE, PAGE_HEADER, Page, Ring};

const BYTES: u64 = PAGE as u64;

/// The bytes of the page that precede `position`; those of a whole page at its end.
#[inline(always)]
fn place(position: u64) -> usize {
    (position.wrapping_sub(8) & (BYTES - 8)) as usize + 8
}

impl Ring {
    /// Makes this hit the one that records on this CPU. If it cannot be, because another one is recording, it is counted.
    #[inline(always)]
    pub(crate) fn enter(&self) -> bool {
        if self.busy.load(Ordering::Relaxed) != 0 {
            self.refuse();
            return false;
        }
        self.busy.store(1, Ordering::Relaxed);
        true
    }

    /// Ends what [`enter`](Self::enter) began.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        self.busy.store(0, Ordering::Relaxed);
    }

    /// Counts a hit that interrupts the recording of another, or a record of a synthetic event that finds no room.
    #[cold]
    #[inline(never)]
    pub(crate) fn refuse(&self) {
        self.interrupting.fetch_add(1, Ordering::Relaxed);
    }

    /// Room for a record of `size` bytes, a multiple of 8 up to [`RECORD_MAX`](crate::ring::RECORD_MAX), header included.
    /// `None`, and counted, if there is none. To be called between [`enter`](Self::enter) and [`leave`](Self::leave).
    #[inline(always)]
    pub(crate) fn reserve(&self, size: usize) -> Option<Room<'_>> {
        let mut position = self.position.load(Ordering::Relaxed);
        if place(position) + size > PAGE {
            position = self.turn(position)?;
        }
        // SAFETY: the page of the position is one of the ring's, and has room for the record at this place; it is written on this
        // CPU alone, by who has entered, and exchanged only while nobody writes.
        let words = unsafe { (*self.page.get()).add(place(position) / 8) };
        Some(Room { ring: self, words, end: position + size as u64 })
    }

    /// Makes this hit the one that records on this CPU, and gives it room in the page that is begun. `None` if another one is
    /// recording, or the page has no room: nothing was done then.
    #[inline(always)]
    pub(crate) fn reserve_here(&self, size: usize) -> Option<Room<'_>> {
        if self.busy.load(Ordering::Relaxed) != 0 {
            return None;
        }
        self.busy.store(1, Ordering::Relaxed);
        // A hit that comes before this has moved it, and one that comes after finds the ring busy.
        let position = self.position.load(Ordering::Relaxed);
        if place(position) + size > PAGE {
            self.leave();
            return None;
        }
        // SAFETY: as in `reserve`.
        let words = unsafe { (*self.page.get()).add(place(position) / 8) };
        Some(Room { ring: self, words, end: position + size as u64 })
    }

    /// Begins the page behind the one that `position` is in, and returns the position of its first record.
    #[cold]
    #[inline(never)]
    fn turn(&self, position: u64) -> Option<u64> {
        // SAFETY: the pages are exchanged only while no hit is recording.
        let pages = unsafe { &*self.pages.get() };
        let count = pages.len() as u64;
        let start = position.wrapping_add(BYTES - 1) & !(BYTES - 1);
        let number = start / BYTES;
        if position != start {
            // SAFETY: the page of the position is one of the ring's, and the position is in it.
            unsafe { &*(*self.page.get()).add(place(position) / 8) }.store(0, Ordering::Relaxed);
        }
        // What was taken has been read before.
        let oldest = self.taken.load(Ordering::Acquire) / BYTES;
        if self.discard.load(Ordering::Relaxed) != 0 && number.wrapping_sub(oldest) >= count {
            // A smaller record that comes later must find no room either, so that what is missing is in one place.
            self.position.store(start, Ordering::Release);
            self.refused.store(self.refused.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            return None;
        }
        let page = pages.get(number.checked_rem(count)? as usize)?;
        self.begun.store(number, Ordering::Relaxed);
        // At this moment another hit may interrupt this one.
        let interrupting = self.interrupting.swap(0, Ordering::Relaxed);
        let refused = self.refused.load(Ordering::Relaxed).wrapping_add(interrupting);
        self.refused.store(0, Ordering::Relaxed);
        // Before everything that is written to the page from here on, and the number that these are in.
        fence(Ordering::Release);
        let first = self.number.load(Ordering::Relaxed).wrapping_add(refused);
        self.number.store(first, Ordering::Relaxed);
        page.first()?.store(first, Ordering::Relaxed);
        // SAFETY: the pointer is the writer's, which this hit is.
        unsafe { *self.page.get() = page.as_ptr() };
        Some(start + PAGE_HEADER as u64)
    }

    /// Exchanges the pages with `other`, in which the newest of the old ones take their places. Returns the position of the
    /// oldest that was not overwritten before.
    ///
    /// # Safety
    ///
    /// Nothing is recorded meanwhile, and the caller has the lock of the reader.
    pub(crate) unsafe fn exchange(&self, other: &mut alloc::vec::Vec<Page>) -> u64 {
        // SAFETY: by the caller.
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
        oldest.wrapping_mul(BYTES)
    }
}

/// Room for a record, which is being filled in.
pub(crate) struct Room<'a> {
    ring: &'a Ring,
    words: *const AtomicU64,
    end: u64,
}

impl Room<'_> {
    /// Stores a word of the record.
    ///
    /// # Safety
    ///
    /// The record has more than `index` words.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, index: usize, word: u64) {
        // SAFETY: by the caller, and there is room for the record.
        unsafe { &*self.words.add(index) }.store(word, Ordering::Relaxed);
    }

    /// Publishes the record.
    #[inline(always)]
    pub(crate) fn commit(self) {
        let number = self.ring.number.load(Ordering::Relaxed).wrapping_add(1);
        self.ring.number.store(number, Ordering::Relaxed);
        self.ring.position.store(self.end, Ordering::Release);
    }
}
