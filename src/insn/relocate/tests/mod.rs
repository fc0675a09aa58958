//! Tests what copies look like, and then what they do: random instructions in random places, compared with their
//! simulation.

mod interpreter;
mod random;

use std::string::ToString;
use std::vec::Vec;

use super::*;
use crate::insn::classify;

const FROM: u64 = 0xffff_ffc0_0012_3ff8;
/// The address of a copy that is further away than conditional branches and ADR reach.
const FAR: u64 = FROM + 0x0400_0000;
const TEXT: Range<u64> = 0xffff_ffc0_0000_0000..0xffff_ffc0_0020_0000;

/// `b`, with a distance in words.
const fn b(words: i32) -> u32 {
    0x1400_0000 | words as u32 & 0x03ff_ffff
}

/// Returns the distance in words from word `index` of a copy at [`FAR`] back to `address`.
const fn back(index: u64, address: u64) -> i32 {
    (address.wrapping_sub(FAR + 4 * index).cast_signed() >> 2) as i32
}

fn relocation(to: u64, guard: Guard) -> Relocation {
    Relocation { from: FROM, to, guard, text: TEXT }
}

fn words(word: u32, to: u64) -> Result<Vec<u32>, NotRelocatable> {
    relocate(word, classify(word), &relocation(to, Guard::Absent)).map(|code| code.words().to_vec())
}

#[test]
fn ordinary_instructions_are_copied_and_return() {
    for word in [0x9100_0421, 0xd503_233f, 0xa9bf_7bfd, 0xd503_207f] {
        assert_eq!(words(word, FAR), Ok([word, b(back(1, FROM + 4))].to_vec()), "{word:#010x}");
        assert_eq!(boost(word, FROM, FAR), Ok([word, b(back(1, FROM + 4))]));
    }
    let far = FROM + (1 << 27);
    assert_eq!(boost(0x9100_0421, FROM, far), Ok([0x9100_0421, b(-(1 << 25))]));
    assert_eq!(boost(0x9100_0421, FROM, far + 4), Err(OutOfRange { from: far + 8, to: FROM + 4 }));
    assert_eq!(words(0x9100_0421, far), Ok([0x9100_0421, b(-(1 << 25))].to_vec()));
    let error = NotRelocatable::OutOfRange(OutOfRange { from: far + 8, to: FROM + 4 });
    assert_eq!(words(0x9100_0421, far + 4), Err(error));
}

#[test]
fn a_multiply_accumulate_comes_behind_no_load() {
    // madd x0, x1, x2, x3; msub; smaddl; smsubl; umaddl; umsubl.
    for word in [0x9b02_0c20, 0x9b02_8c20, 0x9b22_0c20, 0x9b22_8c20, 0x9ba2_0c20, 0x9ba2_8c20] {
        assert_eq!(words(word, FAR), Ok([0xd503_201f, word, b(back(2, FROM + 4))].to_vec()), "{word:#010x}");
    }
    // mul x0, x1, x2; mneg; smull; smulh; umulh; madd w0, w1, w2, w3.
    for word in [0x9b02_7c20, 0x9b02_fc20, 0x9b22_7c20, 0x9b42_7c20, 0x9bc2_7c20, 0x1b02_0c20] {
        assert_eq!(words(word, FAR), Ok([word, b(back(1, FROM + 4))].to_vec()), "{word:#010x}");
    }
}

#[test]
fn what_does_nothing_takes_the_branch_only() {
    // nop, yield, wfe, dgh; prfm; adr xzr, adrp xzr.
    for word in [0xd503_201f, 0xd503_203f, 0xd503_205f, 0xd503_20df, 0xd800_0040, 0x1000_003f, 0x9000_003f] {
        assert_eq!(words(word, FAR), Ok([b(back(0, FROM + 4))].to_vec()), "{word:#010x}");
    }
}

#[test]
fn what_a_processor_may_lack_is_copied_for_it_to_execute() {
    // wfet x3, wfit x3.
    for word in [0xd503_1003, 0xd503_1023] {
        assert_eq!(words(word, FAR), Ok([word, b(back(1, FROM + 4))].to_vec()), "{word:#010x}");
    }
    // bc.hi +8.
    let copy = words(0x5400_0058, FAR).unwrap();
    assert_eq!(copy, [0x5400_0058, b(back(1, FROM + 4)), b(back(2, FROM + 8))]);
}

#[test]
fn a_branch_that_does_not_reach_is_led_over_another() {
    for word in [0x5400_0048, 0x5400_005f, 0xb400_0045, 0x3700_0045] {
        let copy = words(word, FAR).unwrap();
        assert_eq!(copy, [word, b(back(1, FROM + 4)), b(back(2, FROM + 8))], "{word:#010x}"); // it goes to +8 here too
    }
    // cbz x5, +8, from a copy that lies after it.
    assert_eq!(words(0xb400_0045, FROM + 0x10_0000), Ok([0xb480_0045, b(-(0x10_0000 >> 2))].to_vec()));
}

#[test]
fn indirect_branches_do_not_return() {
    for word in [0xd61f_0060, 0xd65f_03c0, 0xd65f_0bff, 0xd71f_0886] {
        for guard in [Guard::Absent, Guard::Unguarded, Guard::Guarded] {
            // They do not depend on the distance either.
            let code = relocate(word, classify(word), &relocation(0x1000, guard)).unwrap();
            assert_eq!(code.words(), [word], "{word:#010x}");
        }
    }
}

