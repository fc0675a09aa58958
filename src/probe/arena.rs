//! Where instructions are executed out of line.
//!
//! A slot is two words: the instruction, and what leads on: `brk #0x6`, or a branch to the next instruction. A stub is what
//! an optimized probe takes (`hit::stub`). Both are carved, as cells of one size, out of executable memory that the kernel
//! maps a piece at a time, and that is written only through aliases. A cell is written once, before any CPU can come to it,
//! and never changed: a probe that is to be executed otherwise gets another. One that is given back is used again, so it
//! must be given back only when nobody can be in it.

use alloc::vec::Vec;
use core::mem;

pub(super) use super::hit::origin::Cell;
use super::hit::{origin, stub};
use crate::platform;
use crate::text::{self, Words};

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
    cells: [Cells; 4],
    slots: Unwritten<2>,
    stubs: Unwritten<{ stub::WORDS }>,
    /// Something could not be written since [`write`](Self::write) was called.
    has_failed: bool,
}

/// What is yet to be written to cells of `N` words.
#[derive(Debug)]
struct Unwritten<const N: usize>(Vec<Words<N>>);

/// A cell in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Used {
    /// The virtual address.
    pub(super) address: usize,
    pub(super) kind: Cell,
    pub(super) guarded: bool,
}

impl Arena {
    pub(super) const fn new() -> Self {
        let cells = [
            Cells::new(Cell::Slot, false),
            Cells::new(Cell::Slot, true),
            Cells::new(Cell::Stub, false),
            Cells::new(Cell::Stub, true),
        ];
        Self { cells, slots: Unwritten(Vec::new()), stubs: Unwritten(Vec::new()), has_failed: false }
    }

    fn cells(&mut self, kind: Cell, guarded: bool) -> &mut Cells {
        &mut self.cells[2 * usize::from(kind == Cell::Stub) + usize::from(guarded)]
    }

    /// A cell that nobody uses, if there is memory for one.
    pub(super) fn allocate(&mut self, kind: Cell, guarded: bool) -> Option<usize> {
        match kind {
            Cell::Slot => self.slots.reserve()?,
            Cell::Stub => self.stubs.reserve()?,
        }
        self.cells(kind, guarded).allocate()
    }

    /// Fills the slot at the virtual address `address`: at the latest in [`write`](Self::write).
    pub(super) fn fill_slot(&mut self, address: usize, words: [u32; 2]) {
        self.has_failed |= !self.slots.push(Words { address, words });
    }

    /// Fills the stub at the virtual address `address`: at the latest in [`write`](Self::write).
    pub(super) fn fill_stub(&mut self, address: usize, words: [u32; stub::WORDS]) {
        self.has_failed |= !self.stubs.push(Words { address, words });
    }

    /// Writes what is still to be written. Returns whether all could be written that cells were filled with since the last
    /// call.
    pub(super) fn write(&mut self) -> bool {
        let written = self.slots.write() & self.stubs.write();
        !mem::take(&mut self.has_failed) && written
    }

    /// Takes back a cell that nobody can be in.
    pub(super) fn free(&mut self, used: Used) {
        self.cells(used.kind, used.guarded).free.push(used.address);
    }

    /// How many cells of a kind are in use, and how many bytes of executable memory all of the kind take.
    pub(super) fn usage(&self, kind: Cell) -> (usize, usize) {
        let cells = || self.cells.iter().filter(|cells| cells.kind == kind);
        let in_use = cells().map(|cells| cells.total - cells.free.len()).sum();
        (in_use, cells().map(|cells| cells.total * kind.size()).sum())
    }
}

impl<const N: usize> Unwritten<N> {
    /// As many cells as lie in a page are written through one alias.
    const AT_ONCE: usize = PIECE / (4 * N);

    /// Room for the words of one cell, if there is memory for it.
    fn reserve(&mut self) -> Option<()> {
        self.0.try_reserve(1).ok()
    }

    /// Returns false if there was enough to write, and no memory for an alias.
    fn push(&mut self, words: Words<N>) -> bool {
        self.0.push(words);
        self.0.len() < Self::AT_ONCE || self.write()
    }

    fn write(&mut self) -> bool {
        let is_written = text::write(&self.0) == self.0.len();
        self.0.clear();
        is_written
    }
}

impl Cells {
    const fn new(kind: Cell, guarded: bool) -> Self {
        Self { kind, guarded, free: Vec::new(), total: 0 }
    }

    fn allocate(&mut self) -> Option<usize> {
        if self.free.is_empty() {
            let size = self.kind.size();
            // Room for all that there are, so that giving back needs no memory.
            self.free.try_reserve(self.total + PIECE / size).ok()?;
            let piece = platform::allocate_executable(PIECE, self.guarded)?;
            origin::add(piece..piece + PIECE, self.kind);
            self.free.extend((piece..piece + PIECE).step_by(size).rev());
            self.total += PIECE / size;
        }
        self.free.pop()
    }
}
