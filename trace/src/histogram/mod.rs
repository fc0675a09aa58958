//! Histograms: hits counted and summed by keys, as by Linux's trigger `hist:` (Documentation/trace/histogram.rst).
//!
//! Each CPU has a table of its own. All tables are allocated when the trigger is set. A table has room for `size` keys;
//! a hit with a further key is dropped, and counted as dropped. Hits that stubs count by powers of two go to per-CPU
//! words instead. Reading merges all of them. A histogram with variables has one table for all CPUs, because the two
//! hits of a pair may be on different CPUs.

mod action;
mod error;
mod expression;
mod parse;
mod shared;
mod table;
mod text;
mod variables;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::iter::repeat_n;
use core::sync::atomic::Ordering::{Relaxed, Release};

use aarch64_kprobes::platform;
use aarch64_kprobes::probe::CpuWords;
use fallible::{Arc, OutOfMemory};

pub(crate) use action::{Effect, Form, From, Handler, Sent};
pub use error::{Error, Problem};
pub(crate) use expression::{Content, Needed, OPERANDS_MAX, Op, OtherEvents, Reference, Scope, VariableSource};
pub use parse::{Command, Definition};
pub(crate) use shared::Shared;
pub(crate) use table::{CELL, Cell, CounterTable, EXPONENTS, Keys, MULTIPLIER, Numbers, Store};
pub(crate) use variables::{BoundAction, Setting, VariableUse};

use crate::atomic::AtomicBool;
use crate::fetch::RegisterPart;
use crate::filter::{HitString, Number};
use crate::ring::Rings;
use parse::{Modifier, Sort, Sum};
use table::Shape;

/// The number of return addresses in a key.
pub const STACK_DEPTH: usize = 16;
/// The longest text in a key, in 64-bit words: 256 bytes, as in Linux. A Rust path with an offset takes up to 200
/// bytes.
const TEXT_WORDS: usize = 32;
/// The size of a task's name, in 64-bit words.
const NAME_WORDS: usize = 2;

/// A histogram with its tables.
#[derive(Debug)]
pub struct Histogram {
    definition: Definition,
    pub(crate) keys: Box<[Key]>,
    /// The values that are summed up besides hits.
    pub(crate) values: Box<[Number]>,
    /// The table of each CPU; empty if the histogram has variables.
    pub(crate) tables: Box<[CounterTable]>,
    pub(crate) variable_use: Option<VariableUse>,
    /// Set while the histogram is cleared in place: no event counts hits in it or reads its variables. Stubs do not
    /// look at it: they count in the tables of CPUs, which a histogram that is cleared in place does not have.
    pub(crate) held: AtomicBool,
    /// The words in which stubs count by exponents, indexed by the number of leading zeros.
    exponents: Option<CpuWords>,
    /// The virtual addresses of the tables for stubs, in the order of CPUs; 0 for a CPU without a table.
    addresses: Box<[u64]>,
}

/// Where stubs count hits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum StubCounters {
    /// In per-CPU words, indexed by the number of leading zeros. The operand is the distance from the state of a CPU to
    /// the first word.
    Exponents(u64),
    /// In one of `count` cells, found by hash. Each CPU has the virtual address of its cells in a word of the list at
    /// `addresses`.
    Cells { addresses: u64, count: usize },
    /// In an entry of `stride` words, whose number is in one of `count` slots, found by hash. Each CPU has the virtual
    /// addresses of its slots and of its entries in two words of the list at `addresses`.
    Entries { addresses: u64, count: usize, stride: usize },
    /// Stubs cannot count in this histogram.
    None,
}

/// A histogram whose key and values are registers or parts of registers. A hit is counted from its registers alone.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) histogram: Arc<Histogram>,
    pub(crate) key: RegisterPart,
    pub(crate) transform: Transform,
    pub(crate) values: Box<[RegisterPart]>,
}

/// A part of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) source: Source,
    /// The number of words of the key that the part takes.
    pub(crate) words: usize,
}

/// Where a part of a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Number {
        number: Number,
        transform: Transform,
    },
    Text(HitString),
    /// Return addresses in a field of the record.
    Recorded(HitString),
    Stack,
}

/// How a number becomes part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transform {
    /// The number itself.
    None,
    /// The exponent of the next power of two.
    Log2,
    /// The largest multiple of this that is not above the number.
    Buckets(u64),
}

