//! Stubs: the targets of the branches that replace optimized instructions.
//!
//! A stub is entered and left with all registers as in the probed code. It makes room on the stack and masks
//! interrupts, calls the common routine of its form in `trampoline/hit.S`, undoes both, and goes on in the copy of the
//! instruction, which leads back to the probed code. No interrupt is taken during the call. So a stub is unused if no
//! interrupted task is in it and no CPU is handling a hit.

use super::arguments::CallArguments;
use super::cpu::Cpu;
use super::point::Point;
use super::returns::FOLLOW_SIZE;
use super::trampoline;
use crate::exception::frame::TrapFrame;
use crate::insn::MAX_WORDS;
use crate::insn::encode::{self, SP};

/// Size of a stub in bytes. Stubs lie at multiples of it.
pub(crate) const STUB: usize = 4 * WORDS;

/// Size of a stub in words.
pub(crate) const WORDS: usize = 16;

/// What a stub saves for the handler. It has four bytes, so that an [`Execution`](super::point::Execution) is copied in
/// words, without a call of `memcpy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Form {
    /// All registers, in a trap frame.
    Full,
    /// What a call passes, in [`CallArguments`].
    Lean,
    /// Nothing: the stub calls no handler, but follows the call to its return.
    Follow,
}

/// The layout of a stub, in words.
impl Form {
    /// Returns the index of the word to which the common routine returns.
    #[cfg(target_os = "none")]
    pub(crate) const fn way_out(self) -> usize {
        match self {
            Self::Full => 6,
            Self::Lean | Self::Follow => 4,
        }
    }

    /// Returns the form of the stub that begins with `word`; `None` if no stub begins so.
    #[inline(always)]
    pub(super) fn of(word: u32) -> Option<Self> {
        [Self::Full, Self::Lean, Self::Follow].into_iter().find(|form| form.opening() == word)
    }

    /// Returns the first word of a stub, which takes room on the stack and stores two registers there.
    pub(crate) const fn opening(self) -> u32 {
        let (first, second) = self.stored();
        encode::store_pair_before(first, second, SP, -(self.room() as i16))
    }

    /// Returns the registers that the first two doublewords of the stub's room on the stack hold until it is given
    /// back.
    pub(super) const fn stored(self) -> (u8, u8) {
        match self {
            Self::Full => (0, 1),
            Self::Lean => (29, 30),
            Self::Follow => (9, 30),
        }
    }

    /// Returns the size of the stub's room on the stack, in bytes.
    pub(super) const fn room(self) -> usize {
        match self {
            Self::Full => TrapFrame::SIZE,
            Self::Lean => CallArguments::SIZE,
            Self::Follow => FOLLOW_SIZE,
        }
    }

    /// Returns the index of the first word at which the room on the stack has been given back.
    pub(super) const fn balanced(self) -> usize {
        match self {
            Self::Full | Self::Follow => self.copy(),
            Self::Lean => 5,
        }
    }

    /// Returns the index of the copy of the instruction, which is followed by what it needs to lead back.
    pub(crate) const fn copy(self) -> usize {
        match self {
            Self::Full => 8,
            Self::Lean => 6,
            Self::Follow => 7,
        }
    }
}

/// The index of the word that holds the distance, in bytes, from the stub to the instruction.
pub(crate) const DISTANCE: usize = WORDS - 3;
/// The index of the two words that hold the address of the point's cell in the table.
pub(crate) const CELL: usize = WORDS - 2;
const _: () = assert!(Form::Full.copy() + MAX_WORDS <= DISTANCE);
const _: () = assert!(Form::Lean.copy() + MAX_WORDS <= DISTANCE && Form::Follow.copy() + MAX_WORDS <= DISTANCE);

/// Counts a hit as missed, because a handler is already running on this CPU.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".kprobes.text.missed")]
extern "C" fn kprobes_missed(point: &Point) {
    point.miss(Cpu::current());
}

/// Handles the breakpoint with which the common routine resumes at another address or stack pointer, as a handler has
/// asked: `frame` becomes the frame that the handler has left. Returns false if it is another breakpoint.
pub(crate) fn leave(frame: &mut TrapFrame) -> bool {
    if frame.pc != trampoline::leave_address() {
        return false;
    }
    // SAFETY: `frame.pc` shows that the common routine executed the breakpoint. It does so with the stack pointer at
    // its frame, which lies above `frame`.
    let wanted = unsafe { &*(frame.sp as *const TrapFrame) };
    // The other fields are the current ones of the routine, which are those of the probed code.
    const RESTORED: u64 = TrapFrame::FLAGS | TrapFrame::DAIF;
    let pstate = frame.pstate & !(RESTORED | TrapFrame::BRANCH_TYPE) | wanted.pstate & RESTORED;
    for (register, value) in frame.x.iter_mut().zip(&wanted.x) {
        // SAFETY: `register` is a reference, so it can be written to. The store is volatile so that the loop does not
        // become a call of memmove, which can be probed.
        unsafe { core::ptr::from_mut(register).write_volatile(*value) };
    }
    (frame.sp, frame.pc, frame.pstate) = (wanted.sp, wanted.pc, pstate);
    true
}
