//! An instruction at a known address, worked out as far as it can be before it is executed.
//!
//! Where an instruction is simulated, most of the work is the same at each hit: the addresses that it computes depend on
//! its own only. What is left is a register, a load, a jump, or a choice between two. What needs more of the machine (a
//! branch target that is authenticated or checked, an extension, the interrupt masks) is not resolved, and left to
//! [`Op::simulate`](super::Op::simulate), which this must agree with.

use super::Guard;
use super::op::{Indirect, Literal, Op};
#[cfg(test)]
use {
    super::{Machine, holds},
    crate::exception::TrapFrame,
};

/// What is left to do of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Go on at a virtual address.
    Jump {
        /// It.
        to: u64,
    },
    /// Put a value into a register, and go on.
    Set {
        /// The number of the register, 31 being the zero register.
        register: u8,
        /// What it holds then.
        value: u64,
        /// The virtual address to go on at.
        to: u64,
    },
    /// Go on at one of two virtual addresses, by a condition on the flags.
    Condition {
        /// The four bits of the condition (C1.2.4).
        condition: u8,
        /// Where it leads if it holds.
        taken: u64,
        /// Where it leads if not.
        not_taken: u64,
    },
    /// Go on at one of two virtual addresses, by some bits of a register.
    Test {
        /// The number of the register.
        register: u8,
        /// Whether it takes a bit that is set to go to `taken`, rather than that none is.
        nonzero: bool,
        /// The bits.
        mask: u64,
        /// Where it leads if so.
        taken: u64,
        /// Where it leads if not.
        not_taken: u64,
    },
    /// Load a register, and go on. It may fault.
    Load {
        /// The number of the register, 31 being the zero register.
        register: u8,
        /// What is loaded.
        kind: Literal,
        /// The virtual address that it is loaded from.
        address: u64,
        /// The virtual address to go on at.
        to: u64,
    },
    /// Go on where a register says.
    Register {
        /// The number of the register.
        register: u8,
        /// PSTATE.BTYPE then, in its place in SPSR_EL1.
        branch_type: u64,
        /// What x30 holds then, if it is a call.
        link: Option<u64>,
    },
}

impl Op {
    /// What is left to do of the instruction at the virtual address `pc`, where branch targets are treated as `guard` says.
    /// Nothing where it has to be simulated whole.
    #[must_use]
    pub fn resolve(self, pc: u64, guard: Guard) -> Option<Resolved> {
        if guard == Guard::Guarded {
            return None;
        }
        let next = pc.wrapping_add(4);
        let target = |offset: i32| pc.wrapping_add_signed(i64::from(offset));
        Some(match self {
            Self::Nop => Resolved::Jump { to: next },
            Self::Branch { offset } => Resolved::Jump { to: target(offset) },
            Self::Address { rd, offset } => Resolved::Set { register: rd, value: target(offset), to: next },
            Self::AddressOfPage { rd, offset } => {
                Resolved::Set { register: rd, value: (pc & !0xfff).wrapping_add_signed(offset), to: next }
            }
            Self::BranchLink { offset } => Resolved::Set { register: 30, value: next, to: target(offset) },
            Self::BranchConditional { condition, consistent: false, offset } => {
                Resolved::Condition { condition, taken: target(offset), not_taken: next }
            }
            Self::CompareBranch { rt, wide, nonzero, offset } => {
                let mask = if wide { u64::MAX } else { u64::from(u32::MAX) };
                Resolved::Test { register: rt, nonzero, mask, taken: target(offset), not_taken: next }
            }
            Self::TestBranch { rt, bit, nonzero, offset } => {
                let mask = 1 << (bit & 63);
                Resolved::Test { register: rt, nonzero, mask, taken: target(offset), not_taken: next }
            }
            Self::BranchRegister { kind, rn } => {
                let branch_type = match (kind, guard) {
                    (Indirect::Return, _) | (_, Guard::Absent) => 0,
                    (Indirect::Jump, _) => 0b01 << 10,
                    (Indirect::Call, _) => 0b10 << 10,
                };
                let link = (kind == Indirect::Call).then_some(next);
                Resolved::Register { register: rn, branch_type, link }
            }
            Self::LoadLiteral { rt, kind, offset } => {
                Resolved::Load { register: rt, kind, address: target(offset), to: next }
            }
            Self::BranchConditional { consistent: true, .. }
            | Self::BranchAuthenticated { .. }
            | Self::ReadDaif { .. }
            | Self::WriteDaif { .. }
            | Self::SetDaif { .. }
            | Self::ClearDaif { .. } => return None,
        })
    }
}

#[cfg(test)]
impl Resolved {
    /// Does it, as the assembly does: what the tests compare with [`Op::simulate`].
    pub(crate) fn execute(self, frame: &mut TrapFrame, machine: &impl Machine) {
        let mut branch_type = 0;
        let next = match self {
            Self::Jump { to } => to,
            Self::Set { register, value, to } => {
                frame.set_register(register, value);
                to
            }
            Self::Condition { condition, taken, not_taken } => {
                if holds(condition, frame.pstate) {
                    taken
                } else {
                    not_taken
                }
            }
            Self::Test { register, nonzero, mask, taken, not_taken } => {
                if (frame.register(register) & mask != 0) == nonzero { taken } else { not_taken }
            }
            Self::Load { register, kind, address, to } => {
                let value = match kind {
                    Literal::Word => machine.read_u32(address).map(u64::from),
                    Literal::SignedWord => machine.read_u32(address).map(|word| i64::from(word.cast_signed()) as u64),
                    Literal::Doubleword => machine.read_u64(address),
                };
                frame.set_register(register, value.expect("it was loaded when it was simulated"));
                to
            }
            Self::Register { register, branch_type: kind, link } => {
                // Before the link is written: the two may be one register.
                let next = frame.register(register);
                if let Some(link) = link {
                    frame.set_register(30, link);
                }
                branch_type = kind;
                next
            }
        };
        frame.pstate = frame.pstate & !TrapFrame::BRANCH_TYPE | branch_type;
        frame.pc = next;
    }
}
