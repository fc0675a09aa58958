//! What a program keeps while it runs: a table for each map, or one for each map and CPU; the output of each CPU; and the
//! stacks. All is allocated when the program is loaded.

mod cached;
mod entries;
mod fixed;
mod ring;
mod stacks;
mod table;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering;

use fallible::OutOfMemory;

pub(crate) use cached::{Cached, SHIFT};
pub use entries::Entries;
use fixed::Fixed;
pub(crate) use fixed::Layout;
pub use fixed::{NewWords, WORDS, Words};
pub use ring::Record;
pub(crate) use ring::{HEAD as RECORD_HEAD, Ring};
pub(crate) use stacks::Stacks;
pub(crate) use table::{Bucket, Cells, FOLLOWING, HEAD, MIX, Table, cells};

use crate::atomic::{AtomicBool, AtomicU64};
use crate::code::{Code, FRAME_WORDS, Flaw, Kept, Map};

/// Calls what it is given with interrupts masked: what hits wait for is held meanwhile.
pub type Masked<'a> = &'a dyn Fn(&mut dyn FnMut());

/// The most keys of a map.
pub const KEYS_MAX: usize = 1 << 20;

/// The most places for stacks, unless more are asked for.
const STACKS_MAX: usize = 1 << 14;

/// How much a program may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many CPUs there are.
    pub cpus: usize,
    /// The most keys of a map, a power of 2. Maps with long values have room for fewer.
    pub entries: usize,
    /// About the most bytes of a table; there are as many as CPUs for a map that collects.
    pub table_bytes: usize,
    /// The most places for stacks, a power of 2.
    pub stacks: usize,
    /// The most bytes of these places.
    pub stack_bytes: usize,
    /// The bytes of output of each CPU, a power of 2.
    pub output_bytes: usize,
}

impl Limits {
    /// The usual limits, with `cpus` CPUs.
    #[must_use]
    pub const fn usual(cpus: usize) -> Self {
        Self {
            cpus,
            entries: 1024,
            table_bytes: 128 << 10,
            stacks: STACKS_MAX,
            stack_bytes: 128 << 10,
            output_bytes: 32 << 10,
        }
    }

    /// The same, with room for `keys` keys in each map, however long its values are, and for as many stacks.
    #[must_use]
    pub const fn with_keys(self, keys: usize) -> Self {
        let keys = if keys < KEYS_MAX { keys.next_power_of_two() } else { KEYS_MAX };
        Self { entries: keys, table_bytes: usize::MAX, stacks: 2 * keys, stack_bytes: usize::MAX, ..self }
    }

    /// For how many keys a table has room whose keys and values have `words` words together.
    fn entries(&self, words: usize) -> usize {
        let fit = self.table_bytes / (16 * words.max(1));
        let fit = fit.clamp(16, self.entries.clamp(16, KEYS_MAX));
        (fit + 1).next_power_of_two() / 2
    }

    /// How many places there are for stacks of `frames` frames.
    fn stacks(&self, frames: usize) -> usize {
        if frames == 0 {
            return 0;
        }
        let fit = self.stack_bytes / (8 * (frames + 1));
        (fit.clamp(16, self.stacks.clamp(16, 2 * KEYS_MAX)) + 1).next_power_of_two() / 2
    }

    /// How many tables there are for a map.
    fn copies(&self, map: &Map) -> usize {
        if matches!(map.value, Kept::Value(_)) { 1 } else { self.cpus }
    }

    /// How many bytes a [`Store`] for `code` takes.
    #[must_use]
    pub fn bytes(&self, code: &Code) -> usize {
        let tables = code.maps.iter().map(|map| {
            let (key, value) = (map.key_words(), map.value.words());
            self.copies(map) * Table::words(key, value, self.entries(key + value))
        });
        let lane = FRAME_WORDS + code.stack_frames + self.output_words();
        let stacks = self.stacks(code.stack_frames) * (code.stack_frames + 1);
        8 * (tables.sum::<usize>() + self.cpus * lane + stacks)
    }

    /// The words of output of each CPU.
    fn output_words(&self) -> usize {
        (self.output_bytes / 8).next_power_of_two()
    }
}

