//! Why a probe was refused.

use core::fmt;
use core::ops::Range;

use crate::embedding::EmbeddingError;
use crate::insn::Reason;

/// Why a probe could not be registered. Addresses are virtual.
// As for `insn::Op`: results of registrations are moved by words.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(u64)]
#[non_exhaustive]
pub enum ProbeError {
    /// A64 instructions lie at multiples of four (Arm ARM, B1.4).
    Misaligned {
        /// What was asked for.
        address: usize,
    },
    /// The address is not in the text that the kernel has declared.
    NotText {
        /// What was asked for.
        address: usize,
    },
    /// No function is known to contain the address, so that it cannot be told whether it is an instruction,
    /// nor whether it lies between a load-exclusive and its store.
    NoFunction {
        /// What was asked for.
        address: usize,
    },
    /// The address lies in the part of the image that runs while a probe is being handled.
    Blacklisted {
        /// What was asked for.
        address: usize,
    },
    /// The instruction itself cannot be probed.
    Instruction {
        /// Where it is.
        address: usize,
        /// The instruction.
        word: u32,
        /// Why not.
        reason: Reason,
    },
    /// The word is a literal or part of a table: the code that reads it would read the breakpoint.
    Data {
        /// Where it is.
        address: usize,
        /// Where the instruction of the same function is that reads it; nothing if the
        /// [kernel](crate::platform::Platform::has_data) says that it is data.
        reader: Option<usize>,
    },
    /// The instruction lies between a load-exclusive and its store-exclusive: the breakpoint's exception would
    /// clear the monitor, and the store would fail forever (Arm ARM, B2.17).
    Exclusive {
        /// Where the instruction is.
        address: usize,
        /// Where the load-exclusive is.
        load: usize,
    },
    /// A return probe goes on the first instruction of a function, where x30 holds the return address.
    NotEntry {
        /// What was asked for.
        address: usize,
        /// The function that contains it.
        function: Range<usize>,
    },
    /// The function branches back to its first instruction: a return probe there could not tell a call from an
    /// iteration.
    EntryIsLoop {
        /// The first instruction.
        address: usize,
        /// The branch.
        branch: usize,
    },
    /// The function returns with another stack pointer than it is called with, by which its return is told from others.
    MovesStack {
        /// The function.
        address: usize,
        /// How far the stack pointer has moved at the return, in bytes.
        moved: i64,
    },
    /// What is in x30 at the entry of the function is not where it returns to. Parts of functions that are branched to are such,
    /// as LLVM's machine outliner makes them of epilogues.
    NotReturnAddress {
        /// The function.
        address: usize,
        /// The instruction that writes x30, which nothing has read before.
        writer: usize,
    },
    /// A return probe needs room for one call at least, and can have at most [`MAX_ACTIVE`](super::MAX_ACTIVE).
    MaxActive {
        /// What was asked for.
        maxactive: u32,
    },
    /// There is no memory for slots, or for the writable alias of the text.
    OutOfMemory {
        /// What was to be probed.
        address: usize,
    },
    /// Registering waits for other tasks and CPUs, so it cannot be done with interrupts masked, as they are in
    /// a handler.
    InterruptsMasked {
        /// What was to be probed.
        address: usize,
    },
    /// The kernel embeds the engine in a way by which a probe would hang or corrupt it.
    Embedding {
        /// What was to be probed.
        address: usize,
        /// What is wrong.
        error: EmbeddingError,
    },
}

impl ProbeError {
    /// The same, about a probe at `address`, where the reason is one for every probe.
    pub(super) fn about(&self, address: usize) -> Self {
        match self {
            Self::Embedding { error, .. } => Self::Embedding { address, error: error.clone() },
            Self::InterruptsMasked { .. } => Self::InterruptsMasked { address },
            other => other.clone(),
        }
    }
}

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Misaligned { address } => {
                write!(f, "{address:#x} is not a multiple of 4, so no instruction begins there")
            }
            Self::NotText { address } => write!(f, "{address:#x} is not in the text of the image"),
            Self::NoFunction { address } => write!(f, "{address:#x} is in no function that is known"),
            Self::Blacklisted { address } => {
                write!(f, "{address:#x} runs while probes are being handled, so it cannot be probed itself")
            }
            Self::Instruction { address, word, reason } => {
                write!(f, "the instruction {word:#010x} at {address:#x} {reason}")
            }
            Self::Data { address, reader: Some(reader) } => {
                write!(f, "{address:#x} is data: the instruction at {reader:#x} reads it")
            }
            Self::Data { address, reader: None } => {
                write!(f, "{address:#x} is data: the mapping symbols of the image say so")
            }
            Self::Exclusive { address, load } => write!(
                f,
                "{address:#x} lies between the load-exclusive at {load:#x} and its store-exclusive, which would \
                 never succeed with a breakpoint between them"
            ),
            Self::NotEntry { address, function } => write!(
                f,
                "a return probe goes on the first instruction of a function, and {address:#x} is {:#x} bytes \
                 into the one at {:#x}",
                address - function.start,
                function.start
            ),
            Self::EntryIsLoop { address, branch } => write!(
                f,
                "the instruction at {branch:#x} branches back to {address:#x}, the first of the function, where a \
                 return probe would take every iteration for a call"
            ),
            Self::MovesStack { address, moved } => write!(
                f,
                "the function at {address:#x} returns with its stack pointer moved by {moved} bytes, so a return probe \
                 cannot tell its returns from those of others"
            ),
            Self::NotReturnAddress { address, writer } => write!(
                f,
                "the function at {address:#x} does not return to what is in x30 at its entry, where a return probe looks: \
                 the instruction at {writer:#x} writes x30 before it is read"
            ),
            Self::MaxActive { maxactive } => {
                write!(f, "a return probe can follow 1 to {} calls at a time, not {maxactive}", super::MAX_ACTIVE)
            }
            Self::OutOfMemory { address } => write!(f, "no memory is left for a probe at {address:#x}"),
            Self::InterruptsMasked { address } => write!(
                f,
                "a probe at {address:#x} cannot be registered with interrupts masked, as they are in a handler"
            ),
            Self::Embedding { address, error } => write!(f, "there is no probe at {address:#x} yet, as {error}"),
        }
    }
}

impl core::error::Error for ProbeError {}
