//! Functions that follow the procedure call standard, and functions of LLVM's machine outliner, which do not.

use std::vec::Vec;

use super::walk::STEPS_MAX;
use super::*;
use kprobes_random::Random;

const START: u64 = 0x1_0000;
const NOP: u32 = 0xd503_201f;
const RET: u32 = 0xd65f_03c0;
const BRK: u32 = 0xd420_0020;
const STORE_X8_X9: u32 = 0xa900_27e8; // stp x8, x9, [sp]
const CALL_X0: u32 = 0xd63f_0000; // blr x0
const PUSH: u32 = 0xa9be_7bfd; // stp x29, x30, [sp, #-32]!
const SET_FRAME: u32 = 0x9100_03fd; // mov x29, sp
const POP: u32 = 0xa8c2_7bfd; // ldp x29, x30, [sp], #32
const JUMP_X0: u32 = 0xd61f_0000; // br x0
const HVC: u32 = 0xd400_0002; // hvc #0
const ERET: u32 = 0xd69f_03e0;
const SET_X9: u32 = 0xd280_0029; // mov x9, #1
const READ_X9: u32 = 0xaa09_03e0; // mov x0, x9
const READ_FLAGS: u32 = 0x9a9f_17e0; // cset x0, eq

fn branch(words: i32) -> u32 {
    0x1400_0000 | (words as u32 & 0x03ff_ffff)
}

fn call(words: i32) -> u32 {
    0x9400_0000 | (words as u32 & 0x03ff_ffff)
}

fn compare_branch(words: i32) -> u32 {
    0xb400_0000 | (words as u32 & 0x7_ffff) << 5
}

fn reader(words: &[u32]) -> impl Fn(u64) -> Option<u32> {
    move |at| words.get(usize::try_from(at.checked_sub(START)? / 4).ok()?).copied()
}

fn at(word: usize) -> u64 {
    START + 4 * word as u64
}

/// Returns why the scratch registers are not all dead at the function at this word.
fn live(words: &[u32], function: usize) -> Option<Live> {
    let read = reader(words);
    // Functions begin at the targets of calls, at the start, and at the requested word.
    let mut starts: Vec<u64> = (0..words.len()).filter_map(|word| called_by(words[word], at(word))).collect();
    starts.extend([START, at(function), at(words.len())]);
    starts.sort_unstable();
    let bounds = |address| {
        let end = *starts.iter().find(|&&start| start > address)?;
        Some(*starts.iter().rfind(|&&start| start <= address)?..end)
    };
    let kept = ScratchPreservers::in_text(START..at(words.len()), &read, &bounds).unwrap();
    scratch_at_entry(at(function), &kept, &read)
}

fn read(register: Registers, word: usize) -> Option<Live> {
    Some(Live::Read { register, reader: at(word) })
}

const X9: Registers = Registers::x(9);

/// Returns why x9 is not dead at this word of the function, which consists of all words.
fn live_inside(words: &[u32], word: usize) -> Option<Live> {
    let handed = handed(START..at(words.len()), &reader(words));
    live_at(at(word), X9, START, handed, &ScratchPreservers::default(), &reader(words))
}

#[test]
fn what_a_function_hands_to_its_caller_is_needed_behind_its_first_instruction() {
    let lost = |word: usize| Some(Live::Lost { register: X9, end: at(word) });
    assert_eq!(live_inside(&[NOP, NOP, RET], 1), None);
    assert_eq!(live_inside(&[SET_X9, NOP, RET], 1), lost(2));
    // fmov x9, d0
    assert_eq!(live_inside(&[0x9e66_0009, NOP, RET], 1), lost(2));
    assert_eq!(live_inside(&[SET_X9, NOP, RET], 0), None);
    assert_eq!(live_inside(&[SET_X9, READ_X9, RET], 1), read(X9, 1));
    // The called function may have set it.
    assert_eq!(live_inside(&[PUSH, CALL_X0, POP, RET], 2), lost(3));
    assert_eq!(live_inside(&[PUSH, CALL_X0, POP, RET], 0), None);
    // A jump table may lead on within the function.
    assert_eq!(live_inside(&[NOP, JUMP_X0, READ_X9, RET], 0), lost(1));
}

