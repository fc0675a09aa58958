//! The data of a running program: a table for each map, or one for each map and CPU; the output of each CPU; and the
//! stacks. Everything is allocated when the program is loaded.

mod cached;
mod entries;
mod fixed;
mod hash_table;
mod ring;
mod stacks;

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
pub(crate) use hash_table::{Bucket, DISTANCE_MAX, HEAD, HashTable, MIX};
pub use ring::Record;
pub(crate) use ring::{HEAD as RECORD_HEAD, Ring};
pub(crate) use stacks::Stacks;

use crate::atomic::{AtomicBool, AtomicU64, Cells, cells};
use crate::ir::{Code, FRAME_WORDS, Flaw, Map, MapValue};

/// Calls its argument with interrupts masked. The argument holds locks that hits wait for.
pub type Masked<'a> = &'a dyn Fn(&mut dyn FnMut());

/// The largest number of keys in a map.
pub const KEYS_MAX: usize = 1 << 20;

/// Stands for no exit status: an exit status has 8 bits.
const NO_STATUS: u64 = u64::MAX;
/// The number of places for stacks, unless more are requested.
const STACKS_MAX: usize = 1 << 14;

/// The limits of a program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of CPUs.
    pub cpus: usize,
    /// The largest number of keys in a map, a power of 2. Maps with long values have room for fewer.
    pub entries: usize,
    /// The approximate size limit of a table in bytes. An aggregation has one table for each CPU.
    pub table_bytes: usize,
    /// The largest number of places for stacks, a power of 2.
    pub stacks: usize,
    /// The size limit of these places in bytes.
    pub stack_bytes: usize,
    /// The size of each CPU's output in bytes, a power of 2.
    pub output_bytes: usize,
}

impl Limits {
    /// Returns the usual limits, for `cpus` CPUs.
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

    /// Returns limits with room for `keys` keys in each map, however long its values are, and for as many stacks, in
    /// twice as many places.
    #[must_use]
    pub const fn with_keys(self, keys: usize) -> Self {
        let keys = if keys < KEYS_MAX { keys.next_power_of_two() } else { KEYS_MAX };
        Self { entries: keys, table_bytes: usize::MAX, stacks: 2 * keys, stack_bytes: usize::MAX, ..self }
    }

    /// Returns the number of keys that a table of a map has room for.
    fn entries(&self, map: &Map) -> usize {
        if let Some(keys) = map.room {
            return self.with_keys(keys).entries.max(16);
        }
        let words = map.key_words() + map.value.words();
        let fit = self.table_bytes / (16 * words.max(1));
        let fit = fit.clamp(16, self.entries.clamp(16, KEYS_MAX));
        (fit + 1).next_power_of_two() / 2
    }

    /// Returns the number of places for stacks of `frames` frames.
    fn stacks(&self, frames: usize) -> usize {
        if frames == 0 {
            return 0;
        }
        let fit = self.stack_bytes / (8 * (frames + 1));
        (fit.clamp(16, self.stacks.clamp(16, 2 * KEYS_MAX)) + 1).next_power_of_two() / 2
    }

    /// Returns the number of tables of a map.
    fn copies(&self, map: &Map) -> usize {
        if matches!(map.value, MapValue::Value(_)) { 1 } else { self.cpus }
    }

    /// Returns the number of bytes that a [`Store`] for `code` takes, with the slots in which stubs may collect.
    #[must_use]
    pub fn bytes(&self, code: &Code) -> usize {
        let tables = code.maps.iter().map(|map| {
            let (key, value) = (map.key_words(), map.value.words());
            self.copies(map) * HashTable::words(key, value, self.entries(map))
        });
        let slots: usize = code.maps.iter().map(Cached::words_of_cpu).sum();
        let words_of_cpu = FRAME_WORDS + code.stack_frames + self.output_words() + slots;
        let stacks = self.stacks(code.stack_frames) * (code.stack_frames + 1);
        8 * (tables.sum::<usize>() + self.cpus * words_of_cpu + stacks)
    }

    /// Returns the size of each CPU's output in words.
    fn output_words(&self) -> usize {
        (self.output_bytes / 8).next_power_of_two()
    }
}

