//! Copies in functions of a few words: where each is entered and left, and that any path through a function passes in
//! as often as out.

use std::collections::BTreeMap;

use kprobes_random::Random;
use kprobes_symbols::When::{self, Always, NotTaken, Taken};

use super::{Function, Region};
use crate::audit::{Flow, flow};

const START: u64 = 0xffff_ffc0_0000_1000;
const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;
/// BL over 16 words.
const CALL: u32 = 0x9400_0010;
const LDXR: u32 = 0xc85f_7c20;
const STXR: u32 = 0xc802_7c20;
const BR: u32 = 0xd61f_0200;

/// CBZ x0 over this many words.
const fn cbz(words: i32) -> u32 {
    0xb400_0000 | (words as u32 & 0x7_ffff) << 5
}

/// B over this many words.
const fn b(words: i32) -> u32 {
    0x1400_0000 | words as u32 & 0x3ff_ffff
}

/// Returns the control flow of these words, if calls return. A branch to a register goes to all of `table`.
fn control(words: &[u32], table: &[usize]) -> BTreeMap<u64, Vec<u64>> {
    let address = |at: usize| START + 4 * at as u64;
    let mut control = BTreeMap::new();
    let mut pending = vec![0_usize];
    while let Some(at) = pending.pop() {
        let to = |bytes: i64| at.checked_add_signed(bytes as isize / 4);
        let targets: Vec<Option<usize>> = match flow(words[at]) {
            Flow::Next | Flow::Call(_) | Flow::CallRegister(_) => vec![to(4)],
            Flow::Jump(bytes) => vec![to(bytes)],
            Flow::Condition(bytes) => vec![to(4), to(bytes)],
            Flow::JumpRegister(_) => table.iter().copied().map(Some).collect(),
            Flow::Return | Flow::Exception(_) => Vec::new(),
        };
        let targets: Vec<usize> = targets.into_iter().flatten().filter(|&target| target < words.len()).collect();
        if control.insert(address(at), targets.iter().copied().map(address).collect()).is_none() {
            pending.extend(targets);
        }
    }
    control
}

fn function(words: &[u32], table: &[usize]) -> Function {
    Function::new(START, words.to_vec(), |_| None, &control(words, table))
}

fn region(words: &[u32], copy: &[usize]) -> Region {
    function(words, &[]).region(copy).expect("a copy that is reached")
}

fn whole(first: usize, entries: &[(usize, When)], exits: &[(usize, When)]) -> Region {
    Region { first, is_in_pieces: false, entries: Some(entries.to_vec()), exits: Some(exits.to_vec()) }
}

fn in_pieces(first: usize, entries: &[(usize, When)], exits: &[(usize, When)]) -> Region {
    Region { is_in_pieces: true, ..whole(first, entries, exits) }
}

#[test]
fn a_copy_is_entered_at_its_first_instruction_and_left_behind_its_last() {
    assert_eq!(region(&[NOP, NOP, NOP, NOP, RET], &[1, 2]), whole(1, &[(1, Always)], &[(3, Always)]));
    assert_eq!(region(&[NOP, RET], &[0]), whole(0, &[(0, Always)], &[(1, Always)]));
    assert_eq!(region(&[NOP, NOP, RET], &[1, 2]), whole(1, &[(1, Always)], &[(2, Always)]), "left with its function");
    assert_eq!(region(&[NOP, b(40)], &[0, 1]), whole(0, &[(0, Always)], &[(1, Always)]), "by a tail call");
    assert_eq!(region(&[NOP, BR], &[0, 1]), whole(0, &[(0, Always)], &[(1, Always)]), "by a pointer");
}

#[test]
fn instructions_of_others_in_between_belong_to_it() {
    assert_eq!(region(&[NOP, NOP, NOP, NOP, RET], &[1, 3]), in_pieces(1, &[(1, Always)], &[(4, Always)]));
    // The second part is on one of two paths. On the other path the copy ends where the two part.
    let words = [NOP, NOP, cbz(3), NOP, NOP, RET];
    assert_eq!(region(&words, &[1, 4]), in_pieces(1, &[(1, Always)], &[(5, Always)]));
}

#[test]
fn each_turn_of_a_loop_around_it_enters_it() {
    let words = [NOP, NOP, NOP, cbz(-2), RET];
    assert_eq!(region(&words, &[1]), whole(1, &[(1, Always)], &[(2, Always)]));
    assert_eq!(region(&words, &[1, 2]), whole(1, &[(1, Always)], &[(3, Always)]));
}

#[test]
fn a_loop_within_it_does_not() {
    assert_eq!(region(&[NOP, NOP, cbz(-1), RET], &[1, 2]), whole(1, &[(0, Always)], &[(3, Always)]));
    let words = [cbz(3), NOP, b(3), NOP, cbz(-1), RET];
    assert_eq!(region(&words, &[3, 4]), whole(3, &[(0, Taken)], &[(4, NotTaken)]));
    let words = [cbz(4), NOP, cbz(-1), NOP, RET];
    assert_eq!(region(&words, &[1, 2]), whole(1, &[(0, NotTaken)], &[(3, Always)]));
    // There is no instruction before the first of a function.
    let entered = region(&[NOP, cbz(-1), RET], &[0, 1]);
    assert_eq!((entered.entries, entered.exits), (None, Some(vec![(2, Always)])));
}

