//! Where instructions are executed out of line.
//!
//! A slot is two words: the instruction, and what leads on: `brk #0x6`, or a branch to the next instruction. A stub is what
//! an optimized probe takes (`hit::stub`). Both are carved, as cells of one size, out of executable memory that the kernel
//! maps a piece at a time, and that is written only through aliases. A cell is written once, before any CPU can come to it,
//! and never changed: a probe that is to be executed otherwise gets another. One that is given back is used again, so it
//! must be given back only when no CPU and no interrupted task can be in it.

use alloc::vec::Vec;
use core::ops::Range;

pub(super) use super::hit::origin::Cell;
use super::hit::{origin, snippet_cell, stub};
use crate::platform;
use crate::text::{self, Place, Words};

/// Bytes that the kernel is asked for at a time.
const PIECE: usize = 4096;

/// The cells of one kind, in memory of one kind.
#[derive(Debug)]
struct Cells {
    kind: Cell,
    /// Branch targets are checked in the memory: a landing pad then makes the same check in its slot as in its place.
    guarded: bool,
    free: Vec<usize>,
    total: usize,
}

/// All cells.
#[derive(Debug)]
pub(super) struct Arena {
    cells: [Cells; 2 * Cell::KINDS.len()],
    slots: Unwritten<2>,
    stubs: Unwritten<{ stub::WORDS }>,
    snippets: Unwritten<{ snippet_cell::SHORT / 4 }>,
    long_snippets: Unwritten<{ snippet_cell::LONG / 4 }>,
}

/// What is yet to be written to cells of `N` words.
#[derive(Debug)]
struct Unwritten<const N: usize> {
    /// For not more cells than lie in a page, which are written through one alias.
    words: Vec<Words<N>>,
}

/// A cell in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Used {
    /// The virtual address.
    address: usize,
    kind: Cell,
    guarded: bool,
    /// How many bytes of it are looked at.
    length: usize,
    /// A task was interrupted in these when the tasks were last looked over.
    pub(super) is_occupied: bool,
}

impl Used {
    pub(super) const fn new(address: usize, kind: Cell, guarded: bool) -> Self {
        Self { address, kind, guarded, length: kind.size(), is_occupied: false }
    }

    /// What is in front of the stub in it, to be looked at alone.
    pub(super) fn in_front(self) -> Self {
        let length = self.length.saturating_sub(Cell::Stub.size());
        Self { length, ..self }
    }

    /// The virtual address of the stub in it, if there is a snippet before that.
    pub(super) fn snippet(&self) -> Option<usize> {
        let has_snippet = matches!(self.kind, Cell::Snippet | Cell::LongSnippet);
        has_snippet.then(|| self.address + self.kind.size() - Cell::Stub.size())
    }
}

impl Place for Used {
    #[inline(always)]
    fn range(&self) -> Range<usize> {
        self.address..self.address + self.length
    }

    #[inline(always)]
    fn occupy(&mut self) {
        self.is_occupied = true;
    }
}

impl Arena {
    pub(super) const fn new() -> Self {
        Self {
            cells: Cells::of_all_kinds(),
            slots: Unwritten::new(),
            stubs: Unwritten::new(),
            snippets: Unwritten::new(),
            long_snippets: Unwritten::new(),
        }
    }

    fn cells(&mut self, kind: Cell, guarded: bool) -> &mut Cells {
        &mut self.cells[2 * kind as usize + usize::from(guarded)]
    }

    /// A free cell, if there is memory for one.
    pub(super) fn allocate(&mut self, kind: Cell, guarded: bool) -> Option<usize> {
        match kind {
            Cell::Slot => self.slots.reserve()?,
            Cell::Stub => self.stubs.reserve()?,
            Cell::Snippet | Cell::Return => self.snippets.reserve()?,
            Cell::LongSnippet | Cell::LongReturn => self.long_snippets.reserve()?,
        }
        self.cells(kind, guarded).allocate()
    }

    /// Has the slot at the virtual address `address` filled with these words in [`write`](Self::write).
    pub(super) fn fill_slot(&mut self, address: usize, words: [u32; 2]) {
        *self.slots.add(address) = words;
    }

