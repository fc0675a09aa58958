//! The executable memory in which instructions are executed out of line.
//!
//! A slot is two words: the instruction, followed by a `brk #0x6` or a branch to the next instruction. A stub belongs
//! to an optimized probe (`hit::stub`). Both are cells of a fixed size in executable memory, which the kernel maps one
//! piece at a time, and which is written only through aliases. A cell is written once, before any CPU can get to it,
//! and then never changes: a probe that is to be executed in another way gets another cell. A cell that is given back
//! is reused, so it must be given back only when no CPU and no interrupted task can be in it.

use alloc::vec::Vec;
use core::ops::Range;

pub(super) use super::hit::origin::Cell;
use super::hit::{origin, snippet_cell, stub};
use crate::embedding::{self, EmbeddingError};
use crate::kernel;
use crate::text::{self, CodeMemory, Words};

/// Bytes of executable memory that are requested from the kernel at a time.
const PIECE: usize = 4096;

/// The cells of one kind, in guarded memory or not.
#[derive(Debug)]
struct Cells {
    kind: Cell,
    /// Whether branch targets are checked in the memory. They are checked there if they are checked at the probed
    /// instruction, so that a landing pad makes the same check in its slot as in place.
    guarded: bool,
    free: Vec<usize>,
    /// The number of cells that are in use or free.
    total: usize,
    /// The rest of the last piece, whose cells are neither in use nor free.
    rest: Range<usize>,
    pieces: usize,
}

/// Executable memory for the next pieces.
#[derive(Debug)]
struct Supply {
    /// Memory that is not guarded, and memory that is.
    spares: [Spare; 2],
    /// Why memory of the kernel was refused.
    mistake: Option<EmbeddingError>,
}

/// Memory of the kernel in which there is no cell yet. Memory that is refused stays here, because it is never unmapped.
#[derive(Debug)]
struct Spare {
    /// The virtual address.
    memory: Option<usize>,
    /// Whether `memory` has passed the check of [`embedding`].
    is_checked: bool,
    /// Whether the kernel has ever returned such memory.
    was_given: bool,
}

/// All cells, and the words that have not been written to them yet.
#[derive(Debug)]
pub(super) struct Arena {
    cells: [Cells; 2 * Cell::KINDS.len()],
    supply: Supply,
    slots: Unwritten<2>,
    stubs: Unwritten<{ stub::WORDS }>,
    snippets: Unwritten<{ snippet_cell::SHORT / 4 }>,
    long_snippets: Unwritten<{ snippet_cell::LONG / 4 }>,
}

/// The words that have not been written yet to cells of `N` words.
#[derive(Debug)]
struct Unwritten<const N: usize> {
    /// Words for at most as many cells as lie in a page, which are written through one alias.
    words: Vec<Words<N>>,
}

/// A cell in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// The virtual address of the cell.
    address: usize,
    kind: Cell,
    guarded: bool,
    /// The number of bytes, from the beginning of the cell, in which interrupted tasks are looked for.
    length: usize,
    /// Whether a task was interrupted in these bytes when the tasks were last examined.
    pub(super) is_occupied: bool,
}

impl Used {
    pub(super) const fn new(address: usize, kind: Cell, guarded: bool) -> Self {
        Self { address, kind, guarded, length: kind.size(), is_occupied: false }
    }

    /// Returns the virtual address of the cell.
    pub(super) fn address(&self) -> usize {
        self.address
    }

    /// Returns the part of the cell in front of the stub, to be examined alone.
    pub(super) fn in_front(self) -> Self {
        let length = self.length.saturating_sub(Cell::Stub.size());
        Self { length, ..self }
    }

    /// Returns the virtual address of the stub in the cell, if there is a snippet in front of it.
    pub(super) fn snippet(&self) -> Option<usize> {
        let has_snippet = matches!(self.kind, Cell::Snippet | Cell::LongSnippet);
        has_snippet.then(|| self.address + self.kind.size() - Cell::Stub.size())
    }
}

