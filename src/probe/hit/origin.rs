//! From an address in a slot back to the instruction that the slot holds a copy of.
//!
//! An instruction that is boosted runs when its hit is over, and may fault then, or be interrupted. Nobody but the slot
//! knows by then where it belongs: the branch behind it leads to the next instruction.

use alloc::boxed::Box;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::text;

/// A piece of executable memory that holds slots. Pieces are never freed.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Virtual addresses.
    pub(crate) range: Range<usize>,
    /// The piece that was there before.
    pub(crate) next: *const Piece,
}

/// The newest piece.
static PIECES: AtomicPtr<Piece> = AtomicPtr::new(ptr::null_mut());

/// Bytes of a slot: the instruction, and what leads on.
pub(crate) const SLOT: usize = 8;

/// Makes the slots at these virtual addresses known. Called with the registry's lock held, so by one task at a time.
#[inline]
pub(crate) fn add(range: Range<usize>) {
    let piece = Box::new(Piece { range, next: PIECES.load(Ordering::Relaxed) });
    PIECES.store(Box::into_raw(piece), Ordering::Release);
}

/// The virtual address that the code at the virtual address `pc` stands for, if it is in the slot of a boosted
/// instruction: that of the instruction, or of the next one if `pc` is behind its copy.
pub(crate) fn of(pc: usize) -> Option<usize> {
    let mut piece = PIECES.load(Ordering::Acquire).cast_const();
    // SAFETY: null, or a piece, which is never freed.
    while let Some(Piece { range, next }) = unsafe { piece.as_ref() } {
        if range.contains(&pc) {
            let behind = pc % SLOT;
            return branch_target(pc - behind + 4).map(|target| target + behind - 4);
        }
        piece = *next;
    }
    None
}

/// Where the branch at the virtual address `address`, in a piece, leads, if one is there (Arm ARM, C6.2, B).
fn branch_target(address: usize) -> Option<usize> {
    let word = text::read(address);
    let offset = (word << 6).cast_signed() >> 4;
    (word >> 26 == 0b000101).then(|| address.wrapping_add_signed(offset as isize))
}