#[test]
fn what_an_instruction_writes_in_part_is_handed_on_too() {
    let handed = |word| handed(START..at(2), &reader(&[word, RET]));
    // setf8 w0; rmif x0, #0, #15; cfinv; axflag; mrs x0, rndr
    for word in [0x3a00_080d, 0xba00_040f, 0xd500_401f, 0xd500_405f, 0xd53b_2400] {
        assert_eq!(handed(word), Registers::FLAGS, "{word:#010x}");
    }
    // ld1 {v0.16b}, [x9], #16
    assert_eq!(handed(0x4cdf_7120), X9);
    // chkfeat x16
    assert_eq!(handed(0xd503_251f), Registers::x(16));
    // ldapr x9, [x1], #8; st2g x0, [x9], #16; cpyfp [x9]!, [x1]!, x2!; cntb x9; hvc #0
    for word in [0xd9c0_0829, 0xd9a0_1520, 0x1901_0449, 0x0420_e3e9, HVC] {
        assert_eq!(handed(word), SCRATCH, "{word:#010x}");
    }
    // nop; paciasp; bti c; msr tpidr_el0, x0; dsb sy; fadd d9, d0, d1
    for word in [NOP, 0xd503_233f, 0xd503_245f, 0xd51b_d040, 0xd503_3f9f, 0x1e61_2809, BRK] {
        assert_eq!(handed(word), Registers::NONE, "{word:#010x}");
    }
}

#[test]
fn nothing_is_needed_at_the_entry_of_ordinary_functions() {
    assert_eq!(live(&[RET], 0), None);
    assert_eq!(live(&[SET_X9, READ_X9, RET], 0), None);
    assert_eq!(live(&[PUSH, SET_FRAME, call(4), POP, RET, BRK, SET_X9, READ_X9, RET], 0), None);
    // A loop, and a value that is set on both paths.
    assert_eq!(live(&[compare_branch(3), SET_X9, branch(2), SET_X9, READ_X9, compare_branch(-5), RET], 0), None);
    // A call that does not return, and code after it that another path leads to.
    assert_eq!(live(&[SET_X9, compare_branch(2), call(3), READ_X9, RET, PUSH, call(1), PUSH, branch(0)], 0), None);
    assert_eq!(live(&[SET_X9, compare_branch(2), call(3), READ_X9, RET, PUSH, call(1), PUSH, branch(0)], 5), None);
}

#[test]
fn what_is_read_before_it_is_written_is_needed() {
    assert_eq!(live(&[STORE_X8_X9, RET], 0), read(X9, 0));
    assert_eq!(live(&[READ_FLAGS, RET], 0), read(Registers::FLAGS, 0));
    assert_eq!(live(&[NOP, compare_branch(3), SET_X9, RET, READ_X9, RET], 0), read(X9, 4));
    assert_eq!(live(&[compare_branch(2), SET_X9, READ_X9, RET], 0), read(X9, 2));
    // x9 is written when the loop returns to the branch, but not when the function gets there first.
    assert_eq!(live(&[compare_branch(3), SET_X9, branch(-2), READ_X9, RET], 0), read(X9, 3));
    // A breakpoint that is not a compiler's trap may be a call of the kernel.
    assert_eq!(live(&[BRK], 0), None);
    assert_eq!(live(&[BRK + 0x20], 0), read(X9, 0));
    assert_eq!(live(&[HVC], 0), read(X9, 0));
}