/// What belongs to one CPU.
#[derive(Debug)]
pub(crate) struct Lane {
    pub frame: Box<Cells>,
    /// Where the machine puts the frames of a stack.
    pub stack: Box<Cells>,
    pub ring: Ring,
    /// How many reads have found no memory.
    pub faults: AtomicU64,
    /// How many runs of clauses have ended in loops, as they had no ops left for them.
    pub cut: AtomicU64,
    /// What random numbers are made of. Only this CPU changes it.
    pub random: AtomicU64,
}

/// Why a program is not loaded.
#[derive(Debug)]
pub enum LoadError {
    /// Its code breaks a rule of its form: it may not run.
    Flaw(Flaw),
    /// There is no memory for what it keeps.
    OutOfMemory,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flaw(flaw) => flaw.fmt(f),
            Self::OutOfMemory => f.write_str("there is no memory for its maps and its output"),
        }
    }
}

impl core::error::Error for LoadError {}

impl From<Flaw> for LoadError {
    fn from(flaw: Flaw) -> Self {
        Self::Flaw(flaw)
    }
}

impl From<OutOfMemory> for LoadError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// What a program keeps.
#[derive(Debug)]
pub struct Store {
    pub(crate) lanes: Box<[Lane]>,
    /// For each map, its tables: one, or one for each CPU.
    pub(crate) tables: Box<[Box<[Table]>]>,
    fixed: Fixed,
    /// For each map, its slots, if stubs collect there.
    pub(crate) cached: Box<[Option<Cached>]>,
    pub(crate) stacks: Stacks,
    /// The program has asked to end.
    over: AtomicBool,
    /// When that was, in nanoseconds; `u64::MAX` before.
    ended: AtomicU64,
    /// When it was loaded, in nanoseconds.
    pub(crate) start: u64,
}

impl Store {
    /// What `code` needs; loaded at the time `start`, in nanoseconds.
    ///
    /// # Errors
    ///
    /// The code breaks a rule of its form; or there is no memory.
    pub fn new(code: &Code, limits: &Limits, start: u64) -> Result<Self, LoadError> {
        code.verify()?;
        let lane = |cpu: usize| -> Result<_, OutOfMemory> {
            Ok(Lane {
                frame: cells(FRAME_WORDS)?,
                stack: cells(code.stack_frames)?,
                ring: Ring::new(limits.output_words())?,
                faults: AtomicU64::new(0),
                cut: AtomicU64::new(0),
                random: AtomicU64::new(start ^ (cpu as u64) << 32),
            })
        };
        let tables = |map: &Map| {
            let (key, value) = (map.key_words(), map.value.words());
            let table = |_| Table::new(key, value, limits.entries(key + value));
            fallible::boxed_slice(fallible::collect_results((0..limits.copies(map)).map(table))?)
        };
        let lanes = fallible::collect_results((0..limits.cpus).map(lane))?;
        let tables = fallible::collect_results(code.maps.iter().map(tables))?;
        Ok(Self {
            lanes: fallible::boxed_slice(lanes)?,
            tables: fallible::boxed_slice(tables)?,
            fixed: Fixed::default(),
            cached: fallible::boxed_slice(code.maps.iter().map(|_| None))?,
            stacks: Stacks::new(code.stack_frames, limits)?,
            over: AtomicBool::new(false),
            ended: AtomicU64::new(u64::MAX),
            start,
        })
    }

    /// Whether the program has asked to end: no clause runs then but those that run after that, too.
    #[inline(always)]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The virtual address of the byte that says so, for as long as the store is where it is.
    pub(crate) fn over_address(&self) -> u64 {
        core::ptr::from_ref(&self.over).addr() as u64
    }

    /// When the program has asked to end, in nanoseconds of its machine; `u64::MAX` while it has not.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn end(&self, now: u64) {
        self.ended.store(now, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
    }

    /// How far each CPU has put out records: all that are there now precede these ends.
    ///
    /// # Errors
    ///
    /// There is no memory for a list of them.
    pub fn output_ends(&self) -> Result<Vec<u64>, OutOfMemory> {
        fallible::collect(self.lanes.iter().map(|lane| lane.ring.end()))
    }