impl Tally {
    /// Makes the tally of a histogram whose `keys` and `values` a probe has in these places; `None` unless all of them
    /// are registers or parts of registers.
    pub(crate) fn new(
        histogram: &Arc<Histogram>,
        keys: &[Key],
        values: &[Number],
    ) -> Result<Option<Self>, OutOfMemory> {
        let [Key { source: Source::Number { number, transform }, .. }] = *keys else { return Ok(None) };
        let parts = || values.iter().map(|value| value.part());
        let Some(key) = number.part().filter(|_| parts().all(|part| part.is_some())) else { return Ok(None) };
        let values = fallible::boxed_slice(parts().flatten())?;
        Ok(Some(Self { histogram: histogram.clone(), key, transform, values }))
    }
}

impl Histogram {
    /// Makes an empty histogram with a table for each of `cpus` CPUs. Its action `snapshot()` preserves the records of
    /// `rings`.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the tables.
    pub fn new(definition: Definition, cpus: usize, rings: Option<&'static Rings>) -> Result<Self, OutOfMemory> {
        let keys = fallible::boxed_slice(definition.keys.iter().map(Key::of))?;
        let variable_use =
            definition.uses_variables().then(|| VariableUse::new(&definition, cpus, rings)).transpose()?;
        let numbers = definition.sums().filter(|_| variable_use.is_none()).filter_map(Sum::number);
        let values = fallible::boxed_slice(numbers)?;
        let shape = Shape::of(&definition, keys.iter().copied());
        let table = |_| CounterTable::new(definition.size, shape, values.len());
        let with_table = if variable_use.is_some() { 0 } else { cpus };
        let tables = fallible::boxed_slice(fallible::collect_results((0..with_table).map(table))?)?;
        let held = AtomicBool::new(false);
        let exponents = Self::has_exponents(&definition, shape).then(CpuWords::new).transpose()?;
        let each = tables.first().map_or(0, |table| table.addresses().count());
        let without = platform::cpus().saturating_sub(tables.len());
        let addresses = tables.iter().flat_map(CounterTable::addresses).chain(repeat_n(0, each * without));
        let addresses = fallible::boxed_slice(addresses)?;
        Ok(Self { definition, keys, values, tables, variable_use, held, exponents, addresses })
    }

    /// Whether stubs may count by exponents.
    fn has_exponents(definition: &Definition, shape: Shape) -> bool {
        matches!(shape, Shape::Exponent) && definition.sums().next().is_none() && !definition.uses_variables()
    }

    /// Returns where stubs count.
    pub(crate) fn stub_counters(&self) -> StubCounters {
        let addresses = self.addresses.as_ptr().expose_provenance() as u64;
        match (&self.exponents, self.tables.first().map(|table| &table.store)) {
            (Some(words), _) => StubCounters::Exponents(words.distance(0)),
            (None, Some(Store::Numbers(Numbers { cells, .. }))) => {
                StubCounters::Cells { addresses, count: cells.len() }
            }
            (None, Some(Store::Keys(Keys { slots, stride, .. }))) => {
                StubCounters::Entries { addresses, count: slots.len(), stride: *stride }
            }
            (None, Some(Store::Exponents(_)) | None) => StubCounters::None,
        }
    }

    /// Returns the memory that the tables of such a histogram take for `cpus` CPUs, in bytes.
    #[must_use]
    pub fn bytes(definition: &Definition, cpus: usize) -> usize {
        if definition.uses_variables() {
            return VariableUse::bytes(definition, cpus);
        }
        let shape = Shape::of(definition, definition.keys.iter().map(Key::of));
        let words = if Self::has_exponents(definition, shape) { CpuWords::bytes() } else { 0 };
        CounterTable::bytes(definition.size, shape, definition.sums().count())
            .saturating_mul(cpus)
            .saturating_add(words)
    }

    /// Returns the definition.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Clears the histogram in place, if it has variables: other triggers may refer to it, so it cannot be replaced.
    /// Otherwise returns false, and changes nothing. `synchronize` waits until all hits are over that were being
    /// handled when it was called. Later hits see what was stored before the call.
    pub(crate) fn clear(&self, synchronize: impl FnOnce()) -> bool {
        let Some(variable_use) = &self.variable_use else { return false };
        self.held.store(true, Relaxed);
        synchronize();
        variable_use.clear();
        // A hit that sees this (acquire) also sees the cleared table.
        self.held.store(false, Release);
        true
    }