#[test]
fn what_a_called_function_reads_is_needed() {
    // Read in a called function, in the function that it goes on in, and in one that that calls.
    assert_eq!(live(&[PUSH, call(3), POP, RET, STORE_X8_X9, RET], 0), read(X9, 4));
    assert_eq!(live(&[NOP, branch(2), RET, STORE_X8_X9, RET], 0), read(X9, 3));
    assert_eq!(live(&[branch(2), RET, PUSH, call(3), POP, RET, STORE_X8_X9, RET], 0), read(X9, 6));
    // Written before the call.
    assert_eq!(live(&[PUSH, SET_X9, call(3), POP, RET, STORE_X8_X9, RET], 0), None);
}

#[test]
fn what_callers_keep_across_a_call_is_needed() {
    // A caller that sets x9, calls the function at 6, and reads x9.
    let caller = [PUSH, SET_X9, call(4), READ_X9, POP, RET];
    let kept = |function: &[u32]| live(&[&caller, function].concat(), 6);
    let expected = Some(Live::Kept { register: X9, call: at(2) });
    assert_eq!(kept(&[NOP, RET]), expected);
    assert_eq!(kept(&[compare_branch(2), RET, RET]), expected);
    // The function goes on in another one, which returns to the same caller.
    let words = [&caller[..], &[branch(2), RET, NOP, RET]].concat();
    assert_eq!([6, 8].map(|function| live(&words, function)), [expected; 2]);
    // The function writes x9 anyway.
    assert_eq!(kept(&[SET_X9, RET]), None);
    // ScratchPreservers across two calls. A function that makes a call preserves nothing.
    let words = [PUSH, SET_X9, call(5), call(5), READ_X9, POP, RET, RET, RET];
    assert_eq!(
        [7, 8].map(|function| live(&words, function)),
        [2, 3].map(|word| Some(Live::Kept { register: X9, call: at(word) }))
    );
    let words = [PUSH, SET_X9, call(5), call(5), READ_X9, POP, RET, RET, PUSH, CALL_X0, POP, RET];
    assert_eq!([7, 8].map(|function| live(&words, function)), [None; 2]);
    // The caller itself is an ordinary function.
    assert_eq!(live(&[&caller[..], &[NOP, RET]].concat(), 0), None);
}

/// A caller that sets x9, calls the function at 6, and reads x9.
const KEEPS_X9: [u32; 6] = [PUSH, SET_X9, 0x9400_0004, READ_X9, POP, RET];

/// Returns why the scratch registers are not all dead at this word, if these words follow [`KEEPS_X9`].
fn live_after_caller(function: &[u32], word: usize) -> Option<Live> {
    live(&[&KEEPS_X9[..], function].concat(), word)
}

fn kept_by_call(word: usize) -> Option<Live> {
    Some(Live::Kept { register: X9, call: at(word) })
}

#[test]
fn what_a_function_preserves_its_callees_preserve() {
    // 6 calls 10; and 10 calls 14.
    let nested = [PUSH, call(3), POP, RET, RET];
    assert_eq!([6, 10].map(|word| live_after_caller(&nested, word)), [kept_by_call(2); 2]);
    let nested = [PUSH, call(3), POP, RET, PUSH, call(3), POP, RET, RET];
    assert_eq!([6, 10, 14].map(|word| live_after_caller(&nested, word)), [kept_by_call(2); 3]);
    // x9 is written after the inner call, or before it.
    assert_eq!(live_after_caller(&[PUSH, call(3), SET_X9, RET, RET], 10), None);
    assert_eq!(live_after_caller(&[SET_X9, call(3), POP, RET, RET], 10), None);
    // 10 writes x9, so 6 does not preserve it.
    assert_eq!([6, 10].map(|word| live_after_caller(&[PUSH, call(3), POP, RET, SET_X9, RET], word)), [None; 2]);
    // 9 and 12 call each other, and do not return. So x9 is not read after the call of 6.
    let caller = [PUSH, SET_X9, call(4), call(6), READ_X9, RET, NOP, RET, BRK];
    let endless = [PUSH, call(2), RET, PUSH, call(-4), RET];
    assert_eq!(live(&[&caller[..], &endless[..]].concat(), 6), None);
    // 6 calls itself.
    assert_eq!(live_after_caller(&[compare_branch(3), PUSH, call(-2), RET], 6), kept_by_call(2));
}

