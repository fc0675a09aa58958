//! How control leaves an instruction.
//!
//! The analyses of functions follow control by [`Control`] alone. So a new branch that is given here is a branch to all
//! of them. `Continuation` and `Linkage` decode words themselves, because they run at hits. Their tests compare them
//! with this.

use super::classify::signed;
use super::op::{Indirect, Op};
use super::verdict::{Reason, Verdict};

/// How control leaves an instruction, unless by an exception or by the return from one. Distances are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// To the next instruction.
    Next,
    /// To the instruction at this distance.
    Jump(i32),
    /// To the next instruction, or to the one at this distance.
    Either(i32),
    /// To the function at this distance, and back.
    Call(i32),
    /// To the address in a register.
    Register {
        /// Whether the instruction jumps, calls or returns.
        kind: Indirect,
        /// The number of the register.
        rn: u8,
    },
}

impl Control {
    /// Returns how control leaves the instruction `word`, on which the verdict is `verdict`. A branch that is refused
    /// is one, too.
    #[inline]
    #[must_use]
    pub const fn after(word: u32, verdict: Verdict) -> Self {
        match verdict {
            Verdict::Simulate(op) => op.control(),
            // FEAT_CMPBR (C6.2, CB).
            Verdict::Reject(Reason::CompareAndBranch) => Self::Either(signed(word, 13, 5) << 2),
            Verdict::Reject(Reason::AuthenticatedAddress) if returns(word) => {
                Self::Register { kind: Indirect::Return, rn: 30 }
            }
            Verdict::Slot | Verdict::Reject(_) => Self::Next,
        }
    }

    /// Returns the distance of a direct branch that is not a call, in bytes; `None` for other instructions.
    #[inline]
    #[must_use]
    pub const fn branch_offset(self) -> Option<i32> {
        match self {
            Self::Jump(offset) | Self::Either(offset) => Some(offset),
            Self::Next | Self::Call(_) | Self::Register { .. } => None,
        }
    }
}

impl Op {
    /// Returns how control leaves the instruction.
    #[doc(hidden)]
    #[inline]
    #[must_use]
    pub const fn control(self) -> Control {
        match self {
            Self::Branch { offset } => Control::Jump(offset),
            Self::BranchLink { offset } => Control::Call(offset),
            Self::BranchConditional { offset, .. }
            | Self::CompareBranch { offset, .. }
            | Self::TestBranch { offset, .. } => Control::Either(offset),
            Self::BranchRegister { kind, rn } | Self::BranchAuthenticated { kind, rn, .. } => {
                Control::Register { kind, rn }
            }
            Self::Nop | Self::Address { .. } | Self::AddressOfPage { .. } | Self::LoadLiteral { .. } => Control::Next,
            Self::ReadDaif { .. } | Self::WriteDaif { .. } | Self::SetDaif { .. } | Self::ClearDaif { .. } => {
                Control::Next
            }
        }
    }
}

/// Returns whether an instruction of FEAT_PAuth_LR, which is refused for [`Reason::AuthenticatedAddress`], returns:
/// RETAASPPC or RETABSPPC, with the offset in the instruction or in a register (C6.2).
const fn returns(word: u32) -> bool {
    word & 0xffc0_001f == 0x5500_001f || word & 0xffff_fbe0 == 0xd65f_0be0
}
