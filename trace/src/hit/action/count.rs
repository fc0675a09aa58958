//! Histograms at a hit: the hit is counted in the table of its CPU.
//!
//! A single number is looked up directly. A longer key is written to the unused entry at the end of the table and
//! looked up from there, so a new key is already in place. The number of hits is stored last, which publishes the
//! entry.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{HitState, load};
use crate::atomic::AtomicU64;
use crate::filter::HitString;
use crate::histogram::{
    Cell, CounterTable, EXPONENTS, Histogram, Key, Keys, MULTIPLIER, Numbers, Source, Store, Tally, Transform,
};
use crate::hit::Registers;
use crate::trigger::{BoundTrigger, Plan};

/// The counters under a key: hits, and the sums of the values.
type Sums<'a> = (&'a AtomicU64, &'a [AtomicU64]);

impl Plan {
    /// Counts a hit on the CPU numbered `cpu`, if the plan does nothing else and needs only registers. Returns whether
    /// the plan was of this kind; then there is nothing left to do.
    #[inline(always)]
    pub(crate) fn tallies(&self, registers: Registers<'_>, cpu: usize) -> bool {
        let [BoundTrigger { tally: Some(tally), trigger, .. }] = &*self.triggers else { return false };
        if self.recording.is_on() {
            return false;
        }
        if !trigger.is_paused() {
            tally.count(registers, cpu);
        }
        true
    }
}

impl Tally {
    #[inline(always)]
    fn count(&self, registers: Registers<'_>, cpu: usize) {
        let Some(table) = self.histogram.table(cpu) else { return };
        match table.store.cell(registers.part(self.key), self.transform) {
            Some(cell) => add(cell.sums(), &self.values, |&value| registers.part(value)),
            None => increment(&table.dropped, 1),
        }
    }
}

impl Histogram {
    /// Returns the table of a CPU; `None` for a CPU without one.
    #[inline(always)]
    fn table(&self, cpu: usize) -> Option<&CounterTable> {
        self.tables.get(cpu)
    }

    /// Counts a hit of the event of `bound`.
    pub(super) fn count(&self, bound: &BoundTrigger, plan: &Plan, record: &[u8], state: &HitState<'_>) {
        if bound.trigger.is_paused() {
            return;
        }
        if let Some(variable_use) = self.variable_use() {
            // Acquire: a hit after `Histogram::clear` sees the cleared table.
            if !self.held.load(Acquire) {
                variable_use.count(bound, plan, record, state);
            }
            return;
        }
        let Some(table) = self.table(state.context.cpu) else { return };
        let sums = match (&table.store, &*bound.keys) {
            (Store::Keys(table), keys) => table.sums(keys, plan, record, state),
            (store, [Key { source: Source::Number { number, transform }, .. }]) => {
                store.cell(load::counted(*number, record, state), *transform).map(Cell::sums)
            }
            _ => None,
        };
        match sums {
            Some(sums) => add(sums, &bound.values, |&value| load::counted(value, record, state)),
            None => increment(&table.dropped, 1),
        }
    }
}

impl Store {
    /// Returns the cell of a number; `None` if there is no room for it.
    #[inline(always)]
    fn cell(&self, number: u64, transform: Transform) -> Option<&Cell> {
        match self {
            Self::Exponents(cells) => cells.get(exponent(number) as usize),
            Self::Numbers(numbers) => numbers.cell(transform.apply(number)),
            Self::Keys(_) => None,
        }
    }
}

impl Cell {
    #[inline(always)]
    fn sums(&self) -> Sums<'_> {
        (&self.hits, &self.values)
    }
}

impl Numbers {
    /// Returns the cell of `key`, which is made if it is new. `None` if the table is full.
    #[inline(always)]
    fn cell(&self, key: u64) -> Option<&Cell> {
        let found = search(&self.cells, key.wrapping_mul(MULTIPLIER), |cell| {
            let is_free = cell.hits.load(Relaxed) == 0;
            (is_free || cell.key.load(Relaxed) == key).then_some((cell, is_free))
        });
        let (cell, is_free) = found?;
        if is_free { self.begin(cell, key) } else { Some(cell) }
    }

    /// Gives a free cell to `key`, unless the table is full.
    #[cold]
    #[inline(never)]
    fn begin<'a>(&self, cell: &'a Cell, key: u64) -> Option<&'a Cell> {
        let used = self.used.load(Relaxed);
        if used as usize >= self.cells.len() / 2 {
            return None;
        }
        self.used.store(used + 1, Relaxed);
        cell.key.store(key, Relaxed);
        Some(cell)
    }
}

