//! The rings that hold the records, one for every CPU: their layout, and what may be changed about them. Handlers
//! ([`hit`](crate::hit)) and stubs write them; [`Snapshot`] reads them.
//!
//! Only its own CPU writes a ring. Any CPU can read it at any time. Nothing waits. A ring is made of pages. A
//! **position** counts all bytes ever written, including the rest of a page that a record did not fit in. A new page
//! begins every 4096 bytes, so a position gives the page and the offset in the page. A page begins with the number of
//! its first record. Whole records follow, up to the next position or to a word that is 0.
//!
//! ```text
//! page      number of the first record │ record │ record │ … │ 0
//! record    size, faults │ time │ name of the task, 16 bytes │ the record's own bytes, see `format` │ up to 7 bytes
//! ```
//!
//! The writer fills a record and then moves the position past it (release). A reader that loads the position (acquire)
//! finds everything below it complete. Before the writer begins a page, it announces the page's number, followed by a
//! release fence before the words: the page that had the same place is then gone. A reader copies a page, and after an
//! acquire fence checks whether the page was gone by then. This is the order of a sequence lock in Rust's memory model;
//! all words are atomic.
//!
//! Records are numbered, including those that find no room. If the numbers of two consecutive records have a gap,
//! records are missing there, and a reader reports how many and where.
//!
//! Interrupts are masked while a record is written, and the code that writes it cannot be probed. Should a handler
//! interrupt the recording of another one all the same, it finds the ring `busy`, and its record is counted as one
//! without room. Stubs make no calls and do not check.
//!
//! **Modes.** When all pages are full, either the oldest is overwritten, or new records are dropped until a reader has
//! taken some.

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

use crate::atomic::{AtomicU64, fence, zeroed};
use crate::recorder::{Bench, COMPOSED};
use crate::switch::Switch;

pub use change::ResizeError;
pub use pages::{Pages, RAW_PAGE};
pub use snapshot::{Record, Snapshot, Stats};

/// The size of a page, in bytes. In models, a page has room for two records.
pub(crate) const PAGE: usize = if cfg!(all(test, loom)) { 128 } else { 4096 };
const WORDS: usize = PAGE / 8;
/// Bytes of a page before its first record.
pub(crate) const PAGE_HEADER: usize = 8;
/// Bytes of a record before the event's own bytes.
pub(crate) const RECORD_HEADER: usize = 32;
/// The size of the largest record, in bytes, header included.
pub const RECORD_MAX: usize = PAGE - PAGE_HEADER;

pub(crate) type Page = Box<[AtomicU64]>;

/// The records of one CPU, in cache lines of their own, so that hits on different CPUs do not wait for each other.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Ring {
    /// The position of the word before the next record. From this position, stubs compute the place of the record with
    /// one instruction less than from that of the record. Page 0 is never written, so its last word stands for an end
    /// of a page.
    pub(crate) last: AtomicU64,
    /// The page that contains that word.
    pub(crate) page: UnsafeCell<*const AtomicU64>,
    /// The number of the next record that finds room.
    pub(crate) number: AtomicU64,
    /// Whether this CPU is in an interrupt handler, if the kernel says so.
    pub(crate) interrupt: &'static AtomicBool,
    /// Not 0 while a record is being written.
    pub(crate) busy: AtomicU64,
    /// The number of the newest page that was begun. Pages that precede it by at least the number of pages of the ring
    /// were overwritten.
    pub(crate) begun: AtomicU64,
    /// Not 0 if new records are dropped when the ring is full.
    pub(crate) discard: AtomicU64,
    /// Not 0 if nothing is recorded on this CPU: `tracing_cpumask`. Stacks that triggers record, and messages, look at
    /// it. The filters of events and tracers contain the mask themselves.
    pub(crate) left_out: AtomicU64,
    /// The position up to which a reader has taken the records. Records before it may be overwritten in either mode.
    pub(crate) taken: AtomicU64,
    /// The number of records that found no room since the current page was begun. They are added to `number` when the
    /// next page begins.
    pub(crate) refused: AtomicU64,
    /// The number of hits that found the ring busy since the current page was begun. They are added to `number` in the
    /// same way.
    pub(crate) interrupting: AtomicU64,
    pub(crate) pages: UnsafeCell<Vec<Page>>,
    /// The buffer in which the hit that is recording composes its record.
    pub(crate) bench: Box<Bench>,
    /// Records of synthetic events that are written when the record of the hit is done.
    pub(crate) pending: Pending,
    /// The position at the last firing of a trigger `snapshot`.
    pub(crate) split: AtomicU64,
    reader: Mutex<Reader>,
}

// SAFETY: only the hit that is recording accesses `page` and `bench`, on the ring's own CPU, and only one hit records
// there at a time. `pages` changes only in `exchange`, whose caller holds the lock of `reader` while no CPU writes.
// Everything else is atomic or behind a lock.
unsafe impl Sync for Ring {}
// SAFETY: the only part that is not `Send` is the pointer `page`, which points into `pages` and moves with it.
unsafe impl Send for Ring {}

/// The records that a hit keeps for later: for each, its recorder, its size in bytes, and its words.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) words: Box<[AtomicU64]>,
    /// The number of words in use.
    pub(crate) used: AtomicU64,
}

impl Pending {
    /// Makes a buffer for one record of the largest size, or for several smaller ones.
    fn new() -> Result<Self, OutOfMemory> {
        let words = zeroed(2 * WORDS)?;
        Ok(Self { words, used: AtomicU64::new(0) })
    }
}

