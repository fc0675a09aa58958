//! What the words of a program mean: types of values, and what maps keep.

use alloc::string::String;
use alloc::vec::Vec;

/// What a value is, and how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number, of 64 bits.
    Integer {
        /// It has a sign.
        signed: bool,
    },
    /// The address of a number.
    Pointer {
        /// The number has a sign.
        signed: bool,
        /// Its length in bytes: 1, 2, 4 or 8.
        bytes: u8,
    },
    /// A string.
    Text {
        /// How many words it has.
        words: u8,
    },
    /// A virtual address, shown as the function that it is in.
    Symbol,
    /// The number of a stack.
    Stack,
    /// The number of a probe.
    Site,
    /// Bytes of memory: how many they are in the first word, and in the others the bytes, as in a string; the rest is zeros.
    Bytes {
        /// How many words it has, the first among them.
        words: u8,
    },
    /// Several values in a row, whose types the front end keeps.
    Tuple {
        /// The number of their types.
        shape: u8,
        /// How many words they have.
        words: u8,
    },
    /// A value whose type the front end knows.
    Known {
        /// The number of that.
        shape: u8,
        /// How many words it has.
        words: u8,
    },
    /// Nanoseconds since the start of the machine, shown by a format that the front end keeps.
    Time {
        /// The number of the format.
        format: u8,
    },
}

impl Type {
    /// Whether the words of this are those that `other` would have.
    #[must_use]
    pub fn fits_as(self, other: Self) -> bool {
        self.words() == other.words() && (self == other || !matches!(self, Self::Tuple { .. } | Self::Known { .. }))
    }

    /// How many words it has.
    #[must_use]
    pub fn words(self) -> u8 {
        match self {
            Self::Text { words } | Self::Bytes { words } | Self::Tuple { words, .. } | Self::Known { words, .. } => {
                words
            }
            _ => 1,
        }
    }
}

/// A map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Without `@`; may be empty.
    pub name: String,
    /// The parts of its key.
    pub keys: Vec<Type>,
    /// What it keeps for a key.
    pub value: Kept,
}

impl Map {
    /// How many words a key has.
    #[must_use]
    pub fn key_words(&self) -> usize {
        self.keys.iter().map(|part| usize::from(part.words())).sum()
    }
}

/// The most rows of a linear histogram, without those below and above its bounds.
pub const ROWS_MAX: u64 = 1000;

/// How many words a histogram by powers of two has: below 0, 0, 1, 2 to 3, and so on.
pub const HISTOGRAM_WORDS: usize = 66;

/// What a map keeps for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// One value, for all CPUs.
    Value(Type),
    /// What is collected of many values, by each CPU for itself.
    Aggregate(Aggregate),
}

/// What is collected of many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// How many.
    Count,
    /// Their sum.
    Sum {
        /// They have signs.
        signed: bool,
    },
    /// Their average.
    Average {
        /// They have signs.
        signed: bool,
    },
    /// The least.
    Least {
        /// They have signs.
        signed: bool,
    },
    /// The greatest.
    Greatest {
        /// They have signs.
        signed: bool,
    },
    /// How many, their average and their sum.
    Statistics {
        /// They have signs.
        signed: bool,
    },
    /// How many lie between powers of two.
    Histogram,
    /// How many lie between equal steps.
    Linear {
        /// The least that does.
        least: i64,
        /// Where the last step ends, at most.
        most: i64,
        /// How long a step is, from 1.
        step: i64,
    },
}

impl Aggregate {
    /// What the single number is that it amounts to, if it does.
    #[must_use]
    pub fn number(self) -> Option<Type> {
        match self {
            Self::Count => Some(Type::Integer { signed: false }),
            Self::Sum { signed } | Self::Average { signed } | Self::Least { signed } | Self::Greatest { signed } => {
                Some(Type::Integer { signed })
            }
            Self::Statistics { .. } | Self::Histogram | Self::Linear { .. } => None,
        }
    }
}

impl Kept {
    /// How many words it has, on each CPU if it is collected.
    #[must_use]
    pub fn words(self) -> usize {
        match self {
            Self::Value(of) => of.words().into(),
            Self::Aggregate(Aggregate::Count | Aggregate::Sum { .. }) => 1,
            Self::Aggregate(Aggregate::Histogram) => HISTOGRAM_WORDS,
            Self::Aggregate(Aggregate::Linear { least, most, step }) => rows(least, most, step) + 2,
            Self::Aggregate(Aggregate::Least { .. } | Aggregate::Greatest { .. }) => 2,
            // How many, and a sum of 128 bits, the lower half first.
            Self::Aggregate(Aggregate::Average { .. } | Aggregate::Statistics { .. }) => 3,
        }
    }
}

/// How many steps there are between the bounds of a linear histogram.
#[inline(always)]
pub(crate) fn rows(least: i64, most: i64, step: i64) -> usize {
    most.abs_diff(least).checked_div(step.unsigned_abs()).unwrap_or(0).min(ROWS_MAX) as usize
}