impl Keys {
    /// Returns the counters under the keys of a hit, which are made if the keys are new. `None` if the table is full.
    #[inline(always)]
    fn sums(&self, keys: &[Key], plan: &Plan, record: &[u8], state: &HitState<'_>) -> Option<Sums<'_>> {
        let used = self.used.load(Relaxed);
        let room = self.entry(used)?;
        let (mut words, _) = room.split_at_checked(self.key)?;
        let mut hash = 0;
        for key in keys {
            let (own, rest) = words.split_at_checked(key.words)?;
            words = rest;
            write_key(key, own, plan, record, state);
            for word in own {
                hash = mix(hash, word.load(Relaxed));
            }
        }
        let entry = match self.find(room.get(..self.key)?, hash.wrapping_mul(MULTIPLIER))? {
            Lookup::Entry(entry) => entry,
            Lookup::Free(slot) => {
                if used as usize >= self.slots.len() / 2 {
                    return None;
                }
                if let Some(name @ [_, ..]) = room.get(self.name..) {
                    write_text(name, load::text(HitString::Task, record, state).unwrap_or(&[]));
                }
                slot.store(used + 1, Relaxed);
                self.used.store(used + 1, Relaxed);
                room
            }
        };
        let (hits, values) = entry.get(self.key..)?.split_first()?;
        Some((hits, values))
    }

    /// Returns entry `number`. There is one entry more than can be used.
    #[inline(always)]
    fn entry(&self, number: u32) -> Option<&[AtomicU64]> {
        let start = number as usize * self.stride;
        self.words.get(start..start + self.stride)
    }

    /// Looks up the entry of this key, or the free slot for it.
    #[inline(always)]
    fn find(&self, key: &[AtomicU64], hash: u64) -> Option<Lookup<'_>> {
        search(&self.slots, hash, |slot| {
            let Some(number) = slot.load(Relaxed).checked_sub(1) else { return Some(Lookup::Free(slot)) };
            let entry = self.entry(number)?;
            let is_same = key.iter().zip(entry).all(|(one, other)| one.load(Relaxed) == other.load(Relaxed));
            is_same.then_some(Lookup::Entry(entry))
        })
    }
}

/// The outcome of looking up a key.
enum Lookup<'a> {
    Entry(&'a [AtomicU64]),
    Free(&'a AtomicU32),
}

/// Calls `look` on each slot, from the place of this hash on, and returns its first result. The number of slots is a
/// power of two, and half of them stay free, so the search ends before it has seen all.
#[inline(always)]
fn search<'a, S, F>(all: &'a [S], hash: u64, look: impl Fn(&'a S) -> Option<F>) -> Option<F> {
    let count = all.len();
    let first = place(hash, count);
    for step in 0..count {
        let found = look(all.get((first + step) & count.wrapping_sub(1))?);
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Returns the hash of a sequence of words that has `hash` so far, with one word more.
#[inline(always)]
pub(super) fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(MULTIPLIER);
    hash ^ hash >> 32
}

/// Returns the preferred place of a key with this hash among `count` slots, a power of two: the upper bits of the hash.
#[inline(always)]
pub(super) fn place(hash: u64, count: usize) -> usize {
    hash.wrapping_shr(count.leading_zeros() + 1) as usize
}

/// Adds a hit with these values.
#[inline(always)]
//
// A loop, not `map` and `zip`: at some levels of optimization those are calls of functions in `core`, which can be
// probed.
fn add<T>((hits, mut sums): Sums<'_>, values: &[T], number: impl Fn(&T) -> u64) {
    for value in values {
        let [sum, rest @ ..] = sums else { break };
        increment(sum, number(value));
        sums = rest;
    }
    hits.store(hits.load(Relaxed).wrapping_add(1), Release);
}

/// Adds to a counter. Only this CPU writes it, here and in stubs, with interrupts masked.
#[inline(always)]
fn increment(sum: &AtomicU64, by: u64) {
    sum.store(sum.load(Relaxed).wrapping_add(by), Relaxed);
}

impl Transform {
    #[inline(always)]
    fn apply(self, number: u64) -> u64 {
        match self {
            Self::None => number,
            Self::Log2 => exponent(number),
            Self::Buckets(size) => number - number.checked_rem(size).unwrap_or(0),
        }
    }
}

/// Returns the exponent of the smallest power of two that is not below the number. Numbers above 2⁶³ have none, and are
/// counted with 0 and 1, as in Linux on this architecture: `roundup_pow_of_two` shifts 1 by 64 bits then, which does
/// not shift it at all.
#[inline(always)]
fn exponent(number: u64) -> u64 {
    (64 - u64::from(number.wrapping_sub(1).leading_zeros())) % EXPONENTS
}

#[inline(always)]
pub(super) fn write_key(key: &Key, words: &[AtomicU64], plan: &Plan, record: &[u8], state: &HitState<'_>) {
    match key.source {
        Source::Number { number, transform } => {
            if let Some(word) = words.first() {
                word.store(transform.apply(load::counted(number, record, state)), Relaxed);
            }
        }
        Source::Text(text) | Source::Recorded(text) => {
            write_text(words, load::text(text, record, state).unwrap_or(&[]))
        }
        Source::Stack => write_stack(words, plan, state),
    }
}

/// Stores the addresses of the stack, as many as fit, and pads with zeros.
#[inline(always)]
pub(super) fn write_stack(words: &[AtomicU64], plan: &Plan, state: &HitState<'_>) {
    let mut walk = plan.walk(state);
    let mut address = Some(walk.first());
    for word in words {
        word.store(address.unwrap_or(0), Relaxed);
        address = address.and_then(|_| walk.step());
    }
}

/// Stores a text, padded with zeros. A text that does not fit is cut.
pub(super) fn write_text(words: &[AtomicU64], text: &[u8]) {
    let mut bytes = text.iter();
    for word in words {
        let value = (0..8).fold(0, |value, at| value | u64::from(bytes.next().copied().unwrap_or(0)) << (8 * at));
        word.store(value, Relaxed);
    }
}
