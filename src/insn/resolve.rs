//! Works out an instruction at a known address as far as possible before it is executed.
//!
//! Most of the work of a simulated instruction is the same at each hit, because the addresses that it computes depend
//! only on its own address. What remains is a register, a load, a jump, or a choice between two addresses. An
//! instruction that needs more of the machine (an authenticated or checked branch target, an extension, the interrupt
//! masks) is not resolved, and left to [`Op::simulate`](super::Op::simulate). Both must agree.

use super::op::{Indirect, Literal, Op};
use crate::exception::simulate::Guard;
#[cfg(test)]
use crate::exception::{
    frame::TrapFrame,
    simulate::{Environment, holds},
};

/// What remains to be done for an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Go on at a virtual address.
    Jump {
        /// The virtual address.
        to: u64,
    },
    /// Write a value to a register, and go on.
    Set {
        /// The number of the register, 31 being the zero register.
        register: u8,
        /// The value.
        value: u64,
        /// The virtual address to go on at.
        to: u64,
    },
    /// Go on at one of two virtual addresses, by a condition on the flags.
    Condition {
        /// The four bits of the condition (C1.2.4).
        condition: u8,
        /// The virtual address to go on at if it holds.
        taken: u64,
        /// The virtual address to go on at if it does not hold.
        not_taken: u64,
    },
    /// Go on at one of two virtual addresses, by some bits of a register.
    Test {
        /// The number of the register.
        register: u8,
        /// If true, `taken` is for any of the bits set; otherwise, for none set.
        nonzero: bool,
        /// The bits to test.
        mask: u64,
        /// The virtual address to go on at if the test succeeds.
        taken: u64,
        /// The virtual address to go on at if it fails.
        not_taken: u64,
    },
    /// Load into a register, and go on. The load may fault.
    Load {
        /// The number of the register, 31 being the zero register.
        register: u8,
        /// The size and the extension of the load.
        kind: Literal,
        /// The virtual address to load from.
        address: u64,
        /// The virtual address to go on at.
        to: u64,
    },
    /// Go on at the address in a register.
    Register {
        /// The number of the register.
        register: u8,
        /// PSTATE.BTYPE at the target, at its position in SPSR_EL1.
        branch_type: u64,
        /// The new value of x30, if the instruction is a call.
        link: Option<u64>,
    },
}

impl Op {
    /// Returns what remains to be done for the instruction at the virtual address `pc`, where branch targets are
    /// treated as `guard` says; `None` if all of it has to be simulated.
    #[doc(hidden)]
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
    /// Executes it as the assembly does, for comparison with [`Op::simulate`] in tests.
    pub(crate) fn execute(self, frame: &mut TrapFrame, environment: &impl Environment) {
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
                    Literal::Word => environment.read_u32(address).map(u64::from),
                    Literal::SignedWord => {
                        environment.read_u32(address).map(|word| i64::from(word.cast_signed()) as u64)
                    }
                    Literal::Doubleword => environment.read_u64(address),
                };
                frame.set_register(register, value.expect("it was loaded when it was simulated"));
                to
            }
            Self::Register { register, branch_type: kind, link } => {
                // Read before the link is written: the two may be the same register.
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