#[test]
fn what_a_function_preserves_the_functions_that_it_goes_on_in_preserve() {
    let branches = [compare_branch(3), RET, BRK, NOP, RET];
    assert_eq!([6, 9].map(|word| live_after_caller(&branches, word)), [kept_by_call(2); 2]);
    let late: Vec<u32> = [NOP; 100].into_iter().chain([branch(2), BRK, NOP, RET]).collect();
    assert_eq!(live_after_caller(&late, 108), kept_by_call(2));
}

#[test]
fn a_caller_that_goes_on_by_a_jump_table_may_need_it() {
    // Words 4 to 6 are reached by the indirect jump alone.
    let words = |last: [u32; 3]| [&[PUSH, SET_X9, call(7), JUMP_X0][..], &last[..], &[BRK, BRK, NOP, RET][..]].concat();
    assert_eq!(live(&words([READ_X9, POP, RET]), 9), kept_by_call(2));
    // As in a compiled function, none of the targets reads what it has not written.
    assert_eq!(live(&words([SET_X9, READ_X9, RET]), 9), None);
    // A direct branch leads to the reader, and x9 is written on the way.
    let direct = [PUSH, call(8), compare_branch(2), JUMP_X0, SET_X9, branch(2), RET, READ_X9, RET, NOP, RET];
    assert_eq!(live(&direct, 9), None);
    // Only the indirect jump leads to the word after an exception return.
    let returning = [PUSH, call(7), compare_branch(2), JUMP_X0, SET_X9, ERET, READ_X9, RET, NOP, RET];
    assert_eq!(live(&returning, 8), kept_by_call(1));
}

#[test]
fn the_call_is_one_for_the_register() {
    // Two callers of 12 rely on x10 and on x9.
    const SET_X10: u32 = SET_X9 + 1;
    const READ_X10: u32 = READ_X9 + (1 << 16);
    let words = [PUSH, SET_X10, call(10), READ_X10, POP, RET, PUSH, SET_X9, call(4), READ_X9, POP, RET, NOP, RET];
    assert_eq!(live(&words, 12), kept_by_call(8));
}

#[test]
fn long_callers_are_followed_to_their_end() {
    // More paths than a walk remembers follow the call. The function then reads x9, or does not.
    let caller = |last: u32| {
        let branches = (0..PATHS_MAX as i32 + 1).map(|_| compare_branch(200));
        let words = [SET_X9, call(602)].into_iter().chain(branches).chain([NOP; 600]);
        let mut words: Vec<u32> = words.take(600).collect();
        words.extend([last, POP, RET, NOP, RET]);
        words
    };
    assert_eq!(live(&caller(READ_X9), 603), kept_by_call(1));
    assert_eq!(live(&caller(NOP), 603), None);
}

#[test]
fn what_is_read_after_a_nested_call_is_needed() {
    // 7 reads x9 after a call of 12, so x9 is needed across the call of 6.
    let words = [PUSH, SET_X9, call(4), call(4), POP, RET, RET, PUSH, call(4), READ_X9, POP, RET, RET];
    assert_eq!(live(&words, 6), kept_by_call(2));
    assert_eq!(live(&words, 7), read(X9, 9));
    assert_eq!(live(&words, 12), kept_by_call(8));
}

