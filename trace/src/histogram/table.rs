//! The tables of a histogram, one for each CPU, so that no hit waits for another CPU. They are written by stubs and by
//! `hit::action`.
//!
//! Most histograms have one number as their key. What is counted under it is in a [`Cell`]: by powers of two there are so few
//! that each has its place, and others are found by their hash. Longer keys are written out, behind each other.
//!
//! The hits of an entry are stored last (release), after its key and its sums: a reader that finds hits (acquire) finds those.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

use fallible::OutOfMemory;

use super::VALUES_MAX;
use crate::atomic::AtomicU64;

/// What a number can be by powers of two: the exponents 0 to 64.
const EXPONENTS: u64 = 65;

/// What a hash is multiplied by: odd, with bits all over, as the upper bits of a product depend on all bits of the other factor.
pub(crate) const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bytes of a cell.
pub(crate) const CELL: usize = size_of::<Cell>();

/// The table of one CPU, in cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Table {
    pub(crate) store: Store,
    /// Hits that had no room.
    pub(crate) dropped: AtomicU64,
}

/// What is counted, by its key.
#[derive(Debug)]
pub(crate) enum Store {
    /// One number by powers of two: the cell of each exponent.
    Exponents(Box<[Cell]>),
    /// One number.
    Numbers(Numbers),
    /// Any keys.
    Keys(Keys),
}

/// What a key consists of, and what is counted under it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// A number by powers of two.
    Exponent,
    /// A number.
    Number,
    /// So many words, with so many words of the name of a task, behind the values, that are no part of it.
    Words { key: usize, name: usize },
}

/// What is counted under one number; none is in two cache lines.
#[derive(Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct Cell {
    /// Not 0 if the cell is used.
    pub(crate) hits: AtomicU64,
    pub(crate) key: AtomicU64,
    pub(crate) values: [AtomicU64; VALUES_MAX],
}

/// What is counted under numbers.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// By hash: a power of two of them, twice as many as there is room for.
    pub(crate) cells: Box<[Cell]>,
    pub(crate) used: AtomicU32,
}

/// What is counted under any keys.
#[derive(Debug)]
pub(crate) struct Keys {
    /// By hash: the number of the entry, from 1 on, or 0. A power of two of them, twice as many as there is room for.
    pub(crate) slots: Box<[AtomicU32]>,
    /// The words of the entries: the key, hits, the other sums, the task's name. One entry more than is used: the room in which
    /// a key is looked up.
    pub(crate) words: Box<[AtomicU64]>,
    /// Words of an entry.
    pub(crate) stride: usize,
    /// How many of these are the key.
    pub(crate) key: usize,
    /// How many precede the name, if there is one.
    pub(crate) name: usize,
    /// How many entries are used.
    pub(crate) used: AtomicU32,
}

impl Table {
    /// A table with room for `size` keys of this `shape`, a power of two, with so many values each.
    pub(super) fn new(size: u32, shape: Shape, values: usize) -> Result<Self, OutOfMemory> {
        let size = size as usize;
        let store = match shape {
            Shape::Exponent => {
                let cell = |key| Cell { key: AtomicU64::new(key), ..Cell::default() };
                Store::Exponents(fallible::boxed_slice((0..EXPONENTS).map(cell))?)
            }
            Shape::Number => Store::Numbers(Numbers { cells: zeros(2 * size)?, used: AtomicU32::new(0) }),
            Shape::Words { key, name } => {
                let before = key + 1 + values;
                let stride = before + name;
                let (slots, words) = (zeros(2 * size)?, zeros((size + 1) * stride)?);
                Store::Keys(Keys { slots, words, stride, key, name: before, used: AtomicU32::new(0) })
            }
        };
        Ok(Self { store, dropped: AtomicU64::new(0) })
    }

    /// Bytes of memory that [`new`](Self::new) takes for such a table, the table itself included.
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

    /// How many [places](Self::places) a table of this shape has.
    pub(super) const fn places_of(shape: Shape) -> usize {
        match shape {
            Shape::Exponent => 0,
            Shape::Number => 1,
            Shape::Words { .. } => 2,
        }
    }

    /// The virtual addresses by which stubs find the table: of the cells by hash; or of the slots and the entries.
    pub(super) fn places(&self) -> impl Iterator<Item = u64> {
        fn of<T>(all: &[T]) -> Option<u64> {
            Some(all.as_ptr().expose_provenance() as u64)
        }
        let places = match &self.store {
            Store::Exponents(_) => [None, None],
            Store::Numbers(Numbers { cells, .. }) => [of(cells), None],
            Store::Keys(Keys { slots, words, .. }) => [of(slots), of(words)],
        };
        places.into_iter().flatten()
    }

    /// Appends the entries, with so many values: the words of the key, hits, values, the task's name.
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

/// Appends an entry, if it has hits.
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

fn zeros<T: Default>(length: usize) -> Result<Box<[T]>, OutOfMemory> {
    fallible::boxed_slice((0..length).map(|_| T::default()))
}
