use std::string::ToString;
use std::vec::Vec;

use aarch64_kprobes::insn::{self, Reason, Verdict};

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

/// The address of every instruction: it does not decide how the instruction is counted.
const ADDRESS: usize = 0x8_0000;
const BLACKLISTED: Outcome = Err(ProbeError::Blacklisted { address: ADDRESS });
const INSIDE: Outcome = Err(ProbeError::Exclusive { address: ADDRESS, load: ADDRESS });

type Outcome = Result<CheckedInstruction, ProbeError>;

/// Returns the result of the check of `word` where its position does not matter.
fn alone(word: u32) -> Outcome {
    match insn::classify(word) {
        Verdict::Reject(reason) => Err(ProbeError::Instruction { address: ADDRESS, word, reason }),
        verdict => Ok(CheckedInstruction { word, verdict, is_before_wait: false }),
    }
}

fn census<const N: usize>(functions: [Vec<Outcome>; N]) -> Census {
    let mut census = Census::default();
    for function in functions {
        census.add(function).unwrap();
    }
    census
}

#[test]
fn instructions_are_counted_by_class() {
    let census = census([[ADD, NOP, SVC, RET].map(alone).into(), vec![alone(RET), BLACKLISTED]]);
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

#[test]
fn a_check_without_memory_is_not_counted() {
    let mut census = Census::default();
    let lacking = Err(ProbeError::OutOfMemory { address: ADDRESS });
    assert!(census.add([alone(ADD), lacking]).is_err());
    assert_eq!(census.instructions(), 1);
}

#[test]
fn the_table_has_sums_and_shares() {
    // A compare-and-exchange: a load, an early exit if the value differs, the store, a retry, and the code after it.
    let mut exchange = [ADD, LDXR, ADD, B_NE, STXR, CBNZ_BACK, NOP, RET].map(alone);
    exchange[2..4].fill(INSIDE);
    let text = census([exchange.into(), [SVC, ADD].map(alone).into()]).to_string();
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
