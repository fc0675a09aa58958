//! Maps an address in a slot or a stub back to the instruction that it stands for.
//!
//! A boosted or optimized instruction runs after its hit, and may fault or be interrupted there. Then only its slot or
//! stub tells which instruction it is: a slot ends in a branch to the next instruction, and a stub holds its distance
//! from the instruction. The slot of a stepped instruction holds neither, so the points are searched for the one that
//! has the slot.

use alloc::boxed::Box;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::stub::{DISTANCE, Form, STUB};
use super::{snippet_cell, table};
use crate::insn::{self, MAX_WORDS, encode};
use crate::text;

/// A piece of executable memory that is divided into cells of one kind. Pieces are never freed.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Virtual addresses.
    range: Range<usize>,
    kind: Cell,
    /// The piece that was added before this one.
    next: *const Piece,
}

/// Bytes of general memory for the description of a piece.
pub(crate) const PIECE: usize = size_of::<Piece>();

/// The kinds of cells that pieces are divided into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cell {
    /// A copy of an instruction, and a breakpoint or a branch after it.
    Slot,
    /// A stub, as `probe::stub_builder` builds it.
    Stub,
    /// A snippet, with a stub at the end.
    Snippet,
    /// A long snippet, with a stub at the end.
    LongSnippet,
    /// The code of a return.
    Return,
    /// The long code of a return.
    LongReturn,
}

impl Cell {
    /// All kinds, in the order of their discriminants.
    pub(crate) const KINDS: [Self; 6] =
        [Self::Slot, Self::Stub, Self::Snippet, Self::LongSnippet, Self::Return, Self::LongReturn];

    /// Returns the size of a cell in bytes. Cells lie at multiples of it from the beginning of their piece.
    #[inline]
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::Slot => 8,
            Self::Stub => STUB,
            Self::Snippet | Self::Return => snippet_cell::SHORT,
            Self::LongSnippet | Self::LongReturn => snippet_cell::LONG,
        }
    }
}

/// The piece that was added last.
static PIECES: AtomicPtr<Piece> = AtomicPtr::new(ptr::null_mut());

/// Allocates the description of a piece of this kind of cells; `None` if there is no memory.
pub(crate) fn prepare(kind: Cell) -> Option<Box<Piece>> {
    fallible::boxed(Piece { range: 0..0, kind, next: ptr::null_mut() }).ok()
}

/// Makes the cells at these virtual addresses known, with a description from [`prepare`]. Called with the registry's
/// lock held, so by one task at a time.
#[inline]
pub(crate) fn add(mut piece: Box<Piece>, range: Range<usize>) {
    (piece.range, piece.next) = (range, PIECES.load(Ordering::Relaxed));
    PIECES.store(Box::into_raw(piece), Ordering::Release);
}

/// The position of a pc in a cell, and the instruction that it stands for. Addresses are virtual.
pub(super) struct Origin {
    pub(super) instruction: usize,
    /// The stub that contains the pc, and the form of the stub.
    pub(super) stub: Option<(usize, Form)>,
    /// The address at which the copy of the instruction begins.
    copy: usize,
    /// Whether that is the copy in a snippet.
    is_snippet: bool,
}

impl Origin {
    /// Returns where the probed code is at `pc`: at the instruction, or, if the copy has only a branch left to do, at
    /// the target of that branch.
    #[inline(always)]
    pub(super) fn address(&self, pc: usize) -> usize {
        if !self.is_in_copy(pc) {
            return self.instruction;
        }
        match text::read(pc & !3) {
            // The instruction has been executed.
            insn::BRK_STEP => self.instruction.wrapping_add(4),
            word => insn::origin(pc as u64, word, self.instruction as u64) as usize,
        }
    }

    /// Returns the address at which the snippet that contains `pc` goes on at the handler; `None` if `pc` is not in a
    /// snippet.
    #[inline(always)]
    pub(super) fn exit(&self, pc: usize) -> Option<usize> {
        (self.is_snippet && pc < self.copy).then(|| snippet_cell::exit(self.copy))
    }

    /// Returns whether a word of the copy has been executed at `pc`.
    #[inline(always)]
    pub(super) fn has_begun(&self, pc: usize) -> bool {
        pc > self.copy && self.is_in_copy(pc)
    }

    /// Returns whether `pc` is in the copy of the instruction, and not in code of the engine around it.
    #[inline(always)]
    pub(super) fn is_in_copy(&self, pc: usize) -> bool {
        (self.copy..self.copy + 4 * MAX_WORDS).contains(&pc)
    }
}

/// Returns the kind of the cell that contains `pc`, and its virtual addresses. The end of a piece may be too small for
/// a cell.
#[inline(always)]
fn cell(pc: usize) -> Option<(Cell, Range<usize>)> {
    let mut piece = PIECES.load(Ordering::Acquire).cast_const();
    // SAFETY: the pointer is null or a piece, and pieces are never freed.
    while let Some(&Piece { ref range, kind, next }) = unsafe { piece.as_ref() } {
        if range.contains(&pc) {
            let size = kind.size();
            let cell = range.start + (pc - range.start) / size * size;
            return (cell + size <= range.end).then_some((kind, cell..cell + size));
        }
        piece = next;
    }
    None
}

/// Returns the origin of `pc`, if it is in a slot or in a stub; `None` if nothing has been written there yet. To be
/// called with interrupts masked.
#[inline(always)]
pub(super) fn find(pc: usize) -> Option<Origin> {
    let (kind, cell) = cell(pc)?;
    match kind {
        Cell::Slot => {
            let instruction = match text::read(cell.start + 4) {
                // SAFETY: `find` is only called with interrupts masked.
                insn::BRK_STEP => unsafe { table::stepped_in(cell.start) }?,
                word => encode::branch_target(word, cell.start as u64 + 4)?.wrapping_sub(4) as usize,
            };
            Some(Origin { instruction, stub: None, copy: cell.start, is_snippet: false })
        }
        Cell::Return | Cell::LongReturn => None,
        Cell::Stub | Cell::Snippet | Cell::LongSnippet => {
            let stub = cell.end - STUB;
            let distance = match text::read(stub + 4 * DISTANCE).cast_signed() {
                0 => return None,
                distance => distance as isize,
            };
            let instruction = stub.wrapping_add_signed(distance);
            if pc < stub {
                let copy = cell.start + 4 * text::read(stub - 4) as usize;
                return Some(Origin { instruction, stub: None, copy, is_snippet: true });
            }
            let form = Form::of(text::read(stub))?;
            let copy = stub + 4 * form.copy();
            Some(Origin { instruction, stub: Some((stub, form)), copy, is_snippet: false })
        }
    }
}

/// Returns the address at which the code of a return that contains `pc` goes on at the handler; `None` if `pc` is not
/// in such code.
#[inline(always)]
pub(super) fn exit_of_return(pc: usize) -> Option<usize> {
    let (Cell::Return | Cell::LongReturn, cell) = cell(pc)? else { return None };
    Some(cell.start + 4 * text::read(cell.end - 4) as usize)
}

/// Returns the virtual address in the probed code that `pc` stands for, if it is in a slot or in a stub: the
/// instruction, or, if its copy has only a branch left to do, the target of that branch. To be called with interrupts
/// masked.
pub(crate) fn of(pc: usize) -> Option<usize> {
    find(pc).map(|origin| origin.address(pc))
}
