//! The tables of a histogram, one for each CPU, so that hits on different CPUs do not wait for each other. Stubs and
//! `hit::action` write them.
//!
//! Most histograms have a single number as their key. Then the counters are in a [`Cell`]. There are so few powers of
//! two that each has a fixed cell; other numbers are found by hash. Longer keys are stored in entries, one after the
//! other.
//!
//! The number of hits of an entry is stored last (release), after its key and its sums. A reader that finds hits
//! (acquire) also finds the key and the sums.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use fallible::OutOfMemory;

use crate::atomic::{AtomicU64, zeroed};

/// The largest number of values besides hits.
pub(super) const VALUES_MAX: usize = 2;

/// The number of exponents: 0 to 63.
pub(crate) const EXPONENTS: u64 = 64;

/// The factor of hashes. It is odd, with bits all over: the upper bits of a product depend on all bits of the other
/// factor.
pub(crate) const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// The size of a cell, in bytes.
pub(crate) const CELL: usize = size_of::<Cell>();

/// The table of one CPU, in cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct CounterTable {
    pub(crate) store: Store,
    /// The number of hits that found the table full.
    pub(crate) dropped: AtomicU64,
}

/// The counters, by the kind of key.
#[derive(Debug)]
pub(crate) enum Store {
    /// One number by powers of two: a cell for each exponent.
    Exponents(Box<[Cell]>),
    /// One number, found by hash.
    Numbers(Numbers),
    /// Any keys, stored in entries.
    Keys(Keys),
}

/// The kind of key, which decides the kind of store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// One number, by powers of two.
    Exponent,
    /// One number.
    Number,
    /// Words: the number of words of the key, and of the task's name, which follows the values and is not part of the
    /// key.
    Words { key: usize, name: usize },
}

/// The counters under one number. No cell straddles two cache lines.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct Cell {
    /// The number of hits; 0 if the cell is free.
    pub(crate) hits: AtomicU64,
    pub(crate) key: AtomicU64,
    pub(crate) values: [AtomicU64; VALUES_MAX],
}

/// The counters under numbers.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// The cells, by hash. Their number is a power of two, and twice the number of keys.
    pub(crate) cells: Box<[Cell]>,
    pub(crate) used: AtomicU32,
}

/// The counters under any keys.
#[derive(Debug)]
pub(crate) struct Keys {
    /// The slots, by hash: the number of an entry, from 1, or 0. Their number is a power of two, and twice the number
    /// of keys.
    pub(crate) slots: Box<[AtomicU32]>,
    /// The words of the entries: the key, hits, the other sums, the task's name. There is one entry more than can be
    /// used, in which a key is written to look it up.
    pub(crate) words: Box<[AtomicU64]>,
    /// The number of words of an entry.
    pub(crate) stride: usize,
    /// The number of words of the key.
    pub(crate) key: usize,
    /// The words of an entry before the name, if it has one.
    pub(crate) name: usize,
    /// The number of entries in use.
    pub(crate) used: AtomicU32,
}

/// Returns the number of keys that a table of `size` keys has room for. In Miri, where a borrow of a table takes time
/// for each of its words, only a table of the least size has its whole room: the tests fill no others.
pub(super) fn room(size: u32) -> usize {
    (if cfg!(miri) && size > 128 { 32 } else { size }) as usize
}

impl CounterTable {
    /// Makes a table with space for `size` keys of this `shape`, a power of two, each with `values` sums besides hits.
    pub(super) fn new(size: u32, shape: Shape, values: usize) -> Result<Self, OutOfMemory> {
        let size = room(size);
        let store = match shape {
            Shape::Exponent => {
                let cell = |key| Cell { key: AtomicU64::new(key), ..Cell::default() };
                Store::Exponents(fallible::boxed_slice((0..EXPONENTS).map(cell))?)
            }
            Shape::Number => {
                let cells = fallible::boxed_slice((0..2 * size).map(|_| Cell::default()))?;
                Store::Numbers(Numbers { cells, used: AtomicU32::new(0) })
            }
            Shape::Words { key, name } => {
                let before = key + 1 + values;
                let stride = before + name;
                let (slots, words) = (fallible::zeroed(2 * size)?, zeroed((size + 1) * stride)?);
                Store::Keys(Keys { slots, words, stride, key, name: before, used: AtomicU32::new(0) })
            }
        };
        Ok(Self { store, dropped: AtomicU64::new(0) })
    }

    /// Returns the memory that [`new`](Self::new) takes for such a table, in bytes, including the table itself.
    pub(super) fn bytes(size: u32, shape: Shape, values: usize) -> usize {
        let size = size as usize;
        size_of::<Self>()
            + match shape {
                Shape::Exponent => EXPONENTS as usize * size_of::<Cell>(),
                Shape::Number => 2 * size * size_of::<Cell>(),
                Shape::Words { key, name } => {
                    2 * size * size_of::<AtomicU32>() + (size + 1) * (key + 1 + values + name) * size_of::<AtomicU64>()
                }
            }
    }

    /// Returns the virtual addresses by which stubs find the table: that of the cells, or those of the slots and of the
    /// entries.
    pub(super) fn addresses(&self) -> impl Iterator<Item = u64> {
        fn of<T>(all: &[T]) -> Option<u64> {
            Some(all.as_ptr().expose_provenance() as u64)
        }
        let addresses = match &self.store {
            Store::Exponents(_) => [None, None],
            Store::Numbers(Numbers { cells, .. }) => [of(cells), None],
            Store::Keys(Keys { slots, words, .. }) => [of(slots), of(words)],
        };
        addresses.into_iter().flatten()
    }

    /// Appends the entries with `values` sums each: the words of the key, hits, sums, the task's name.
    pub(super) fn read(&self, values: usize, entries: &mut Vec<Vec<u64>>) -> Result<(), OutOfMemory> {
        match &self.store {
            Store::Exponents(cells) | Store::Numbers(Numbers { cells, .. }) => {
                for Cell { hits, key, values: sums } in cells {
                    add(entries, hits, [key], sums.iter().take(values))?;
                }
            }
            Store::Keys(Keys { words, stride, key, .. }) => {
                for entry in words.chunks_exact(*stride) {
                    let (key, sums) = entry.split_at(*key);
                    let Some((hits, sums)) = sums.split_first() else { continue };
                    add(entries, hits, key, sums)?;
                }
            }
        }
        Ok(())
    }
}

/// Appends an entry if it has hits.
fn add<'a>(
    entries: &mut Vec<Vec<u64>>,
    hits: &AtomicU64,
    key: impl IntoIterator<Item = &'a AtomicU64>,
    sums: impl IntoIterator<Item = &'a AtomicU64>,
) -> Result<(), OutOfMemory> {
    let hits = hits.load(Acquire);
    if hits == 0 {
        return Ok(());
    }
    let (key, sums) = (key.into_iter(), sums.into_iter());
    let mut entry = Vec::new();
    entry.try_reserve_exact(key.size_hint().0 + 1 + sums.size_hint().0)?;
    entry.extend(key.map(|word| word.load(Relaxed)));
    entry.push(hits);
    entry.extend(sums.map(|word| word.load(Relaxed)));
    fallible::push(entries, entry)
}
