//! How snippets are assembled, as an independent decoder reads them. What they do is tested on the target.

use std::string::{String, ToString};
use std::vec::Vec;

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::*;
use crate::insn::encode::compute::{self, Binary, Branch, Condition};
use crate::insn::encode::{self, MASK_INTERRUPTS};
use crate::insn::{Guard, Literal, Verdict};
use crate::probe::check::CheckedInstruction;
use crate::probe::hit::counters::Counters;
use crate::probe::hit::trampoline;

const NOP: u32 = 0xd503_201f;
/// `add x0, x0, #1`: the probed instruction.
const PROBED: u32 = 0x9100_0400;

/// `add x12, x9, x12`.
const CELL_OF_CPU: Step = Step::Instruction(compute::compute(Binary::Add, 12, Snippet::CPU, 12));

/// Returns counts that are no part of the states of CPUs.
fn far_counters() -> Counters {
    // SAFETY: the snippets are not executed, so no CPU accesses the counts.
    unsafe { Counters::new(NonNull::dangling()) }
}

/// Builds a snippet. Returns the words before its stub, and how many bytes before the stub it begins.
fn built(snippet: &Snippet, operand: u64, counters: Counters) -> (Vec<u32>, u16) {
    let insertion = Insertion::new(snippet, operand);
    let inserted = Inserted { insertion: InsertionRef::new(&insertion), counters, live: None, code: None };
    let checked = CheckedInstruction { word: PROBED, verdict: Verdict::Slot, is_before_wait: false };
    let mut words = vec![0; snippet.cell.size() / 4 - stub::WORDS];
    let text = crate::kernel::text().start;
    let cell = (text + (1 << 20)).next_multiple_of(4096);
    let before = inserted.build(cell, text, &checked, Guard::Absent, &mut words).unwrap();
    (words, before)
}

fn lines(words: &[u32]) -> Vec<String> {
    let text = |word: &u32| {
        // The decoder has other names for these.
        if *word == encode::write_daif(17) {
            return "msr daif, x17".to_string();
        }
        if *word == MASK_INTERRUPTS {
            return "msr daifset, #0xf".to_string();
        }
        InstDecoder::default().decode(&mut U8Reader::new(&word.to_le_bytes())).expect("an instruction").to_string()
    };
    words.iter().map(text).collect()
}

/// Returns the instructions from the first of the snippet to the copy of the probed instruction.
fn listing(steps: &[Step], is_masked: bool, atomics: bool) -> Vec<String> {
    listing_with(Counters::SINK, steps, is_masked, atomics)
}

/// Returns the instructions up to the copy of the probed instruction, of a snippet that counts hits in `counters`.
fn listing_with(counters: Counters, steps: &[Step], is_masked: bool, atomics: bool) -> Vec<String> {
    let snippet = Snippet::with(steps, is_masked, atomics, false).unwrap();
    let (words, before) = built(&snippet, 0x1234, counters);
    let stub = words.len();
    let start = stub - usize::from(before) / 4;
    let copy = words[stub - 1] as usize;
    assert_eq!(words[copy], PROBED);
    lines(&words[start..copy])
}