#[test]
fn an_unknown_instruction_reads_what_its_function_sets() {
    // A hypercall after a call, with x9 set before it, or not.
    assert_eq!(live(&[PUSH, SET_X9, call(4), HVC, POP, RET, NOP, RET], 6), kept_by_call(2));
    assert_eq!(live(&[PUSH, NOP, call(4), HVC, POP, RET, NOP, RET], 6), None);
    // The same in a function that is called.
    assert_eq!(live(&[PUSH, SET_X9, call(4), call(5), POP, RET, NOP, RET, HVC, RET], 6), kept_by_call(2));
    assert_eq!(live(&[PUSH, NOP, call(4), call(5), POP, RET, NOP, RET, HVC, RET], 6), None);
}

#[test]
fn where_the_search_ends_everything_is_needed() {
    let mut long: Vec<u32> = std::vec![NOP; STEPS_MAX];
    long.push(RET);
    assert_eq!(live(&long, 0), Some(Live::Lost { register: X9, end: at(STEPS_MAX) }));
    assert_eq!(live(&long, 1), None);
    // More paths than are remembered.
    let many: Vec<u32> = (0..PATHS_MAX as i32 + 1).map(|_| compare_branch(200)).chain([NOP; 400]).collect();
    assert!(matches!(live(&many, 0), Some(Live::Lost { .. })));
}

/// Returns how far the stack pointer has moved when the function at the first word returns.
fn moved(words: &[u32]) -> Option<i64> {
    stack_at_return(START..at(words.len()), &reader(words))
}

#[test]
fn functions_that_do_not_restore_the_stack_pointer_are_found() {
    const DOWN: u32 = 0xd100_83ff; // sub sp, sp, #32
    const TO_FRAME: u32 = 0x9100_03bf; // mov sp, x29
    const COMPARE_TWO: u32 = 0xf401_0040; // cbgt x0, x1, +8
    const RETURN_SIGNED: u32 = 0x5500_001f; // retaasppc +0
    assert_eq!(moved(&[RET]), Some(0));
    assert_eq!(moved(&[PUSH, SET_FRAME, DOWN, TO_FRAME, POP, RET]), Some(0));
    assert_eq!(moved(&[DOWN, RET]), Some(-32));
    assert_eq!(moved(&[POP, RET]), Some(32));
    assert_eq!(moved(&[POP, RETURN_SIGNED, DOWN, RET]), Some(32));
    assert_eq!(moved(&[NOP, branch(2), RET, POP, RET]), Some(32));
    // The called function undoes the movement, or moves the stack pointer itself.
    assert_eq!(moved(&[DOWN, call(2), RET, POP, RET]), Some(0));
    assert_eq!(moved(&[NOP, call(2), RET, POP, RET]), Some(32));
    // The called function sets it from a register; or has several paths, and is assumed to restore it.
    assert_eq!(moved(&[NOP, call(3), POP, RET, 0xcb29_63ff, RET]), None); // sub sp, sp, x9
    assert_eq!(moved(&[NOP, call(3), POP, RET, compare_branch(1), RET]), Some(32));
    // Set from a frame pointer that the function has not set; moved on one of two paths; an endless loop.
    assert_eq!(moved(&[TO_FRAME, RET]), None);
    assert_eq!(moved(&[DOWN, compare_branch(2), RET, POP, RET]), None);
    assert_eq!(moved(&[DOWN, COMPARE_TWO, RET, POP, RET]), None);
    assert_eq!(moved(&[branch(0)]), None);
    // The called function does not return.
    assert_eq!(stack_at_return(START..at(2), &reader(&[PUSH, call(1), RET])), None);
}

