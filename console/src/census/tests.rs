use std::string::ToString;
use std::vec::Vec;

use aarch64_kprobes::insn::Reason;
use aarch64_kprobes::insn::Sequences;
use kprobes_random::Random;

use super::class::Simulation;
use super::*;

const NOP: u32 = 0xd503_201f;
const ADD: u32 = 0x9100_0400;
const RET: u32 = 0xd65f_03c0;
const SVC: u32 = 0xd400_0001;
const LDXR: u32 = 0xc85f_7c20;
const STXR: u32 = 0xc804_7c20;
/// `cbnz w4, #-16` and `b.ne #16`.
const CBNZ_BACK: u32 = 0x35ff_ff84;
const B_NE: u32 = 0x5400_0081;

const START: usize = 0x8_0000;

/// No data except words that instructions read, and no static events.
const PLAIN: At = At { has_data: |_| false, is_event: |_| false };

fn census(functions: &[(usize, &[u32])], blacklist: Range<usize>) -> Census {
    let mut census = Census::default();
    for (start, words) in functions {
        census.add(*start, words, &blacklist, PLAIN).unwrap();
    }
    census
}

/// The word is a NOP, which would be simulated elsewhere.
#[test]
fn the_site_of_an_event_is_refused() {
    let at = At { is_event: |address| address == START + 4, ..PLAIN };
    let classes = survey(START, &[NOP, NOP, RET], &(0..0), at).unwrap().map(|outcome| Class::of(&outcome));
    let simulated = [Simulation::Hint, Simulation::BranchRegister].map(Class::Simulated);
    assert_eq!(classes.collect::<Vec<_>>(), [simulated[0], Class::Instruction(Reason::EventSite), simulated[1]]);
}

#[test]
fn instructions_are_counted_by_class() {
    let census = census(&[(START, &[ADD, NOP, SVC, RET]), (0x9_0000, &[RET, ADD])], 0x9_0004..0xa_0000);
    let counts: Vec<_> =
        census.classes.iter().map(|&(class, count)| (class, count.instructions, count.entries)).collect();
    assert_eq!(
        counts,
        [
            (Class::Slot, 1, 1),
            (Class::Simulated(Simulation::Hint), 1, 0),
            (Class::Simulated(Simulation::BranchRegister), 2, 1),
            (Class::Blacklisted, 1, 0),
            (Class::Instruction(Reason::ExceptionGenerating), 1, 0),
        ]
    );
    assert_eq!(census.instructions(), 6);
}

/// A compare-and-exchange: a load, an early exit if the value differs, the store, a retry, and the code after it.
const EXCHANGE: [u32; 8] = [ADD, LDXR, ADD, B_NE, STXR, CBNZ_BACK, NOP, RET];

#[test]
fn sequences_are_found_along_control_flow() {
    let answers: Vec<_> =
        survey(START, &EXCHANGE, &(0..0), PLAIN).unwrap().map(|outcome| Class::of(&outcome)).collect();
    let refused = |reason| Class::Instruction(reason);
    assert_eq!(
        answers[..5],
        [
            Class::Slot,
            refused(Reason::LoadExclusive),
            Class::Exclusive,
            Class::Exclusive,
            refused(Reason::StoreExclusive)
        ]
    );
    assert!(answers[5..].iter().all(|class| class.accepts()), "{answers:?}");
}

#[test]
fn the_table_has_sums_and_shares() {
    let text = census(&[(START, &EXCHANGE), (0x9_0000, &[SVC, ADD])], 0..0).to_string();
    let expected = "    instructions  function entries
      10 100.00 %         2 100.00 %  all
       2  20.00 %         1  50.00 %  run in a slot
       3  30.00 %         0   0.00 %  simulated
       1  10.00 %         0   0.00 %    nop and other hints
       1  10.00 %         0   0.00 %    cbz, cbnz
       1  10.00 %         0   0.00 %    br, blr, ret
       5  50.00 %         1  50.00 %  refused
       2  20.00 %         0   0.00 %    lies between a load-exclusive and its store-exclusive
       1  10.00 %         0   0.00 %    is a load-exclusive
       1  10.00 %         0   0.00 %    is a store-exclusive
       1  10.00 %         1  50.00 %    generates an exception of its own
Outside exclusive sequences and the blacklist, 5 of 6 instructions accept a probe: 83.33 %
";
    assert_eq!(text, expected);
    assert_eq!(Percent(9_999, 10_000).to_string(), "99.99 %");
    assert_eq!(Percent(99_999, 100_000).to_string(), "99.99 %");
    assert_eq!(Percent(0, 0).to_string(), "-");
}

#[test]
fn the_survey_agrees_with_the_check_of_each_address() {
    let choices = [ADD, NOP, RET, LDXR, STXR, CBNZ_BACK, B_NE, 0x1400_0003, 0xd503_3f5f];
    let mut random = Random::new(1);
    for _ in 0..2000 {
        let words: [u32; 12] = std::array::from_fn(|_| random.of(&choices));
        for (index, outcome) in survey(START, &words, &(0..0), PLAIN).unwrap().enumerate() {
            let address = (START + 4 * index) as u64;
            let range = START as u64..(START + 4 * words.len()) as u64;
            let inside =
                Sequences::of(range, |at| words[(at as usize - START) / 4]).unwrap().containing(address).unwrap();
            let own = matches!(Class::of(&outcome), Class::Instruction(Reason::LoadExclusive | Reason::StoreExclusive));
            assert_eq!(
                matches!(Class::of(&outcome), Class::Exclusive),
                inside.is_some() && !own,
                "{words:#010x?} at {index}"
            );
        }
    }
}
