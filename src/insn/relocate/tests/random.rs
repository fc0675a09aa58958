//! Executes copies of random instructions in random places, and compares them with [`Op::simulate`]: when the copy has
//! run, when it faults, and wherever it may be interrupted.

use std::collections::BTreeMap;
use std::println;

use super::interpreter::{Exception, World};
use super::*;
use crate::exception::frame::TrapFrame;
use crate::insn::{Fault, Op};
use kprobes_random::Random;

/// The number of instructions.
const ROUNDS: u32 = if cfg!(miri) { 200 } else { 600_000 };

/// Returns a distance in bytes, in whole words, that is often at the limit of an instruction's reach.
fn distance(random: &mut Random) -> i64 {
    let edge = 1 << [2, 12, 15, 20, 26, 27][random.next() as usize % 6];
    let distance = if random.one_in(2) {
        edge + (random.next() % 17) as i64 * 4 - 32
    } else {
        (random.next() % edge as u64) as i64 & !3
    };
    if random.one_in(2) { distance } else { -distance }
}

/// The fixed bits of each class; and the lowest bit and width of its immediate, if it has one whose extremes are to be
/// tested.
const CLASSES: [(u32, u32, u32, u32); 20] = [
    (0x9f00_0000, 0x1000_0000, 5, 19), // ADR
    (0x9f00_0000, 0x9000_0000, 5, 19), // ADRP
    (0xfc00_0000, 0x1400_0000, 0, 26), // B
    (0xfc00_0000, 0x9400_0000, 0, 26), // BL
    (0xff00_0000, 0x5400_0000, 5, 19), // B.cond, BC.cond
    (0x7e00_0000, 0x3400_0000, 5, 19), // CBZ, CBNZ
    (0x7e00_0000, 0x3600_0000, 5, 14), // TBZ, TBNZ
    (0xff00_0000, 0x1800_0000, 5, 19), // LDR W
    (0xff00_0000, 0x5800_0000, 5, 19), // LDR X
    (0xff00_0000, 0x9800_0000, 5, 19), // LDRSW
    (0xff00_0000, 0xd800_0000, 5, 19), // PRFM
    (0xffff_fc1f, 0xd61f_0000, 0, 0),  // BR
    (0xffff_fc1f, 0xd63f_0000, 0, 0),  // BLR
    (0xffff_fc1f, 0xd65f_0000, 0, 0),  // RET
    (0xffff_fbff, 0xd65f_0bff, 0, 0),  // RETAA, RETAB
    (0xffff_f800, 0xd71f_0800, 0, 0),  // BRAA, BRAB
    (0xffff_ffe0, 0xd53b_4220, 0, 0),  // MRS DAIF
    (0xffff_ffe0, 0xd51b_4220, 0, 0),  // MSR DAIF
    (0xffff_f0df, 0xd503_40df, 0, 0),  // MSR DAIFSet, MSR DAIFClr
    (0xffff_ff1f, 0xd503_201f, 0, 0),  // hints
];

fn word(random: &mut Random, class: usize) -> u32 {
    let (mask, value, low, width) = CLASSES[class];
    let mut word = random.next() as u32 & !mask | value;
    if width != 0 && random.one_in(3) {
        let field = u32::MAX >> (32 - width) << low;
        let immediate = [0, 1 << low, field, field >> 1 & field, (field >> 1 & field) ^ field];
        word = word & !field | immediate[random.next() as usize % immediate.len()];
    }
    word
}

/// Prints the case in which a test has failed.
struct Report<'a> {
    round: u32,
    word: u32,
    case: &'a Case,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("round {}: {:#010x} in {:#x?}", self.round, self.word, self.case);
        }
    }
}

/// An instruction, with everything that it depends on.
#[derive(Debug)]
struct Case {
    op: Op,
    relocation: Relocation,
    before: TrapFrame,
    world: World,
}

impl Case {
    fn new(random: &mut Random, op: Op) -> Self {
        let from = match random.next() % 4 {
            0 => random.value(),
            1 => 0xffff_ffff_ffff_0000 + random.next() % 0x1_0000,
            _ => 0xffff_ffc0_0000_0000 + random.next() % 0x1000_0000,
        } & !3;
        let to = from.wrapping_add_signed(distance(random));
        let guard = [Guard::Absent, Guard::Unguarded, Guard::Guarded][random.next() as usize % 3];
        let mut before = TrapFrame { sp: random.next(), pc: from, ..TrapFrame::default() };
        before.pstate = random.next() & 0xf000_03cf;
        before.x.fill_with(|| random.value());
        let mut relocation = Relocation { from, to, guard, text: 0..0 };
        let mut world = World { guard, address: 0, bytes: Vec::new() };
        if let Op::LoadLiteral { offset, kind, .. } = op {
            world.address = from.wrapping_add_signed(i64::from(offset));
            // Literals in the text are always mapped.
            let known = random.one_in(2);
            if known || random.one_in(2) {
                world.bytes = random.value().to_le_bytes()[..kind.size() as usize].to_vec();
            }
            if known {
                relocation.text = world.address.saturating_sub(8)..world.address.saturating_add(8);
            }
        }
        Self { op, relocation, before, world }
    }

    /// Returns what the instruction does to `frame`, in place.
    fn simulate(&self, mut frame: TrapFrame) -> Result<TrapFrame, Exception> {
        match self.op.simulate(&mut frame, &self.world) {
            Ok(()) => Ok(frame),
            Err(Fault::Read { address, .. }) => Err(Exception::Read(address)),
            Err(Fault::Authentication { .. }) => Err(Exception::Authentication),
            Err(fault) => panic!("{fault:?} has no place here"),
        }
    }