/// The data of one CPU.
#[derive(Debug)]
pub(crate) struct PerCpu {
    pub frame: Box<Cells>,
    /// The buffer into which the machine writes the frames of a stack.
    pub stack: Box<Cells>,
    pub ring: Ring,
    /// The number of failed reads of memory.
    pub faults: AtomicU64,
    /// The number of runs that ended in a loop because they had no ops left for it.
    pub cut: AtomicU64,
    /// The state of random numbers, which only this CPU changes.
    pub random: AtomicU64,
}

/// Why a program cannot be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The code breaks a rule of the checked form, so it must not run.
    Flaw(Flaw),
    /// There is no memory for the program's data.
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

/// The data of a program.
#[derive(Debug)]
pub struct Store {
    pub(crate) per_cpu: Box<[PerCpu]>,
    /// The tables of each map: one, or one for each CPU.
    pub(crate) tables: Box<[Box<[HashTable]>]>,
    fixed: Fixed,
    /// The slots of each map, if stubs collect there.
    pub(crate) cached: Box<[Option<Cached>]>,
    pub(crate) stacks: Stacks,
    /// Whether the program has asked to end.
    over: AtomicBool,
    /// The time when the program asked to end, in nanoseconds; `u64::MAX` before.
    ended: AtomicU64,
    /// The exit status that was asked for first; [`NO_STATUS`] before.
    status: AtomicU64,
    /// The time when the program was loaded, in nanoseconds.
    pub(crate) start: u64,
}

