//! Which instructions save, restore, replace or use the return address of their function.
//!
//! Inlined into its callers, some of which run while a hit is handled: [`classify`](super::classify) is not part of
//! that code.

use super::classify::{is_exception_or_system, may_branch, signed};

/// The effect of an instruction on the return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// ADD x29, SP, #imm, including MOV x29, SP (C6.2.5): a frame record is complete.
    Frame,
    /// LDP x29, x30, [SP …], in any of its three addressing modes (C6.2.164): the record has been read.
    Restore,
    /// RET x30, RETAA or RETAB (C6.2.254).
    Return,
    /// BL, BLR, BLRAA, BLRAB, BLRAAZ or BLRABZ, which write x30.
    Call,
    /// B, with its distance in bytes.
    Jump(i64),
    /// Another branch, or an instruction that generates an exception. A breakpoint is one of these: the instruction
    /// that it replaces is unknown.
    Elsewhere,
    /// Any other instruction.
    Next,
}

impl Linkage {
    /// Returns the effect of the instruction `word`.
    #[inline(always)]
    #[must_use]
    pub const fn of(word: u32) -> Self {
        if !may_branch(word) {
            return match word {
                _ if word & 0xff80_03ff == 0x9100_03fd => Self::Frame,
                _ if word & 0xfe40_7fff == 0xa840_7bfd => Self::Restore,
                _ => Self::Next,
            };
        }
        // System instructions, hints among them (C4.1.87).
        if is_exception_or_system(word) && word >> 24 == 0xd5 {
            return Self::Next;
        }
        match word {
            0xd65f_03c0 | 0xd65f_0bff | 0xd65f_0fff => Self::Return,
            _ if word & 0xfc00_0000 == 0x9400_0000 || word & 0xffff_fc1f == 0xd63f_0000 => Self::Call,
            _ if word & 0xffff_f800 == 0xd73f_0800 || word & 0xffff_f81f == 0xd63f_081f => Self::Call,
            _ if word & 0xfc00_0000 == 0x1400_0000 => Self::Jump((signed(word, 25, 0) as i64) << 2),
            _ => Self::Elsewhere,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insn::{Control, Indirect, Instruction, StackPointer, Verdict, classify};
    use kprobes_random::Random;

    /// What the verdict and the operands say of branches and of the frame record.
    fn expected(word: u32) -> Option<Linkage> {
        match classify(word) {
            Verdict::Simulate(op) => match op.control() {
                Control::Next => None,
                Control::Jump(offset) => Some(Linkage::Jump(offset.into())),
                Control::Call(_) | Control::Register { kind: Indirect::Call, .. } => Some(Linkage::Call),
                Control::Register { kind: Indirect::Return, rn: 30 } => Some(Linkage::Return),
                Control::Either(_) | Control::Register { .. } => Some(Linkage::Elsewhere),
            },
            Verdict::Slot => match Instruction::decode(word) {
                Some(Instruction::AddImmediate { rd: 29, rn: 31, addend: 0.. }) => Some(Linkage::Frame),
                Some(Instruction::LoadPair { rt: 29, rt2: 30, rn: 31, .. }) => Some(Linkage::Restore),
                // Those that also move the stack pointer have no operands there.
                _ => (StackPointer::after(word) == StackPointer::Moved(0)).then_some(Linkage::Next),
            },
            Verdict::Reject(_) => None,
        }
    }

    #[test]
    fn what_is_seen_is_what_the_decoders_say() {
        let (mut random, mut compared) = (Random::new(0x114c_a6e5), 0);
        for number in 0..if cfg!(miri) { 2_000 } else { 2_000_000 } {
            let random = random.next() as u32;
            // Some words of each kind are rare.
            let word = match number % 8 {
                0 => random & 0x00ff_fc00 | 0x9100_03fd,
                1 => random & 0x003f_8000 | 0xa940_7bfd,
                2 => random & 0x017f_0fff | 0xd61f_0000,
                3 => 0xd65f_03c0,
                _ => random,
            };
            let Some(expected) = expected(word) else { continue };
            assert_eq!(Linkage::of(word), expected, "{word:#010x}");
            compared += 1;
        }
        assert!(compared > if cfg!(miri) { 500 } else { 500_000 }, "{compared}");
    }

    #[test]
    fn records_are_restored_in_three_ways_and_returns_may_be_authenticated() {
        // ldp x29, x30, [sp], #32; ldp x29, x30, [sp, #32]!; ldp x29, x30, [sp, #16]
        for word in [0xa8c2_7bfd, 0xa9c2_7bfd, 0xa941_7bfd] {
            assert_eq!(Linkage::of(word), Linkage::Restore, "{word:#010x}");
        }
        // retaa; retab
        for word in [0xd65f_0bff, 0xd65f_0fff] {
            assert_eq!(Linkage::of(word), Linkage::Return, "{word:#010x}");
        }
        // brk #0x4; svc #0; eret; blraa x0, sp; blrabz x3; nop; msr daifset, #2
        for (word, expected) in [
            (0xd420_0080, Linkage::Elsewhere),
            (0xd400_0001, Linkage::Elsewhere),
            (0xd69f_03e0, Linkage::Elsewhere),
            (0xd73f_081f, Linkage::Call),
            (0xd63f_0c7f, Linkage::Call),
            (0xd503_201f, Linkage::Next),
            (0xd503_42df, Linkage::Next),
        ] {
            assert_eq!(Linkage::of(word), expected, "{word:#010x}");
        }
    }
}