impl CodeMemory for Used {
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
            supply: Supply::new(),
            slots: Unwritten::new(),
            stubs: Unwritten::new(),
            snippets: Unwritten::new(),
            long_snippets: Unwritten::new(),
        }
    }

    fn cells(&mut self, kind: Cell, guarded: bool) -> &mut Cells {
        &mut self.cells[2 * kind as usize + usize::from(guarded)]
    }

    /// Checks the memory for the next piece that is not guarded, if there is memory.
    ///
    /// # Errors
    ///
    /// The first mistake that it finds.
    #[cfg(target_os = "none")]
    pub(super) fn check_memory(&mut self) -> Result<(), EmbeddingError> {
        let _ = self.supply.checked(false);
        self.take_mistake().map_or(Ok(()), Err)
    }

    /// Returns why memory of the kernel was refused since the last call, if it was.
    pub(super) fn take_mistake(&mut self) -> Option<EmbeddingError> {
        self.supply.mistake.take()
    }

    /// Takes a free cell, and returns its virtual address; `None` if there is no memory, or if the kernel's memory is
    /// [refused](Self::take_mistake).
    #[inline]
    pub(super) fn allocate(&mut self, kind: Cell, guarded: bool) -> Option<usize> {
        match kind {
            Cell::Slot => self.slots.reserve()?,
            Cell::Stub => self.stubs.reserve()?,
            Cell::Snippet | Cell::Return => self.snippets.reserve()?,
            Cell::LongSnippet | Cell::LongReturn => self.long_snippets.reserve()?,
        }
        let supply = &mut self.supply;
        self.cells[2 * kind as usize + usize::from(guarded)].allocate(supply)
    }

    /// Fills the slot at the virtual address `address` with these words, at the next [`write`](Self::write).
    pub(super) fn fill_slot(&mut self, address: usize, words: [u32; 2]) {
        *self.slots.add(address) = words;
    }

    /// Fills the stub at the virtual address `address` with the words that `build` puts into the array, at the next
    /// [`write`](Self::write). If `build` fails, nothing is written.
    #[inline]
    pub(super) fn fill_stub<E>(
        &mut self,
        address: usize,
        build: impl FnOnce(&mut [u32; stub::WORDS]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.stubs.fill(address, build)
    }

    /// Fills a cell for a snippet, of this kind and at the virtual address `address`, with the words that `build` puts
    /// into the slice, at the next [`write`](Self::write). If `build` fails, nothing is written. The cell holds a
    /// snippet and the stub after it, or the code of a return.
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

    /// Writes the words of all cells that were filled, and frees the memory for them.
    pub(super) fn write(&mut self) {
        self.slots.write();
        self.stubs.write();
        self.snippets.write();
        self.long_snippets.write();
    }

    /// Takes back a cell. The caller knows that no CPU and no interrupted task can be in it.
    pub(super) fn free(&mut self, used: Used) {
        self.cells(used.kind, used.guarded).free.push(used.address);
    }

    /// Returns how many cells of a kind are in use, and the bytes of executable memory that all cells of the kind take.
    pub(super) fn usage(&self, kind: Cell) -> (usize, usize) {
        let cells = || self.cells.iter().filter(|cells| cells.kind == kind);
        let in_use = cells().map(|cells| cells.total - cells.free.len()).sum();
        (in_use, cells().map(|cells| cells.pieces * (PIECE / kind.size()) * kind.size()).sum())
    }

    /// Returns the bytes of general memory for the descriptions and free lists of cells.
    pub(super) fn memory(&self) -> usize {
        let of = |cells: &Cells| cells.free.capacity() * size_of::<usize>() + cells.pieces * origin::PIECE;
        self.cells.iter().map(of).sum()
    }
}

impl<const N: usize> Unwritten<N> {
    const fn new() -> Self {
        Self { words: Vec::new() }
    }

    /// Makes room for the words of one cell; `None` if there is no memory.
    fn reserve(&mut self) -> Option<()> {
        self.words.try_reserve(1).ok()
    }

    /// Returns the words for the cell at the virtual address `address`, to be filled in.
    #[inline]
    fn add(&mut self, address: usize) -> &mut [u32; N] {
        if self.words.len() == PIECE / (4 * N) {
            self.write_some();
        }
        &mut self.words.push_mut(Words { address, words: [0; N] }).words
    }

    #[inline]
    fn fill<T, E>(&mut self, address: usize, build: impl FnOnce(&mut [u32; N]) -> Result<T, E>) -> Result<T, E> {
        let result = build(self.add(address));
        if result.is_err() {
            self.words.pop();
        }
        result
    }

    /// Writes all words, and frees their memory.
    fn write(&mut self) {
        self.write_some();
        self.words = Vec::new();
    }

    fn write_some(&mut self) {
        text::write(&self.words);
        self.words.clear();
    }
}

impl Supply {
    const fn new() -> Self {
        let spares = [const { Spare { memory: None, is_checked: false, was_given: false } }; 2];
        Self { spares, mistake: None }
    }