#[test]
fn a_count_is_eight_instructions_with_atomics_and_twelve_without() {
    let _alone = crate::probe::tests::computer::Computer::new();
    let one = [Step::Operand(12), CELL_OF_CPU, Step::Instruction(encode::add_to(Snippet::ONE, 12))];
    assert_eq!(
        listing(&one, false, true),
        [
            "mrs x9, s3_0_c13_c0_4",
            "ldr x9, [x9]",
            "mov x10, #0x1",
            "ldr x12, $-0x14",
            "add x12, x9, x12",
            "stadd x10, [x12]",
            "add x11, x9, #0x30",
            "stadd x10, [x11]",
        ]
    );
    let far = listing_with(far_counters(), &one, false, true);
    assert_eq!(far[6..], ["ldr x11, $-0x28", "add x11, x9, x11", "stadd x10, [x11]"]);
    let one = [
        Step::Operand(12),
        Step::Instruction(encode::load_at(13, Snippet::CPU, 12)),
        Step::Instruction(encode::add(13, 13, 1)),
        Step::Instruction(encode::store_at(13, Snippet::CPU, 12)),
    ];
    assert_eq!(
        listing(&one, false, false),
        [
            "mrs x17, s3_3_c4_c2_1",
            "msr daifset, #0xf",
            "mrs x9, s3_0_c13_c0_4",
            "ldr x9, [x9]",
            "ldr x12, $-0x18",
            "ldr x13, [x9, x12]",
            "add x13, x13, #0x1",
            "str x13, [x9, x12]",
            "ldr x12, [x9, #0x30]",
            "add x12, x12, #0x1",
            "str x12, [x9, #0x30]",
            "msr daif, x17",
        ]
    );
    let far = listing_with(far_counters(), &one, false, false);
    let [.., load, loaded, add, store, _] = &*far else { panic!("{far:?}") };
    let count = ["ldr x11, $-0x30", "ldr x12, [x9, x11]", "add x12, x12, #0x1", "str x12, [x9, x11]"];
    assert_eq!([load, loaded, add, store], count);
}

#[test]
fn branches_and_numbers_lead_to_what_they_mean() {
    let _alone = crate::probe::tests::computer::Computer::new();
    const NUMBER: u64 = 0x1234_5678_9abc_def0;
    let steps = [
        Step::Number(11, NUMBER),
        Step::Number(13, 7),
        Step::Branch(Branch::Zero(0), 5),
        Step::Call(Branch::If(Condition::Eq)),
        Step::Number(14, NUMBER + 1),
    ];
    for (is_masked, atomics, cell) in [(false, true, Cell::Snippet), (true, true, Cell::Snippet)] {
        let snippet = Snippet::with(&steps, is_masked, atomics, false).unwrap();
        assert_eq!(snippet.cell, cell);
        let (words, before) = built(&snippet, 0, Counters::SINK);
        let stub = words.len();
        let first = stub - usize::from(before) / 4 + if is_masked { 5 } else { 3 };
        let number = |word: usize| u64::from(words[word]) | u64::from(words[word + 1]) << 32;
        let literal = |at: usize| (at as i64 + (i64::from(words[at] << 8) as i32 as i64 >> 13)) as usize;
        assert_eq!((number(literal(first)), number(literal(first + 4))), (NUMBER, NUMBER + 1));
        assert_eq!(lines(&words[first + 1..first + 3])[0], "mov x13, #0x7");
        // The end of the steps is the code that counts hits.
        assert_eq!(lines(&words[first + 2..first + 3]), ["cbz x0, $+0xc"]);
        let call = literal(first + 3);
        let leaving = lines(&words[call..call + 1 + usize::from(is_masked)]);
        assert_eq!(leaving.len() == 2, is_masked);
        assert!(leaving.last().unwrap().starts_with("b $+"), "{leaving:?}");
        let branch = call + usize::from(is_masked);
        assert_eq!(encode::branch_target(words[branch], 4 * branch as u64), Some(4 * stub as u64));
    }
}

