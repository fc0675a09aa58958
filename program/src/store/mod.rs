//! What a program keeps while it runs: a table for each map, or one for each map and CPU; the output of each CPU; and the
//! stacks. All is allocated when the program is loaded.

mod ring;
mod table;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) use ring::{Record, Ring};
pub(crate) use table::{Cells, Table, cells};

use crate::code::{Aggregate, Code, FRAME_WORDS, Kept};

/// How much a program may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many CPUs there are.
    pub cpus: usize,
    /// The most keys of a map, a power of 2. Maps with long values have room for fewer.
    pub entries: usize,
    /// About the most bytes of a table; there are as many as CPUs for a map that collects.
    pub table_bytes: usize,
    /// The bytes of output of each CPU, a power of 2.
    pub output_bytes: usize,
}

impl Limits {
    /// The usual limits, with `cpus` CPUs.
    #[must_use]
    pub const fn usual(cpus: usize) -> Self {
        Self { cpus, entries: 1024, table_bytes: 128 << 10, output_bytes: 32 << 10 }
    }

    /// For how many keys a table has room whose keys and values have `words` words together.
    fn entries(&self, words: usize) -> usize {
        let fit = self.table_bytes / (16 * words.max(1));
        let fit = fit.clamp(16, self.entries.clamp(16, 1 << 20));
        (fit + 1).next_power_of_two() / 2
    }
}

/// What belongs to one CPU.
#[derive(Debug)]
pub(crate) struct Lane {
    pub frame: Box<Cells>,
    pub ring: Ring,
    /// How many reads have found no memory.
    pub faults: AtomicU64,
}

/// What a program keeps.
#[derive(Debug)]
pub struct Store {
    pub(crate) lanes: Box<[Lane]>,
    /// For each map, its tables: one, or one for each CPU.
    pub(crate) tables: Box<[Box<[Table]>]>,
    pub(crate) stacks: Stacks,
    /// The program has asked to end.
    over: AtomicBool,
    /// When it was loaded, in nanoseconds.
    pub(crate) start: u64,
}

impl Store {
    /// What `code` needs; loaded at the time `start`, in nanoseconds.
    #[must_use]
    pub fn new(code: &Code, limits: &Limits, start: u64) -> Self {
        let lanes = (0..limits.cpus).map(|_| Lane {
            frame: cells(FRAME_WORDS),
            ring: Ring::new((limits.output_bytes / 8).next_power_of_two()),
            faults: AtomicU64::new(0),
        });
        let tables = code.maps.iter().map(|map| {
            let (key, value) = (map.key_words(), map.value.words());
            let copies = if matches!(map.value, Kept::Value(_)) { 1 } else { limits.cpus };
            (0..copies).map(|_| Table::new(key, value, limits.entries(key + value))).collect()
        });
        Self {
            lanes: lanes.collect(),
            tables: tables.collect(),
            stacks: Stacks::new(code.stack_frames, limits),
            over: AtomicBool::new(false),
            start,
        }
    }

    /// Whether the program has asked to end: no clause but `END` runs then.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// How many bytes of memory it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let tables = self.tables.iter().flatten().map(Table::bytes).sum::<usize>();
        let lanes = self.lanes.iter().map(|lane| size_of_val(&*lane.frame) + lane.ring.bytes()).sum::<usize>();
        tables + lanes + size_of_val(&*self.stacks.cells)
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

    /// Takes all keys out of a map, or, if `keep`, makes their values zeros; each step of it within a call of `masked`, which
    /// calls what it is given with interrupts masked.
    pub fn clear(&self, map: usize, keep: bool, masked: &dyn Fn(&mut dyn FnMut())) {
        for table in self.tables.get(map).into_iter().flatten() {
            for bucket in 0..table.buckets() {
                masked(&mut || table.clear(bucket, keep));
            }
        }
    }

    /// The keys and values of a map that keeps `kept`, in ascending order of keys; what each CPU has collected is put
    /// together.
    #[must_use]
    pub fn read(&self, map: usize, kept: Kept) -> BTreeMap<Vec<u64>, Vec<u64>> {
        let mut all = BTreeMap::new();
        for table in self.tables.get(map).into_iter().flatten() {
            for (key, value) in (0..table.buckets()).flat_map(|bucket| table.read(bucket)) {
                let Kept::Aggregate(aggregate) = kept else {
                    all.insert(key, value);
                    continue;
                };
                match all.entry(key) {
                    alloc::collections::btree_map::Entry::Vacant(vacant) => drop(vacant.insert(value)),
                    alloc::collections::btree_map::Entry::Occupied(mut occupied) => {
                        join(aggregate, occupied.get_mut(), &value);
                    }
                }
            }
        }
        all
    }
}

