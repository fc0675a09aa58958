//! Surveys are read back as they were written; other bytes are refused.

use std::format;

use kprobes_random::Random;

use super::*;
use crate::insn::{Live, Registers};

const START: u64 = 0xffff_ffc0_0000_1000;
const TEXT: Range<u64> = START..START + 0x34;
/// The virtual address of `__kprobes_text_start`.
const REGION: u64 = START - 0x800;

/// The survey of a text with functions that preserve a register, that have a result, and whose caller cannot be
/// followed.
fn survey() -> Survey {
    let words: [u32; 13] = [
        0xd280_0029, // mov x9, #1
        0x9400_0009, // bl 10: it preserves x9
        0xaa09_03e0, // mov x0, x9
        0x9400_0008, // bl 11: it has a result in x10
        0xaa0a_03e0, // mov x0, x10
        0xd65f_03c0, // ret
        0x9400_0006, // bl 12: nothing is known of what follows
        0xd61f_0000, // br x0
        0xd503_201f, // nop
        0xd503_201f, // nop
        0xd65f_03c0, // ret
        0xd280_002a, // mov x10, #1
        0xd65f_03c0, // ret
    ];
    let word = |at: u64| (at.checked_sub(START).unwrap() / 4) as usize;
    let bounds = |at: u64| {
        let starts = [0, 6, 10, 11, 12, 13].map(|word| START + 4 * word);
        let next = starts.iter().position(|&start| start > at)?;
        Some(starts[next - 1]..starts[next])
    };
    Survey::of_text(TEXT, &|at| words.get(word(at)).copied(), &bounds).unwrap()
}

#[test]
fn is_read_back_as_it_was_written() {
    let survey = survey();
    let (x9, x10) = (Registers::x(9), Registers::x(10));
    let at = |word: u64| START + 4 * word;
    assert_eq!(survey.results.by(at(10)), Some(Live::Read { register: x9, reader: at(2) }));
    assert_eq!(survey.results.by(at(11)), Some(Live::Read { register: x10, reader: at(4) }));
    assert_eq!(survey.results.by(at(12)), Some(Live::Lost { register: x9, end: at(7) }));
    let rows: Vec<_> = survey.preservers.rows(&TEXT).collect();
    assert!(rows.contains(&[0x28, 4, crate::insn::SCRATCH.bits(), x9.bits()]), "{rows:?}");

    let bytes = survey.to_bytes(REGION).unwrap();
    for text in [TEXT, TEXT.start + 4..TEXT.end - 4] {
        let read = Survey::from_bytes(text, REGION, &bytes).unwrap();
        assert_eq!(format!("{read:?}"), format!("{survey:?}"));
    }
}

#[test]
fn functions_inside_sequences_are_read_back() {
    let words = [
        0xc85f_7d28, // ldxr x8, [x9]
        0x9400_0004, // bl 5
        0xc80a_7d28, // stxr w10, x8, [x9]
        0x35ff_ffaa, // cbnz w10, 0
        0xd65f_03c0, // ret
        0x9100_0508, // add x8, x8, #1
        0xd65f_03c0, // ret
    ];
    let read = |at: u64| words.get(usize::try_from(at.checked_sub(START)? / 4).ok()?).copied();
    let bounds = |at: u64| Some(if at < START + 20 { START..START + 20 } else { START + 20..START + 28 });
    let text = START..START + 28;
    let survey = Survey::of_text(text.clone(), &read, &bounds).unwrap();
    let bytes = survey.to_bytes(REGION).unwrap();
    let callees = Survey::sequence_callees(text.clone(), REGION, &bytes).unwrap();
    assert_eq!(callees.around(START + 20..START + 28), Some(START));
    assert_eq!(callees.around(START..START + 20), None);
    assert_eq!(format!("{:?}", Survey::from_bytes(text, REGION, &bytes).unwrap()), format!("{survey:?}"));
    assert!(Survey::sequence_callees(0..4, REGION, &bytes).is_none());
}

#[test]
fn data_that_looks_like_a_call_of_something_else_has_no_row() {
    // bl -0x4000, whose result the next word would read.
    let words = [0x97ff_f000, 0xaa09_03e0, 0xd65f_03c0];
    let read = |at: u64| words.get(usize::try_from(at.checked_sub(START)? / 4).ok()?).copied();
    let survey = Survey::of_text(START..START + 12, &read, &|_| None).unwrap();
    assert!(survey.results.by(START - 0x4000).is_some());
    assert_eq!(survey.to_bytes(REGION).unwrap().len(), 24, "the header alone");
}

#[test]
fn one_of_less_text_or_of_another_image_is_refused() {
    let bytes = survey().to_bytes(REGION).unwrap();
    for text in [TEXT.start - 4..TEXT.end, TEXT.start..TEXT.end + 4, 0..4, u64::MAX - 3..u64::MAX] {
        assert!(Survey::from_bytes(text.clone(), REGION, &bytes).is_none(), "{text:#x?}");
    }
    for region in [REGION + 0x1000, REGION - 4, 0] {
        assert!(Survey::from_bytes(TEXT, region, &bytes).is_none(), "{region:#x}");
    }
}

#[test]
fn damaged_bytes_are_refused() {
    let bytes = survey().to_bytes(REGION).unwrap();
    let read = |bytes: &[u8]| Survey::from_bytes(TEXT, REGION, bytes);
    for length in (0..bytes.len()).filter(|length| *length < 24 || length % 16 != 8) {
        assert!(read(&bytes[..length]).is_none(), "{length} bytes");
    }
    let mut changed = bytes.clone();
    changed[8] |= 2;
    assert!(read(&changed).is_none(), "a length of part of a word");
    let mut changed = bytes.clone();
    let last = changed.len() - 16;
    changed[last..last + 4].fill(0);
    assert!(read(&changed).is_none(), "functions that are not in order");
    for number in [16..20, 20..24] {
        let mut changed = bytes.clone();
        changed[number].fill(0xff);
        assert!(read(&changed).is_none(), "more functions than there are");
    }
}

#[test]
fn no_bytes_make_the_reader_panic() {
    let bytes = survey().to_bytes(REGION).unwrap();
    let mut random = Random::new(1);
    for _ in 0..1000 {
        let mut damaged = bytes.clone();
        damaged[random.below(bytes.len())] = random.value() as u8;
        drop(Survey::from_bytes(TEXT, REGION, &damaged));
    }
}