    /// Takes the earliest record of all CPUs, of those up to the `ends` of each. What a CPU puts out after its end was looked at is
    /// for the next time, though the end of another CPU was looked at later. Called by one task at a time.
    ///
    /// # Errors
    ///
    /// There is no memory for it; it is still the earliest.
    pub fn take_record(&self, ends: &[u64]) -> Result<Option<Record>, OutOfMemory> {
        let unread = self.lanes.iter().zip(ends).filter(|(lane, end)| !lane.ring.is_read(**end));
        let timed = unread.filter_map(|(lane, _)| Some((lane.ring.next_time()?, lane)));
        timed.min_by_key(|&(time, _)| time).map_or(Ok(None), |(_, lane)| lane.ring.take())
    }

    /// The frames of the stack of that number, the innermost first; none if there is none.
    pub fn stack(&self, number: u64) -> impl Iterator<Item = u64> {
        self.stacks.frames(number)
    }

    /// How many records of output have been lost, for want of room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.ring.lost()).sum()
    }

    /// How many reads have found no memory.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.faults.load(Ordering::Relaxed)).sum()
    }

    /// How many runs of clauses have ended in loops, as they had no ops left for them.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.cut.load(Ordering::Relaxed)).sum()
    }

    /// How many stacks have found no place.
    #[must_use]
    pub fn stacks_dropped(&self) -> u64 {
        self.stacks.dropped.load(Ordering::Relaxed)
    }

    /// How many values the map has not kept as there was no place for their keys.
    #[must_use]
    pub fn dropped(&self, map: usize) -> u64 {
        self.tables.get(map).into_iter().flatten().map(Table::dropped).sum()
    }

    /// Takes all keys out of a map, or, if `keep`, makes their values zeros; each step of it within a call of `masked`.
    pub fn clear(&self, map: usize, keep: bool, masked: Masked<'_>) {
        self.fixed.clear(map, keep);
        self.cached.get(map).and_then(Option::as_ref).inspect(|cached| cached.clear(keep));
        for table in self.tables.get(map).into_iter().flatten() {
            for bucket in 0..table.buckets() {
                masked(&mut || table.clear(bucket, keep));
            }
        }
    }

    /// The keys and values of a map that keeps `kept`; what each CPU has collected is put together. Each step of it is within a
    /// call of `masked`, as for [`clear`](Self::clear).
    ///
    /// # Errors
    ///
    /// There is no memory for a copy.
    pub fn read(&self, map: usize, kept: Kept, masked: Masked<'_>) -> Result<Entries, OutOfMemory> {
        let mut entries = Entries::read(self.tables.get(map).map_or(&[], |tables| tables), kept, masked)?;
        entries.add(|value_words, rows| self.fixed.read(map, value_words, rows))?;
        if let Some(Some(cached)) = self.cached.get(map) {
            entries.add(|_, rows| cached.read(rows))?;
        }
        Ok(entries)
    }

    /// How many words a key of a map of `code` has for code in a stub, on each CPU; 0 if the map has none.
    #[must_use]
    pub fn fixed_words(code: &Code, map: usize) -> usize {
        code.maps.get(map).and_then(|of| Layout::of(of.value)).map_or(0, Layout::words)
    }

    /// The virtual address of the addresses of the slots that each CPU has of a map of `code`, by its number, for code in a stub;
    /// they are made if there are none yet. Nothing if the map can have none.
    ///
    /// # Errors
    ///
    /// There is no memory for them.
    pub fn slots(&mut self, code: &Code, map: usize) -> Result<Option<u64>, OutOfMemory> {
        let (Some(of), Some(cached)) = (code.maps.get(map), self.cached.get_mut(map)) else { return Ok(None) };
        if cached.is_none() {
            *cached = Cached::new(of, self.lanes.len())?;
        }
        Ok(cached.as_ref().map(Cached::places))
    }

    /// How far from what stands for the CPU in a stub the words are that code in a stub adds to for `key` of a map of `code`, by
    /// its number; they are those of `new` if there are none for the key yet. Nothing if the map is none of those.
    ///
    /// # Errors
    ///
    /// There is no memory for them.
    pub fn distance(
        &mut self,
        code: &Code,
        map: usize,
        key: &[u64],
        new: NewWords<'_>,
    ) -> Result<Option<u64>, OutOfMemory> {
        match code.maps.get(map).filter(|of| Layout::of(of.value).is_some()) {
            Some(of) => self.fixed.distance(map, of, key, new).map(Some),
            None => Ok(None),
        }
    }
}
