//! The reasons why an instruction is not executed in the fastest mode that its probes allow.

use core::fmt;

use super::Mode;
use crate::insn::{Live, NotRelocatable, OutOfRange};

/// Why an instruction is not executed in a faster mode. The text of its [`Display`](fmt::Display) completes a sentence
/// that begins with "it is".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// It is executed by a breakpoint, because a stub is not possible.
    NoStub(NotRelocatable),
    /// It is stepped, because the branch at the end of its slot does not reach the next instruction.
    FarSlot(OutOfRange),
    /// There was no executable memory for the code of a probe, with which the probe would have this mode.
    NoMemory(Mode),
    /// Its stub saves all registers, because not only calls lead to the instruction.
    NotEntry(NotEntry),
    /// Its stub saves all registers, because a register that a call may change is not known to be dead there.
    Live(Live),
    /// Its stub calls the handler, because a register that the instructions of a [compiled](Mode::Compiled) probe
    /// change is not known to be dead there.
    Snippet(Live),
    /// Its stub saves all registers, because the instruction has other probes.
    Shared,
    /// The probe has all registers saved, because it came with the bounds of its function. Which registers are dead
    /// depends on the functions around that one, and their bounds are not known.
    Given,
}

/// Why an instruction may be reached in another way than by a call. Addresses are virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotEntry {
    /// It is not the first instruction of its function.
    Inside {
        /// The address of the function.
        function: usize,
    },
    /// The function branches back to it.
    Loop {
        /// The address of the branch.
        branch: usize,
    },
    /// The function branches to an address in a register, which may be that of the instruction: a jump table may lead
    /// there.
    Jump {
        /// The address of the branch.
        branch: usize,
    },
}

impl Fallback {
    /// Returns the faster mode that is not possible.
    const fn mode(&self) -> Mode {
        match self {
            Self::NoStub(_) => Mode::Optimized,
            Self::FarSlot(_) => Mode::Boosted,
            Self::NoMemory(mode) => *mode,
            Self::Snippet(_) => Mode::Compiled,
            Self::NotEntry(_) | Self::Live(_) | Self::Shared | Self::Given => Mode::Lean,
        }
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {}, because ", self.mode())?;
        match self {
            Self::NoStub(reason) => reason.fmt(f),
            Self::FarSlot(reason) => reason.fmt(f),
            Self::NoMemory(_) => f.write_str("there was no executable memory for its code"),
            Self::NotEntry(NotEntry::Inside { function }) => {
                write!(f, "it is not the first instruction of its function, which begins at {function:#x}")
            }
            Self::NotEntry(NotEntry::Loop { branch }) => write!(f, "its function branches back to it at {branch:#x}"),
            Self::NotEntry(NotEntry::Jump { branch }) => {
                write!(f, "its function may branch back to it by the indirect branch at {branch:#x}")
            }
            Self::Live(live) | Self::Snippet(live) => live.fmt(f),
            Self::Shared => f.write_str("there is another probe at the instruction"),
            Self::Given => f.write_str("the bounds of its function were given with the probe"),
        }
    }
}
