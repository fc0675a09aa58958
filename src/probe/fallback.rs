//! Why an instruction is not executed in the fastest mode that its probes allow.

use core::fmt;

use super::Mode;
use crate::insn::{Live, NotRelocatable};

/// The reason. The text of its [`Display`](fmt::Display) is the rest of a sentence that begins with "it is".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// It is executed by a breakpoint, as there is no stub for it.
    NoStub(NotRelocatable),
    /// It has a stub which saves all registers, as not only a call leads to it.
    NotEntry(NotEntry),
    /// It has a stub which saves all registers, as not all those are known to be dead there that a call may change.
    Live(Live),
    /// Its stub calls the handler, as not all registers are known to be dead there that the snippet changes.
    Snippet(Live),
    /// It has a stub which saves all registers, as there are other probes at the instruction.
    Shared,
}

/// Why not only calls lead to an instruction, or may do so. Addresses are virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotEntry {
    /// It is not the first instruction of its function.
    Inside {
        /// Where the function begins.
        function: usize,
    },
    /// The function branches back to it.
    Loop {
        /// The branch.
        branch: usize,
    },
    /// The function branches to an address in a register, which may be the instruction's: a jump table may lead there.
    Jump {
        /// The branch.
        branch: usize,
    },
}

impl Fallback {
    /// The mode in which the instruction is not executed.
    const fn mode(&self) -> Mode {
        match self {
            Self::NoStub(_) => Mode::Optimized,
            Self::Snippet(_) => Mode::Compiled,
            Self::NotEntry(_) | Self::Live(_) | Self::Shared => Mode::Lean,
        }
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {}, because ", self.mode())?;
        match self {
            Self::NoStub(reason) => reason.fmt(f),
            Self::NotEntry(NotEntry::Inside { function }) => {
                write!(f, "it is not the first instruction of its function, which begins at {function:#x}")
            }
            Self::NotEntry(NotEntry::Loop { branch }) => write!(f, "its function comes back to it, at {branch:#x}"),
            Self::NotEntry(NotEntry::Jump { branch }) => {
                write!(f, "its function may come back to it by the register that it branches to at {branch:#x}")
            }
            Self::Live(live) | Self::Snippet(live) => live.fmt(f),
            Self::Shared => f.write_str("there is another probe at the instruction"),
        }
    }
}