    /// Has the stub at the virtual address `address` filled in [`write`](Self::write) with what `build` puts in these
    /// words; unless that fails.
    pub(super) fn fill_stub<E>(
        &mut self,
        address: usize,
        build: impl FnOnce(&mut [u32; stub::WORDS]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.stubs.fill(address, build)
    }

    /// The same for a snippet, with the stub behind it or as the code of a return, in a cell of this kind.
    pub(super) fn fill_snippet<T, E>(
        &mut self,
        kind: Cell,
        address: usize,
        build: impl FnOnce(&mut [u32]) -> Result<T, E>,
    ) -> Result<T, E> {
        match kind {
            Cell::Snippet | Cell::Return => self.snippets.fill(address, |words| build(words)),
            _ => self.long_snippets.fill(address, |words| build(words)),
        }
    }

    /// Writes what cells are to be filled with, and keeps no memory for it.
    pub(super) fn write(&mut self) {
        self.slots.write();
        self.stubs.write();
        self.snippets.write();
        self.long_snippets.write();
    }

    /// Takes back a cell. No CPU and no interrupted task can be in it.
    pub(super) fn free(&mut self, used: Used) {
        self.cells(used.kind, used.guarded).free.push(used.address);
    }

    /// How many cells of a kind are in use, and how many bytes of executable memory all of the kind take.
    pub(super) fn usage(&self, kind: Cell) -> (usize, usize) {
        let cells = || self.cells.iter().filter(|cells| cells.kind == kind);
        let in_use = cells().map(|cells| cells.total - cells.free.len()).sum();
        (in_use, cells().map(|cells| cells.total * kind.size()).sum())
    }

    /// Bytes of general memory that it takes to know the cells.
    pub(super) fn memory(&self) -> usize {
        let of = |cells: &Cells| {
            let pieces = cells.total * cells.kind.size() / PIECE;
            cells.free.capacity() * size_of::<usize>() + pieces * origin::PIECE
        };
        self.cells.iter().map(of).sum()
    }
}

impl<const N: usize> Unwritten<N> {
    const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Room for the words of one cell, if there is memory for it.
    fn reserve(&mut self) -> Option<()> {
        self.words.try_reserve(1).ok()
    }

    /// The words for the cell at the virtual address `address`, to be filled in.
    fn add(&mut self, address: usize) -> &mut [u32; N] {
        if self.words.len() == PIECE / (4 * N) {
            self.write_some();
        }
        &mut self.words.push_mut(Words { address, words: [0; N] }).words
    }

    fn fill<T, E>(&mut self, address: usize, build: impl FnOnce(&mut [u32; N]) -> Result<T, E>) -> Result<T, E> {
        let result = build(self.add(address));
        if result.is_err() {
            self.words.pop();
        }
        result
    }

    /// Writes them, and keeps no memory.
    fn write(&mut self) {
        self.write_some();
        self.words = Vec::new();
    }

    fn write_some(&mut self) {
        text::write(&self.words);
        self.words.clear();
    }
}

impl Cells {
    /// Those of each kind, in memory where branch targets are not checked, and where they are.
    const fn of_all_kinds() -> [Self; 2 * Cell::KINDS.len()] {
        let mut cells = [const { Self::new(Cell::Slot, false) }; 2 * Cell::KINDS.len()];
        let mut index = 0;
        while index < cells.len() {
            cells[index].kind = Cell::KINDS[index / 2];
            cells[index].guarded = index % 2 == 1;
            index += 1;
        }
        cells
    }

    const fn new(kind: Cell, guarded: bool) -> Self {
        Self { kind, guarded, free: Vec::new(), total: 0 }
    }

    fn allocate(&mut self) -> Option<usize> {
        if self.free.is_empty() {
            let size = self.kind.size();
            // Room for all that there are, so that giving back needs no memory.
            self.free.try_reserve(self.total + PIECE / size).ok()?;
            let known = origin::prepare(self.kind)?;
            let piece = platform::allocate_executable(PIECE, self.guarded)?;
            origin::add(known, piece..piece + PIECE);
            self.free.extend((0..PIECE / size).rev().map(|cell| piece + cell * size));
            self.total += PIECE / size;
        }
        self.free.pop()
    }
}
