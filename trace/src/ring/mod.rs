//! The rings that records are written to, one for every CPU: how they are laid out, and what may be changed about them.
//! They are written by handlers ([`hit`](crate::hit)) and by stubs, and read by [`snapshot`].
//!
//! A ring is written by its own CPU only, and can be read from any other at any time. Nothing waits. It is made of pages. A
//! **position** counts the bytes that were ever written, the rest of a page that a record did not fit in included: so it tells
//! the page, of which there is a new one every [`PAGE`] bytes, and the place in it. A page begins with the number of the
//! record that is first in it. Records follow, each of them whole, up to the next position, or to a word that is 0.
//!
//! ```text
//! page      number of the first record │ record │ record │ … │ 0
//! record    size, faults │ time │ name of the task, 16 bytes │ the record's own bytes, see `format` │ up to 7 bytes
//! ```
//!
//! The writer fills a record in and then moves the position past it (release); a reader that has the position (acquire) finds
//! everything below it complete. Before it begins a page the writer says so in `begun`, and separates that from the words by a
//! release fence: the page that had the same place is gone. A reader copies a page, and looks after an acquire fence whether
//! it was gone by then. That is the order of a sequence lock in the memory model of Rust; all words are atomic.
//!
//! Records are numbered, also those that find no room: where the numbers of two that follow each other have a gap, records are
//! missing, and a reader says how many, and where.
//!
//! Interrupts are masked while a record is written, and no probe can be in the code that writes it. A handler that interrupts the
//! recording of another one all the same, should that ever happen, finds the ring `busy`, and its record is counted as one that has
//! found no room. Stubs make no calls, and do not ask.
//!
//! **Modes.** When all pages are full, the oldest is overwritten, or what comes is discarded until a reader has taken
//! something away.

mod change;
mod pages;
mod snapshot;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use aarch64_kprobes::platform;
use aarch64_kprobes::probe::CpuWords;
use fallible::{Arc, OutOfMemory};
use spin::Mutex;

use crate::atomic::{AtomicU64, fence};
use crate::recorder::{Bench, COMPOSED};
use crate::trigger::Switch;

pub use change::ResizeError;
pub use pages::{Pages, RAW_PAGE};
pub use snapshot::{Record, Snapshot, Stats};

/// Bytes of a page. In models small enough for two records.
pub(crate) const PAGE: usize = if cfg!(all(test, loom)) { 128 } else { 4096 };
const WORDS: usize = PAGE / 8;
/// Bytes before the first record of a page.
pub(crate) const PAGE_HEADER: usize = 8;
/// Bytes of a record before what is its own.
pub(crate) const RECORD_HEADER: usize = 32;
/// The largest record, in bytes, header included.
pub const RECORD_MAX: usize = PAGE - PAGE_HEADER;

pub(crate) type Page = Box<[AtomicU64]>;

/// The records of one CPU, in cache lines of its own: no hit waits for those of other CPUs.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Ring {
    /// The next position. Page 0 is never written, so that 0 is the end of a page, as for every page that is full.
    pub(crate) position: AtomicU64,
    /// The page that the position is in.
    pub(crate) page: UnsafeCell<*const AtomicU64>,
    /// The number of the next record that finds room.
    pub(crate) number: AtomicU64,
    /// Whether this CPU is in an interrupt handler; what the kernel says where there is a kernel.
    pub(crate) interrupt: &'static AtomicBool,
    /// Not 0 while a record is being written.
    pub(crate) busy: AtomicU64,
    /// The newest page that was begun: pages that many before it as there are were overwritten.
    pub(crate) begun: AtomicU64,
    /// Not 0 if what finds no room is to be discarded.
    pub(crate) discard: AtomicU64,
    /// Up to where a reader has taken records away; they may be overwritten in either mode.
    pub(crate) taken: AtomicU64,
    /// How many records have found no room since a page was begun. Then they are added to `number`.
    pub(crate) refused: AtomicU64,
    /// How many have found a hit that was recording, likewise.
    pub(crate) interrupting: AtomicU64,
    pub(crate) pages: UnsafeCell<Vec<Page>>,
    /// Where the hit that is recording composes its record.
    pub(crate) bench: Box<Bench>,
    /// Records of synthetic events that are to be recorded when the hit has been.
    pub(crate) pending: Pending,
    /// The position at the last hit of a trigger `snapshot`.
    pub(crate) split: AtomicU64,
    reader: Mutex<Reader>,
}

// SAFETY: `page` is the writer's, which is one CPU at a time, and `pages` is changed only while no CPU writes, by the one that
// has `reader`; everything else is atomic.
unsafe impl Sync for Ring {}
// SAFETY: as above; the pointer leads into `pages`.
unsafe impl Send for Ring {}

/// What a hit puts aside: each its recorder, its size in bytes, and its words.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) words: Box<[AtomicU64]>,
    /// How many of them are used.
    pub(crate) used: AtomicU64,
}

impl Pending {
    /// Room for one of any size, or for several.
    fn new() -> Result<Self, OutOfMemory> {
        let words = fallible::boxed_slice((0..2 * WORDS).map(|_| AtomicU64::new(0)))?;
        Ok(Self { words, used: AtomicU64::new(0) })
    }
}

/// What is known of a ring to those who read it.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    /// Up to where records were taken away or cleared.
    position: u64,
    /// The number of the record there.
    number: u64,
    /// How many were missing before that, since the ring was cleared.
    lost: u64,
    /// How many of these were overwritten.
    overwritten: u64,
    /// How many were taken away since the ring was cleared.
    read: u64,
}

