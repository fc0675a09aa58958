//! Changes to the rings that their readers make: emptying them, and changing the number of pages.

use core::fmt;
use core::mem;
use core::sync::atomic::Ordering;

use fallible::OutOfMemory;

use super::{PAGE, Page, Reader, Ring, Rings, make_pages, page_count};

/// Why the rings keep their size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResizeError {
    /// The rings would need more memory than is free for them.
    TooLarge {
        /// The number of rings to resize, one for each CPU.
        cpus: usize,
        /// The bytes that all these rings need, in addition to the present ones.
        needed: usize,
        /// The bytes that are free.
        free: usize,
    },
    /// There is enough free memory, but not in pieces that are large enough.
    Memory(OutOfMemory),
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge { cpus, needed, free } => {
                match cpus {
                    1 => f.write_str("the ring of 1 CPU")?,
                    _ => write!(f, "the rings of {cpus} CPUs")?,
                }
                write!(f, " would take {needed} bytes, and {free} bytes are free: choose a smaller size")
            }
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
    /// Empties the rings. A record that is written meanwhile may stay or be dropped.
    pub fn clear(&self) {
        self.clear_of(None);
    }

    /// Empties the ring of `cpu`; `None` empties all.
    pub fn clear_of(&self, cpu: Option<usize>) {
        for (_, ring) in self.rings.iter().enumerate().filter(|(number, _)| cpu.is_none_or(|cpu| cpu == *number)) {
            let mut reader = ring.reader.lock();
            let position = ring.position(Ordering::Acquire);
            // A record written between the two loads is counted as cleared, but readers still find it.
            let (number, missing) = ring.next_number();
            *reader = Reader { position, number: number + missing, ..Reader::default() };
            ring.taken.store(position, Ordering::Release);
        }
    }

    /// Returns the size of each CPU's ring, in bytes.
    pub fn sizes(&self) -> impl Iterator<Item = usize> {
        self.rings.iter().map(Ring::bytes)
    }

    /// Returns the size of the first CPU's ring, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sizes().next().unwrap_or(0)
    }

    /// Gives the ring of `cpu` at least `bytes` bytes, or each ring if `cpu` is `None`, if the new pages take no more
    /// than `free` bytes in total or if no ring grows. The old pages are freed after the new ones are in use. The
    /// newest records stay, as many as fit.
    ///
    /// # Errors
    ///
    /// Fails if there is not enough memory. Then nothing has changed.
    ///
    /// # Safety
    ///
    /// `hold` must call its argument exactly once, while nothing is recorded: every other CPU is held outside the hit
    /// path, and interrupts are masked on this CPU.
    pub unsafe fn resize(
        &self,
        cpu: Option<usize>,
        bytes: usize,
        free: usize,
        hold: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<(), ResizeError> {
        // An upper bound for what an allocator adds to a page or loses by alignment, in bytes.
        const OVERHEAD: usize = 64;
        let of_a_page = PAGE + mem::size_of::<Page>() + OVERHEAD;
        let count = page_count(bytes);
        let is_meant = |number: usize| cpu.is_none_or(|cpu| cpu == number);
        let rings = || self.rings.iter().enumerate().filter(|(number, _)| is_meant(*number)).map(|(_, ring)| ring);
        let cpus = rings().count();
        let needed = count.saturating_mul(of_a_page).saturating_mul(cpus);
        // Shrinking leaves more free memory in the end, although both sets of pages exist for a moment. So only growth
        // is checked.
        if rings().any(|ring| count > page_count(ring.bytes())) && needed > free {
            return Err(ResizeError::TooLarge { cpus, needed, free });
        }
        let all = fallible::collect_results(rings().map(|_| make_pages(bytes)))?;
        for (ring, mut pages) in rings().zip(all) {
            let mut reader = ring.reader.lock();
            let mut oldest = 0;
            // SAFETY: the caller guarantees that nothing is recorded while `hold` runs this (see # Safety), and the
            // lock of the reader is held.
            hold(&mut || oldest = unsafe { ring.exchange(&mut pages) });
            // The new pages do not contain the pages that were overwritten before. In their place there is room for new
            // records, also if the ring drops these when it is full.
            if reader.position < oldest {
                (reader.position, reader.is_overwritten) = (oldest, true);
                ring.taken.store(oldest, Ordering::Release);
            }
        }
        Ok(())
    }
}

impl Ring {
    fn bytes(&self) -> usize {
        let _reader = self.reader.lock();
        // SAFETY: only the holder of the reader's lock changes pages, and this function holds it.
        unsafe { &*self.pages.get() }.len() * PAGE
    }
}
