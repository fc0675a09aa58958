//! From an address in a slot or a stub back to the instruction that it stands for.
//!
//! An instruction that is boosted or optimized runs when its hit is over, and may fault then, or be interrupted. Nobody but
//! the slot, or the stub, knows by then where it belongs: in the one, the branch behind it leads to the next instruction;
//! in the other, the distance is written down. In the slot of an instruction that is stepped neither is: the points are searched
//! for the one that has the slot.

use alloc::boxed::Box;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::stub::{DISTANCE, STUB};
use super::table;
use crate::insn::{self, encode};
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
    /// What `probe::stub` builds.
    Stub,
}

impl Cell {
    /// Bytes; cells lie at multiples of it.
    #[inline]
    pub(crate) const fn size(self) -> usize {
        match self {
            Self::Slot => 8,
            Self::Stub => STUB,
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

/// A cell, and the instruction that it stands for. Addresses are virtual.
pub(super) struct Origin {
    pub(super) kind: Cell,
    pub(super) cell: usize,
    pub(super) instruction: usize,
}

impl Origin {
    /// Where the probed code is at `pc`, an address in the cell: at the instruction, or where its copy already leads to.
    pub(super) fn address(&self, pc: usize) -> usize {
        match text::read(pc & !3) {
            // It has been executed.
            insn::BRK_STEP => self.instruction.wrapping_add(4),
            word => insn::origin(pc as u64, word, self.instruction as u64) as usize,
        }
    }
}

/// What `pc` is in, if it is in a slot or in a stub. What nothing stands in yet has no origin. To be called with interrupts masked.
#[inline(always)]
pub(super) fn find(pc: usize) -> Option<Origin> {
    let mut piece = PIECES.load(Ordering::Acquire).cast_const();
    // SAFETY: null, or a piece, which is never freed.
    while let Some(&Piece { ref range, kind, next }) = unsafe { piece.as_ref() } {
        if range.contains(&pc) {
            let cell = pc & !(kind.size() - 1);
            let instruction = match kind {
                Cell::Slot => match text::read(cell + 4) {
                    // SAFETY: by the caller, interrupts are masked.
                    insn::BRK_STEP => unsafe { table::stepped_in(cell) }?,
                    word => encode::branch_target(word, cell as u64 + 4)?.wrapping_sub(4) as usize,
                },
                Cell::Stub => match text::read(cell + 4 * DISTANCE).cast_signed() {
                    0 => return None,
                    distance => cell.wrapping_add_signed(distance as isize),
                },
            };
            return Some(Origin { kind, cell, instruction });
        }
        piece = next;
    }
    None
}

/// The virtual address in the probed code that `pc` stands for, if it is in a slot or in a stub: that of the instruction, or where
/// its copy already leads to. To be called with interrupts masked.
pub(crate) fn of(pc: usize) -> Option<usize> {
    find(pc).map(|origin| origin.address(pc))
}
