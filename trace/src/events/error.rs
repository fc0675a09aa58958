//! Why a definition that can be read is refused.

use core::fmt;

/// A definition that is refused, and the column of its line that is the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventError<E> {
    /// Why.
    pub refusal: Refusal<E>,
    /// How many characters of the line precede the cause.
    pub column: usize,
}

/// Why a definition is refused. `Display` writes a sentence without its full stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal<E> {
    /// There is an event of this name in the group.
    Exists,
    /// No function has this name.
    UnknownSymbol,
    /// Several functions have this name.
    Ambiguous {
        /// How many.
        count: usize,
    },
    /// The offset is not inside the function.
    PastEnd {
        /// The length of the function in bytes.
        size: u64,
    },
    /// The offset is not that of an instruction.
    Misaligned,
    /// The engine refuses the probe.
    Probe(E),
}

impl<E: fmt::Display> fmt::Display for Refusal<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists => f.write_str("an event of this name exists already"),
            Self::UnknownSymbol => f.write_str("no function has this name"),
            Self::Ambiguous { count } => {
                write!(f, "{count} functions have this name; give the address of one of them instead")
            }
            Self::PastEnd { size } => {
                write!(f, "the offset is past the end of the function, which has {size:#x} bytes")
            }
            Self::Misaligned => f.write_str("the offset is not a multiple of 4, so no instruction begins there"),
            Self::Probe(reason) => reason.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> core::error::Error for Refusal<E> {}