#[test]
fn interrupts_are_masked_for_a_part_where_they_are_not_for_all() {
    let _alone = crate::probe::tests::computer::Computer::new();
    let load = Step::Load(encode::load(Literal::Doubleword, 11, 0, 8));
    let steps = [Step::Branch(Branch::Zero(0), 4), Step::Mask, load, Step::Unmask];
    assert_eq!(
        listing(&steps, false, true),
        [
            "mrs x9, s3_0_c13_c0_4",
            "ldr x9, [x9]",
            "mov x10, #0x1",
            // Skips everything that is masked.
            "cbz x0, $+0x1c",
            "mrs x17, s3_3_c4_c2_1",
            "msr daifset, #0xf",
            "mrs x9, s3_0_c13_c0_4",
            "ldr x9, [x9]",
            "ldr x11, [x0, #0x8]",
            "msr daif, x17",
            "add x11, x9, #0x30",
            "stadd x10, [x11]",
        ]
    );
    // Without atomics, all of the snippet is masked.
    let masked = listing(&steps, false, false);
    assert_eq!(
        masked[..6].join("; "),
        "mrs x17, s3_3_c4_c2_1; msr daifset, #0xf; mrs x9, s3_0_c13_c0_4; ldr x9, [x9]; \
                                        cbz x0, $+0x8; ldr x11, [x0, #0x8]"
    );
    assert_eq!(masked.iter().filter(|line| line.starts_with("msr daif, ")).count(), 1);

    // An exit with interrupts masked restores the masks; an earlier one does not.
    let steps = [Step::Call(Branch::Zero(0)), Step::Mask, Step::Call(Branch::Zero(1)), load, Step::Unmask];
    let (words, before) = built(&Snippet::with(&steps, false, true, false).unwrap(), 0, Counters::SINK);
    let first = words.len() - usize::from(before) / 4 + 3;
    let target = |at: usize| (at as i64 + (i64::from(words[at] << 8) as i32 as i64 >> 13)) as usize;
    let (unmasked, masked) = (target(first), target(first + 5));
    assert_eq!(unmasked, masked + 1);
    assert_eq!(lines(&words[masked..masked + 1]), ["msr daif, x17"]);
    let copy = words[words.len() - 1] as usize;
    assert_eq!(masked, crate::probe::hit::snippet_cell::exit(4 * copy) / 4, "where a load that faults goes on");
    // Without masked steps, there is nothing to restore.
    let (words, _) = built(&Snippet::with(&[load], false, true, false).unwrap(), 0, Counters::SINK);
    let exit = crate::probe::hit::snippet_cell::exit(4 * words[words.len() - 1] as usize);
    assert_eq!(encode::branch_target(words[exit / 4], exit as u64), Some(4 * words.len() as u64));
}

#[test]
fn a_snippet_of_returns_has_other_registers() {
    let _alone = crate::probe::tests::computer::Computer::new();
    let store = Step::Instruction(encode::store(Snippet::RETURN_ADDRESS, 14, 0));
    let steps = [Step::Operand(14), Step::ReturnAddress(10), store];
    let snippet = Snippet::with(&steps, true, true, true).unwrap();
    let insertion = Insertion::new(&snippet, 0x1234);
    let inserted =
        Inserted { insertion: InsertionRef::new(&insertion), counters: Counters::SINK, live: None, code: None };
    let mut words = vec![0; inserted.number_words() + inserted.masked_words()];
    let mut out = Writer { words: &mut words, length: 0 };
    inserted.numbers(&mut out);
    let start = out.length;
    inserted.masked(&mut out, start + 20);
    assert_eq!(out.length, words.len());
    let number = u64::from(words[start - 2]) | u64::from(words[start - 1]) << 32;
    assert_eq!(number, trampoline::kretprobe_address() >> trampoline::SHIFT);
    let expected = [
        "ldr x14, $-0x10",
        "ldr x10, $-0xc",
        "eor x10, x10, x11, lsr #9",
        "cbz x10, $+0x44",
        "str x11, [x14]",
        "mov x10, #0x1",
        "add x11, x9, #0x30",
        "stadd x10, [x11]",
    ];
    assert_eq!(lines(&words[start..]), expected);

    let refused = |steps: &[Step]| Snippet::with(steps, true, true, true).unwrap_err();
    let at = |step, what| SnippetError::Step { step, what };
    let preserved = "writes a register that a snippet must preserve";
    for register in [9, 15, Snippet::THREAD, Snippet::MASKS] {
        assert_eq!(refused(&[Step::Operand(register)]), at(0, preserved));
        assert_eq!(refused(&[Step::ReturnAddress(register)]), at(0, preserved));
    }
    assert!(Snippet::with(&[Step::Operand(30)], true, true, true).is_ok());
    assert_eq!(Snippet::with(&[Step::Operand(30)], true, true, false).unwrap_err(), at(0, preserved));
    let changed = "uses the return address, which has been changed";
    assert_eq!(refused(&[Step::Operand(11), Step::ReturnAddress(10)]), at(1, changed));
    assert_eq!(refused(&[Step::ReturnAddress(11)]), at(0, changed));
    let turns = [Step::Number(12, 2), Step::ReturnAddress(10), Step::Number(11, 0), Step::Turn(12, 1)];
    assert_eq!(refused(&turns), at(1, changed));
    assert_eq!(refused(&[Step::Hold(12, 13)]), at(0, "takes a lock, in a snippet of returns"));
    let elsewhere = Snippet::with(&[Step::ReturnAddress(11)], true, true, false).unwrap_err();
    assert_eq!(elsewhere, at(0, "uses the return address, which only a return probe has"));
}

