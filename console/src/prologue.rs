//! Tells whether an interrupted function has a frame record, or whether its return address is still, or again, in x30.
//! A pure computation on the instructions.
//!
//! A function compiled with frame pointers begins with `stp x29, x30, [sp, …]` and `add x29, sp, #…`, and ends with
//! `ldp x29, x30, [sp, …]`. Before and after these, x29 is the caller's frame pointer, and the record there holds the
//! return address of the caller, not of this function. A walk along x29 alone skips the direct caller then. A probe at
//! the entry of a function always finds this state.

use aarch64_kprobes::insn::{BRK_KPROBE, Linkage};

/// Returns whether the return address is in x30 when instruction `at` of a function is about to be executed. The
/// function has `length` instructions, and `word` returns each by its index.
///
/// In a leaf function without a record, the return address is in x30 all the time. If the place cannot be decided, the
/// answer is no.
fn return_address_is_in_link(length: usize, at: usize, word: impl Fn(usize) -> u32) -> bool {
    if at >= length {
        return false;
    }
    let makes_record_or_calls = |at| matches!(Linkage::of(word(at)), Linkage::Frame | Linkage::Call);
    !(0..at).any(makes_record_or_calls) || is_exit(length, at, word)
}

/// Returns whether control flow from instruction `at` leaves the function without a load of x30 and without a branch
/// within the function.
fn is_exit(length: usize, at: usize, word: impl Fn(usize) -> u32) -> bool {
    for number in at..length {
        match Linkage::of(word(number)) {
            Linkage::Return => return true,
            Linkage::Jump(distance) => return number.wrapping_add_signed(distance as isize / 4) >= length,
            Linkage::Restore | Linkage::Call | Linkage::Elsewhere => return false,
            Linkage::Frame | Linkage::Next => {}
        }
    }
    false
}

/// The breakpoint of a probe. It hides an instruction, so it tells nothing about x30.
pub(crate) const BREAKPOINT: u32 = BRK_KPROBE;

/// Returns whether the instruction `word`, at the virtual address `at` in `function`, may end the range in which x30
/// alone holds the return address: it makes a frame record, or calls. The breakpoint or the branch of a probe, and
/// every branch out of the function, may stand for such an instruction.
#[inline(always)]
pub(crate) fn ends_link(word: u32, at: u64, function: core::ops::Range<u64>) -> bool {
    match Linkage::of(word) {
        Linkage::Frame | Linkage::Call => true,
        Linkage::Jump(distance) => {
            let target = at.wrapping_add_signed(distance);
            target < function.start || target >= function.end
        }
        _ => word == BREAKPOINT,
    }
}

/// Returns whether a function that is interrupted at the virtual address `pc` has its return address in x30 and not in
/// a frame record.
#[must_use]
pub fn is_caller_in_x30(pc: usize) -> bool {
    let Some(function) = crate::symbol::lookup(pc) else { return false };
    let (start, size) = (function.address as usize, function.size as usize);
    let word = |number| aarch64_kprobes::probe::instruction(start + 4 * number).unwrap_or(0);
    return_address_is_in_link(size / 4, (pc - start) / 4, word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STP: u32 = 0xa9be_7bfd; // stp x29, x30, [sp, #-32]!
    const SET: u32 = 0x9100_03fd; // mov x29, sp
    const LDP: u32 = 0xa8c2_7bfd; // ldp x29, x30, [sp], #32
    const RET: u32 = 0xd65f_03c0;
    const ADD: u32 = 0x9100_0400; // add x0, x0, #1
    const BL: u32 = 0x9400_0100;
    const CBZ: u32 = 0xb400_00a0; // cbz x0, +5 words
    const BRK: u32 = 0xd420_0080;
    const NOP: u32 = 0xd503_201f;

    fn answers(words: &[u32]) -> String {
        let is_in_link = |at| return_address_is_in_link(words.len(), at, |number| words[number]);
        (0..words.len()).map(|at| if is_in_link(at) { 'x' } else { '.' }).collect()
    }

    #[test]
    fn an_ordinary_function_has_its_record_between_prologue_and_epilogue() {
        assert_eq!(answers(&[STP, SET, ADD, BL, ADD, LDP, RET]), "xx....x");
        assert_eq!(answers(&[STP, SET, BL, LDP, NOP, RET]), "xx..xx");
        assert_eq!(answers(&[0xd10043ff, 0xa9017bfd, 0x910043fd, BL, 0xa9417bfd, 0x910043ff, RET]), "xxx..xx");
    }

    #[test]
    fn a_leaf_without_a_record_never_has_one() {
        assert_eq!(answers(&[ADD, CBZ, NOP, ADD, RET]), "xxxxx");
    }

    #[test]
    fn a_tail_call_leaves_and_a_loop_does_not() {
        assert_eq!(answers(&[STP, SET, BL, LDP, ADD, 0x1400_0100]), "xx..xx");
        assert_eq!(answers(&[STP, SET, BL, LDP, ADD, 0x17ff_ff00]), "xx..xx");
        assert_eq!(answers(&[STP, SET, ADD, 0x17ff_ffff, LDP, RET]), "xx...x");
    }

    #[test]
    fn an_early_return_before_the_prologue_is_seen() {
        assert_eq!(answers(&[CBZ, STP, SET, BL, LDP, RET, ADD, RET]), "xxx..xxx");
    }

    #[test]
    fn what_a_breakpoint_hides_is_not_guessed() {
        assert_eq!(answers(&[STP, SET, ADD, LDP, BRK]), "xx...");
        assert_eq!(answers(&[BRK, SET, ADD, LDP, RET]), "xx..x");
        assert_eq!(answers(&[STP, SET, ADD, BRK, RET]), "xx..x");
    }

    #[test]
    fn a_place_outside_the_function_has_no_answer() {
        assert!(!return_address_is_in_link(2, 3, |number| [ADD, RET][number]));
        assert!(!return_address_is_in_link(0, 0, |_| unreachable!()));
    }
}