#[test]
fn calls_by_register_are_jumps_where_no_landing_pad_looks() {
    let blr_x16 = 0xd63f_0200;
    let copy = words(blr_x16, FROM + 0x1000).unwrap();
    assert_eq!(copy, [0x10ff_803e, 0xd61f_0200]); // adr x30, -0xffc; br x16
    for guard in [Guard::Unguarded, Guard::Guarded] {
        let copy = relocate(blr_x16, classify(blr_x16), &relocation(FAR, guard));
        assert_eq!(copy, Err(NotRelocatable::CheckedCall));
    }
    assert_eq!(words(0xd63f_03c0, FAR), Err(NotRelocatable::CallOfLink)); // blr x30
    for word in [0xd63f_089f, 0xd63f_0c9f, 0xd73f_0886, 0xd73f_0c86] {
        assert_eq!(words(word, FAR), Err(NotRelocatable::AuthenticatedCall), "{word:#010x}");
    }
}

#[test]
fn landing_pads_stay_where_they_are_checked() {
    // paciasp, pacibsp, bti c, bti j, bti jc.
    for word in [0xd503_233f, 0xd503_237f, 0xd503_245f, 0xd503_249f, 0xd503_24df] {
        let copy = relocate(word, classify(word), &relocation(FAR, Guard::Guarded));
        assert_eq!(copy, Err(NotRelocatable::LandingPad), "{word:#010x}");
        for guard in [Guard::Absent, Guard::Unguarded] {
            let code = relocate(word, classify(word), &relocation(FAR, guard)).unwrap();
            assert_eq!(code.words()[0], word);
        }
        assert_eq!(boost(word, FROM, FAR).unwrap()[0], word);
    }
    // bti, autiasp, paciaz, pacia1716, add, nop, ret.
    for word in [0xd503_241f, 0xd503_23bf, 0xd503_231f, 0xd503_211f, 0x9100_0421, 0xd503_201f, 0xd65f_03c0] {
        assert!(relocate(word, classify(word), &relocation(FAR, Guard::Guarded)).is_ok(), "{word:#010x}");
    }
}

#[test]
fn a_literal_is_loaded_in_two_steps_only_if_the_second_cannot_fault() {
    let ldr = |kind: u32, rt: u32, words: i32| kind | (words as u32 & 0x7_ffff) << 5 | rt;
    let (w, x, sw) = (0x1800_0000, 0x5800_0000, 0x9800_0000);
    let literal = |words: i32| FROM.wrapping_add_signed(i64::from(words) * 4);
    // At the end of the text, where w and sw fit, but x does not.
    let last = ((TEXT.end - 4 - FROM) / 4) as i32;
    for rt in [0, 7, 30] {
        for (kind, words) in [(w, last), (sw, last), (x, last - 1), (w, 0), (x, 0), (w, 1), (x, -2)] {
            assert_eq!(self::words(ldr(kind, rt, words), FAR).map(|copy| copy.len()), Ok(3));
        }
        // Across the end of the text, after it, and not aligned.
        for (kind, words) in [(x, last), (w, last + 1), (x, last + 1), (sw, last + 1), (x, 1), (x, -1)] {
            let error = NotRelocatable::Literal { address: literal(words) };
            assert_eq!(self::words(ldr(kind, rt, words), FAR), Err(error), "{words}");
        }
    }
    // Before the start of the text, and across an end that is not aligned.
    for text in [FROM + 8..TEXT.end, TEXT.start..FROM + 4] {
        let relocation = Relocation { text, ..relocation(FAR, Guard::Absent) };
        let word = ldr(x, 3, 0);
        let error = NotRelocatable::Literal { address: FROM };
        assert_eq!(relocate(word, classify(word), &relocation), Err(error));
    }
    // All of this does not matter if the load takes one step.
    for rt in [0, 31] {
        let copy = self::words(ldr(x, rt, last), FROM + 8).unwrap();
        assert_eq!(copy, [ldr(x, rt, last - 2), b(-2)]);
    }
    assert_eq!(self::words(ldr(x, 31, 0), FAR), Err(NotRelocatable::LoadOfZeroRegister));
}

#[test]
fn what_cannot_be_probed_is_not_relocated() {
    let svc = 0xd400_0001;
    assert_eq!(words(svc, FAR), Err(NotRelocatable::Refused(Reason::ExceptionGenerating)));
}

#[test]
fn reasons_read_as_the_end_of_a_sentence() {
    for reason in [
        NotRelocatable::Refused(Reason::LoadExclusive),
        NotRelocatable::OutOfRange(OutOfRange { from: FROM, to: 0 }),
        NotRelocatable::LandingPad,
        NotRelocatable::CallOfLink,
        NotRelocatable::CheckedCall,
        NotRelocatable::AuthenticatedCall,
        NotRelocatable::LoadOfZeroRegister,
        NotRelocatable::Literal { address: FROM },
        NotRelocatable::BeforeWait,
    ] {
        let text = reason.to_string();
        assert!(text.starts_with(|first: char| first.is_ascii_lowercase()), "{text}");
        assert!(!text.ends_with('.'), "{text}");
    }
    assert!(NotRelocatable::Literal { address: FROM }.to_string().contains("0xffffffc000123ff8"));
}
