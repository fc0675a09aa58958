//! Tests sequences as compilers write them, with every address of them as the probed one.

use core::cell::Cell;
use std::vec::Vec;

use super::{SequenceCallees, Sequences};

const BASE: u64 = 0xffff_ffc0_0000_1000;

const LDXR: u32 = 0xc85f_7c20; // ldxr x0, [x1]
const LDAXR: u32 = 0xc85f_fc20; // ldaxr x0, [x1]
const LDAR: u32 = 0xc8df_fc20; // ldar x0, [x1]
const STXR: u32 = 0xc802_7c20; // stxr w2, x0, [x1]
const STLR: u32 = 0xc89f_fc20; // stlr x0, [x1]
const CASP: u32 = 0x4820_7c82; // casp x0, x1, x2, x3, [x4]
const CAS: u32 = 0xc8a0_7c41; // cas x0, x1, [x2]
const CLREX: u32 = 0xd503_3f5f;
const NOP: u32 = 0xd503_201f;
const ADD: u32 = 0x9100_0400; // add x0, x0, #1
const RET: u32 = 0xd65f_03c0;
const BR: u32 = 0xd61f_0060; // br x3
const BLR: u32 = 0xd63f_0060; // blr x3
const SVC: u32 = 0xd400_0001;
const BLRAA: u32 = 0xd73f_0861; // blraa x3, x1
const RETAA: u32 = 0xd65f_0bff;

/// `b`, `b.ne` and `cbnz w2`, with a distance in instructions.
const fn b(words: i32) -> u32 {
    0x1400_0000 | words.cast_unsigned() & 0x3ff_ffff
}
const fn b_ne(words: i32) -> u32 {
    0x5400_0001 | (words.cast_unsigned() & 0x7_ffff) << 5
}
const fn cbnz(words: i32) -> u32 {
    0x3500_0002 | (words.cast_unsigned() & 0x7_ffff) << 5
}
/// `cbne x0, x1` of FEAT_CMPBR.
const fn cbne(words: i32) -> u32 {
    0xf4e1_0000 | (words.cast_unsigned() & 0x1ff) << 5
}

/// Returns for each instruction of the function the index of the load-exclusive whose sequence contains it.
fn regions(function: &[u32]) -> Vec<Option<usize>> {
    let range = BASE..BASE + 4 * function.len() as u64;
    let read = |address: u64| {
        assert!(range.contains(&address), "{address:#x} is not in the function");
        function[((address - BASE) / 4) as usize]
    };
    let sequences = Sequences::of(range.clone(), read).unwrap();
    (range.clone().step_by(4))
        .map(|address| sequences.containing(address).unwrap())
        .map(|load| load.map(|load| ((load - BASE) / 4) as usize))
        .collect()
}

/// Returns the indices of the instructions that are inside a sequence.
fn inside(function: &[u32]) -> Vec<usize> {
    let regions = regions(function);
    (0..function.len()).filter(|&index| regions[index].is_some()).collect()
}

#[test]
fn the_load_the_store_and_what_is_between_are_inside() {
    assert_eq!(regions(&[ADD, LDXR, ADD, STXR, cbnz(-3), RET]), [None, Some(1), Some(1), Some(1), None, None]);
}

#[test]
fn an_early_exit_is_outside_with_and_without_clrex() {
    // A compare and exchange: the failing path leaves the sequence.
    assert_eq!(inside(&[LDAXR, ADD, b_ne(4), STXR, cbnz(-4), RET, CLREX, ADD, RET]), [0, 1, 2, 3]);
    assert_eq!(inside(&[LDAXR, ADD, b_ne(4), STXR, cbnz(-4), RET, NOP, ADD, RET]), [0, 1, 2, 3]);
    // An exit that leads to another sequence is outside both.
    assert_eq!(inside(&[LDXR, b_ne(3), STXR, RET, NOP, LDXR, STXR, RET]), [0, 1, 2, 5, 6]);
}

#[test]
fn a_block_placed_below_the_store_is_inside_if_it_leads_back() {
    assert_eq!(inside(&[LDXR, b_ne(4), STXR, cbnz(-3), RET, ADD, b(-4), RET]), [0, 1, 2, 5, 6]);
    // A block that is placed above the load.
    assert_eq!(inside(&[b(3), ADD, b(3), LDXR, b_ne(-3), STXR, cbnz(-3), RET]), [1, 2, 3, 4, 5]);
}

