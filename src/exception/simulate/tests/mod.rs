//! Cases that other systems got wrong, one by one; then random instructions, compared with an independent model.

mod model;

use std::{collections::BTreeMap, vec::Vec};

use super::{Environment, Fault, Guard};
use crate::exception::frame::TrapFrame;
use crate::insn::{Key, Resolved, Verdict, classify};

const PC: u64 = 0xffff_ffc0_0012_3ff8;

/// The syndrome of a read that faults.
const ABORT: u64 = 0x9600_0007;
/// The syndrome of an authentication that fails.
const FAILED: u64 = 0x7200_0000;

/// A few words of memory, and a page that is guarded or not.
#[derive(Default)]
struct Memory {
    bytes: BTreeMap<u64, u8>,
    guard: Option<Guard>,
    /// The CPU has no BC.cond.
    lacks_consistent_branches: bool,
}

impl Memory {
    fn with(address: u64, bytes: &[u8]) -> Self {
        Self { bytes: (address..).zip(bytes.iter().copied()).collect(), ..Self::default() }
    }

    fn guarded(guard: Guard) -> Self {
        Self { guard: Some(guard), ..Self::default() }
    }

    fn read<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let bytes: Option<Vec<u8>> =
            (0..N as u64).map(|index| self.bytes.get(&address.wrapping_add(index)).copied()).collect();
        bytes?.try_into().ok()
    }
}

impl Environment for Memory {
    fn guard(&self, _: u64) -> Guard {
        self.guard.unwrap_or(Guard::Absent)
    }

    fn has_consistent_branches(&self) -> bool {
        !self.lacks_consistent_branches
    }

    fn read_u32(&self, address: u64) -> Result<u32, u64> {
        self.read(address).map(u32::from_le_bytes).ok_or(ABORT)
    }

    fn read_u64(&self, address: u64) -> Result<u64, u64> {
        self.read(address).map(u64::from_le_bytes).ok_or(ABORT)
    }

    /// Authenticates a pointer whose upper half is the modifier plus one for key A, or plus two for key B.
    fn authenticate(&self, key: Key, pointer: u64, modifier: u64) -> Result<u64, u64> {
        let sum = modifier + if key == Key::A { 1 } else { 2 };
        if pointer >> 32 == sum & 0xffff_ffff { Ok(pointer & 0xffff_ffff) } else { Err(FAILED) }
    }
}

/// A frame at [`PC`] whose registers all differ.
fn frame() -> TrapFrame {
    let mut frame = TrapFrame { sp: 0xffff_ffd0_0000_8000, pc: PC, pstate: 0x6000_0005, ..TrapFrame::default() };
    for (number, x) in (0..).zip(&mut frame.x) {
        *x = 0x1111_1111_0000_0000 * number + 0x8000_0000 + number;
    }
    frame
}

fn try_run(word: u32, frame: &mut TrapFrame, memory: &Memory) -> Result<(), Fault> {
    match classify(word) {
        Verdict::Simulate(op) => {
            let mut resolved = *frame;
            let outcome = op.simulate(frame, memory);
            match (op.resolve(resolved.pc, memory.guard(resolved.pc)), outcome) {
                (None, _) | (Some(Resolved::Load { .. }), Err(Fault::Read { .. })) => {}
                (Some(rest), _) => {
                    rest.execute(&mut resolved, memory);
                    assert_eq!((outcome, &resolved), (Ok(()), &*frame), "{word:#010x} is resolved to {rest:?}");
                }
            }
            outcome
        }
        verdict => panic!("{word:#010x} is not simulated but {verdict:?}"),
    }
}

/// Executes `word` on `frame`, and returns the frame after it.
fn run(word: u32, mut frame: TrapFrame) -> TrapFrame {
    try_run(word, &mut frame, &Memory::default()).expect("nothing here faults");
    frame
}

/// Returns `before`, changed by `change`.
fn changed(mut before: TrapFrame, change: impl FnOnce(&mut TrapFrame)) -> TrapFrame {
    change(&mut before);
    before
}

#[test]
fn a_hint_only_advances() {
    assert_eq!(run(0xd503_201f, frame()), changed(frame(), |f| f.pc += 4)); // nop
    assert_eq!(run(0xd800_0040, frame()), changed(frame(), |f| f.pc += 4)); // prfm pldl1keep, pc+8
}