/// The rings of all CPUs.
#[derive(Debug)]
pub struct Rings {
    pub(crate) rings: Box<[Ring]>,
    /// Whether hits are recorded.
    pub(crate) on: Arc<Switch>,
    /// The virtual address of each ring, to its CPU.
    places: CpuWords,
    /// That of CPUs that have none: it has no room.
    none: Box<Ring>,
    /// Not 0 if a trigger `snapshot` was hit since anybody has asked.
    pub(crate) splits: AtomicU64,
    /// Records that a reader has found split off by a trigger `snapshot`, until [`split_off`](Self::split_off) returns them.
    parted: Mutex<Option<Snapshot>>,
}

/// How many records there were since a ring was cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// That are in the ring, and were not taken away.
    pub present: u64,
    /// That were overwritten, or have found no room, before anybody has taken them away.
    pub lost: u64,
}

impl Ring {
    fn new(pages: Vec<Page>, interrupt: &'static AtomicBool) -> Result<Self, OutOfMemory> {
        let zero = || AtomicU64::new(0);
        Ok(Self {
            position: AtomicU64::new(PAGE as u64),
            page: UnsafeCell::new(core::ptr::null()),
            number: zero(),
            interrupt,
            busy: zero(),
            begun: zero(),
            discard: zero(),
            taken: AtomicU64::new(PAGE as u64),
            refused: zero(),
            interrupting: zero(),
            pages: UnsafeCell::new(pages),
            split: zero(),
            pending: Pending::new()?,
            bench: fallible::boxed(Bench(UnsafeCell::new([0; COMPOSED])))?,
            reader: Mutex::new(Reader { position: PAGE as u64, ..Reader::default() }),
        })
    }
}

impl Ring {
    /// The number of the next record that finds room, and how many before it have found none and are not in it yet.
    fn next_number(&self) -> (u64, u64) {
        let number = self.number.load(Ordering::Relaxed);
        // Those that are in the number are not counted any more.
        fence(Ordering::Acquire);
        (number, self.refused.load(Ordering::Relaxed) + self.interrupting.load(Ordering::Relaxed))
    }
}

impl Rings {
    /// Rings for the CPUs numbered below `cpus`, of at least `bytes` bytes each: all that can be hit, as a hit on another is not
    /// recorded. `interrupts` says of each CPU whether it is in an interrupt handler; of one that is not in it, it never is.
    ///
    /// # Errors
    ///
    /// No memory.
    pub fn new(cpus: usize, bytes: usize, interrupts: &'static [AtomicBool]) -> Result<Self, OutOfMemory> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        let mut rings = Vec::new();
        rings.try_reserve_exact(cpus)?;
        for cpu in 0..cpus {
            rings.push(Ring::new(make_pages(bytes)?, interrupts.get(cpu).unwrap_or(&NEVER))?);
        }
        let rings = fallible::boxed_slice(rings)?;
        let none = fallible::boxed(Ring::new(Vec::new(), &NEVER)?)?;
        Ok(Self {
            rings,
            on: Arc::try_new(Switch::new(true))?,
            places: CpuWords::new()?,
            none,
            splits: AtomicU64::new(0),
            parted: Mutex::new(None),
        })
    }

    /// How far from what stands for a CPU in a stub the word is that has the virtual address of its ring.
    pub(crate) fn distance(&'static self) -> u64 {
        for cpu in 0..platform::cpus() {
            let ring = self.rings.get(cpu).unwrap_or(&self.none);
            self.places.set(cpu, 0, core::ptr::from_ref(ring).expose_provenance() as u64);
        }
        self.places.distance(0)
    }

    /// The virtual address of the byte that says whether hits are recorded.
    pub(crate) fn switch_address(&self) -> u64 {
        core::ptr::from_ref(&self.on.0).expose_provenance() as u64
    }

    /// How many CPUs have a ring.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.rings.len()
    }

    /// What has hits recorded, or not.
    #[must_use]
    pub fn switch(&self) -> &Arc<Switch> {
        &self.on
    }

    /// Whether hits are recorded.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on.0.load(Ordering::Relaxed)
    }

    /// Has hits recorded from now on, or not.
    pub fn set_on(&self, on: bool) {
        self.on.0.store(on, Ordering::Relaxed);
    }

    /// Whether the oldest records are overwritten when a ring is full, rather than new ones discarded.
    #[must_use]
    pub fn overwrites(&self) -> bool {
        self.rings.iter().all(|ring| ring.discard.load(Ordering::Relaxed) == 0)
    }

    /// Has the oldest records overwritten when a ring is full, or new ones discarded.
    pub fn set_overwrites(&self, overwrites: bool) {
        self.rings.iter().for_each(|ring| ring.discard.store(u64::from(!overwrites), Ordering::Relaxed));
    }
}

/// How many pages there are for `bytes` bytes, at least two: the one that is being written can always be told from the oldest.
fn page_count(bytes: usize) -> usize {
    bytes.div_ceil(PAGE).max(2)
}

fn make_pages(bytes: usize) -> Result<Vec<Page>, OutOfMemory> {
    let page = |_| fallible::boxed_slice((0..WORDS).map(|_| AtomicU64::new(0)));
    fallible::collect_results((0..page_count(bytes)).map(page))
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
