//! Surveys are read back as they were written; other bytes are refused.

use std::format;

use kprobes_random::Random;

use super::*;
use crate::insn::{Live, Registers};

const START: u64 = 0xffff_ffc0_0000_1000;
const TEXT: Range<u64> = START..START + 0x34;

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
    let rows: Vec<_> = survey.preservers.rows(START).collect();
    assert!(rows.contains(&Some([0x28, 4, crate::insn::SCRATCH.bits(), x9.bits()])), "{rows:?}");

    let bytes = survey.to_bytes().unwrap();
    for text in [TEXT, TEXT.start + 4..TEXT.end - 4] {
        let read = Survey::from_bytes(text, &bytes).unwrap();
        assert_eq!(format!("{read:?}"), format!("{survey:?}"));
    }
}

#[test]
fn one_of_less_text_is_refused() {
    let bytes = survey().to_bytes().unwrap();
    for text in [TEXT.start - 4..TEXT.end, TEXT.start..TEXT.end + 4, 0..4, u64::MAX - 3..u64::MAX] {
        assert!(Survey::from_bytes(text.clone(), &bytes).is_none(), "{text:#x?}");
    }
}

#[test]
fn other_bytes_are_refused() {
    let bytes = survey().to_bytes().unwrap();
    let part = |bytes: &[u8]| Survey::from_bytes(TEXT, bytes);
    for length in (0..bytes.len()).filter(|length| *length < 16 || !length.is_multiple_of(16)) {
        assert!(part(&bytes[..length]).is_none(), "{length} bytes");
    }
    // The functions are no longer in order.
    let mut disordered = bytes.clone();
    let last = disordered.len() - 16;
    disordered[last..last + 4].fill(0);
    assert!(part(&disordered).is_none());

    let mut random = Random::new(1);
    for _ in 0..1000 {
        let mut damaged = bytes.clone();
        let at = random.below(damaged.len());
        damaged[at] = random.value() as u8;
        drop(part(&damaged));
    }
}