#[test]
fn addresses_are_relative_to_the_probe_and_to_its_page() {
    let adr = run(0x10ff_ffe1, frame()); // adr x1, pc-4
    assert_eq!(adr, changed(frame(), |f| (f.x[1], f.pc) = (PC - 4, PC + 4)));
    let adr = run(0x3000_0021, frame()); // adr x1, pc+5
    assert_eq!(adr.x[1], PC + 5);
    let adrp = run(0xb000_0002, frame()); // adrp x2, 1 page on
    assert_eq!(adrp, changed(frame(), |f| (f.x[2], f.pc) = (0xffff_ffc0_0012_4000, PC + 4)));
    let adrp = run(0xf0ff_ffe2, frame()); // adrp x2, 1 page back
    assert_eq!(adrp.x[2], 0xffff_ffc0_0012_2000);
    let adrp = run(0x9080_0002, frame()); // adrp x2, 4 GiB back
    assert_eq!(adrp.x[2], 0xffff_ffbf_0012_3000);
    assert_eq!(run(0x10ff_fffe, frame()).x[30], PC - 4); // adr x30, pc-4
}

#[test]
fn addresses_wrap_at_both_ends_of_the_address_space() {
    let low = changed(frame(), |f| f.pc = 0);
    assert_eq!(run(0x10ff_ffe1, low).x[1], u64::MAX - 3); // adr x1, pc-4
    let high = changed(frame(), |f| f.pc = u64::MAX - 3);
    assert_eq!(run(0xd503_201f, high).pc, 0); // nop
}

#[test]
fn the_zero_register_is_not_the_stack_pointer() {
    let adr = run(0x1000_003f, frame()); // adr xzr, pc+4
    assert_eq!(adr, changed(frame(), |f| f.pc += 4));
    assert_eq!(run(0xb400_005f, frame()).pc, PC + 8); // cbz xzr, pc+8
    assert_eq!(run(0xb500_005f, frame()).pc, PC + 4); // cbnz xzr, pc+8
    assert_eq!(run(0xb7f8_005f, frame()).pc, PC + 4); // tbnz xzr, #63, pc+8
    assert_eq!(run(0xd61f_03e0, frame()).pc, 0); // br xzr
    assert_eq!(run(0xd51b_423f, changed(frame(), |f| f.pstate |= 0x3c0)).pstate, 0x6000_0005); // msr daif, xzr
}

#[test]
fn calls_link_and_read_their_target_first() {
    assert_eq!(run(0x97ff_fffe, frame()), changed(frame(), |f| (f.x[30], f.pc) = (PC + 4, PC - 8))); // bl pc-8
    assert_eq!(run(0x1400_0002, frame()), changed(frame(), |f| f.pc += 8)); // b pc+8
    let target = frame().x[30];
    let blr = run(0xd63f_03c0, frame()); // blr x30
    assert_eq!(blr, changed(frame(), |f| (f.x[30], f.pc) = (PC + 4, target)));
    assert_eq!(run(0xd65f_03c0, frame()), changed(frame(), |f| f.pc = target)); // ret
    let x3 = frame().x[3];
    assert_eq!(run(0xd61f_0060, frame()), changed(frame(), |f| f.pc = x3)); // br x3
}

#[test]
fn compare_and_branch_honours_the_width() {
    let upper_only = changed(frame(), |f| f.x[4] = 1 << 32);
    assert_eq!(run(0x3400_0044, upper_only).pc, PC + 8); // cbz w4, pc+8
    assert_eq!(run(0x3500_0044, upper_only).pc, PC + 4); // cbnz w4, pc+8
    assert_eq!(run(0xb400_0044, upper_only).pc, PC + 4); // cbz x4, pc+8
    assert_eq!(run(0xb500_0044, upper_only).pc, PC + 8); // cbnz x4, pc+8
}

#[test]
fn every_bit_can_be_tested() {
    for bit in 0..64_u32 {
        let immediate = bit >> 5 << 31 | (bit & 31) << 19;
        for (value, zero, nonzero) in [(1 << bit, 4, 8), (!(1 << bit), 8, 4)] {
            let frame = changed(frame(), |f| f.x[6] = value);
            assert_eq!(run(0x3600_0046 | immediate, frame).pc, PC + zero, "tbz x6, #{bit}");
            assert_eq!(run(0x3700_0046 | immediate, frame).pc, PC + nonzero, "tbnz x6, #{bit}");
        }
    }
}