    /// Returns the number of values besides hits.
    fn sums(&self) -> usize {
        self.definition.sums().count()
    }

    /// Reads the tables of all CPUs, merged by key.
    pub(crate) fn read(&self) -> Result<Reading, OutOfMemory> {
        let mut reading = Reading::default();
        if let Some(variable_use) = &self.variable_use {
            reading.dropped = variable_use.table.dropped.load(Relaxed);
            variable_use.table.read(&mut reading.entries)?;
            return Ok(reading);
        }
        for table in &self.tables {
            reading.dropped += table.dropped.load(Relaxed);
            table.read(self.values.len(), &mut reading.entries)?;
        }
        for zeros in (0..=64).filter(|_| self.exponents.is_some()) {
            let hits = self.exponents.as_ref().map_or(0, |words| words.sum(zeros));
            if hits > 0 {
                let exponent = (64 - zeros as u64) % EXPONENTS;
                fallible::push(&mut reading.entries, fallible::collect([exponent, hits])?)?;
            }
        }
        reading.merge(self.key_words(), 1 + self.values.len());
        Ok(reading)
    }

    /// Returns the number of words of the keys.
    fn key_words(&self) -> usize {
        words_of(self.keys.iter().copied())
    }
}

impl Shape {
    /// Returns the shape of the tables of such a histogram with these keys.
    fn of(definition: &Definition, mut keys: impl Iterator<Item = Key> + Clone) -> Self {
        let has_name = definition.keys.iter().any(|key| key.modifier == Some(Modifier::Execname));
        let words = words_of(keys.clone());
        match (keys.next(), keys.next()) {
            (Some(Key { source: Source::Number { transform, .. }, .. }), None) if !has_name => match transform {
                Transform::Log2 => Self::Exponent,
                Transform::None | Transform::Buckets(_) => Self::Number,
            },
            _ => Self::Words { key: words, name: if has_name { NAME_WORDS } else { 0 } },
        }
    }
}

/// Returns the number of words of an entry that a text takes.
fn words_of_text(text: HitString) -> usize {
    match text {
        HitString::Task => NAME_WORDS,
        HitString::Located { .. } => TEXT_WORDS,
        HitString::Fixed { size, .. } => usize::from(size).div_ceil(8),
    }
}

fn words_of(keys: impl Iterator<Item = Key>) -> usize {
    keys.map(|key| key.words).sum()
}

/// The contents of a histogram, read from its tables.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// The words of each entry: the key, hits, values, the task's name; and variables.
    pub(crate) entries: Vec<Vec<u64>>,
    pub(crate) dropped: u64,
}

impl Reading {
    /// Merges the entries with the same key. A key has `keys` words, followed by `sums` counters.
    fn merge(&mut self, keys: usize, sums: usize) {
        fallible::sort_by(&mut self.entries, |one, other| one[..keys].cmp(&other[..keys]));
        self.entries.dedup_by(|again, entry| {
            let same = again[..keys] == entry[..keys];
            if same {
                let sums = keys..keys + sums;
                let pairs = entry[sums.clone()].iter_mut().zip(&again[sums]);
                pairs.for_each(|(sum, more)| *sum = sum.wrapping_add(*more));
            }
            same
        });
    }
}

impl Key {
    /// Returns a copy of the key with `to` applied to its number.
    pub(crate) fn map(&self, to: &dyn Fn(Number) -> Number) -> Self {
        let source = match self.source {
            Source::Number { number, transform } => Source::Number { number: to(number), transform },
            other => other,
        };
        Self { source, ..*self }
    }

    /// Whether the key is taken from the record.
    pub(crate) fn needs_record(&self) -> bool {
        match self.source {
            Source::Number { number, .. } => number.needs_record(),
            Source::Text(text) | Source::Recorded(text) => text.needs_record(),
            Source::Stack => false,
        }
    }

    fn of(field: &parse::KeyField) -> Self {
        let words = match field.source {
            Source::Number { .. } => 1,
            Source::Text(text) => words_of_text(text),
            Source::Stack | Source::Recorded(_) => STACK_DEPTH,
        };
        Self { source: field.source, words }
    }
}

/// Returns the bytes of a text in a key, without the padding zeros.
fn text_of(words: &[u64]) -> impl Iterator<Item = u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).take_while(|&byte| byte != 0)
}

#[cfg(all(test, loom))]
mod models;
#[cfg(test)]
pub(crate) mod tests;
