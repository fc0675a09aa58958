//! Tells whether an interrupted function has a frame record, or whether its return address is still, or again, in x30.
//! A pure computation on the instructions.
//!
//! A function compiled with frame pointers begins with `stp x29, x30, [sp, …]` and `add x29, sp, #…`, and ends with
//! `ldp x29, x30, [sp, …]`. Before and after these, x29 is the caller's frame pointer, and the record there holds the
//! return address of the caller, not of this function. A walk along x29 alone skips the direct caller then. A probe at
//! the entry of a function always finds this state.

/// Returns whether the return address is in x30 when instruction `at` of a function is about to be executed. The
/// function has `length` instructions, and `word` returns each by its index.
///
/// In a leaf function without a record, the return address is in x30 all the time. In cases that cannot be decided, the
/// answer is no.
fn return_address_is_in_link(length: usize, at: usize, word: impl Fn(usize) -> u32) -> bool {
    if at >= length {
        return false;
    }
    let leaves_link_alone = !(0..at).map(&word).any(|word| sets_frame_pointer(word) || is_call(word));
    leaves_link_alone || is_exit(length, at, word)
}

/// Returns whether control flow from instruction `at` leaves the function without a load of x30 and without a branch
/// within the function.
fn is_exit(length: usize, at: usize, word: impl Fn(usize) -> u32) -> bool {
    for number in at..length {
        let word = word(number);
        if is_return(word) {
            return true;
        }
        if let Some(offset) = branch_offset(word) {
            return number.wrapping_add_signed(offset) >= length;
        }
        if restores_link(word) || ends_straight_line(word) {
            return false;
        }
    }
    false
}

/// Returns whether the instruction is ADD x29, SP, #imm, including MOV x29, SP (Arm ARM, C6.2.5).
#[inline(always)]
fn sets_frame_pointer(word: u32) -> bool {
    word & 0xff80_03ff == 0x9100_03fd
}

/// Returns whether the instruction is LDP x29, x30, [SP …], in any of its three addressing modes (Arm ARM, C6.2.164).
#[inline(always)]
pub(crate) fn restores_link(word: u32) -> bool {
    word & 0xfe40_7fff == 0xa840_7bfd
}

/// Returns whether the instruction is RET x30, RETAA or RETAB (Arm ARM, C6.2.254).
#[inline(always)]
pub(crate) fn is_return(word: u32) -> bool {
    matches!(word, 0xd65f_03c0 | 0xd65f_0bff | 0xd65f_0fff)
}

/// Returns whether the instruction is BL or BLR, which write x30.
#[inline(always)]
fn is_call(word: u32) -> bool {
    word & 0xfc00_0000 == 0x9400_0000 || word & 0xffff_fc1f == 0xd63f_0000
}

/// Returns the offset of a B instruction, in words; `None` for other instructions.
#[inline(always)]
fn branch_offset(word: u32) -> Option<isize> {
    (word & 0xfc00_0000 == 0x1400_0000).then_some(((word << 6) as i32 >> 6) as isize)
}

/// Returns whether the instruction is another branch or generates an exception (Arm ARM, C4.1.93: bits 28 to 26 are
/// 101). A breakpoint is one of these: the instruction that it replaces is unknown.
#[inline(always)]
pub(crate) fn ends_straight_line(word: u32) -> bool {
    let is_system = word & 0xffc0_0000 == 0xd500_0000;
    word & 0x1c00_0000 == 0x1400_0000 && !is_system
}

/// A word that tells nothing: the breakpoint of a probe.
pub(crate) const BREAKPOINT: u32 = 0xd420_0080;

/// Returns whether the instruction `word`, at the virtual address `at` in `function`, may end the time in which x30
/// alone holds the return address: it makes a frame record, or calls. The breakpoint or the branch of a probe, and
/// every branch out of the function, may stand for such an instruction.
#[inline(always)]
pub(crate) fn ends_link(word: u32, at: u64, function: core::ops::Range<u64>) -> bool {
    let leaves = match branch_offset(word) {
        Some(offset) => {
            let target = at.wrapping_add_signed(4 * offset as i64);
            target < function.start || target >= function.end
        }
        None => false,
    };
    word == BREAKPOINT || leaves || sets_frame_pointer(word) || is_call(word)
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
