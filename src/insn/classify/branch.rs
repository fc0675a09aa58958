//! C4.1.87 Branches, Exception Generating and System instructions, without the system instructions.
//!
//! No branch runs in a slot: it would leave the slot before the breakpoint at its end, or with the slot's address in
//! x30.

use super::{UNALLOCATED, bit, field, number, signed, system};
use crate::insn::op::{Indirect, Key, Modifier, Op};
use crate::insn::verdict::{Reason, Verdict};

pub(super) const fn classify(word: u32) -> Verdict {
    let nonzero = bit(word, 24);
    let rt = number(word, 0);
    match field(word, 31, 26) {
        // Unconditional branch (immediate): B, BL.
        0b000101 => Verdict::Simulate(Op::Branch { offset: signed(word, 25, 0) << 2 }),
        0b100101 => Verdict::Simulate(Op::BranchLink { offset: signed(word, 25, 0) << 2 }),
        // Compare and branch (immediate): CBZ, CBNZ. Test and branch (immediate): TBZ, TBNZ.
        0b001101 | 0b101101 => Verdict::Simulate(if bit(word, 25) {
            let bit = (field(word, 31, 31) << 5 | field(word, 23, 19)) as u8;
            Op::TestBranch { rt, bit, nonzero, offset: signed(word, 18, 5) << 2 }
        } else {
            Op::CompareBranch { rt, wide: bit(word, 31), nonzero, offset: signed(word, 23, 5) << 2 }
        }),
        0b010101 => match field(word, 25, 24) {
            // Conditional branch (immediate): B.cond, BC.cond.
            0b00 => Verdict::Simulate(Op::BranchConditional {
                condition: field(word, 3, 0) as u8,
                consistent: bit(word, 4),
                offset: signed(word, 23, 5) << 2,
            }),
            // Miscellaneous branch (immediate): RETAASPPC, RETABSPPC.
            0b01 if matches!(field(word, 23, 21), 0b000 | 0b001) && rt == 31 => {
                Verdict::Reject(Reason::AuthenticatedAddress)
            }
            _ => UNALLOCATED,
        },
        0b110101 => match field(word, 25, 24) {
            0b00 => exception(word),
            0b01 => system::classify(word),
            _ => register(word),
        },
        // FEAT_CMPBR: CB (register), CBB, CBH; CB (immediate).
        0b011101 | 0b111101 if field(word, 25, 25) == 0 => compare_and_branch(word),
        _ => UNALLOCATED,
    }
}

const fn compare_and_branch(word: u32) -> Verdict {
    let allocated =
        if bit(word, 24) { !bit(word, 14) } else { field(word, 15, 14) == 0b00 || bit(word, 15) && !bit(word, 31) };
    // The conditions GT, GE or LT, HI, HS or LO; EQ, NE.
    if allocated && !matches!(field(word, 23, 21), 0b100 | 0b101) {
        Verdict::Reject(Reason::CompareAndBranch)
    } else {
        UNALLOCATED
    }
}

/// Exception generation.
const fn exception(word: u32) -> Verdict {
    Verdict::Reject(match (field(word, 23, 21), field(word, 4, 0)) {
        // SVC, HVC, SMC; BRK; HLT; DCPS1, DCPS2, DCPS3.
        (0b000 | 0b101, 0b01..=0b11) | (0b001 | 0b010, 0b00) => Reason::ExceptionGenerating,
        // TCANCEL.
        (0b011, 0b00) => Reason::Transaction,
        _ => Reason::Unallocated,
    })
}

/// Unconditional branch (register).
const fn register(word: u32) -> Verdict {
    let rn = number(word, 5);
    let op4 = number(word, 0);
    // op2 is 31 throughout; op3 is 0 without and 2 or 3 with authentication, by key A or B.
    if field(word, 20, 16) != 0b11111 {
        return UNALLOCATED;
    }
    match (field(word, 24, 21), field(word, 15, 10)) {
        (0b0000, 0) if op4 == 0 => Verdict::Simulate(Op::BranchRegister { kind: Indirect::Jump, rn }),
        (0b0001, 0) if op4 == 0 => Verdict::Simulate(Op::BranchRegister { kind: Indirect::Call, rn }),
        (0b0010, 0) if op4 == 0 => Verdict::Simulate(Op::BranchRegister { kind: Indirect::Return, rn }),
        // BRAAZ, BRABZ; BLRAAZ, BLRABZ; RETAA, RETAB.
        (0b0000, 2 | 3) if op4 == 31 => authenticated(word, Indirect::Jump, rn, Modifier::Zero),
        (0b0001, 2 | 3) if op4 == 31 => authenticated(word, Indirect::Call, rn, Modifier::Zero),
        (0b0010, 2 | 3) if rn == 31 && op4 == 31 => authenticated(word, Indirect::Return, 30, Modifier::StackPointer),
        // RETAASPPCR, RETABSPPCR.
        (0b0010, 2 | 3) if rn == 31 => Verdict::Reject(Reason::AuthenticatedAddress),
        // BRAA, BRAB; BLRAA, BLRAB.
        (0b1000, 2 | 3) => authenticated(word, Indirect::Jump, rn, modifier(op4)),
        (0b1001, 2 | 3) => authenticated(word, Indirect::Call, rn, modifier(op4)),
        // ERET, DRPS; ERETAA, ERETAB.
        (0b0100 | 0b0101, 0) if rn == 31 && op4 == 0 => Verdict::Reject(Reason::ExceptionReturn),
        (0b0100, 2 | 3) if rn == 31 && op4 == 31 => Verdict::Reject(Reason::ExceptionReturn),
        _ => UNALLOCATED,
    }
}

/// Returns the verdict on a branch that authenticates its target with key A, or with key B if the M bit is set.
const fn authenticated(word: u32, kind: Indirect, rn: u8, modifier: Modifier) -> Verdict {
    let key = if bit(word, 10) { Key::B } else { Key::A };
    Verdict::Simulate(Op::BranchAuthenticated { kind, rn, key, modifier })
}

/// Returns the register in the place of the modifier, where 31 is the stack pointer.
const fn modifier(number: u8) -> Modifier {
    if number == 31 { Modifier::StackPointer } else { Modifier::Register(number) }
}
