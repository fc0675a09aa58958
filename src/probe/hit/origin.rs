//! From an address in a slot or a stub back to the instruction that it stands for.
//!
//! A boosted or optimized instruction runs after its hit, and may fault or be interrupted there. Only its slot or stub then tells
//! where it belongs: a slot ends in a branch to the next instruction; a stub holds its distance from the instruction. The slot of
//! a stepped instruction holds neither, so the points are searched for the one that has the slot.

use alloc::boxed::Box;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::stub::{DISTANCE, Form, STUB};
use super::{snippet_cell, table};
use crate::insn::{self, MAX_WORDS, encode};
use crate::text;

/// A piece of executable memory that holds slots, or stubs. Pieces are never freed.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Virtual addresses.
    range: Range<usize>,
    kind: Cell,
    /// The piece that was there before.
    next: *const Piece,
}

/// Bytes that it takes to know a piece.
pub(crate) const PIECE: usize = size_of::<Piece>();

/// What a piece is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cell {
    /// The instruction, and what leads on.
    Slot,
    /// What `probe::stub_builder` builds.
    Stub,
    /// A snippet, and a stub at the end.
    Snippet,
    /// The same, for a long one.
    LongSnippet,
    /// The code of a return.
    Return,
    /// The same, of a long one.
    LongReturn,
}

impl Cell {
    /// All, in their order.
    pub(crate) const KINDS: [Self; 6] =
        [Self::Slot, Self::Stub, Self::Snippet, Self::LongSnippet, Self::Return, Self::LongReturn];

    /// Bytes; cells lie at multiples of it from where their piece begins.
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

/// The newest piece.
static PIECES: AtomicPtr<Piece> = AtomicPtr::new(ptr::null_mut());

/// What cells of this kind will be known by, if there is memory for it.
pub(crate) fn prepare(kind: Cell) -> Option<Box<Piece>> {
    fallible::boxed(Piece { range: 0..0, kind, next: ptr::null_mut() }).ok()
}

/// Makes the cells at these virtual addresses known, by what was prepared for them. Called with the registry's lock held, so by
/// one task at a time.
#[inline]
pub(crate) fn add(mut piece: Box<Piece>, range: Range<usize>) {
    (piece.range, piece.next) = (range, PIECES.load(Ordering::Relaxed));
    PIECES.store(Box::into_raw(piece), Ordering::Release);
}

/// Where `pc` is in a cell, and the instruction that this stands for. Addresses are virtual.
pub(super) struct Origin {
    pub(super) instruction: usize,
    /// The stub that it is in, and the form of that.
    pub(super) stub: Option<(usize, Form)>,
    /// Where the copy of the instruction begins.
    copy: usize,
    /// It is the copy of a snippet.
    is_snippet: bool,
}

impl Origin {
    /// Where the probed code is at `pc`: at the instruction, or where its copy already leads to.
    #[inline(always)]
    pub(super) fn address(&self, pc: usize) -> usize {
        if !self.is_in_copy(pc) {
            return self.instruction;
        }
        match text::read(pc & !3) {
            // It has been executed.
            insn::BRK_STEP => self.instruction.wrapping_add(4),
            word => insn::origin(pc as u64, word, self.instruction as u64) as usize,
        }
    }

    /// Where the snippet that `pc` is in leaves all to the handler, if it is in one.
    #[inline(always)]
    pub(super) fn exit(&self, pc: usize) -> Option<usize> {
        (self.is_snippet && pc < self.copy).then(|| snippet_cell::exit(self.copy))
    }

    /// Whether a word of the copy has been executed, at `pc`.
    #[inline(always)]
    pub(super) fn has_begun(&self, pc: usize) -> bool {
        pc > self.copy && self.is_in_copy(pc)
    }

    #[inline(always)]
    fn is_in_copy(&self, pc: usize) -> bool {
        (self.copy..self.copy + 4 * MAX_WORDS).contains(&pc)
    }
}

/// The kind of the cell that `pc` is in, and its virtual addresses. A piece may end in less than a cell.
#[inline(always)]
fn cell(pc: usize) -> Option<(Cell, Range<usize>)> {
    let mut piece = PIECES.load(Ordering::Acquire).cast_const();
    // SAFETY: null, or a piece, which is never freed.
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

/// What `pc` is in, if it is in a slot or in a stub. What nothing stands in yet has no origin. To be called with interrupts masked.
#[inline(always)]
pub(super) fn find(pc: usize) -> Option<Origin> {
    let (kind, cell) = cell(pc)?;
    match kind {
        Cell::Slot => {
            let instruction = match text::read(cell.start + 4) {
                // SAFETY: by the caller, interrupts are masked.
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

/// Where the code of a return that `pc` is in leaves all to the handler, if it is in one.
#[inline(always)]
pub(super) fn exit_of_return(pc: usize) -> Option<usize> {
    let (Cell::Return | Cell::LongReturn, cell) = cell(pc)? else { return None };
    Some(cell.start + 4 * text::read(cell.end - 4) as usize)
}

/// The virtual address in the probed code that `pc` stands for, if it is in a slot or in a stub: that of the instruction, or where
/// its copy already leads to. To be called with interrupts masked.
pub(crate) fn of(pc: usize) -> Option<usize> {
    find(pc).map(|origin| origin.address(pc))
}
