//! What a program keeps while it runs: a table for each map, or one for each map and CPU; the output of each CPU; and the
//! stacks. All is allocated when the program is loaded.

mod entries;
mod fixed;
mod ring;
mod stacks;
mod table;

use alloc::boxed::Box;
use core::fmt;
use core::sync::atomic::Ordering;

use fallible::OutOfMemory;

pub use entries::Entries;
use fixed::Fixed;
pub(crate) use fixed::Layout;
pub use fixed::{NewWords, WORDS, Words};
pub(crate) use ring::{Record, Ring};
pub(crate) use stacks::Stacks;
pub(crate) use table::{Cells, HEAD, MIX, Table, cells};

use crate::atomic::{AtomicBool, AtomicU64};
use crate::code::{Aggregate, Code, FRAME_WORDS, Flaw, Kept, Map};

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
        let lane = |_| -> Result<_, OutOfMemory> {
            Ok(Lane {
                frame: cells(FRAME_WORDS)?,
                stack: cells(code.stack_frames)?,
                ring: Ring::new(limits.output_words())?,
                faults: AtomicU64::new(0),
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
            stacks: Stacks::new(code.stack_frames, limits)?,
            over: AtomicBool::new(false),
            ended: AtomicU64::new(u64::MAX),
            start,
        })
    }

    /// Whether the program has asked to end: no clause but `END` runs then.
    #[inline]
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

    /// Takes all keys out of a map, or, if `keep`, makes their values zeros; each step of it within a call of `masked`.
    pub fn clear(&self, map: usize, keep: bool, masked: Masked<'_>) {
        self.fixed.clear(map, keep);
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
        Ok(entries)
    }

    /// How many words a key of a map of `code` has for code in a stub, on each CPU; 0 if the map has none.
    #[must_use]
    pub fn fixed_words(code: &Code, map: usize) -> usize {
        code.maps.get(map).and_then(|of| Layout::of(of.value)).map_or(0, Layout::words)
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

/// Adds what one CPU has collected to what others have. Also on the way of a hit.
pub(crate) fn join(aggregate: &Aggregate, all: &mut [u64], one: &[u64]) {
    match (aggregate, all, one) {
        (&(Aggregate::Least { signed } | Aggregate::Greatest { signed }), [set, value], [has, found]) => {
            if *has != 0 && (*set == 0 || is_better(aggregate, signed, *found, *value)) {
                (*set, *value) = (1, *found);
            }
        }
        (
            Aggregate::Average { .. } | Aggregate::Statistics { .. },
            [count, low, high],
            &[more, other_low, other_high],
        ) => {
            *count = count.wrapping_add(more);
            [*low, *high] = halves(wide([*low, *high]).wrapping_add(wide([other_low, other_high])));
        }
        (_, all, one) => all.iter_mut().zip(one).for_each(|(all, one)| *all = all.wrapping_add(*one)),
    }
}

/// The number of 128 bits whose lower half is first.
#[inline]
pub(crate) fn wide([low, high]: [u64; 2]) -> u128 {
    u128::from(high) << 64 | u128::from(low)
}

/// Its halves, the lower first.
#[inline]
pub(crate) fn halves(number: u128) -> [u64; 2] {
    [number as u64, (number >> 64) as u64]
}

/// A value in 128 bits.
#[inline]
pub(crate) fn widened(value: u64, signed: bool) -> u128 {
    if signed { i128::from(value.cast_signed()).cast_unsigned() } else { value.into() }
}

/// Whether `new` takes the place of `old` as the least or the greatest.
#[inline]
pub(crate) fn is_better(aggregate: &Aggregate, signed: bool, new: u64, old: u64) -> bool {
    let less = if signed { new.cast_signed() < old.cast_signed() } else { new < old };
    if matches!(aggregate, Aggregate::Least { .. }) { less } else { new != old && !less }
}

/// The lower half of `dividend / divisor`; 0 if `divisor` is 0.
///
/// The compiler would call a function of its own for this division, and that function can be probed: programs compare
/// averages on the way of a hit.
fn quotient(dividend: u128, divisor: u64) -> u64 {
    let [low, high] = halves(dividend);
    let Some(mut rest) = high.checked_rem(divisor) else { return 0 };
    let mut quotient = 0;
    for bit in (0..u64::BITS).rev() {
        let is_beyond = rest >> (u64::BITS - 1) != 0;
        rest = rest << 1 | low >> bit & 1;
        quotient <<= 1;
        if is_beyond || rest >= divisor {
            rest = rest.wrapping_sub(divisor);
            quotient |= 1;
        }
    }
    quotient
}

/// The number that `words` amount to, as an aggregate that amounts to one; 0 if nothing has been collected.
#[inline]
pub(crate) fn total(aggregate: &Aggregate, words: &[u64]) -> u64 {
    match (aggregate, words) {
        (&(Aggregate::Average { signed } | Aggregate::Statistics { signed }), &[count, low, high]) => {
            let sum = wide([low, high]);
            if signed && sum.cast_signed() < 0 {
                quotient(sum.wrapping_neg(), count).wrapping_neg()
            } else {
                quotient(sum, count)
            }
        }
        (Aggregate::Least { .. } | Aggregate::Greatest { .. }, &[_, value]) | (_, &[value]) => value,
        _ => 0,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{halves, quotient, total};
    use crate::code::Aggregate;

    #[test]
    fn a_quotient_is_that_of_128_bits() {
        let words = [0, 1, 2, 3, 7, 10, 1 << 31, 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX];
        for high in words {
            for low in words {
                let dividend = u128::from(high) << 64 | u128::from(low);
                for divisor in words {
                    let expected = dividend.checked_div(divisor.into()).unwrap_or(0) as u64;
                    assert_eq!(quotient(dividend, divisor), expected, "{dividend:#x} / {divisor:#x}");
                }
            }
        }
    }

    #[test]
    fn an_average_has_a_sign_if_its_values_have() {
        let [low, high] = halves((-7_i128).cast_unsigned());
        let average = |signed| total(&Aggregate::Average { signed }, &[2, low, high]);
        assert_eq!(average(true), (-3_i64).cast_unsigned());
        assert_eq!(average(false), (u128::MAX - 6).wrapping_div(2) as u64);
        assert_eq!(total(&Aggregate::Average { signed: true }, &[0, 0, 0]), 0);
    }
}