impl Store {
    /// Checks `code` and allocates its data. `start` is the time of loading, in nanoseconds.
    ///
    /// # Errors
    ///
    /// [`LoadError::Flaw`] if the code breaks a rule of the checked form; [`LoadError::OutOfMemory`] if there is no
    /// memory for the program's data.
    pub fn new(code: &Code, limits: &Limits, start: u64) -> Result<Self, LoadError> {
        code.verify()?;
        let of_cpu = |cpu: usize| -> Result<_, OutOfMemory> {
            Ok(PerCpu {
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
            let table = |_| HashTable::new(key, value, limits.entries(map));
            fallible::boxed_slice(fallible::collect_results((0..limits.copies(map)).map(table))?)
        };
        let per_cpu = fallible::collect_results((0..limits.cpus).map(of_cpu))?;
        let tables = fallible::collect_results(code.maps.iter().map(tables))?;
        Ok(Self {
            per_cpu: fallible::boxed_slice(per_cpu)?,
            tables: fallible::boxed_slice(tables)?,
            fixed: Fixed::default(),
            cached: fallible::boxed_slice(code.maps.iter().map(|_| None))?,
            stacks: Stacks::new(code.stack_frames, limits)?,
            over: AtomicBool::new(false),
            ended: AtomicU64::new(u64::MAX),
            status: AtomicU64::new(NO_STATUS),
            start,
        })
    }

    /// Returns whether the program has asked to end. Then only clauses run that also run after the end.
    #[inline(always)]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Returns the virtual address of the byte that tells whether the program has asked to end. It is valid as long as
    /// the store is not moved.
    pub(crate) fn over_address(&self) -> u64 {
        core::ptr::from_ref(&self.over).expose_provenance() as u64
    }

    /// Returns the time when the program asked to end, in nanoseconds; `u64::MAX` if it has not.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Returns the exit status that the program asked for first; 0 if it has asked for none.
    #[must_use]
    pub fn status(&self) -> u8 {
        u8::try_from(self.status.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Ends the program. Of two CPUs that do so at the same time, either is the first.
    #[inline]
    pub(crate) fn end(&self, now: u64, status: u8) {
        if self.status.load(Ordering::Relaxed) == NO_STATUS {
            self.status.store(status.into(), Ordering::Relaxed);
        }
        self.ended.store(now, Ordering::Relaxed);
        self.over.store(true, Ordering::Relaxed);
    }

    /// Returns the end of each CPU's output: all present records precede these ends.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the list.
    pub fn output_ends(&self) -> Result<Vec<u64>, OutOfMemory> {
        fallible::collect(self.per_cpu.iter().map(|of_cpu| of_cpu.ring.end()))
    }

    /// Takes the earliest record before the `ends` of all CPUs; `None` if all have been taken. A record that a CPU
    /// writes after its end was read is left for the next time, even if another CPU's end was read later. Only one task
    /// may call this at a time.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the record. The record then stays the earliest.
    pub fn take_record(&self, ends: &[u64]) -> Result<Option<Record>, OutOfMemory> {
        let unread = self.per_cpu.iter().zip(ends).filter(|(of_cpu, end)| !of_cpu.ring.is_read(**end));
        let timed = unread.filter_map(|(of_cpu, _)| Some((of_cpu.ring.next_time()?, of_cpu)));
        timed.min_by_key(|&(time, _)| time).map_or(Ok(None), |(_, of_cpu)| of_cpu.ring.take())
    }

    /// Returns the frames of the stack with this number, the innermost first; none if there is no such stack.
    pub fn stack(&self, number: u64) -> impl Iterator<Item = u64> {
        self.stacks.frames(number)
    }

    /// Returns the number of output records that were lost for lack of room.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.per_cpu.iter().map(|of_cpu| of_cpu.ring.lost()).sum()
    }

    /// Returns the number of failed reads of memory.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.per_cpu.iter().map(|of_cpu| of_cpu.faults.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of runs that ended in a loop because they had no ops left for it.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.per_cpu.iter().map(|of_cpu| of_cpu.cut.load(Ordering::Relaxed)).sum()
    }

    /// Returns the number of stacks that found no place.
    #[must_use]
    pub fn stacks_dropped(&self) -> u64 {
        self.stacks.dropped.load(Ordering::Relaxed)
    }

    /// Returns the number of values that a map dropped because there was no place for their keys.
    #[must_use]
    pub fn dropped(&self, map: usize) -> u64 {
        self.tables.get(map).into_iter().flatten().map(HashTable::dropped).sum()
    }

    /// Removes all keys from a map, or, if `keep`, only zeros their values. Each step runs within a call of `masked`.
    pub fn clear(&self, map: usize, keep: bool, masked: Masked<'_>) {
        self.fixed.clear(map, keep);
        self.cached.get(map).and_then(Option::as_ref).inspect(|cached| cached.clear(keep));
        for table in self.tables.get(map).into_iter().flatten() {
            for bucket in 0..table.buckets {
                masked(&mut || table.clear(bucket, keep));
            }
        }
    }

    /// Returns the keys and values of a map that keeps `kept`, with the aggregations of all CPUs merged. Each step runs
    /// within a call of `masked`.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for a copy.
    pub fn read(&self, map: usize, kept: MapValue, masked: Masked<'_>) -> Result<Entries, OutOfMemory> {
        let mut entries = Entries::read(self.tables.get(map).map_or(&[], |tables| tables), kept, masked)?;
        entries.add(|value_words, rows| self.fixed.read(map, value_words, rows))?;
        if let Some(Some(cached)) = self.cached.get(map) {
            entries.add(|_, rows| cached.read(rows))?;
        }
        Ok(entries)
    }

    /// Returns the number of words, on each CPU, that code in a stub uses for a key of a map of `code`; 0 if the keys
    /// of the map have no such words.
    #[must_use]
    pub fn fixed_words(code: &Code, map: usize) -> usize {
        code.maps.get(map).and_then(|of| Layout::of(of.value)).map_or(0, Layout::words)
    }

    /// Returns the virtual address of the list with the address of each CPU's slots for a map of `code`, for code in a
    /// stub. The slots are allocated if there are none yet. `None` if the map cannot have slots.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the slots.
    pub fn slots(&mut self, code: &Code, map: usize) -> Result<Option<u64>, OutOfMemory> {
        let (Some(of), Some(cached)) = (code.maps.get(map), self.cached.get_mut(map)) else { return Ok(None) };
        if cached.is_none() {
            *cached = Cached::new(of, self.per_cpu.len())?;
        }
        Ok(cached.as_ref().map(Cached::places))
    }

    /// Returns the distance in bytes from the engine's state of a CPU to the words that code in the stub adds to, for
    /// `key` of a map of `code`. If the key has no words yet, it gets some, from `new` if needed. `None` if the map
    /// cannot have such words.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the words.
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
