//! The meaning of a program's words: types of values, and the contents of maps.

use alloc::string::String;
use alloc::vec::Vec;

use crate::hit::total;

/// The type of a value, which decides how it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A number of 64 bits.
    Integer {
        /// Whether it is signed.
        signed: bool,
    },
    /// The address of a number.
    Pointer {
        /// Whether the number is signed.
        signed: bool,
        /// The size of the number in bytes: 1, 2, 4 or 8.
        bytes: u8,
    },
    /// A string.
    Text {
        /// The number of words.
        words: u8,
    },
    /// A virtual address, shown as the function that contains it.
    Symbol,
    /// The number of a stack, from 1; 0 if none was given.
    Stack {
        /// The number of the mode in which the front end shows it.
        mode: u8,
    },
    /// The number of a probe, from 1; 0 if none was given.
    Probe,
    /// Bytes of memory. The first word has their number, and the others have the bytes, as in a string, padded with
    /// zeros.
    Bytes {
        /// The number of words, including the first.
        words: u8,
    },
    /// Several consecutive values, whose types the front end keeps.
    Tuple {
        /// The number of the tuple's types in the front end.
        shape: u8,
        /// The number of words.
        words: u8,
    },
    /// A value whose type the front end knows.
    Rust {
        /// The number of the type in the front end.
        shape: u8,
        /// The number of words.
        words: u8,
    },
    /// A time in nanoseconds since the start of the machine, shown by a format that the front end keeps.
    Time {
        /// The number of the format.
        format: u8,
    },
}

impl Type {
    /// Returns whether words of this type can be used as words of `other`.
    #[must_use]
    pub fn fits_as(self, other: Self) -> bool {
        self.words() == other.words() && (self == other || !matches!(self, Self::Tuple { .. } | Self::Rust { .. }))
    }

    /// Returns the number of words of a value.
    #[must_use]
    pub fn words(self) -> u8 {
        match self {
            Self::Text { words } | Self::Bytes { words } | Self::Tuple { words, .. } | Self::Rust { words, .. } => {
                words
            }
            _ => 1,
        }
    }
}

/// A map of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// The name without `@`; may be empty.
    pub name: String,
    /// The types of the parts of a key.
    pub keys: Vec<Type>,
    /// What the map keeps for each key.
    pub value: MapValue,
    /// The number of keys that the map has room for; `None` for the limit in [`Limits`](crate::maps::Limits).
    pub room: Option<usize>,
}

impl Map {
    /// Returns the number of words of a key.
    #[must_use]
    pub fn key_words(&self) -> usize {
        self.keys.iter().map(|part| usize::from(part.words())).sum()
    }
}

/// The largest number of rows in a linear histogram, not counting the rows for values below and above its bounds.
pub const ROWS_MAX: u64 = 1000;

/// The number of words of a histogram by powers of two: below 0, 0, 1, 2 to 3, and so on.
pub const HISTOGRAM_WORDS: usize = histogram_words(0);

/// The largest number of bits that divide a range between powers of two.
pub const HISTOGRAM_BITS_MAX: u8 = 5;

/// Returns the number of words of a histogram by powers of two, of which each is divided into 2 to the power `bits`
/// rows.
#[inline(always)]
pub(crate) const fn histogram_words(bits: u8) -> usize {
    ((64_usize.saturating_sub(bits as usize)) << (bits & 7)) + 2
}

/// What a map keeps for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapValue {
    /// One value, shared by all CPUs.
    Value(Type),
    /// An aggregation of many values, kept by each CPU for itself.
    Aggregate(Aggregate),
}

/// An aggregation of many values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// The number of values.
    Count,
    /// The sum of the values.
    Sum {
        /// Whether the values are signed.
        signed: bool,
    },
    /// The average of the values.
    Average {
        /// Whether the values are signed.
        signed: bool,
    },
    /// The least value.
    Least {
        /// Whether the values are signed.
        signed: bool,
    },
    /// The greatest value.
    Greatest {
        /// Whether the values are signed.
        signed: bool,
    },
    /// The number of values, their average and their sum.
    Statistics {
        /// Whether the values are signed.
        signed: bool,
    },
    /// The number of values in each range between powers of two.
    Histogram {
        /// The number of bits after the first that divide such a range into rows, at most [`HISTOGRAM_BITS_MAX`].
        bits: u8,
    },
    /// The number of values in each of many equal steps.
    Linear {
        /// The lower bound of the first step.
        least: i64,
        /// The upper bound of the last step; a partial step at the end is left out.
        most: i64,
        /// The length of a step, at least 1.
        step: i64,
    },
    /// One number for each of the last intervals of time.
    Series(Series),
}

