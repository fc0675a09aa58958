//! Changes to the rings that readers make: they are emptied, and get another number of pages.

use core::fmt;
use core::mem;
use core::sync::atomic::Ordering;

use fallible::OutOfMemory;

use super::{PAGE, Page, Reader, Ring, Rings, make_pages, page_count};

/// Why the rings stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeError {
    /// They would need more memory than there is for them.
    TooLarge {
        /// How many there are, one for each CPU.
        cpus: usize,
        /// Bytes that all of them would need, beside those that they have.
        needed: usize,
        /// Bytes that there are.
        free: usize,
    },
    /// There is that much memory, but not in pieces that are large enough.
    Memory(OutOfMemory),
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { cpus, needed, free } => write!(
                f,
                "each CPU has a ring of this size; for {cpus} CPUs they take {needed} bytes, and {free} bytes are free for \
                 them: ask for smaller ones"
            ),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ResizeError {}

impl From<OutOfMemory> for ResizeError {
    fn from(error: OutOfMemory) -> Self {
        Self::Memory(error)
    }
}

impl Rings {
    /// Empties the rings. Records that are written meanwhile stay, or are gone, one or the other.
    pub fn clear(&self) {
        self.clear_of(None);
    }

    /// The same for the ring of `cpu` alone, if it is given.
    pub fn clear_of(&self, cpu: Option<usize>) {
        for (_, ring) in self.rings.iter().enumerate().filter(|(number, _)| cpu.is_none_or(|cpu| cpu == *number)) {
            let mut reader = ring.reader.lock();
            let position = ring.position.load(Ordering::Acquire);
            // Records that came between the two loads are taken for cleared; they are shown none the less.
            let (number, missing) = ring.next_number();
            *reader = Reader { position, number: number + missing, ..Reader::default() };
            ring.taken.store(position, Ordering::Release);
        }
    }

    /// Bytes of the ring of each CPU.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        self.rings.iter().map(Ring::bytes)
    }

    /// Bytes of the ring of the first CPU.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sizes().next().unwrap_or(0)
    }

    /// Gives each ring at least `bytes` bytes, if all together take no more than `free` bytes of memory, or less than now: the old
    /// ones are given back when the new ones are there. The newest records stay, as many as there is room for.
    ///
    /// # Errors
    ///
    /// No memory: nothing has changed.
    ///
    /// # Safety
    ///
    /// `hold` calls what it is given once, while nothing is recorded: with every other CPU held outside the hit path, and
    /// interrupts masked on this one.
    pub unsafe fn resize(
        &self,
        bytes: usize,
        free: usize,
        hold: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<(), ResizeError> {
        // SAFETY: by the caller.
        unsafe { self.resize_of(None, bytes, free, hold) }
    }

    /// The same for the ring of `cpu` alone, if it is given.
    ///
    /// # Errors
    ///
    /// As of [`resize`](Self::resize).
    ///
    /// # Safety
    ///
    /// As of [`resize`](Self::resize).
    pub unsafe fn resize_of(
        &self,
        cpu: Option<usize>,
        bytes: usize,
        free: usize,
        hold: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<(), ResizeError> {
        // What an allocator may add to a page, or lose by its alignment, is not more than this.
        const OVERHEAD: usize = 64;
        let of_a_page = PAGE + mem::size_of::<Page>() + OVERHEAD;
        let count = page_count(bytes);
        let is_meant = |number: usize| cpu.is_none_or(|cpu| cpu == number);
        let rings = || self.rings.iter().enumerate().filter(|(number, _)| is_meant(*number)).map(|(_, ring)| ring);
        let cpus = rings().count();
        let needed = count.saturating_mul(of_a_page).saturating_mul(cpus);
        // Smaller ones leave more memory than there was, though for a moment there are both.
        if rings().any(|ring| count > page_count(ring.bytes())) && needed > free {
            return Err(ResizeError::TooLarge { cpus, needed, free });
        }
        let all = fallible::collect_results(rings().map(|_| make_pages(bytes)))?;
        for (ring, mut pages) in rings().zip(all) {
            let mut reader = ring.reader.lock();
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

impl Ring {
    fn bytes(&self) -> usize {
        let _reader = self.reader.lock();
        // SAFETY: only the holder of the reader's lock changes pages.
        unsafe { &*self.pages.get() }.len() * PAGE
    }
}