#[test]
fn a_place_that_others_lead_to_says_nothing() {
    let words = [cbz(3), NOP, cbz(1), RET];
    assert_eq!(region(&words, &[1]), whole(1, &[(1, Always)], &[(2, Always)]));
    let words = [cbz(3), cbz(2), NOP, RET];
    assert_eq!(region(&words, &[1]), whole(1, &[(1, Always)], &[(2, Always), (1, Taken)]));
    // Other paths lead to where a call returns, and it may not return.
    let words = [cbz(2), CALL, RET];
    assert_eq!(region(&words, &[1]).exits, None);
    assert_eq!(region(&[NOP, CALL, RET], &[1]), whole(1, &[(1, Always)], &[(2, Always)]));
}

#[test]
fn nothing_is_probed_within_an_exclusive_sequence() {
    // The loop of an atomic addition, which is the whole copy.
    let words = [NOP, LDXR, STXR, 0x35ff_ffc2, RET];
    assert_eq!(region(&words, &[1, 2, 3]), whole(1, &[(0, Always)], &[(4, Always)]));
    let words = [CALL, LDXR, STXR, 0x35ff_ffc2, RET];
    assert_eq!(region(&words, &[1, 2, 3]).entries, None, "behind a call");
}

#[test]
fn a_sequence_may_end_in_a_called_function() {
    let words = [LDXR, NOP, NOP, CALL, RET];
    let called = |first| move |address| (address == START + 4 * (3 + 16)).then_some(first);
    let region = |first| Function::new(START, words.to_vec(), called(first), &control(&words, &[])).region(&[2]);
    assert_eq!(region(STXR).map(|region| (region.entries, region.exits)), Some((None, None)));
    assert_eq!(region(NOP), Some(whole(2, &[(2, Always)], &[(3, Always)])));
}

#[test]
fn parts_on_ways_that_have_parted_are_entered_one_by_one() {
    let words = [cbz(3), NOP, b(2), NOP, RET];
    assert_eq!(region(&words, &[1, 3]), in_pieces(1, &[(1, Always), (3, Always)], &[(2, Always), (3, Always)]));
}

#[test]
fn a_table_of_jumps_tells_where_all_of_it_leads_the_same_way() {
    let words = [BR, NOP, RET, NOP, RET];
    let region = |table: &[usize], copy: &[usize]| function(&words, table).region(copy);
    assert_eq!(region(&[1, 3], &[0]), Some(whole(0, &[(0, Always)], &[(1, Always), (3, Always)])));
    assert_eq!(region(&[1, 3], &[0, 1]), Some(whole(0, &[(0, Always)], &[(2, Always), (3, Always)])));
}

#[test]
fn what_is_not_reached_is_no_copy() {
    assert_eq!(function(&[RET, NOP], &[]).region(&[1]), None);
    assert_eq!(function(&[RET, NOP], &[]).region(&[]), None);
}

/// Returns how many of the passages a probe at the instruction `at` reports, if the branch there `is_taken` or not.
fn told(passages: &[(usize, When)], at: usize, is_taken: bool) -> usize {
    let holds = |when| match when {
        Always => true,
        Taken => is_taken,
        NotTaken => !is_taken,
    };
    passages.iter().filter(|&&(place, when)| place == at && holds(when)).count()
}

#[test]
fn any_way_through_a_function_passes_in_as_often_as_out() {
    let mut random = Random::new(1);
    let (mut walked, mut entered) = (0, 0);
    for _ in 0..20_000 {
        let length = 4 + random.below(12);
        let words: Vec<u32> = (0..length)
            .map(|at| {
                let offset = random.below(length) as i32 - at as i32;
                [NOP, NOP, NOP, CALL, cbz(offset), cbz(offset), b(offset), RET, LDXR, STXR][random.below(10)]
            })
            .chain([RET])
            .collect();
        let copy: Vec<usize> = (0..1 + random.below(5)).map(|_| random.below(length)).collect();
        let Some(region) = function(&words, &[]).region(&copy) else { continue };
        let (Some(entries), Some(exits)) = (&region.entries, &region.exits) else { continue };
        let (mut at, mut ins, mut outs) = (0, 0, 0);
        let mut members = 0;
        let mut was_member = false;
        for _ in 0..200 {
            let is_taken = random.below(2) == 0;
            // If both are reported at one instruction, the path goes out of the copy first and then into it again.
            outs += told(exits, at, is_taken);
            ins += told(entries, at, is_taken);
            assert!(ins == outs || ins == outs + 1, "{words:x?} {copy:?} {region:?}: {ins} in, {outs} out");
            members += usize::from(copy.contains(&at) && !was_member);
            was_member = copy.contains(&at);
            at = match flow(words[at]) {
                Flow::Jump(bytes) => at.wrapping_add_signed(bytes as isize / 4),
                Flow::Condition(bytes) if is_taken => at.wrapping_add_signed(bytes as isize / 4),
                Flow::Return => {
                    assert_eq!(ins, outs, "{words:x?} {copy:?} {region:?}");
                    // A copy that is not in pieces is entered whenever control comes to an instruction of it from
                    // another.
                    assert!(region.is_in_pieces || ins == members, "{words:x?} {copy:?} {region:?}: {members}");
                    walked += 1;
                    entered += ins;
                    break;
                }
                _ => at + 1,
            };
        }
    }
    assert!(walked > 2_000 && entered > 2_000, "{walked} ways with {entered} entries are no test");
}
