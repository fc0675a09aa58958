//! Where instructions are executed out of line.
//!
//! A slot is two words: the instruction, and what leads on: `brk #0x6`, or a branch to the next instruction. A stub is what
//! an optimized probe takes (`hit::stub`). Both are carved, as cells of one size, out of executable memory that the kernel
//! maps a piece at a time, and that is written only through aliases. A cell is written once, before any CPU can come to it,
//! and never changed: a probe that is to be executed otherwise gets another. One that is given back is used again, so it
//! must be given back only when nobody can be in it.

use alloc::vec::Vec;

use super::hit::origin;
pub(super) use super::hit::origin::Cell;
use crate::platform;
use crate::text::Word;

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
    /// What is to be written to cells that have been allocated since [`take_words`](Self::take_words).
    words: Vec<Word>,
}

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
        Self { cells, words: Vec::new() }
    }

    fn cells(&mut self, kind: Cell, guarded: bool) -> &mut Cells {
        &mut self.cells[2 * usize::from(kind == Cell::Stub) + usize::from(guarded)]
    }

    /// A cell that nobody uses, if there is memory for one.
    pub(super) fn allocate(&mut self, kind: Cell, guarded: bool) -> Option<usize> {
        self.words.try_reserve(kind.size() / 4).ok()?;
        self.cells(kind, guarded).allocate()
    }

    /// Has the cell at `cell` filled with these words, before any CPU comes to it.
    pub(super) fn fill(&mut self, cell: usize, words: &[u32]) {
        let words = words.iter().zip((cell..).step_by(4));
        self.words.extend(words.map(|(&word, address)| Word { address, word }));
    }

    /// What is to be written to the cells.
    pub(super) fn take_words(&mut self) -> Vec<Word> {
        core::mem::take(&mut self.words)
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