/// Adds what one CPU has collected to what others have.
pub(crate) fn join(aggregate: Aggregate, all: &mut [u64], one: &[u64]) {
    match (aggregate, all, one) {
        (Aggregate::Least { signed } | Aggregate::Greatest { signed }, [set, value], [has, found]) => {
            if *has != 0 && (*set == 0 || is_better(aggregate, signed, *found, *value)) {
                (*set, *value) = (1, *found);
            }
        }
        (_, all, one) => all.iter_mut().zip(one).for_each(|(all, one)| *all = all.wrapping_add(*one)),
    }
}

/// Whether `new` takes the place of `old` as the least or the greatest.
#[inline]
pub(crate) fn is_better(aggregate: Aggregate, signed: bool, new: u64, old: u64) -> bool {
    let less = if signed { new.cast_signed() < old.cast_signed() } else { new < old };
    if matches!(aggregate, Aggregate::Least { .. }) { less } else { new != old && !less }
}

/// The number that `words` amount to, as an aggregate that amounts to one; 0 if nothing has been collected.
#[inline]
pub(crate) fn total(aggregate: Aggregate, words: &[u64]) -> u64 {
    match (aggregate, words) {
        (Aggregate::Average { signed } | Aggregate::Statistics { signed }, &[count, sum]) => {
            if signed {
                sum.cast_signed().checked_div(count.cast_signed()).unwrap_or(0).cast_unsigned()
            } else {
                sum.checked_div(count).unwrap_or(0)
            }
        }
        (Aggregate::Least { .. } | Aggregate::Greatest { .. }, &[_, value]) | (_, &[value]) => value,
        _ => 0,
    }
}

/// Stacks, each once. A stack stays as long as the program.
#[derive(Debug)]
pub(crate) struct Stacks {
    frames: usize,
    /// How many there is room for.
    count: usize,
    /// For each, its number of frames, 0 if there is none, and its frames.
    cells: Box<Cells>,
    /// Changed with interrupts masked, by whoever adds a stack.
    adding: AtomicBool,
    dropped: AtomicU64,
}

/// How far from where its hash wants it to be a stack may lie.
const REACH: usize = 16;

/// The number of a stack that has found no place.
pub(crate) const NO_STACK: u64 = u64::MAX;

impl Stacks {
    fn new(frames: usize, limits: &Limits) -> Self {
        let count = if frames == 0 { 0 } else { limits.entries(frames + 1) };
        Self {
            frames,
            count,
            cells: cells(count * (frames + 1)),
            adding: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
        }
    }

    #[inline]
    fn slot(&self, number: usize) -> Option<(&AtomicU64, &Cells)> {
        let length = self.frames + 1;
        self.cells.get(number * length..)?.get(..length)?.split_first()
    }

    /// The number of `stack`, which is added if it is new. Called with interrupts masked.
    #[inline]
    pub fn number(&self, stack: &[u64]) -> u64 {
        if stack.is_empty() || self.count == 0 {
            return NO_STACK;
        }
        let hash = stack.iter().fold(stack.len() as u64, |hash, frame| {
            let product = (hash ^ frame).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            product ^ product >> 32
        });
        let places = (0..REACH).map(|away| hash.wrapping_add(away as u64) as usize & self.count.wrapping_sub(1));
        if let Some(number) = places.clone().find(|&number| self.is(number, stack)) {
            return number as u64;
        }
        while self.adding.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            core::hint::spin_loop();
        }
        let number = self.add(places, stack);
        self.adding.store(false, Ordering::Release);
        number
    }

    /// Whether the stack of that number is `stack`.
    #[inline]
    fn is(&self, number: usize, stack: &[u64]) -> bool {
        let Some((count, frames)) = self.slot(number) else { return false };
        count.load(Ordering::Acquire) == stack.len() as u64
            && stack.len() <= frames.len()
            && frames.iter().zip(stack).all(|(has, frame)| has.load(Ordering::Relaxed) == *frame)
    }

    #[inline]
    fn add(&self, places: impl Iterator<Item = usize>, stack: &[u64]) -> u64 {
        for number in places {
            if self.is(number, stack) {
                return number as u64;
            }
            let Some((count, frames)) = self.slot(number) else { break };
            if count.load(Ordering::Relaxed) == 0 {
                frames.iter().zip(stack).for_each(|(to, frame)| to.store(*frame, Ordering::Relaxed));
                count.store(stack.len() as u64, Ordering::Release);
                return number as u64;
            }
        }
        self.dropped.store(self.dropped.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        NO_STACK
    }

    /// The frames of a stack; none if there is none of that number.
    pub fn frames(&self, number: u64) -> Vec<u64> {
        let slot =
            usize::try_from(number).ok().filter(|number| *number < self.count).and_then(|number| self.slot(number));
        let Some((count, frames)) = slot else { return Vec::new() };
        frames.iter().take(count.load(Ordering::Acquire) as usize).map(|frame| frame.load(Ordering::Relaxed)).collect()
    }
}