    /// Executes the copy, and compares the state at each step.
    fn run(&self, words: &[u32], expected: Result<TrapFrame, Exception>) {
        let Relocation { from, to, .. } = self.relocation;
        let mut frame = TrapFrame { pc: to, ..self.before };
        for _ in words {
            let word = words[(frame.pc.wrapping_sub(to) / 4) as usize];
            // If it is interrupted here, it can go on in the probed code: after the instruction, or by executing it.
            let there = TrapFrame { pc: origin(frame.pc, word, from), ..frame };
            let finished = if word >> 26 == 0b00_0101 { Ok(there) } else { self.simulate(there) };
            assert_eq!(finished, expected, "from {:#x}", frame.pc);
            if let Err(exception) = self.world.step(word, &mut frame) {
                assert_eq!(Err(exception), expected);
                assert_eq!(there, self.before, "an instruction that faults changes nothing");
                return;
            }
            if frame.pc.wrapping_sub(to) >= 4 * words.len() as u64 {
                assert_eq!(Ok(frame), expected);
                return;
            }
        }
        panic!("it does not leave the copy");
    }

    /// Asserts that `reason` is a valid reason for having no copy.
    fn refuse(&self, reason: NotRelocatable) {
        let Relocation { from, to, guard, ref text } = self.relocation;
        let target = |offset: i32| from.wrapping_add_signed(i64::from(offset));
        // Whether an address is further than a literal load reaches from the first word.
        let is_far = |address: u64| !(-(1 << 20)..1 << 20).contains(&address.wrapping_sub(to).cast_signed());
        match (reason, self.op) {
            (NotRelocatable::OutOfRange(branch), op) => {
                let link = matches!(op, Op::BranchLink { .. });
                let targets = [Some(from.wrapping_add(4)).filter(|_| !link), op.control().branch_offset().map(target)];
                let call = if let Op::BranchLink { offset } = op { Some(target(offset)) } else { None };
                assert!(targets.contains(&Some(branch.to)) || call == Some(branch.to));
                assert!(branch.from.wrapping_sub(to) < 4 * MAX_WORDS as u64);
                let distance = branch.to.wrapping_sub(branch.from).cast_signed();
                assert!(!(-(1 << 27)..1 << 27).contains(&distance));
            }
            (NotRelocatable::CheckedCall, Op::BranchRegister { kind: Indirect::Call, rn }) => {
                assert!(guard != Guard::Absent && rn != 30);
            }
            (NotRelocatable::CallOfLink, Op::BranchRegister { kind: Indirect::Call, rn: 30 }) => {}
            (NotRelocatable::LoadOfZeroRegister, Op::LoadLiteral { rt: 31, offset, .. }) => {
                assert!(is_far(target(offset)));
            }
            (NotRelocatable::Literal { address }, Op::LoadLiteral { kind, offset, .. }) => {
                assert_eq!(address, target(offset));
                let last = address.saturating_add(kind.size() - 1);
                let known = text.contains(&address) && text.contains(&last);
                assert!(is_far(address) && !(known && address.is_multiple_of(kind.size())));
            }
            (reason, op) => panic!("{op:?} is refused: {reason:?}"),
        }
    }
}

/// The numbers of words of the copies of each class: all shapes must occur.
const LENGTHS: [&[usize]; CLASSES.len()] = [
    &[1, 2, 3],       // ADR
    &[1, 2, 3, 4, 5], // ADRP
    &[1],             // B
    &[2, 3],          // BL
    &[2, 3],          // B.cond, BC.cond
    &[2, 3],          // CBZ, CBNZ
    &[2, 3],          // TBZ, TBNZ
    &[2, 3],          // LDR W
    &[2, 3],          // LDR X
    &[2, 3],          // LDRSW
    &[1],             // PRFM
    &[1],             // BR
    &[2, 3],          // BLR
    &[1],             // RET
    &[1],             // RETAA, RETAB
    &[1],             // BRAA, BRAB
    &[2],             // MRS DAIF
    &[2],             // MSR DAIF
    &[2],             // MSR DAIFSet, MSR DAIFClr
    &[1],             // hints
];

#[test]
fn copies_do_what_simulating_them_does() {
    let seed = 0x9e37_79b9_7f4a_7c15;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    let mut lengths = [const { BTreeMap::<usize, u32>::new() }; CLASSES.len()];
    let mut refused = [0; CLASSES.len()];
    for round in 0..ROUNDS {
        let class = round as usize % CLASSES.len();
        let word = word(&mut random, class);
        let Verdict::Simulate(op) = classify(word) else { continue };
        let case = Case::new(&mut random, op);
        let expected = case.simulate(case.before);
        // No instruction branches to the address of a copy.
        if expected.as_ref().is_ok_and(|after| after.pc.wrapping_sub(case.relocation.to) < 4 * MAX_WORDS as u64) {
            continue;
        }
        let _report = Report { round, word, case: &case };
        match relocate(word, Verdict::Simulate(op), &case.relocation) {
            Err(reason) => {
                case.refuse(reason);
                refused[class] += 1;
            }
            Ok(code) => {
                case.run(code.words(), expected);
                *lengths[class].entry(code.words().len()).or_default() += 1;
            }
        }
    }
    for (class, (lengths, expected)) in lengths.iter().zip(LENGTHS).enumerate() {
        println!("{:#010x}: {} refused, {lengths:?} words", CLASSES[class].1, refused[class]);
        // Some lengths are rare.
        assert!(cfg!(miri) || lengths.keys().eq(expected), "{:#010x}: {lengths:?}", CLASSES[class].1);
    }
}