/// The state of a ring's reader.
#[derive(Clone, Copy, Debug, Default)]
struct Reader {
    /// The position up to which records were taken or cleared.
    position: u64,
    /// The number of the record at that position.
    number: u64,
    /// The number of records before that one that were lost since the ring was cleared.
    lost: u64,
    /// The number of these records that were overwritten.
    overwritten: u64,
    /// The number of records that were taken since the ring was cleared.
    read: u64,
    /// Whether the records that are missing before that position were overwritten; otherwise they found no room.
    is_overwritten: bool,
}

/// The rings of all CPUs.
#[derive(Debug)]
pub struct Rings {
    pub(crate) rings: Box<[Ring]>,
    /// The switch for recording.
    pub(crate) on: Arc<Switch>,
    /// The virtual address of each CPU's ring, for the stubs on that CPU.
    places: CpuWords,
    /// The ring of all CPUs without a ring of their own. It has no pages, so no record finds room.
    none: Box<Ring>,
    /// Not 0 if a trigger `snapshot` has fired since the last check.
    pub(crate) splits: AtomicU64,
    /// Records that a reader has split off for a trigger `snapshot`, until [`split_off`](Self::split_off) returns them.
    parted: Mutex<Option<Snapshot>>,
}

/// The counts of records since a ring was cleared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that are in the ring and were not taken.
    pub present: u64,
    /// Records that were overwritten before they were taken, or found no room.
    pub lost: u64,
}

impl Ring {
    fn new(pages: Vec<Page>, interrupt: &'static AtomicBool) -> Result<Self, OutOfMemory> {
        let zero = || AtomicU64::new(0);
        Ok(Self {
            last: AtomicU64::new(PAGE as u64 - 8),
            page: UnsafeCell::new(core::ptr::null()),
            number: zero(),
            interrupt,
            busy: zero(),
            begun: zero(),
            discard: zero(),
            left_out: zero(),
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
    /// Returns the next position. With `Acquire`, everything below it is complete.
    #[inline(always)]
    pub(crate) fn position(&self, order: Ordering) -> u64 {
        self.last.load(order).wrapping_add(8)
    }

    /// Publishes everything below `position`, which becomes the next position.
    #[inline(always)]
    pub(crate) fn publish(&self, position: u64) {
        self.last.store(position.wrapping_sub(8), Ordering::Release);
    }

    /// Whether nothing is recorded on this CPU.
    #[inline(always)]
    pub(crate) fn is_left_out(&self) -> bool {
        self.left_out.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of the next record that finds room, and the number of records without room that are not added
    /// to it yet.
    fn next_number(&self) -> (u64, u64) {
        let number = self.number.load(Ordering::Relaxed);
        // Acquire: records that are added to `number` are not counted a second time.
        fence(Ordering::Acquire);
        (number, self.refused.load(Ordering::Relaxed) + self.interrupting.load(Ordering::Relaxed))
    }
}

impl Rings {
    /// Makes rings of at least `bytes` bytes each for the CPUs numbered below `cpus`. A hit on any other CPU is not
    /// recorded. `interrupts` says for each CPU whether it is in an interrupt handler; a CPU beyond its end never is.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the rings.
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

    /// Returns the distance in bytes from the engine's state of a CPU to the word with the virtual address of its ring.
    pub(crate) fn distance(&'static self) -> u64 {
        for cpu in 0..platform::cpus() {
            let ring = self.rings.get(cpu).unwrap_or(&self.none);
            self.places.set(cpu, 0, core::ptr::from_ref(ring).expose_provenance() as u64);
        }
        self.places.distance(0)
    }

    /// Returns the virtual address of the byte that turns recording on.
    pub(crate) fn switch_address(&self) -> u64 {
        core::ptr::from_ref(&self.on.0).expose_provenance() as u64
    }

    /// Returns the number of CPUs with a ring.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.rings.len()
    }

    /// Returns the switch for recording.
    #[must_use]
    pub fn switch(&self) -> &Arc<Switch> {
        &self.on
    }

    /// Whether hits are recorded.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.on.0.load(Ordering::Relaxed)
    }

    /// Turns recording on or off.
    pub fn set_on(&self, on: bool) {
        self.on.0.store(on, Ordering::Relaxed);
    }

    /// Sets the CPUs on which anything is recorded, bit 0 for the first; `None` means all.
    pub fn set_cpus(&self, cpus: Option<u64>) {
        for (cpu, ring) in self.rings.iter().enumerate() {
            let is_in = cpus.is_none_or(|cpus| cpu < 64 && cpus >> cpu & 1 != 0);
            ring.left_out.store(u64::from(!is_in), Ordering::Relaxed);
        }
    }

    /// Whether a full ring overwrites its oldest records; otherwise it drops new ones.
    #[must_use]
    pub fn overwrites(&self) -> bool {
        self.rings.iter().all(|ring| ring.discard.load(Ordering::Relaxed) == 0)
    }

    /// Sets whether a full ring overwrites its oldest records; otherwise it drops new ones.
    pub fn set_overwrites(&self, overwrites: bool) {
        self.rings.iter().for_each(|ring| ring.discard.store(u64::from(!overwrites), Ordering::Relaxed));
    }
}

/// Returns the number of pages for `bytes` bytes. There are at least two, so that the page being written differs from
/// the oldest.
fn page_count(bytes: usize) -> usize {
    bytes.div_ceil(PAGE).max(2)
}

fn make_pages(bytes: usize) -> Result<Vec<Page>, OutOfMemory> {
    fallible::collect_results((0..page_count(bytes)).map(|_| zeroed(WORDS)))
}

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;
