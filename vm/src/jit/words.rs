//! The words of a handler that the compiler and the checks must agree on: those around a call, the call itself, and
//! the end of a search.

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute as a64;
use aarch64_kprobes::insn::{Op, Verdict, classify};

use super::{FRAME, HIT, ROW, TAKEN, THIRD, load};

/// The bytes of stack around a call: x29 and x30, which x29 points to, x0 and x1.
pub(super) const STACK: usize = 32;

/// The numbers of x29 and x30.
const RECORD: u8 = 29;
const LINK: u8 = 30;

/// Saves the registers that a call does not preserve.
pub(super) const ENTER: [u32; 3] = [
    encode::store_pair_before(RECORD, LINK, encode::SP, -(STACK as i16)),
    encode::add(RECORD, encode::SP, 0),
    encode::store_pair(HIT, ROW, encode::SP, 16),
];

/// Restores the registers that [`ENTER`] saved, and reloads the frame.
pub(super) const LEAVE: [u32; 3] = [
    encode::load_pair(HIT, ROW, encode::SP, 16),
    encode::load_pair_after(RECORD, LINK, encode::SP, STACK as i16),
    load(FRAME, ROW, 0),
];

/// The only allowed form of BLR.
pub(super) const CALL: u32 = a64::call_register(THIRD);

/// Returns whether the word is one of those around a call that use the stack.
pub(super) fn touches_stack(word: u32) -> bool {
    ENTER.contains(&word) || LEAVE.iter().take(2).any(|leave| *leave == word)
}

/// Returns the number of the word that lies `offset` bytes from word `at`.
pub(super) fn target(at: usize, offset: i32) -> Option<usize> {
    at.checked_add_signed(offset as isize / 4)
}

/// Returns the distance in bytes that the word branches if it ends a search: it is `cbnz` on the slots that are left.
pub(super) fn search_offset(word: u32) -> Option<i32> {
    match classify(word) {
        Verdict::Simulate(Op::CompareBranch { rt: TAKEN, wide: true, nonzero: true, offset }) => Some(offset),
        _ => None,
    }
}
