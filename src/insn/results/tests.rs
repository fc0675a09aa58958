//! What callers read after calls of functions that compilers, the outliner and people make.

use std::vec::Vec;

use super::*;
use crate::insn::Registers;

const START: u64 = 0x1_0000;
const RET: u32 = 0xd65f_03c0;
const NOP: u32 = 0xd503_201f;
const SET_X9: u32 = 0xd280_0029; // mov x9, #1
const READ_X9: u32 = 0xaa09_03e0; // mov x0, x9
const COMPARE: u32 = 0xf100_041f; // cmp x0, #1
const READ_FLAGS: u32 = 0x9a9f_17e0; // cset x0, eq

fn at(word: usize) -> u64 {
    START + 4 * word as u64
}

fn call(from: usize, to: usize) -> u32 {
    0x9400_0000 | (to.wrapping_sub(from) as u32 & 0x03ff_ffff)
}

fn branch(from: usize, to: usize) -> u32 {
    0x1400_0000 | (to.wrapping_sub(from) as u32 & 0x03ff_ffff)
}

/// Returns what is recorded about the functions that begin at these words.
fn results(words: &[u32], starts: &[usize]) -> Vec<Option<Live>> {
    let read = |at: u64| words.get(usize::try_from(at.checked_sub(START)? / 4).ok()?).copied();
    let bounds = |address: u64| {
        let word = ((address - START) / 4) as usize;
        let end = starts.iter().copied().find(|&start| start > word).unwrap_or(words.len());
        Some(at(*starts.iter().rfind(|&&start| start <= word)?)..at(end))
    };
    let text = START..at(words.len());
    let kept = ScratchPreservers::in_text(text.clone(), &read, &bounds).unwrap();
    let found = ScratchResults::in_text(text, &kept, &read, &bounds).unwrap();
    starts.iter().map(|&start| found.by(at(start))).collect()
}

fn read(register: Registers, word: usize) -> Option<Live> {
    Some(Live::Read { register, reader: at(word) })
}

#[test]
fn what_a_caller_reads_after_a_call_is_a_result() {
    for (set, get, register) in [(SET_X9, READ_X9, Registers::x(9)), (COMPARE, READ_FLAGS, Registers::FLAGS)] {
        // A caller reads a result of the second function after a branch.
        let words = [call(0, 4), NOP, get, RET, set, RET, call(6, 9), SET_X9, RET, SET_X9, RET];
        let found = results(&words, &[0, 4, 6, 9]);
        assert_eq!(found, [None, read(register, 2), None, None]);
    }
}

#[test]
fn bounds_that_are_wrong_are_not_followed() {
    let words = [call(0, 4), NOP, READ_X9, RET, call(4, 6), RET, SET_X9, RET];
    let text = START..at(words.len());
    let read = |address: u64| {
        assert!(address.is_multiple_of(4), "{address:#x}");
        words.get(usize::try_from(address.checked_sub(START)? / 4).ok()?).copied()
    };
    for wrong in [START - 4..at(4), START + 2..at(4), at(4)..at(8) + 2, at(4)..u64::MAX - 3, at(2)..at(3)] {
        let bounds = |_| Some(wrong.clone());
        let kept = ScratchPreservers::in_text(text.clone(), &read, &bounds).unwrap();
        let found = ScratchResults::in_text(text.clone(), &kept, &read, &bounds).unwrap();
        assert_eq!([4, 6].map(|word| found.by(at(word)).is_some()), [true, false], "{wrong:#x?}");
    }
}

#[test]
fn an_ordinary_function_has_none() {
    // The caller writes both registers before it reads them.
    let words = [call(0, 7), SET_X9, READ_X9, COMPARE, READ_FLAGS, RET, NOP, SET_X9, COMPARE, RET];
    assert_eq!(results(&words, &[0, 7]), [None, None]);
}

#[test]
fn what_a_function_ends_in_has_its_results() {
    // 0 calls 4, which ends in 6, which calls 9 and returns with the value that 9 left. The value that 11 leaves is not
    // read.
    let words =
        [call(0, 4), READ_X9, call(2, 11), RET, NOP, branch(5, 6), call(6, 9), NOP, RET, SET_X9, RET, SET_X9, RET];
    let nine = read(Registers::x(9), 1);
    assert_eq!(results(&words, &[0, 4, 6, 9, 11]), [None, nine, nine, nine, None]);
}

#[test]
fn a_caller_that_goes_on_by_a_register_cannot_be_judged() {
    const BRANCH_X0: u32 = 0xd61f_0000; // br x0
    // An instruction after the indirect branch may read what the second function leaves.
    let words = [call(0, 4), BRANCH_X0, READ_X9, RET, SET_X9, RET];
    let found = results(&words, &[0, 4]);
    assert_eq!(found, [None, Some(Live::Lost { register: Registers::x(9), end: at(1) })]);
}

#[test]
fn what_cannot_be_told_is_said_of_the_function_alone() {
    // Too many paths follow the call of the second function, which ends in the third.
    const BRANCHES: usize = 300;
    let compare_branch = |from: usize, to: usize| 0xb400_0000 | (to.wrapping_sub(from) as u32 & 0x7_ffff) << 5;
    let second = 2 * BRANCHES + 2;
    let mut words = vec![call(0, second)];
    words.extend((1..=BRANCHES).map(|word| compare_branch(word, word + BRANCHES)));
    words.resize(second - 1, NOP);
    words.extend([RET, NOP, branch(second + 1, second + 2), SET_X9, RET]);
    let found = results(&words, &[0, second, second + 2]);
    assert!(matches!(found[1], Some(Live::Lost { .. })), "{found:?}");
    assert_eq!((found[0], found[2]), (None, None));
}
