//! Histograms: hits summed up by keys, as Linux's trigger `hist:` does (Documentation/trace/histogram.rst).
//!
//! Each CPU has a table of its own, so that no hit waits for another CPU, and all tables are made when the trigger is set. A
//! table has room for as many keys as `size` says; a hit with another key is dropped, and counted as dropped. Reading
//! merges the tables. They are written by [`action`](crate::action).

mod error;
mod parse;
mod text;

use alloc::boxed::Box;
use alloc::collections::TryReserveError;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

pub use error::{Error, Problem};
pub use parse::{Command, Definition};

use crate::filter::{Number, Text};
pub use text::ShowError;

use parse::{Modifier, Sort};

/// How many return addresses are in a key.
pub const STACK_DEPTH: usize = 16;
/// How many bytes of a text are in a key, at most, as 64-bit words.
const TEXT_WORDS: usize = 16;
/// The name of a task, as 64-bit words.
const NAME_WORDS: usize = 2;

/// A histogram that counts.
#[derive(Debug)]
pub struct Histogram {
    definition: Definition,
    pub(crate) keys: Box<[Key]>,
    /// What is summed up besides hits.
    pub(crate) values: Box<[Number]>,
    pub(crate) tables: Box<[Table]>,
    /// How many keys a table has room for.
    pub(crate) size: u32,
    /// Words of an entry: the key, hits, the other sums, and the task's name if it is asked for.
    pub(crate) stride: usize,
    pub(crate) paused: AtomicBool,
}

/// A part of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) source: Source,
    /// How many words of the key it has.
    pub(crate) words: usize,
}

/// Where a part of a key is had from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    Number { number: Number, transform: Transform },
    Text(Text),
    Stack,
}

/// What a number is in the key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transform {
    /// Itself.
    None,
    /// The exponent of the next power of two.
    Log2,
    /// The largest multiple of this that is not larger.
    Buckets(u64),
}

/// The table of one CPU, in cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Table {
    /// By hash: the number of the entry, from 1 on, or 0.
    pub(crate) slots: Box<[AtomicU32]>,
    /// One more than are used: the room in which a key is looked up.
    pub(crate) entries: Box<[AtomicU64]>,
    /// How many entries are used.
    pub(crate) used: AtomicU32,
    pub(crate) hits: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

impl Table {
    fn new(size: u32, stride: usize) -> Result<Self, TryReserveError> {
        Ok(Self {
            slots: zeros(2 * size as usize)?,
            entries: zeros((size as usize + 1) * stride)?,
            used: AtomicU32::new(0),
            hits: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        })
    }
}

fn zeros<T: Default>(length: usize) -> Result<Box<[T]>, TryReserveError> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(length)?;
    zeros.extend((0..length).map(|_| T::default()));
    Ok(zeros.into())
}

impl Histogram {
    /// An empty histogram, with a table for each of so many CPUs.
    ///
    /// # Errors
    ///
    /// No memory for the tables.
    pub fn new(definition: Definition, cpus: usize) -> Result<Self, TryReserveError> {
        let keys: Box<[Key]> = definition.keys.iter().map(Key::of).collect();
        let values: Box<[Number]> = definition.values.iter().map(|value| value.number).collect();
        let names = definition.keys.iter().any(|key| key.modifier == Some(Modifier::Execname));
        let stride =
            keys.iter().map(|key| key.words).sum::<usize>() + 1 + values.len() + if names { NAME_WORDS } else { 0 };
        let size = definition.size;
        let mut tables = Vec::new();
        tables.try_reserve_exact(cpus)?;
        for _ in 0..cpus {
            tables.push(Table::new(size, stride)?);
        }
        let paused = AtomicBool::new(definition.command == Some(Command::Pause));
        Ok(Self { definition, keys, values, tables: tables.into(), size, stride, paused })
    }

    /// The same, empty.
    ///
    /// # Errors
    ///
    /// No memory for the tables.
    pub fn cleared(&self) -> Result<Self, TryReserveError> {
        let cleared = Self::new(self.definition.clone(), self.tables.len())?;
        cleared.set_paused(self.is_paused());
        Ok(cleared)
    }

    /// What was asked for.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Has hits not be counted, or be counted again.
    pub fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Relaxed);
    }

    /// Whether hits are not counted.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// The words of the keys.
    fn key_words(&self) -> usize {
        self.keys.iter().map(|key| key.words).sum()
    }

    /// What all CPUs have counted.
    fn read(&self) -> Result<Reading, TryReserveError> {
        let mut reading = Reading::default();
        for table in &self.tables {
            reading.hits += table.hits.load(Relaxed);
            reading.dropped += table.dropped.load(Relaxed);
            let used = table.used.load(Acquire) as usize;
            reading.entries.try_reserve(used)?;
            for words in table.entries.chunks_exact(self.stride).take(used) {
                let mut entry = Vec::new();
                entry.try_reserve_exact(self.stride)?;
                entry.extend(words.iter().map(|word| word.load(Relaxed)));
                reading.entries.push(entry);
            }
        }
        reading.merge(self.key_words(), 1 + self.values.len());
        Ok(reading)
    }
}

/// What was read of a histogram.
#[derive(Debug, Default)]
struct Reading {
    /// The words of each entry, as in the tables.
    entries: Vec<Vec<u64>>,
    hits: u64,
    dropped: u64,
}

impl Reading {
    /// Makes one entry of those of the same key: keys have so many words, and so many sums follow them.
    fn merge(&mut self, keys: usize, sums: usize) {
        self.entries.sort_by(|one, other| one[..keys].cmp(&other[..keys]));
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
    /// The same key with its number had from elsewhere.
    pub(crate) fn map(&self, to: &dyn Fn(Number) -> Number) -> Self {
        let source = match self.source {
            Source::Number { number, transform } => Source::Number { number: to(number), transform },
            other => other,
        };
        Self { source, ..*self }
    }

    /// Whether it looks at the record.
    pub(crate) fn needs_record(&self) -> bool {
        match self.source {
            Source::Number { number, .. } => number.needs_record(),
            Source::Text(text) => text.needs_record(),
            Source::Stack => false,
        }
    }

    fn of(field: &parse::KeyField) -> Self {
        let words = match field.source {
            Source::Number { .. } => 1,
            Source::Text(Text::Task) => NAME_WORDS,
            Source::Text(Text::Located { .. }) => TEXT_WORDS,
            Source::Stack => STACK_DEPTH,
        };
        Self { source: field.source, words }
    }
}

/// The bytes of a text in a key, without the zeros that fill it up.
fn text_of(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
pub(crate) mod tests;