    /// Takes the memory for a piece, and returns its virtual address; `None` if there is no memory, or if it is
    /// refused.
    fn take(&mut self, guarded: bool) -> Option<usize> {
        let memory = self.checked(guarded)?;
        let spare = &mut self.spares[usize::from(guarded)];
        (spare.memory, spare.is_checked) = (None, false);
        Some(memory)
    }

    /// Returns the virtual address of the memory for the next piece, which was checked; `None` if there is no memory,
    /// or if it is refused.
    fn checked(&mut self, guarded: bool) -> Option<usize> {
        let spare = &mut self.spares[usize::from(guarded)];
        if spare.memory.is_none() {
            // A piece at the end of the address space would have no address for its end.
            let memory = kernel::allocate_executable(PIECE, guarded);
            spare.memory = memory.filter(|memory| memory.checked_add(PIECE).is_some());
        }
        let Some(memory) = spare.memory else {
            // A kernel that has returned guarded memory before has none left.
            if guarded && !spare.was_given {
                self.mistake = Some(EmbeddingError::NoGuardedMemory);
            }
            return None;
        };
        spare.was_given = true;
        if !spare.is_checked {
            match embedding::check_executable(memory) {
                Ok(()) => spare.is_checked = true,
                Err(mistake) => {
                    self.mistake = Some(mistake);
                    return None;
                }
            }
        }
        Some(memory)
    }
}

impl Cells {
    /// Makes the empty lists of cells of each kind, in memory that is not guarded and in memory that is.
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
        Self { kind, guarded, free: Vec::new(), total: 0, rest: 0..0, pieces: 0 }
    }

    #[inline]
    fn allocate(&mut self, supply: &mut Supply) -> Option<usize> {
        if self.free.is_empty() {
            self.add(supply)?;
        }
        self.free.pop()
    }

    /// Adds cells to the free ones, from another piece of executable memory if there are none left in the last piece;
    /// `None` if there is no memory, or if it is refused.
    #[cold]
    fn add(&mut self, supply: &mut Supply) -> Option<()> {
        let size = self.kind.size();
        // Few at first, because the list takes memory.
        let most = self.total.max(4).min(PIECE / size);
        // Reserves room for all cells, so that giving back needs no memory.
        fallible::reserve(&mut self.free, self.total + most).ok()?;
        if self.rest.is_empty() {
            self.rest = self.piece(supply)?;
            self.pieces += 1;
        }
        let end = self.rest.end.min(self.rest.start + most * size);
        self.free.extend((self.rest.start..end).step_by(size).rev());
        self.total += (end - self.rest.start) / size;
        self.rest.start = end;
        Some(())
    }

    /// Returns the cells of another piece of executable memory; `None` if there is no memory, or if it is refused.
    fn piece(&self, supply: &mut Supply) -> Option<Range<usize>> {
        let known = origin::prepare(self.kind)?;
        let piece = supply.take(self.guarded)?;
        origin::add(known, piece..piece + PIECE);
        Some(piece..piece + PIECE / self.kind.size() * self.kind.size())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::probe::tests::computer::{Computer, EXHAUSTED, MISPLACED};

    /// Memory after the first may be unfit, too. It is kept, because the kernel would return other memory each time.
    #[test]
    fn memory_that_is_refused_is_kept_and_the_reason_is_told() {
        // The tests with a computer run one at a time.
        let _computer = Computer::new();
        let mut supply = Supply::new();
        let first = supply.take(false).unwrap();
        MISPLACED.store(true, Relaxed);
        let refused = [false, true].map(|guarded| (supply.take(guarded), supply.mistake.take()));
        MISPLACED.store(false, Relaxed);
        for (memory, mistake) in refused {
            assert_eq!(memory, None);
            assert!(matches!(mistake, Some(EmbeddingError::ExecutableMisaligned { address }) if address % PIECE == 8));
        }
        assert_eq!(supply.take(false), None);
        assert!(supply.mistake.take().is_some() && first.is_multiple_of(PIECE));
    }

    #[test]
    fn a_kernel_without_guarded_memory_is_told_from_one_that_has_none_left() {
        let _computer = Computer::new();
        let [mut never, mut before] = [Supply::new(), Supply::new()];
        before.take(true).unwrap();
        EXHAUSTED.store(true, Relaxed);
        let memory = [never.take(true), before.take(true), never.take(false)];
        EXHAUSTED.store(false, Relaxed);
        assert_eq!(memory, [None; 3]);
        assert_eq!((never.mistake, before.mistake), (Some(EmbeddingError::NoGuardedMemory), None));
    }
}
