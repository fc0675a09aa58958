//! Tests the words with an independent decoder. The effects of sequences are tested in `relocate`.

use std::string::{String, ToString};
use std::vec::Vec;

use yaxpeax_arch::{Decoder, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

use super::*;

fn text(word: u32) -> String {
    let bytes = word.to_le_bytes();
    InstDecoder::default().decode(&mut U8Reader::new(&bytes)).expect("an instruction").to_string()
}

#[test]
fn breakpoints_carry_their_comment() {
    assert_eq!((BRK_KPROBE, BRK_STEP), (0xd420_0080, 0xd420_00c0));
    assert_eq!(text(BRK_KPROBE), "brk #0x4");
    assert_eq!(text(brk(0xffff)), "brk #0xffff");
}

#[test]
fn branches_reach_128_mebibytes_and_no_further() {
    let here = 0xffff_ffc0_0000_0000;
    for (to, word) in [
        (here, 0x1400_0000),
        (here + 4, 0x1400_0001),
        (here - 4, 0x17ff_ffff),
        (here + (1 << 27) - 4, 0x15ff_ffff),
        (here - (1 << 27), 0x1600_0000),
    ] {
        assert_eq!(branch(here, to), Ok(word));
        assert_eq!(branch_link(here, to), Ok(word | 0x8000_0000));
        assert_eq!(branch_target(word, here), Some(to));
        assert_eq!(branch_target(word | 0x8000_0000, here), None);
    }
    for to in [here + (1 << 27), here - (1 << 27) - 4, here + 2, here + 1, 0x1000] {
        assert_eq!(branch(here, to), Err(OutOfRange { from: here, to }));
        assert_eq!(branch_link(here, to), Err(OutOfRange { from: here, to }));
    }
    assert_eq!(branch(u64::MAX - 3, 4), Ok(0x1400_0002));
    assert_eq!(branch_target(0x1400_0002, u64::MAX - 3), Some(4));
}

#[test]
fn a_word_is_redirected_as_far_as_its_field_reaches() {
    let here = 0xffff_ffc0_0000_0000;
    let cbz = 0xb4ff_ffe5; // cbz x5, -4
    assert_eq!(text(redirect::<19>(cbz, here, here + (1 << 20) - 4).unwrap()), "cbz x5, $+0xffffc");
    assert_eq!(text(redirect::<19>(cbz, here, here - (1 << 20)).unwrap()), "cbz x5, $-0x100000");
    let tbnz = 0xb7ff_ffe5; // tbnz x5, #63, -4
    assert_eq!(text(redirect::<14>(tbnz, here, here + (1 << 15) - 4).unwrap()), "tbnz x5, #0x3f, $+0x7ffc");
    assert_eq!(text(redirect::<14>(tbnz, here, here - (1 << 15)).unwrap()), "tbnz x5, #0x3f, $-0x8000");
    for to in [here + (1 << 20), here - (1 << 20) - 4, here + 2] {
        assert_eq!(redirect::<19>(cbz, here, to), None);
    }
    for to in [here + (1 << 15), here - (1 << 15) - 4, here + 2] {
        assert_eq!(redirect::<14>(tbnz, here, to), None);
    }
}

#[test]
fn words_are_what_they_are_called() {
    for (word, expected) in [
        (branch_register(17), "br x17"),
        (add(3, 4, 0xfff), "add x3, x4, #0xfff"),
        (add(SP, SP, 288), "add sp, sp, #0x120"),
        (store_pair_before(0, 1, SP, -304), "stp x0, x1, [sp, #-0x130]!"),
        (load_pair_after(0, 1, SP, 304), "ldp x0, x1, [sp], #0x130"),
        (load_after(9, SP, 48), "ldr x9, [sp], #0x30"),
        (load_after(9, 10, -256), "ldr x9, [x10], #-0x100"),
        (store(30, SP, 240), "str x30, [sp, #0xf0]"),
        (subtract(SP, SP, 288), "sub sp, sp, #0x120"),
        (load(Literal::Word, 1, 2, 0x3ffc), "ldr w1, [x2, #0x3ffc]"),
        (load(Literal::SignedWord, 1, 2, 0x104), "ldrsw x1, [x2, #0x104]"),
        (load(Literal::Doubleword, 1, SP, 0x3ff8), "ldr x1, [sp, #0x3ff8]"),
        (load_bytes(1, 1, 2, 0xfff), "ldrb w1, [x2, #0xfff]"),
        (load_bytes(2, 1, 2, 0x1ffe), "ldrh w1, [x2, #0x1ffe]"),
        (load_bytes(4, 1, SP, 0x3ffc), "ldr w1, [sp, #0x3ffc]"),
        (load_bytes(8, 1, 2, 0x7ff8), "ldr x1, [x2, #0x7ff8]"),
        (load_bytes_at(1, 1, 2, 3), "ldrb w1, [x2, x3]"),
        (load_bytes_at(2, 1, 2, 3), "ldrh w1, [x2, x3]"),
        (load_bytes_at(4, 1, 2, 3), "ldr w1, [x2, x3]"),
        (load_at(1, 2, 3), "ldr x1, [x2, x3]"),
        (store_at(1, 2, 3), "str x1, [x2, x3]"),
        (store_pair(0, 30, SP, 240), "stp x0, x30, [sp, #0xf0]"),
        (store_pair(0, 1, 2, -512), "stp x0, x1, [x2, #-0x200]"),
        (load_pair(0, 30, SP, 504), "ldp x0, x30, [sp, #0x1f8]"),
        (read_daif(7), "mrs x7, s3_3_c4_c2_1"),
        (write_daif(7), "msr s3_3_c4_c2_1, x7"),
        (MASK_INTERRUPTS, "msr pstate.0x1e, #0xf"),
    ] {
        assert_eq!(text(word), expected);
    }
}

#[test]
fn compiled_words_are_what_they_are_called() {
    use compute::*;
    for (how, name) in [
        (Binary::Add, "add"),
        (Binary::Subtract, "sub"),
        (Binary::SubtractCarry, "sbc"),
        (Binary::SubtractFlags, "subs"),
        (Binary::And, "and"),
        (Binary::Or, "orr"),
        (Binary::Xor, "eor"),
        (Binary::Multiply, "mul"),
        (Binary::Divide, "udiv"),
        (Binary::DivideSigned, "sdiv"),
        (Binary::Left, "lsl"),
        (Binary::Right, "lsr"),
        (Binary::RightSigned, "asr"),
    ] {
        assert_eq!(text(compute(how, 1, 2, 30)), std::format!("{name} x1, x2, x30"));
    }
    for (word, expected) in [
        (compute(Binary::SubtractFlags, 31, 2, 3), "cmp x2, x3"),
        (add_shifted(1, 2, 3, 63), "add x1, x2, x3, lsl #63"),
        (xor_shifted(1, 2, 3, 32), "eor x1, x2, x3, lsr #32"),
        (or_shifted(1, 2, 3, 32), "orr x1, x2, x3, lsl #32"),
        (copy(1, 2), "mov x1, x2"),
        (multiply_add(1, 2, 3, 4), "madd x1, x2, x3, x4"),
        (multiply_subtract(1, 2, 3, 4), "msub x1, x2, x3, x4"),
        (compare(30, 0xfff), "cmp x30, #0xfff"),
        (compare_if(Condition::Eq, 1, 2), "ccmp x1, x2, #0x0, eq"),
        (select(Condition::Lt, 1, 31, 2), "csel x1, xzr, x2, lt"),
        (set_if(Condition::Hi, 9), "cset x9, hi"),
        (extend(false, 1, 2, 8), "ubfx x1, x2, #0x0, #0x8"),
        (extend(false, 1, 2, 32), "ubfx x1, x2, #0x0, #0x20"),
        (extract(false, 1, 2, 3, 9), "ubfx x1, x2, #0x3, #0x9"),
        (extract(false, 1, 2, 63, 1), "lsr x1, x2, #0x3f"),
        (extract(true, 1, 2, 16, 8), "sbfx x1, x2, #0x10, #0x8"),
        (extract(true, 1, 2, 32, 32), "asr x1, x2, #0x20"),
        (insert_in_zeros(1, 2, 0, 8), "ubfx x1, x2, #0x0, #0x8"),
        (insert_in_zeros(1, 2, 8, 8), "ubfiz x1, x2, #0x8, #0x8"),
        (insert_in_zeros(1, 2, 48, 16), "lsl x1, x2, #0x30"),
        (insert(1, 2, 8, 32), "bfi x1, x2, #0x8, #0x20"),
        (insert(1, 2, 40, 24), "bfi x1, x2, #0x28, #0x18"),
        (extend(true, 1, 2, 16), "sxth x1, w2"),
        (extend(true, 1, 2, 3), "sbfx x1, x2, #0x0, #0x3"),
        (shift_right(1, 2, 63), "lsr x1, x2, #0x3f"),
        (shift_left(1, 2, 1), "lsl x1, x2, #0x1"),
        (shift_left(1, 2, 63), "lsl x1, x2, #0x3f"),
        (leading_zeros(1, 2), "clz x1, x2"),
        (load_exclusive(1, 2), "ldaxr x1, [x2]"),
        (store_exclusive(3, 1, 2), "stxr w3, x1, [x2]"),
        (store_release(1, 2), "stlr x1, [x2]"),
        (read_thread(1), "mrs x1, s3_0_c13_c0_4"),
        (read_counter(1), "mrs x1, cntvct_el0"),
        (call_register(17), "blr x17"),
        (RETURN, "ret"),
    ] {
        assert_eq!(text(word), expected);
    }
}

#[test]
fn compiled_branches_reach_as_far_as_their_fields() {
    use compute::{Branch, Condition};
    const SMALL: i64 = 1 << 15;
    const LARGE: i64 = 1 << 20;
    for (branch, reach, expected) in [
        (Branch::Always, 1 << 27, "b $+0x8"),
        (Branch::If(Condition::Ls), LARGE, "b.ls $+0x8"),
        (Branch::Zero(3), LARGE, "cbz x3, $+0x8"),
        (Branch::NotZero(3), LARGE, "cbnz x3, $+0x8"),
        (Branch::NotZeroWord(3), LARGE, "cbnz w3, $+0x8"),
        (Branch::BitClear(3, 31), SMALL, "tbz w3, #0x1f, $+0x8"),
        (Branch::Literal(3), LARGE, "ldr x3, $+0x8"),
    ] {
        assert_eq!(branch.word(8).map(text).as_deref(), Some(expected));
        assert!(branch.word(reach - 4).is_some() && branch.word(-reach).is_some(), "{expected}");
        assert!(branch.word(reach).is_none() && branch.word(-reach - 4).is_none(), "{expected}");
    }
    for condition in [Condition::Eq, Condition::Hs, Condition::Hi, Condition::Ge, Condition::Gt] {
        assert_eq!(condition.inverse() as u8, condition as u8 ^ 1);
        assert_eq!(condition.inverse().inverse(), condition);
    }
}

#[test]
fn constants_take_as_few_words_as_can_hold_them() {
    for (value, expected) in [
        (0, &["mov x9, #0x0"][..]),
        (u64::MAX, &["mov x9, #0xffffffffffffffff"]),
        (0x1_0000, &["mov x9, #0x10000"]),
        (0xffff_ffff_ffff_1234, &["mov x9, #0xffffffffffff1234"]),
        (0xffff_1234_ffff_ffff, &["mov x9, #0xffff1234ffffffff"]),
        (0xffff_0000_0000_0000, &["mov x9, #0xffff000000000000"]),
        (
            0xffff_ffc0_0012_3000,
            &["mov x9, #0xffffffffffff3000", "movk x9, #0x12, lsl #16", "movk x9, #0xffc0, lsl #32"],
        ),
        (0x0000_ffff_0000_ffff, &["mov x9, #0xffff", "movk x9, #0xffff, lsl #32"]),
        (
            0x1111_2222_3333_4444,
            &["mov x9, #0x4444", "movk x9, #0x3333, lsl #16", "movk x9, #0x2222, lsl #32", "movk x9, #0x1111, lsl #48"],
        ),
    ] {
        let mut code = Code::<4>::new(0);
        code.constant(9, value);
        assert_eq!(code.words().iter().map(|&word| text(word)).collect::<Vec<_>>(), expected, "{value:#x}");
    }
}

#[test]
fn addresses_take_one_word_where_they_can() {
    let here = 0xffff_ffc0_0012_3ffc;
    let page = here & !0xfff;
    for (value, expected) in [
        (here + 0xf_ffff, &["adr x9, $+0xfffff"][..]),
        (here - 0x10_0000, &["adr x9, $-0x100000"]),
        (page + 0x20_0000, &["adrp x9, $+0x200000"]),
        (here + 0x10_0000, &["adrp x9, $+0x100000", "add x9, x9, #0xffc"]),
        (page + 0xffff_ffff, &["adrp x9, $+0xfffff000", "add x9, x9, #0xfff"]),
        (page - 0x1_0000_0000, &["adrp x9, $-0x100000000"]),
        (
            page + 0x1_0000_0000,
            &["mov x9, #0xffffffffffff3000", "movk x9, #0x12, lsl #16", "movk x9, #0xffc1, lsl #32"],
        ),
        (
            page - 0x1_0000_0001,
            &["mov x9, #0xffffffffffff2fff", "movk x9, #0x12, lsl #16", "movk x9, #0xffbf, lsl #32"],
        ),
        (0, &["mov x9, #0x0"]),
    ] {
        let mut code = Code::<4>::new(here);
        code.address(9, value);
        assert_eq!(code.words().iter().map(|&word| text(word)).collect::<Vec<_>>(), expected, "{value:#x}");
    }
}

#[test]
fn code_knows_where_its_next_word_goes() {
    let mut code = Code::<3>::new(0x1000);
    code.push(BRK_STEP);
    assert_eq!(code.here(), 0x1004);
    assert_eq!(code.branch(0x1000), Ok(()));
    assert_eq!(code.branch(1 << 32), Err(OutOfRange { from: 0x1008, to: 1 << 32 }));
    assert_eq!(code.words(), [BRK_STEP, 0x17ff_ffff]);
}
