//! The reasons why a probe was refused.

use core::fmt;
use core::ops::Range;

use crate::embedding::EmbeddingError;
use crate::insn::Reason;

/// The reason why a probe could not be registered, enabled or disabled. Addresses are virtual.
// The discriminant is as wide as the widest field, as in `insn::Op`, so that results of registrations are moved word
// by word.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(u64)]
#[non_exhaustive]
pub enum ProbeError {
    /// The address is not a multiple of 4, as that of every A64 instruction is (Arm ARM, B1.4).
    Misaligned {
        /// The requested address.
        address: usize,
    },
    /// The address is not in the text that the kernel has declared.
    NotText {
        /// The requested address.
        address: usize,
    },
    /// No known function contains the address. So the engine cannot tell whether there is an instruction, nor whether
    /// it lies between a load-exclusive and its store-exclusive.
    NoFunction {
        /// The requested address.
        address: usize,
    },
    /// The address lies in the part of the image that runs while a probe is being handled.
    Blacklisted {
        /// The requested address.
        address: usize,
    },
    /// The instruction itself cannot be probed.
    Instruction {
        /// The address of the instruction.
        address: usize,
        /// The instruction word.
        word: u32,
        /// Why it cannot be probed.
        reason: Reason,
    },
    /// The word is a literal or part of a table: the code that reads it would read the breakpoint.
    Data {
        /// The address of the word.
        address: usize,
        /// The instruction of the same function that reads the word; `None` if the
        /// [kernel](crate::platform::Platform::has_data) says that the word is data.
        reader: Option<usize>,
    },
    /// The instruction lies between a load-exclusive and its store-exclusive, or in a function that is called between
    /// them: the breakpoint's exception would clear the monitor, and the store would fail forever (Arm ARM, B2.17).
    Exclusive {
        /// The address of the instruction.
        address: usize,
        /// The address of the load-exclusive. If that is in a function of its own, the address of the call of that
        /// function, or of the function that contains the store-exclusive.
        load: usize,
    },
    /// The address is not the first instruction of a function. A return probe needs that one, because x30 holds the
    /// return address there.
    NotEntry {
        /// The requested address.
        address: usize,
        /// The addresses of the function that contains it.
        function: Range<usize>,
    },
    /// The function branches back to its first instruction: a return probe there could not tell a call from an
    /// iteration.
    EntryIsLoop {
        /// The address of the first instruction.
        address: usize,
        /// The address of the branch.
        branch: usize,
    },
    /// The function returns with another stack pointer than it was called with. The engine tells returns apart by the
    /// stack pointer.
    MovesStack {
        /// The address of the function.
        address: usize,
        /// How far the stack pointer has moved at the return, in bytes.
        moved: i64,
    },
    /// The function writes TPIDR_EL1, and stays on its stack: it may return in another task than it was called in. The
    /// engine looks for the call in the task that returns.
    ChangesTask {
        /// The address of the function.
        address: usize,
        /// The address of the instruction that writes TPIDR_EL1.
        writer: usize,
    },
    /// The function does not return to the address that is in x30 at its entry. This is the case for parts of functions
    /// that are reached by a branch, such as the epilogues that LLVM's machine outliner makes.
    NotReturnAddress {
        /// The address of the function.
        address: usize,
        /// The address of the instruction that writes x30 before any instruction has read it.
        writer: usize,
    },
    /// The limit of calls in progress is not between 1 and [`MAX_ACTIVE`](super::MAX_ACTIVE), inclusive.
    MaxActive {
        /// The requested limit.
        maxactive: u32,
    },
    /// Each call is to have more than [`MAX_DATA_WORDS`](super::MAX_DATA_WORDS) private words.
    DataWords {
        /// The requested number.
        words: usize,
    },
    /// There is no memory for the probe, for its slot or stub, or for the lists of a request.
    OutOfMemory {
        /// The address that was to be probed.
        address: usize,
    },
    /// Interrupts are masked, as they are in a handler. Every change of a probe waits for other tasks and CPUs, so none
    /// can be made then.
    InterruptsMasked {
        /// The address of the probe.
        address: usize,
    },
    /// The kernel embeds the engine in a way in which a probe would hang or corrupt it.
    Embedding {
        /// The address that was to be probed.
        address: usize,
        /// The mistake in the embedding.
        error: EmbeddingError,
    },
}

impl ProbeError {
    /// Returns the error for another probe at `address`, if the reason may concern any probe; otherwise a copy.
    pub(super) fn about(&self, address: usize) -> Self {
        match self {
            Self::Embedding { error, .. } => Self::Embedding { address, error: error.clone() },
            Self::InterruptsMasked { .. } => Self::InterruptsMasked { address },
            Self::OutOfMemory { .. } => Self::OutOfMemory { address },
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
            Self::NoFunction { address } => write!(f, "{address:#x} is in no known function"),
            Self::Blacklisted { address } => {
                write!(f, "{address:#x} runs while probes are handled, so it cannot be probed")
            }
            Self::Instruction { address, word, reason } => {
                write!(f, "the instruction {word:#010x} at {address:#x} {reason}")
            }
            Self::Data { address, reader: Some(reader) } => {
                write!(f, "{address:#x} is data: the instruction at {reader:#x} reads it")
            }
            Self::Data { address, reader: None } => {
                write!(f, "{address:#x} is data: the mapping symbols of the image mark it so")
            }
            Self::Exclusive { address, load } => write!(
                f,
                "{address:#x} is executed between the load-exclusive at or around {load:#x} and its store-exclusive, \
                 which would never succeed with a breakpoint between them"
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
                 cannot match its returns to its calls"
            ),
            Self::ChangesTask { address, writer } => write!(
                f,
                "the function at {address:#x} may return in another task than it was called in, so a return probe \
                 cannot match its returns to its calls: the instruction at {writer:#x} writes TPIDR_EL1"
            ),
            Self::NotReturnAddress { address, writer } => write!(
                f,
                "the function at {address:#x} does not return to the address that x30 holds at its entry, which a \
                 return probe replaces: the instruction at {writer:#x} writes x30 before it is read"
            ),
            Self::MaxActive { maxactive } => {
                write!(f, "a return probe can follow 1 to {} calls at a time, not {maxactive}", super::MAX_ACTIVE)
            }
            Self::DataWords { words } => {
                write!(f, "a call can have up to {} private words, not {words}", super::MAX_DATA_WORDS)
            }
            Self::OutOfMemory { address } => write!(f, "no memory is left for a probe at {address:#x}"),
            Self::InterruptsMasked { address } => write!(
                f,
                "a probe at {address:#x} cannot be registered or changed with interrupts masked, as they are in a \
                 handler"
            ),
            Self::Embedding { address, error } => write!(f, "the probe at {address:#x} is not placed: {error}"),
        }
    }
}

impl core::error::Error for ProbeError {}