#[test]
fn functions_that_go_on_in_another_task_are_found() {
    const SET_TASK: u32 = 0xd518_d089; // msr tpidr_el1, x9
    const SET_OTHER: u32 = 0xd51b_d049; // msr tpidr_el0, x9
    const SWITCH_STACK: u32 = 0x9100_013f; // mov sp, x9
    const TO_FRAME: u32 = 0x9100_03bf; // mov sp, x29
    let writer = |words: &[u32]| changes_task(START..at(words.len()), &reader(words));
    assert_eq!(writer(&[PUSH, SET_TASK, POP, RET]), Some(at(1)));
    assert_eq!(writer(&[PUSH, SET_FRAME, SET_TASK, TO_FRAME, POP, RET]), Some(at(2)), "it stays on its stack");
    assert_eq!(writer(&[PUSH, SET_TASK, SWITCH_STACK, POP, RET]), None);
    assert_eq!(writer(&[SWITCH_STACK, SET_TASK, RET]), None);
    assert_eq!(writer(&[PUSH, SET_OTHER, POP, RET]), None);
    // sub x9, sp, #64; and sp, x9, #~63
    assert_eq!(writer(&[0xd101_03e9, 0x927a_e53f, SET_TASK, RET]), Some(at(2)), "the stack is only aligned");
}

#[test]
fn functions_that_do_not_return_by_x30_are_found() {
    const LOAD_LINK: u32 = 0xf940_03fe; // ldr x30, [sp]
    const MOVE_LINK: u32 = 0xaa1e_03e9; // mov x9, x30
    const RET_X9: u32 = 0xd65f_0120;
    const PACIASP: u32 = 0xd503_233f;
    let writer = |words: &[u32]| overwrites_link(START, &reader(words));
    // Parts of functions, with and without a conditional branch.
    assert_eq!(writer(&[POP, RET]), Some(at(0)));
    assert_eq!(writer(&[NOP, LOAD_LINK, RET]), Some(at(1)));
    assert_eq!(writer(&[compare_branch(3), LOAD_LINK, RET, POP, RET]), Some(at(3)));
    assert_eq!(writer(&[compare_branch(3), LOAD_LINK, RET, BRK]), Some(at(1)));
    assert_eq!(writer(&[branch(2), RET, POP, RET]), Some(at(2)));
    // The function calls, and cannot return.
    assert_eq!(writer(&[call(2), BRK, RET]), Some(at(0)));
    // The function returns to x30 on at least one path, or keeps it.
    assert_eq!(writer(&[RET]), None);
    assert_eq!(writer(&[PUSH, POP, RET]), None);
    assert_eq!(writer(&[compare_branch(2), RET, POP, RET]), None);
    assert_eq!(writer(&[MOVE_LINK, call(2), RET_X9, RET]), None);
    assert_eq!(writer(&[PACIASP, POP, RET]), None);
    // The target of a jump may return to x30.
    assert_eq!(writer(&[JUMP_X0]), None);
    assert_eq!(writer(&[compare_branch(2), JUMP_X0, POP, RET]), None);
    // The function neither returns nor writes x30.
    assert_eq!(writer(&[branch(0)]), None);
    assert_eq!(writer(&[BRK]), None);
}

#[test]
fn what_walks_share_changes_no_answer() {
    let mut random = Random::new(1);
    let mut found = 0;
    for _ in 0..if cfg!(miri) { 20 } else { 2000 } {
        let words: Vec<u32> = (0..48)
            .map(|word| {
                let to = |to: u64| i32::try_from(to).unwrap() - word;
                let (kind, place) = (random.below(16_u64), random.below(48_u64));
                match kind {
                    0..3 => SET_X9,
                    3 => READ_X9,
                    4 => READ_FLAGS,
                    5..8 => compare_branch(to(place)),
                    8 => branch(to(place)),
                    9..12 => call(to(place / 6 * 6)),
                    12 => RET,
                    13 => CALL_X0,
                    _ => NOP,
                }
            })
            .collect();
        let (read, kept, shared) = (reader(&words), ScratchPreservers::default(), Shared::new());
        for word in 0..words.len() {
            let alone = live_after_call(at(word), &kept, &read, &Shared::new());
            assert_eq!(live_after_call(at(word), &kept, &read, &shared), alone, "{word} of {words:x?}");
            found += usize::from(alone.is_some());
        }
    }
    assert!(found > 0);
}