#[test]
fn a_long_sequence_is_inside_to_its_end() {
    const LENGTH: usize = if cfg!(miri) { 20 } else { 100 };
    let mut function = Vec::from([LDXR]);
    function.extend([ADD; LENGTH]);
    function.extend([STXR, RET]);
    assert_eq!(inside(&function), (0..=LENGTH + 1).collect::<Vec<_>>());
}

#[test]
fn loads_and_stores_that_only_order_or_swap_neither_begin_nor_end_one() {
    assert_eq!(inside(&[LDAR, ADD, STLR, CAS, CASP, RET]), []);
    assert_eq!(inside(&[LDXR, LDAR, STLR, CAS, CASP, ADD, STXR, RET]), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(inside(&[STLR, CAS, LDXR, b_ne(2), STXR, CASP, ADD, RET]), [2, 3, 4]);
}

#[test]
fn clrex_ends_one_and_is_outside() {
    assert_eq!(inside(&[LDXR, ADD, CLREX, ADD, STXR, RET]), [0]);
}

/// `wfe`, `wfet x3`, and what waits for other things: `wfi`, `wfit x3`.
const WFE: u32 = 0xd503_205f;
const WFET: u32 = 0xd503_1003;
const WFI: u32 = 0xd503_207f;
const WFIT: u32 = 0xd503_1023;

/// Returns the indices of the instructions between a load-exclusive and a wait for an event, and of those in a sequence.
fn before_wait(function: &[u32]) -> (Vec<usize>, Vec<usize>) {
    let range = BASE..BASE + 4 * function.len() as u64;
    let sequences = Sequences::of(range.clone(), |address| function[((address - BASE) / 4) as usize]).unwrap();
    assert!(!sequences.is_before_wait(BASE - 4) && !sequences.is_before_wait(range.end));
    let found = (0..function.len()).filter(|&index| sequences.is_before_wait(BASE + 4 * index as u64));
    (found.collect(), inside(function))
}

#[test]
fn from_a_load_to_a_wait_for_an_event_is_found() {
    for wait in [WFE, WFET] {
        // A ticket lock: the wait is above the load.
        assert_eq!(before_wait(&[NOP, wait, LDAXR, ADD, cbnz(-3), ADD, RET]), (vec![1, 3, 4], vec![2]));
        assert_eq!(before_wait(&[LDAXR, cbnz(2), RET, wait, b(-4)]), (vec![1, 3], vec![0]));
        // A lock with a store: only what waits after the load.
        assert_eq!(before_wait(&[wait, LDAXR, cbnz(-2), STXR, cbnz(-3), RET]), (vec![0, 2], vec![1, 2, 3]));
        assert_eq!(before_wait(&[LDAXR, STXR, wait, b(-3)]), (vec![], vec![0, 1]));
        assert_eq!(before_wait(&[LDAXR, CLREX, wait, b(-3)]), (vec![], vec![0]));
        assert_eq!(before_wait(&[wait, b(-1)]), (vec![], vec![]));
    }
    for other in [WFI, WFIT, NOP] {
        assert_eq!(before_wait(&[LDAXR, cbnz(2), RET, other, b(-4)]).0, []);
    }
}

#[test]
fn a_load_without_a_store_is_itself_inside() {
    assert_eq!(inside(&[LDXR, cbnz(2), RET, RET]), [0]);
    assert_eq!(inside(&[LDXR, ADD, b_ne(-2), RET]), [0]);
}

#[test]
fn the_nearest_of_two_loads_is_given() {
    assert_eq!(regions(&[LDXR, ADD, LDXR, ADD, STXR, RET]), [Some(0), None, Some(2), Some(2), Some(2), None]);
}

#[test]
fn calls_return_and_everything_else_leaves() {
    for call in [BLR, BLRAA, 0x9400_0100] {
        assert_eq!(inside(&[LDXR, call, STXR, RET]), [0, 1, 2], "{call:#010x}");
    }
    for end in [RET, RETAA, BR, SVC, b(100), 0] {
        assert_eq!(inside(&[LDXR, b_ne(2), end, end, ADD, STXR, RET]), [0], "{end:#010x}");
    }
}

/// `bl`, with a distance in instructions.
const fn bl(words: i32) -> u32 {
    b(words) | 1 << 31
}

#[test]
fn a_part_of_one_may_be_a_function() {
    // A function with only the load, and one with only the store, are inside as a whole.
    assert_eq!(inside(&[LDXR, ADD, RET]), [0, 1, 2]);
    assert_eq!(inside(&[ADD, LDXR, ADD, b(100)]), [1, 2, 3]);
    assert_eq!(inside(&[ADD, STXR, ADD, RET]), [0, 1]);
    // Inside from the call of the first function to the store.
    assert_eq!(regions(&[ADD, bl(100), b_ne(2), STXR, cbnz(-3), RET]), [None, Some(1), Some(1), Some(1), None, None]);
    assert_eq!(inside(&[bl(100), LDXR, b_ne(2), STXR, cbnz(-4), bl(100), RET]), [1, 2, 3]);
}

#[test]
fn a_call_ends_one_if_the_called_function_does() {
    // The first call may end the sequence; the second comes after it.
    let caller = [LDXR, b_ne(4), ADD, bl(7), cbnz(-4), bl(100), RET];
    let inside = |callee: [u32; 4]| {
        let word = |at: u64| caller.iter().chain(&[RET; 3]).chain(&callee).nth(((at - BASE) / 4) as usize).copied();
        let range = BASE..BASE + 4 * caller.len() as u64;
        let sequences = Sequences::with_callees(range.clone(), |at| word(at).unwrap(), word).unwrap();
        let inside = range.step_by(4).filter(|&at| sequences.containing(at).unwrap().is_some());
        inside.map(|at| (at - BASE) / 4).collect::<Vec<_>>()
    };
    assert_eq!(inside([ADD, STXR, RET, RET]), [0, 1, 2, 3]);
    for callee in [[ADD, RET, STXR, RET], [ADD, b_ne(2), STXR, RET], [LDXR, ADD, STXR, RET], [ADD, ADD, ADD, ADD]] {
        assert_eq!(inside(callee), [0], "{callee:#x?}");
    }
}

/// Returns the functions that run inside sequences of others: the number of each, and the index in the whole text of
/// the word that begins the sequence. The functions lie one after the other.
fn callees(functions: &[&[u32]]) -> Vec<(usize, usize)> {
    let text = functions.concat();
    let mut starts = Vec::from([BASE]);
    for function in functions {
        starts.push(starts.last().unwrap() + 4 * function.len() as u64);
    }
    let range = |number: usize| starts[number]..starts[number + 1];
    let read = |at: u64| text.get(usize::try_from(at.checked_sub(BASE)? / 4).ok()?).copied();
    let bounds = |at: u64| (0..functions.len()).map(range).find(|range| range.contains(&at));
    let found = SequenceCallees::in_text(BASE..starts[functions.len()], &read, &bounds).unwrap();
    (0..functions.len())
        .filter_map(|number| Some((number, found.around(range(number))?)))
        .map(|(number, load)| (number, ((load - BASE) / 4) as usize))
        .collect()
}

#[test]
fn a_function_that_a_sequence_calls_is_inside() {
    let (called, other) = (&[ADD, ADD, RET], &[ADD, RET]);
    assert_eq!(callees(&[&[LDAXR, bl(4), STXR, cbnz(-3), RET], called, other]), [(1, 0)]);
    // Around it, after an early exit, and after the end of the sequence.
    assert_eq!(callees(&[&[bl(6), LDAXR, STXR, cbnz(-2), bl(2), RET], called, other]), []);
    assert_eq!(callees(&[&[LDAXR, b_ne(3), STXR, RET, CLREX, bl(2), RET], called, other]), []);
    assert_eq!(callees(&[&[LDAXR, bl(4), CLREX, STXR, RET], called, other]), []);
}

#[test]
fn a_function_to_which_a_sequence_is_left_is_inside() {
    assert_eq!(callees(&[&[ADD, LDXR, ADD, b(2), ADD], &[ADD, RET], &[ADD, RET]]), [(1, 1)]);
    // It ends the sequence, and has a store-exclusive that shows it.
    assert_eq!(callees(&[&[ADD, LDXR, ADD, b(2), ADD], &[STXR, RET], &[ADD, RET]]), []);
}

#[test]
fn what_such_a_function_calls_is_inside_until_the_sequence_ends() {
    let caller = &[LDAXR, bl(4), STXR, cbnz(-3), RET];
    let last = &[ADD, RET];
    assert_eq!(callees(&[caller, &[ADD, bl(2), RET], last]), [(1, 0), (2, 0)]);
    assert_eq!(callees(&[caller, &[ADD, b(1)], last]), [(1, 0), (2, 0)]);
    assert_eq!(callees(&[caller, &[cbnz(2), RET], last]), [(1, 0), (2, 0)]);
    assert_eq!(callees(&[caller, &[ADD, CLREX, bl(2), RET], last]), [(1, 0)]);
    assert_eq!(callees(&[caller, &[ADD, BLR, RET], last]), [(1, 0)]);
    // They call each other.
    assert_eq!(callees(&[caller, &[bl(2), RET], &[bl(-2), RET]]), [(1, 0), (2, 0)]);
}

#[test]
fn parts_of_a_sequence_may_be_functions_where_others_are_called() {
    // The load is in a function. What is called before that one is outside.
    let caller = &[bl(10), bl(5), bl(6), STXR, cbnz(-3), RET];
    assert_eq!(callees(&[caller, &[LDXR, RET], &[ADD, RET], &[ADD, RET]]), [(2, 1)]);
    // The store is in a function, which calls another before it.
    let caller = &[LDXR, ADD, bl(3), cbnz(-3), RET];
    assert_eq!(callees(&[caller, &[bl(3), STXR, RET], &[ADD, RET]]), [(2, 5)]);
    // The caller has another sequence before it.
    let caller = &[LDXR, STXR, bl(5), bl(6), STXR, cbnz(-3), RET];
    assert_eq!(callees(&[caller, &[LDXR, RET], &[ADD, RET]]), [(2, 2)]);
}

#[test]
fn a_table_of_functions_need_not_be_complete_or_right() {
    let text = [LDAXR, bl(4), STXR, cbnz(-3), RET, ADD, b(2), ADD, ADD, RET];
    let at = |word: u64| BASE + 4 * word;
    let read = |address: u64| text.get(usize::try_from(address.checked_sub(BASE)? / 4).ok()?).copied();
    let bounds = |address: u64| Some(BASE..at(5)).filter(|range| range.contains(&address));
    let found = SequenceCallees::in_text(BASE..at(10), &read, &bounds).unwrap();
    assert_eq!([at(5)..at(6), at(6)..at(8), at(8)..at(10)].map(|range| found.around(range)), [Some(BASE), None, None]);
    for wrong in [BASE - 4..at(5), BASE + 2..at(5), BASE..at(11), at(5)..BASE] {
        let found = SequenceCallees::in_text(BASE..at(10), &read, &|_| Some(wrong.clone())).unwrap();
        assert_eq!(found.around(at(5)..at(6)), None, "{wrong:#x?}");
    }
}

#[test]
fn branches_that_are_not_simulated_are_followed_too() {
    assert_eq!(inside(&[LDXR, cbne(3), CLREX, RET, ADD, STXR, RET]), [0, 1, 4, 5]);
    assert_eq!(inside(&[b(3), ADD, STXR, LDXR, cbne(-3), CLREX, RET]), [1, 2, 3, 4]);
}

#[test]
fn the_words_of_the_neighbours_do_not_count() {
    // The function begins after another function's load, and ends before another function's store.
    let words = [LDXR, ADD, ADD, STXR];
    let read = |address: u64| words[((address - BASE) / 4) as usize];
    assert_eq!(Sequences::of(BASE + 4..BASE + 12, read).unwrap().containing(BASE + 4), Ok(None));
    assert_eq!(Sequences::of(BASE..BASE + 12, read).unwrap().containing(BASE + 4), Ok(None));
    assert_eq!(Sequences::of(BASE..BASE + 16, read).unwrap().containing(BASE + 4), Ok(Some(BASE)));
    assert_eq!(Sequences::of(BASE..BASE + 8, read).unwrap().containing(BASE + 8), Ok(None));
}

#[test]
fn a_loop_without_an_end_is_walked_once() {
    assert_eq!(inside(&[LDXR, ADD, b(-1), STXR]), [0]);
    assert_eq!(inside(&[LDXR, b(0), STXR]), [0]);
}

#[test]
fn a_function_without_a_load_is_read_once() {
    let reads = Cell::new(0);
    let read = |_| {
        reads.set(reads.get() + 1);
        ADD
    };
    assert_eq!(Sequences::of(BASE..BASE + 4000, read).unwrap().containing(BASE + 2000), Ok(None));
    assert_eq!(reads.get(), 1000);
}