#[test]
fn conditions_come_from_the_saved_state_and_two_of_them_always_hold() {
    // For each condition: for which of the sixteen values of NZCV it holds, derived from the names in C1.2.4.
    let holds: [u16; 16] = [
        0xf0f0, 0x0f0f, 0xcccc, 0x3333, 0xff00, 0x00ff, 0xaaaa, 0x5555, 0x0c0c, 0xf3f3, 0xaa55, 0x55aa, 0x0a05, 0xf5fa,
        0xffff, 0xffff,
    ];
    for (condition, &holds) in (0_u32..).zip(&holds) {
        for flags in 0..16_u64 {
            let taken = holds >> flags & 1 != 0;
            let frame = changed(frame(), |f| f.pstate = flags << 28 | 0x3c5);
            for bc in [0, 0x10] {
                let after = run(0x5400_0040 | bc | condition, frame); // b.cond pc+8
                assert_eq!(after, changed(frame, |f| f.pc += if taken { 8 } else { 4 }), "{condition:#x} {flags:#x}");
            }
        }
    }
}

#[test]
fn a_consistent_branch_is_undefined_where_the_processor_has_none() {
    let old = Memory { lacks_consistent_branches: true, ..Memory::default() };
    // `bc.eq pc+8`, whose condition holds; `bc.ne pc+8`, whose condition does not.
    for word in [0x5400_0050, 0x5400_0051] {
        let mut frame = frame();
        assert_eq!(try_run(word, &mut frame, &old), Err(Fault::Undefined), "{word:#010x}");
        assert_eq!(frame, self::frame());
    }
    let mut frame = frame();
    try_run(0x5400_0040, &mut frame, &old).expect("b.eq needs no extension");
    assert_eq!(frame.pc, PC + 8);
}

#[test]
fn literals_are_read_where_the_probe_is_and_extended() {
    let bytes = [0xf0, 0xde, 0xbc, 0x9a, 0x78, 0x56, 0x34, 0x12];
    let memory = Memory::with(PC + 12, &bytes);
    let load = |word| {
        let mut frame = frame();
        try_run(word, &mut frame, &memory).expect("the literal is there");
        assert_eq!(frame.pc, PC + 4);
        frame
    };
    assert_eq!(load(0x1800_0068).x[8], 0x9abc_def0); // ldr w8, pc+12
    assert_eq!(load(0x5800_0068).x[8], 0x1234_5678_9abc_def0); // ldr x8, pc+12
    assert_eq!(load(0x9800_0068).x[8], 0xffff_ffff_9abc_def0); // ldrsw x8, pc+12
    assert_eq!(load(0x9800_0088).x[8], 0x1234_5678); // ldrsw x8, pc+16
    assert_eq!(load(0x5800_007f), changed(frame(), |f| f.pc += 4)); // ldr xzr, pc+12
}

#[test]
fn a_literal_that_cannot_be_read_leaves_the_frame_and_names_the_address() {
    let memory = Memory::with(PC - 4, &[0; 4]);
    for (word, address) in [(0x18ff_ffc8, PC - 8), (0x98ff_ffc8, PC - 8), (0x58ff_ffe8, PC - 4), (0x58ff_ffff, PC - 4)]
    {
        let mut frame = frame();
        assert_eq!(try_run(word, &mut frame, &memory), Err(Fault::Read { address, syndrome: ABORT }), "{word:#010x}");
        assert_eq!(frame, self::frame());
    }
}

