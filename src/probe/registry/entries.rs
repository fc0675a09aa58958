//! The entries of probed instructions, found by address as hits find their points: by the page of the text, and by the
//! word in the page.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Deref;
use core::ptr::NonNull;
use core::slice;

use super::Entry;
use crate::platform;
use crate::probe::hit::point::ProbeRef;
use crate::probe::hit::table::{PAGE_SHIFT, WORDS};
use crate::probe::slab::Slab;

/// The entries of the words of a page of text; `None` for a word without an entry.
type Page = [Option<NonNull<Entry>>; WORDS];

/// All entries.
pub(super) struct Entries {
    /// The pages of the text, from the one that contains the virtual address `base`. Empty before the first probe.
    /// Pages are never freed.
    pages: Vec<Option<Box<Page>>>,
    base: usize,
    entries: Slab<Entry>,
    count: usize,
}

// SAFETY: the pointers lead to entries that this type owns.
unsafe impl Send for Entries {}

/// The probes on an instruction, in the order of their registration. Nearly always there is only one, which needs no
/// memory of its own.
pub(super) enum Probes {
    /// All probes were removed, and the entry is about to be.
    None,
    One(ProbeRef),
    Several(Vec<ProbeRef>),
}

impl Entries {
    pub(super) const fn new() -> Self {
        Self { pages: Vec::new(), base: 0, entries: Slab::new(), count: 0 }
    }

    /// Makes room for an entry of the virtual address `address`, which is in the text; `None` if there is no memory.
    #[inline]
    pub(super) fn reserve(&mut self, address: usize) -> Option<()> {
        if self.word(address).is_none() {
            self.add_page(address)?;
        }
        self.entries.reserve()
    }

    /// Makes the page for the virtual address `address`, and the list of pages if there is none; `None` if there is no
    /// memory.
    #[cold]
    fn add_page(&mut self, address: usize) -> Option<()> {
        if self.pages.is_empty() {
            let text = platform::text();
            self.base = text.start & !((1 << PAGE_SHIFT) - 1);
            let count = (text.end - self.base).div_ceil(1 << PAGE_SHIFT);
            self.pages.try_reserve_exact(count).ok()?;
            self.pages.resize_with(count, || None);
        }
        let page = self.pages.get_mut(address.wrapping_sub(self.base) >> PAGE_SHIFT)?;
        let mut words = Vec::new();
        words.try_reserve_exact(WORDS).ok()?;
        words.resize(WORDS, None);
        *page = words.into_boxed_slice().try_into().ok();
        Some(())
    }

    /// Returns the place for the pointer to the entry of the virtual address `address`.
    #[inline]
    fn word(&mut self, address: usize) -> Option<&mut Option<NonNull<Entry>>> {
        Self::word_in(&mut self.pages, self.base, address)
    }

    #[inline]
    fn word_in(pages: &mut [Option<Box<Page>>], base: usize, address: usize) -> Option<&mut Option<NonNull<Entry>>> {
        let page = pages.get_mut(address.wrapping_sub(base) >> PAGE_SHIFT)?.as_mut()?;
        Some(&mut page[(address >> 2) % WORDS])
    }

    #[inline]
    pub(super) fn get_mut(&mut self, address: usize) -> Option<&mut Entry> {
        let mut entry = (*self.word(address)?)?;
        // SAFETY: the entry is in `entries` as long as its page points to it, and both are borrowed mutably.
        Some(unsafe { entry.as_mut() })
    }

    /// Returns the entry of the virtual address `address`, for which [`reserve`](Self::reserve) made room. If there was
    /// none, makes `new` the entry, and returns `Some(None)`.
    ///
    /// Always inlined, so that the entry is made in place.
    #[inline(always)]
    pub(super) fn get_or_add(&mut self, address: usize, new: impl FnOnce() -> Entry) -> Option<Option<&mut Entry>> {
        let Self { pages, base, entries, count } = self;
        let word = Self::word_in(pages, *base, address)?;
        if let Some(entry) = word {
            // SAFETY: the entry is in `entries` as long as its page points to it, and both are borrowed mutably.
            return Some(Some(unsafe { entry.as_mut() }));
        }
        let entry = entries.allocate()?;
        // SAFETY: the slab has returned a place for an entry.
        unsafe { entry.write(new()) };
        *word = Some(entry);
        *count += 1;
        Some(None)
    }

    /// Removes and frees the entry of the virtual address `address`, if it has no probes any more.
    pub(super) fn remove_empty(&mut self, address: usize) {
        let Some(word) = self.word(address) else { return };
        // SAFETY: the entry is in `entries` as long as its page points to it, and both are borrowed mutably.
        let Some(entry) = word.take_if(|entry| unsafe { entry.as_ref() }.probes.is_empty()) else { return };
        self.count -= 1;
        // SAFETY: `get_or_add` allocated the entry in `entries`, and its page no longer points to it.
        unsafe { self.entries.remove(entry) };
    }

    /// Iterates over all entries, in the order of their addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let entries = self.pages.iter().flatten().flat_map(|page| page.iter().flatten());
        // SAFETY: an entry is in `entries` as long as its page points to it, and both are borrowed.
        entries.map(|entry| unsafe { entry.as_ref() })
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Returns the bytes of memory that the pages take.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.pages) + self.pages.iter().flatten().count() * size_of::<Page>()
    }
}

impl Probes {
    /// Adds a probe; `None` if there is no memory. A single probe needs none.
    #[inline]
    pub(super) fn push(&mut self, probe: ProbeRef) -> Option<()> {
        match self {
            Self::None => *self = Self::One(probe),
            Self::Several(probes) => {
                probes.try_reserve(1).ok()?;
                probes.push(probe);
            }
            Self::One(first) => {
                let mut probes = Vec::new();
                probes.try_reserve_exact(2).ok()?;
                probes.extend([*first, probe]);
                *self = Self::Several(probes);
            }
        }
        Some(())
    }

    #[inline]
    pub(super) fn remove(&mut self, probe: ProbeRef) {
        match self {
            Self::One(only) if *only == probe => *self = Self::None,
            Self::None | Self::One(_) => {}
            Self::Several(probes) => {
                probes.retain(|&other| other != probe);
                if probes.is_empty() {
                    *self = Self::None;
                }
            }
        }
    }
}

impl Deref for Probes {
    type Target = [ProbeRef];

    fn deref(&self) -> &[ProbeRef] {
        match self {
            Self::None => &[],
            Self::One(probe) => slice::from_ref(probe),
            Self::Several(probes) => probes,
        }
    }
}
