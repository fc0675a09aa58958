//! The probed instructions, found by address as hits find their points: by the page of the text, and the word in the page.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;
use core::{mem, slice};

use super::Entry;
use crate::platform;
use crate::probe::hit::point::Probe;
use crate::probe::hit::table::{PAGE_SHIFT, WORDS};

/// For each word of a page of text one more than the number of its entry, or 0 where there is none.
type Page = [u32; WORDS];

/// All entries.
pub(super) struct Entries {
    /// By the page, from that around the virtual address `base`. None before the first probe; pages stay.
    pages: Vec<Option<Box<Page>>>,
    base: usize,
    /// By number, vacant ones included.
    entries: Vec<Entry>,
    /// The numbers of the vacant ones.
    free: Vec<u32>,
}

/// The probes at an instruction, in the order in which they were registered. Nearly always there is one, which takes no
/// memory of its own.
pub(super) enum Probes {
    One(Arc<Probe>),
    Several(Vec<Arc<Probe>>),
}

impl Entries {
    pub(super) const fn new() -> Self {
        Self { pages: Vec::new(), base: 0, entries: Vec::new(), free: Vec::new() }
    }

    /// Makes room for an entry for the virtual address `address`, which is in the text, if there is memory for it.
    pub(super) fn reserve(&mut self, address: usize) -> Option<()> {
        if self.pages.is_empty() {
            let text = platform::text();
            self.base = text.start & !((1 << PAGE_SHIFT) - 1);
            let count = (text.end - self.base).div_ceil(1 << PAGE_SHIFT);
            self.pages.try_reserve_exact(count).ok()?;
            self.pages.resize_with(count, || None);
        }
        let page = self.pages.get_mut(address.wrapping_sub(self.base) >> PAGE_SHIFT)?;
        if page.is_none() {
            let mut words = Vec::new();
            words.try_reserve_exact(WORDS).ok()?;
            words.resize(WORDS, 0);
            *page = words.into_boxed_slice().try_into().ok();
        }
        if self.free.is_empty() {
            self.entries.try_reserve(1).ok()?;
            // Room for all that there are, so that giving back needs no memory.
            self.free.try_reserve(self.entries.len() + 1).ok()?;
            self.free.push(self.entries.len() as u32);
            self.entries.push(Entry::VACANT);
        }
        Some(())
    }

    /// Where it is said which entry the virtual address `address` has.
    fn word(&mut self, address: usize) -> Option<&mut u32> {
        let page = self.pages.get_mut(address.wrapping_sub(self.base) >> PAGE_SHIFT)?.as_mut()?;
        Some(&mut page[(address >> 2) % WORDS])
    }

    pub(super) fn get_mut(&mut self, address: usize) -> Option<&mut Entry> {
        let number = self.word(address)?.checked_sub(1)?;
        self.entries.get_mut(number as usize)
    }

    /// The entry of the virtual address `address`, for which there is room: if it has none, one that stands for nothing yet.
    pub(super) fn get_or_add(&mut self, address: usize) -> Option<&mut Entry> {
        let unused = self.free.last().copied();
        let word = self.word(address)?;
        let number = match word.checked_sub(1) {
            Some(number) => number,
            None => {
                let number = unused?;
                *word = number + 1;
                self.free.pop();
                number
            }
        };
        self.entries.get_mut(number as usize)
    }

    /// Takes out the entry of the virtual address `address`.
    pub(super) fn remove(&mut self, address: usize) {
        let Some(number) = self.word(address).and_then(|word| mem::take(word).checked_sub(1)) else { return };
        self.entries[number as usize] = Entry::VACANT;
        self.free.push(number);
        if self.len() == 0 {
            // Of the most probes that there have been at a time, nothing is kept when there are none.
            (self.entries, self.free) = (Vec::new(), Vec::new());
        }
    }

    /// All, by address.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        let numbers = self.pages.iter().flatten().flat_map(|page| page.iter());
        numbers.filter_map(|number| self.entries.get(number.checked_sub(1)? as usize))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Bytes of memory that the way to the entries takes.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.pages) + self.pages.iter().flatten().count() * size_of::<Page>()
    }
}

impl Probes {
    pub(super) const NONE: Self = Self::Several(Vec::new());

    pub(super) fn push(&mut self, probe: Arc<Probe>) {
        *self = match mem::replace(self, Self::NONE) {
            Self::One(first) => Self::Several([first, probe].into()),
            Self::Several(probes) if probes.is_empty() => Self::One(probe),
            Self::Several(mut probes) => {
                probes.push(probe);
                Self::Several(probes)
            }
        };
    }

    pub(super) fn remove(&mut self, probe: &Arc<Probe>) {
        match self {
            Self::One(only) if Arc::ptr_eq(only, probe) => *self = Self::NONE,
            Self::One(_) => {}
            Self::Several(probes) => probes.retain(|other| !Arc::ptr_eq(other, probe)),
        }
    }
}

impl Deref for Probes {
    type Target = [Arc<Probe>];

    fn deref(&self) -> &[Arc<Probe>] {
        match self {
            Self::One(probe) => slice::from_ref(probe),
            Self::Several(probes) => probes,
        }
    }
}