/// A time series: the values of the last intervals, each combined to one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Series {
    /// The length of an interval, in nanoseconds, at least 1.
    pub interval: u64,
    /// The number of intervals, from 1 to [`INTERVALS_MAX`].
    pub intervals: u16,
    /// How the values of an interval are combined.
    pub by: Combine,
    /// Whether the values are signed.
    pub signed: bool,
}

impl Series {
    /// Returns the number of the interval at `place` in the words of a series, and its value; `None` if nothing was
    /// collected in it.
    #[must_use]
    pub fn interval(&self, words: &[u64], place: usize) -> Option<(u64, u64)> {
        let &[number, other, low, high] = words.get(INTERVAL_WORDS * place..)?.first_chunk()?;
        let value = match self.by {
            Combine::Average => total(&Aggregate::Average { signed: self.signed }, &[other, low, high]),
            _ => low,
        };
        Some((number.checked_sub(1)?, value))
    }
}

/// How the values of an interval are combined to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    /// The last value.
    Last,
    /// The sum.
    Sum,
    /// The average.
    Average,
    /// The least value.
    Least,
    /// The greatest value.
    Greatest,
}

/// The number of words that a time series keeps for an interval. The first is the number of the interval since the
/// start of the machine, plus 1, or 0 for none. The second is the number of values, or the time of the last one. The
/// other two are the value, or the 128-bit sum of the values to be averaged, lower half first.
pub const INTERVAL_WORDS: usize = 4;

/// The largest number of intervals in a time series.
pub const INTERVALS_MAX: u64 = 1000;

impl Aggregate {
    /// Returns the type of the aggregation's result, if the result is a single number.
    #[must_use]
    pub fn number(self) -> Option<Type> {
        match self {
            Self::Count => Some(Type::Integer { signed: false }),
            Self::Sum { signed } | Self::Average { signed } | Self::Least { signed } | Self::Greatest { signed } => {
                Some(Type::Integer { signed })
            }
            Self::Statistics { .. } | Self::Histogram { .. } | Self::Linear { .. } | Self::Series(_) => None,
        }
    }
}

impl MapValue {
    /// Returns the type of what a clause reads for a key: the value, or the result of the aggregation if that is a
    /// single number.
    #[must_use]
    pub fn read_type(self) -> Option<Type> {
        match self {
            Self::Value(of) => Some(of),
            Self::Aggregate(aggregate) => aggregate.number(),
        }
    }

    /// Returns the number of words per key; for an aggregation, on each CPU.
    #[must_use]
    pub fn words(self) -> usize {
        match self {
            Self::Value(of) => of.words().into(),
            Self::Aggregate(Aggregate::Count | Aggregate::Sum { .. }) => 1,
            Self::Aggregate(Aggregate::Histogram { bits }) => histogram_words(bits),
            Self::Aggregate(Aggregate::Linear { least, most, step }) => rows(least, most, step) + 2,
            Self::Aggregate(Aggregate::Series(series)) => INTERVAL_WORDS * usize::from(series.intervals),
            Self::Aggregate(Aggregate::Least { .. } | Aggregate::Greatest { .. }) => 2,
            // The number of values, and a 128-bit sum, lower half first.
            Self::Aggregate(Aggregate::Average { .. } | Aggregate::Statistics { .. }) => 3,
        }
    }
}

/// Returns the number of steps between the bounds of a linear histogram.
#[inline(always)]
pub(crate) fn rows(least: i64, most: i64, step: i64) -> usize {
    most.abs_diff(least).checked_div(step.unsigned_abs()).unwrap_or(0).min(ROWS_MAX) as usize
}
