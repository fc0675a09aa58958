//! Changes to the rings that readers make: they are emptied, and get another number of pages.

use alloc::collections::TryReserveError;
use core::sync::atomic::Ordering;

use super::{PAGE, Reader, Rings, make_pages};

impl Rings {
    /// Empties the rings. Records that are written meanwhile stay, or are gone, one or the other.
    pub fn clear(&self) {
        for ring in &self.rings {
            let mut reader = ring.reader.lock();
            let position = ring.position.load(Ordering::Acquire);
            // Records that came between the two loads are taken for cleared; they are shown none the less.
            let number = ring.number.load(Ordering::Relaxed)
                + ring.refused.load(Ordering::Relaxed)
                + ring.interrupting.load(Ordering::Relaxed);
            *reader = Reader { position, number, lost: 0 };
            ring.taken.store(position, Ordering::Release);
        }
    }

    /// Bytes of each ring.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.rings.first().map_or(0, |ring| {
            let _reader = ring.reader.lock();
            // SAFETY: pages are changed only by whoever has the lock of the reader.
            unsafe { &*ring.pages.get() }.len() * PAGE
        })
    }

    /// Gives each ring at least `bytes` bytes. The newest records stay, as many as there is room for.
    ///
    /// # Errors
    ///
    /// No memory: some of the rings may have changed.
    ///
    /// # Safety
    ///
    /// `hold` calls what it is given once, while nothing is recorded: with every other CPU held outside the hit path, and
    /// interrupts masked on this one.
    pub unsafe fn resize(&self, bytes: usize, hold: &mut dyn FnMut(&mut dyn FnMut())) -> Result<(), TryReserveError> {
        for ring in &self.rings {
            let mut reader = ring.reader.lock();
            let mut pages = make_pages(bytes)?;
            let mut oldest = 0;
            // SAFETY: nothing is recorded, by the caller, and the lock of the reader is held.
            hold(&mut || oldest = unsafe { ring.exchange(&mut pages) });
            // Of what was overwritten before there is no trace in the new pages.
            if reader.position < oldest {
                reader.position = oldest;
            }
        }
        Ok(())
    }
}
