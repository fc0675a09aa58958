//! The entries of probed instructions, found by address in the table in which hits find their points.

use alloc::vec::Vec;
use core::ops::Deref;
use core::slice;
use core::sync::atomic::Ordering::Relaxed;

use super::RegistryEntry;
use crate::atomic::AtomicPtr;
use crate::probe::hit::point::ProbeRef;
use crate::probe::hit::table::{PAGE_SHIFT, Page, TABLE, WORDS};
use crate::probe::publish;
use crate::probe::slab::Slab;

/// All entries. Only the holder of the registry's lock has a reference.
pub(super) struct Entries {
    /// The pages of the table, from the one that contains the virtual address `base`. Empty before the first probe.
    pages: &'static [AtomicPtr<Page>],
    base: usize,
    entries: Slab<RegistryEntry>,
    count: usize,
}

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
        Self { pages: &[], base: 0, entries: Slab::new(), count: 0 }
    }

    /// Makes room for an entry of the virtual address `address`, which is in the text, if there is none. Returns the
    /// page for it; `None` if there is no memory.
    #[inline]
    pub(super) fn reserve(&mut self, address: usize) -> Option<&'static Page> {
        let page = self.page(address).or_else(|| self.add_page(address))?;
        // SAFETY: the caller's reference shows that it holds the registry's lock.
        if unsafe { page.entry(address) }.is_none() {
            // Unused room would stay reserved until another entry is added and removed.
            self.entries.reserve()?;
        }
        Some(page)
    }

    #[cold]
    fn add_page(&mut self, address: usize) -> Option<&'static Page> {
        let page = publish::add_page(address)?;
        (self.base, self.pages) = (TABLE.base(), TABLE.pages());
        Some(page)
    }

    /// Returns the page that contains the virtual address `address`, if there has been a probe in it.
    #[inline]
    fn page(&self, address: usize) -> Option<&'static Page> {
        let page = self.pages.get(address.wrapping_sub(self.base) >> PAGE_SHIFT)?;
        // SAFETY: the pointer is null or a page, and pages are never freed.
        unsafe { page.load(Relaxed).as_ref() }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, address: usize) -> Option<&mut RegistryEntry> {
        // SAFETY: the caller's reference shows that it holds the registry's lock. The entry is in `entries` as long as
        // its cell leads to it, and both are borrowed mutably.
        unsafe { Some(self.page(address)?.entry(address)?.as_mut()) }
    }

    /// Returns the entry of the virtual address `address`, which is in `page`. If there was none, makes `new` the
    /// entry, and returns `Some(None)`; `None` if [`reserve`](Self::reserve) has not made room for it.
    ///
    /// Always inlined, so that the entry is made in place.
    #[inline(always)]
    pub(super) fn get_or_add(
        &mut self,
        address: usize,
        page: &'static Page,
        new: impl FnOnce() -> RegistryEntry,
    ) -> Option<Option<&mut RegistryEntry>> {
        // SAFETY: the caller's reference shows that it holds the registry's lock.
        if let Some(mut entry) = unsafe { page.entry(address) } {
            // SAFETY: the entry is in `entries` as long as its cell leads to it, and both are borrowed mutably.
            return Some(Some(unsafe { entry.as_mut() }));
        }
        let entry = self.entries.allocate()?;
        // SAFETY: the slab has returned a place for an entry.
        unsafe { entry.write(new()) };
        // SAFETY: the caller's reference shows that it holds the registry's lock. `remove_empty` alone frees the entry.
        unsafe { page.set_entry(address, Some(entry)) };
        self.count += 1;
        Some(None)
    }

    /// Removes and frees the entry of the virtual address `address`, if it has no probes any more.
    pub(super) fn remove_empty(&mut self, address: usize) {
        let Some(page) = self.page(address) else { return };
        // SAFETY: the caller's reference shows that it holds the registry's lock.
        let Some(entry) = (unsafe { page.entry(address) }) else { return };
        // SAFETY: the entry is in `entries` as long as its cell leads to it, and both are borrowed mutably.
        if !unsafe { entry.as_ref() }.probes.is_empty() {
            return;
        }
        // SAFETY: the caller's reference shows that it holds the registry's lock.
        unsafe { page.set_entry(address, None) };
        self.count -= 1;
        // SAFETY: `get_or_add` allocated the entry in `entries`, and its cell no longer leads to it.
        unsafe { self.entries.remove(entry) };
    }

    /// Iterates over all entries, in the order of their addresses.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RegistryEntry> {
        // SAFETY: each pointer is null or a page, and pages are never freed.
        let pages = self.pages.iter().filter_map(|page| unsafe { page.load(Relaxed).as_ref() });
        // SAFETY: the caller's reference shows that it holds the registry's lock.
        let entries = pages.flat_map(|page| (0..WORDS).filter_map(|word| unsafe { page.entry(4 * word) }));
        // SAFETY: an entry is in `entries` as long as its cell leads to it, and both are borrowed.
        entries.map(|entry| unsafe { entry.as_ref() })
    }

    pub(super) fn len(&self) -> usize {
        self.count
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
