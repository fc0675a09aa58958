//! Stubs: where the branch leads that stands in the place of an optimized instruction.
//!
//! A stub is entered and left with all registers those of the probed code. It makes room for a frame on the stack and masks
//! interrupts, calls the common routine of its form in `trampoline/hit.S`, undoes both, and goes on in the copy of the instruction,
//! which leads back to the probed code. During the call no interrupt is taken. So a stub that no interrupted task is in, while no
//! CPU is in a hit, is unused.

use super::cpu::Cpu;
use super::entry::Entry;
use super::point::Point;
use super::returns::FOLLOW_SIZE;
use super::trampoline;
use crate::exception::TrapFrame;
use crate::insn::MAX_WORDS;
use crate::insn::encode::{self, SP};

/// Bytes of a stub; stubs lie at multiples of it.
pub(crate) const STUB: usize = 4 * WORDS;

/// In words.
pub(crate) const WORDS: usize = 16;

/// What a stub saves for the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// All registers, in a trap frame.
    Full,
    /// What a call passes, in an [`Entry`](super::entry::Entry).
    Lean,
    /// Nothing: it calls no handler, but follows the call to its return.
    Follow,
}

/// What lies where in a stub, in words.
impl Form {
    /// The end of the way in: where the common routine returns to.
    #[cfg(target_os = "none")]
    pub(crate) const fn way_out(self) -> usize {
        match self {
            Self::Full => 6,
            Self::Lean | Self::Follow => 4,
        }
    }

    /// The form of the stub that begins with `word`.
    #[inline(always)]
    pub(super) fn of(word: u32) -> Option<Self> {
        [Self::Full, Self::Lean, Self::Follow].into_iter().find(|form| form.opening() == word)
    }

    /// The word that takes room on the stack, and stores the first registers there: the first of a stub.
    pub(crate) const fn opening(self) -> u32 {
        let (first, second) = self.stored();
        encode::store_pair_before(first, second, SP, -(self.room() as i16))
    }

    /// The registers that are in the first two words of that room, until it is given back.
    pub(super) const fn stored(self) -> (u8, u8) {
        match self {
            Self::Full => (0, 1),
            Self::Lean => (29, 30),
            Self::Follow => (9, 30),
        }
    }

    /// Bytes of that room.
    pub(super) const fn room(self) -> usize {
        match self {
            Self::Full => TrapFrame::SIZE,
            Self::Lean => Entry::SIZE,
            Self::Follow => FOLLOW_SIZE,
        }
    }

    /// The first word with which the room has been given back.
    pub(super) const fn balanced(self) -> usize {
        match self {
            Self::Full | Self::Follow => self.copy(),
            Self::Lean => 5,
        }
    }

    /// The copy of the instruction, with what it needs to lead back.
    pub(crate) const fn copy(self) -> usize {
        match self {
            Self::Full => 8,
            Self::Lean => 6,
            Self::Follow => 7,
        }
    }
}

/// The distance, in bytes, from the stub to the instruction.
pub(crate) const DISTANCE: usize = WORDS - 3;
/// The address of the cell that has the point.
pub(crate) const CELL: usize = WORDS - 2;
const _: () = assert!(Form::Full.copy() + MAX_WORDS <= DISTANCE);
const _: () = assert!(Form::Lean.copy() + MAX_WORDS <= DISTANCE && Form::Follow.copy() + MAX_WORDS <= DISTANCE);

/// Counts a miss: a handler is running on this CPU already.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.missed")]
extern "C" fn kprobes_missed(point: &Point) {
    point.miss(Cpu::current());
}

/// A breakpoint at `frame.pc` with which the common routine leaves for where a handler has sent it: `frame` becomes what the
/// handler has left. Returns false if it is another breakpoint.
pub(crate) fn leave(frame: &mut TrapFrame) -> bool {
    if frame.pc != trampoline::leave_address() {
        return false;
    }
    // SAFETY: the common routine executes this breakpoint with the stack pointer at its frame, which lies above `frame`.
    let wanted = unsafe { &*(frame.sp as *const TrapFrame) };
    // The rest of the state is the routine's, which is that of the probed code.
    const RESTORED: u64 = TrapFrame::FLAGS | TrapFrame::DAIF;
    let pstate = frame.pstate & !(RESTORED | TrapFrame::BRANCH_TYPE) | wanted.pstate & RESTORED;
    for (register, value) in frame.x.iter_mut().zip(&wanted.x) {
        // SAFETY: a reference is valid. The store is volatile so that the loop does not become a call of memmove, which can be
        // probed.
        unsafe { core::ptr::from_mut(register).write_volatile(*value) };
    }
    (frame.sp, frame.pc, frame.pstate) = (wanted.sp, wanted.pc, pstate);
    true
}
