//! The classes by which instructions are counted.

use core::fmt::{self, Write};

use aarch64_kprobes::ProbeError;
use aarch64_kprobes::insn::{Op, Reason, Verdict};
use aarch64_kprobes::probe::CheckedInstruction;

/// The result of the check of an instruction, without details.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A copy of the instruction is executed in a slot.
    Slot,
    /// The instruction is simulated on the saved registers.
    Simulated(Simulation),
    /// The instruction runs while a probe is handled.
    Blacklisted,
    /// The instruction lies strictly between a load-exclusive and its store-exclusive, or in a function that is called
    /// between them.
    Exclusive,
    /// The word is data: an instruction of the same function reads it, or the kernel's `Platform::has_data` says so.
    Data,
    /// The instruction itself is refused.
    Instruction(Reason),
    /// The instruction is refused for another reason.
    Other,
}

/// A group of simulated instructions, by their mnemonics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Simulation {
    /// NOP, and hints without an architectural effect.
    Hint,
    /// ADR, ADRP.
    Address,
    /// Literal loads.
    Literal,
    /// B.
    Branch,
    /// BL.
    BranchLink,
    /// B.cond.
    BranchConditional,
    /// CBZ, CBNZ.
    CompareBranch,
    /// TBZ, TBNZ.
    TestBranch,
    /// BR, BLR, RET.
    BranchRegister,
    /// MRS and MSR of DAIF.
    InterruptMasks,
}

/// A predicate on classes.
type Group = fn(Class) -> bool;

/// The groups for which the census shows sums, with their names.
pub(super) static GROUPS: [(&str, Group); 3] = [
    ("run in a slot", |class| class == Class::Slot),
    ("simulated", |class| matches!(class, Class::Simulated(_))),
    ("refused", |class| !class.accepts()),
];

impl Class {
    /// Returns the class of a result of the check.
    pub fn of(outcome: &Result<CheckedInstruction, ProbeError>) -> Self {
        match *outcome {
            Ok(CheckedInstruction { verdict: Verdict::Simulate(op), .. }) => Self::Simulated(Simulation::of(op)),
            Ok(_) => Self::Slot,
            Err(ProbeError::Blacklisted { .. }) => Self::Blacklisted,
            Err(ProbeError::Exclusive { .. }) => Self::Exclusive,
            Err(ProbeError::Data { .. }) => Self::Data,
            Err(ProbeError::Instruction { reason, .. }) => Self::Instruction(reason),
            Err(_) => Self::Other,
        }
    }

    /// Returns whether a probe is accepted.
    pub fn accepts(self) -> bool {
        matches!(self, Self::Slot | Self::Simulated(_))
    }

    /// Returns whether the instruction belongs to an exclusive sequence.
    pub fn is_exclusive(self) -> bool {
        matches!(self, Self::Exclusive | Self::Instruction(Reason::LoadExclusive | Reason::StoreExclusive))
    }
}

impl Simulation {
    fn of(op: Op) -> Self {
        match op {
            Op::Nop => Self::Hint,
            Op::Address { .. } | Op::AddressOfPage { .. } => Self::Address,
            Op::LoadLiteral { .. } => Self::Literal,
            Op::Branch { .. } => Self::Branch,
            Op::BranchLink { .. } => Self::BranchLink,
            Op::BranchConditional { .. } => Self::BranchConditional,
            Op::CompareBranch { .. } => Self::CompareBranch,
            Op::TestBranch { .. } => Self::TestBranch,
            Op::ReadDaif { .. } | Op::WriteDaif { .. } | Op::SetDaif { .. } | Op::ClearDaif { .. } => {
                Self::InterruptMasks
            }
            Op::BranchRegister { .. } | Op::BranchAuthenticated { .. } => Self::BranchRegister,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slot => f.write_str("run in a slot"),
            Self::Simulated(simulation) => simulation.fmt(f),
            Self::Blacklisted => f.write_str("runs while probes are handled"),
            Self::Exclusive => f.write_str("lies between a load-exclusive and its store-exclusive"),
            Self::Data => f.write_str("is data that the function reads"),
            Self::Instruction(reason) => {
                // The text after the colon explains the effect on a probe.
                write!(UpToColon(f, false), "{reason}")
            }
            Self::Other => f.write_str("is refused for another reason"),
        }
    }
}

/// Writes the text up to the first colon. The second field tells whether the colon was reached.
struct UpToColon<'a, 'b>(&'a mut fmt::Formatter<'b>, bool);

impl Write for UpToColon<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match (self.1, text.split_once(':')) {
            (true, _) => Ok(()),
            (false, None) => self.0.write_str(text),
            (false, Some((before, _))) => {
                self.1 = true;
                self.0.write_str(before)
            }
        }
    }
}

impl fmt::Display for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hint => "nop and other hints",
            Self::Address => "adr, adrp",
            Self::Literal => "literal loads",
            Self::Branch => "b",
            Self::BranchLink => "bl",
            Self::BranchConditional => "b.cond",
            Self::CompareBranch => "cbz, cbnz",
            Self::TestBranch => "tbz, tbnz",
            Self::BranchRegister => "br, blr, ret",
            Self::InterruptMasks => "interrupt masks",
        })
    }
}