#[test]
fn what_breaks_a_rule_is_refused() {
    let refused = |steps: &[Step]| Snippet::with(steps, false, true, false).unwrap_err();
    let step = |what| SnippetError::Step { step: 0, what };
    assert_eq!(refused(&[Step::Instruction(PROBED)]), step("writes a register that a snippet must preserve"));
    assert_eq!(refused(&[Step::Operand(17)]), step("writes a register that a snippet must preserve"));
    assert_eq!(refused(&[Step::Instruction(0x1400_0002)]), step("is not an instruction that runs unchanged anywhere"));
    assert_eq!(refused(&[Step::Instruction(0x9100_43ff)]), step("moves the stack pointer"));
    // fmov x0, d0; ldclrp x0, x17, [x11]; ldg x0, [x11]; ldr q0, [x11]; movi v0.2d, #0; setf8 w11; cfinv;
    // mrs x11, rndr; casat x11, x12, [x0]
    for word in [
        0x9e66_0000,
        0x1931_1160,
        0xd960_0160,
        0x3dc0_0160,
        0x6f00_e400,
        0x3a00_096d,
        0xd500_401f,
        0xd53b_240b,
        0xc9cb_7c0c,
    ] {
        let what = "may change registers that are not known";
        assert_eq!(refused(&[Step::Instruction(word)]), step(what), "{word:#010x}");
    }
    // ldadd x11, x12, [x0]; ldapur x11, [x0]; mrs x11, cntvct_el0; dmb ish; adc x11, x11, x12
    for word in [0xf82b_000c, 0xd940_000b, 0xd53b_e04b, 0xd503_3bbf, 0x9a0c_016b] {
        assert!(Snippet::with(&[Step::Instruction(word)], false, true, false).is_ok(), "{word:#010x}");
    }
    assert_eq!(refused(&[Step::Branch(Branch::Always, 0)]), step("does not branch forwards"));
    assert_eq!(refused(&[Step::Branch(Branch::Always, 2)]), step("does not branch forwards"));
    assert_eq!(refused(&[Step::Call(Branch::Literal(11))]), step("is not a branch"));
    assert_eq!(refused(&[Step::Load(PROBED)]), step("writes a register that a snippet must preserve"));
    assert_eq!(refused(&[Step::Unmask]), step("unmasks interrupts that are not masked"));
    let at = |step, what| SnippetError::Step { step, what };
    assert_eq!(refused(&[Step::Mask]), at(1, "is reached with interrupts masked"));
    assert_eq!(refused(&[Step::Mask, Step::Mask]), at(1, "masks interrupts that are masked"));
    let leaves = [Step::Mask, Step::Branch(Branch::Zero(0), 3), Step::Unmask];
    assert_eq!(refused(&leaves), at(1, "branches to a step with other interrupt masks"));
    let load = Step::Load(encode::load(Literal::Doubleword, 11, 0, 0));
    assert_eq!(refused(&[load, Step::Mask, Step::Unmask]), at(0, "may fault with interrupts unmasked"));
    assert_eq!(refused(&[Step::Instruction(NOP); 100]), step("is not an instruction that runs unchanged anywhere"));
    let add = Step::Instruction(encode::add(11, 0, 1));
    assert_eq!(refused(&[add; 100]), SnippetError::Long);
    assert_eq!(Snippet::with(&[add; 50], false, true, false).unwrap().cell, Cell::LongSnippet);
}