#[test]
fn authenticated_branches_authenticate_with_their_key_and_modifier_first() {
    const TARGET: u64 = 0x1234_5678;
    let signed = |sum: u64| sum << 32 | TARGET;
    for (word, rn, sum, link) in [
        (0xd61f_089f, 4, 1, false),       // braaz x4
        (0xd61f_0c9f, 4, 2, false),       // brabz x4
        (0xd63f_089f, 4, 1, true),        // blraaz x4
        (0xd63f_0c9f, 4, 2, true),        // blrabz x4
        (0xd71f_0886, 4, 0x601, false),   // braa x4, x6
        (0xd71f_0c86, 4, 0x602, false),   // brab x4, x6
        (0xd73f_0886, 4, 0x601, true),    // blraa x4, x6
        (0xd73f_0c86, 4, 0x602, true),    // blrab x4, x6
        (0xd71f_089f, 4, 0x5001, false),  // braa x4, sp
        (0xd73f_0bdf, 30, 0x5001, true),  // blraa x30, sp
        (0xd65f_0bff, 30, 0x5001, false), // retaa
        (0xd65f_0fff, 30, 0x5002, false), // retab
    ] {
        let mut before = changed(frame(), |f| (f.x[6], f.sp) = (0x600, 0x5000));
        before.x[rn] = signed(sum);
        let after = run(word, before);
        let expected = changed(before, |f| {
            f.pc = TARGET;
            if link {
                f.x[30] = PC + 4;
            }
        });
        assert_eq!(after, expected, "{word:#010x}");
        before.x[rn] = signed(sum + 1);
        let mut frame = before;
        let result = try_run(word, &mut frame, &Memory::guarded(Guard::Absent));
        assert_eq!(result, Err(Fault::Authentication { syndrome: FAILED }), "{word:#010x}");
        assert_eq!(frame, before);
    }
}

#[test]
fn masks_are_those_of_the_saved_state() {
    let masked = changed(frame(), |f| f.pstate |= 0x2c0);
    assert_eq!(run(0xd53b_422b, masked), changed(masked, |f| (f.x[11], f.pc) = (0x2c0, PC + 4))); // mrs x11, daif
    assert_eq!(run(0xd503_42df, frame()), changed(frame(), |f| (f.pstate, f.pc) = (0x6000_0085, PC + 4))); // msr daifset, #2
    assert_eq!(run(0xd503_48df, frame()).pstate, 0x6000_0205); // msr daifset, #8
    assert_eq!(run(0xd503_42ff, masked).pstate, 0x6000_0245); // msr daifclr, #2
    assert_eq!(run(0xd503_4fff, masked).pstate, 0x6000_0005); // msr daifclr, #15
    let all = changed(masked, |f| f.x[30] = u64::MAX);
    assert_eq!(run(0xd51b_423e, all).pstate, 0x6000_03c5); // msr daif, x30
    assert_eq!(run(0xd51b_423e, changed(masked, |f| f.x[30] = 0xfc3f)).pstate, 0x6000_0005);
}

#[test]
fn indirect_branches_say_what_they_were() {
    let btype = |word: u32, guard| {
        let mut frame = frame();
        try_run(word, &mut frame, &Memory::guarded(guard)).expect("nothing here faults");
        frame.pstate >> 10 & 3
    };
    let (br_x3, br_x16, br_x17, blr_x16, ret) = (0xd61f_0060, 0xd61f_0200, 0xd61f_0220, 0xd63f_0200, 0xd65f_03c0);
    for guard in [Guard::Guarded, Guard::Unguarded] {
        assert_eq!([btype(br_x16, guard), btype(br_x17, guard)], [1, 1]);
        assert_eq!([btype(blr_x16, guard), btype(ret, guard)], [2, 0]);
    }
    assert_eq!(btype(br_x3, Guard::Guarded), 3);
    assert_eq!(btype(br_x3, Guard::Unguarded), 1);
    for word in [br_x3, br_x16, br_x17, blr_x16, ret] {
        assert_eq!(btype(word, Guard::Absent), 0, "{word:#010x}");
    }
}

#[test]
fn what_an_indirect_branch_reaches_must_be_a_landing_pad() {
    for word in [0xd503_201f, 0x1400_0002, 0x10ff_ffe1, 0xd65f_03c0] {
        for btype in 1..4 {
            let before = changed(frame(), |f| f.pstate |= btype << 10);
            let mut frame = before;
            let fault = try_run(word, &mut frame, &Memory::guarded(Guard::Guarded));
            assert_eq!(fault, Err(Fault::BranchTarget), "{word:#010x}");
            assert_eq!(frame, before);
            try_run(word, &mut frame, &Memory::guarded(Guard::Unguarded)).expect("the page is not guarded");
            assert_eq!(frame.pstate, self::frame().pstate, "every instruction clears it");
        }
        let result = try_run(word, &mut frame(), &Memory::guarded(Guard::Guarded));
        assert_eq!(result, Ok(()), "no indirect branch led here");
    }
}
