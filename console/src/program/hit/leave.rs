//! Decides whether an instruction is about to leave its function.

use core::ops::Range;

use aarch64_kprobes::exception::TrapFrame;
use aarch64_kprobes::insn::{self, Op};

use crate::program::exits::Exit;

impl Exit {
    /// Returns whether the instruction, which is in `function`, is about to leave it with these registers. Handlers may
    /// call it.
    #[inline]
    #[must_use]
    pub fn is_taken(self, frame: &TrapFrame, function: &Range<u64>) -> bool {
        match self {
            Self::Always => true,
            Self::Register(number) => {
                let target = frame.register(number);
                target < function.start || target >= function.end
            }
            Self::Conditional(op) => branches(op, frame),
            Self::Unless(op) => !branches(op, frame),
        }
    }
}

/// Returns whether a branch is taken with these registers.
#[inline(always)]
fn branches(op: Op, frame: &TrapFrame) -> bool {
    match op {
        Op::BranchConditional { condition, .. } => insn::holds(condition, frame.pstate),
        Op::CompareBranch { rt, wide, nonzero, .. } => {
            let value = frame.register(rt);
            (if wide { value } else { value & 0xffff_ffff } != 0) == nonzero
        }
        Op::TestBranch { rt, bit, nonzero, .. } => (frame.register(rt) >> (bit & 63) & 1 != 0) == nonzero,
        // Other instructions are in no `Exit`.
        Op::Branch { .. } | Op::BranchLink { .. } | Op::BranchRegister { .. } | Op::BranchAuthenticated { .. } => true,
        Op::Nop | Op::Address { .. } | Op::AddressOfPage { .. } | Op::LoadLiteral { .. } => true,
        Op::ReadDaif { .. } | Op::WriteDaif { .. } | Op::SetDaif { .. } | Op::ClearDaif { .. } => true,
    }
}
