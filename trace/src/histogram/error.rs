//! What can be wrong with a histogram, in the words of Linux where it has any.

use core::fmt;

use fallible::OutOfMemory;

/// Why a histogram is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What is wrong.
    pub problem: Problem,
    /// Where: so many bytes of the trigger precede it.
    pub column: usize,
}

/// What is wrong with a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There are no keys.
    NoKeys,
    /// There are more than three keys.
    TooManyKeys,
    /// There are more than two values besides the hits.
    TooManyValues,
    /// The event has no such field.
    FieldNotFound,
    /// There is no such modifier, or it does not apply to this field.
    BadModifier,
    /// Text is to be summed up, or to be a number.
    TextOperand,
    /// Nothing follows a `=`.
    EmptyAssignment,
    /// There is no such parameter.
    MalformedAssignment,
    /// The size is no number from 128 to 131072.
    BadSize,
    /// What is not a parameter is not an action either.
    NoAction,
    /// Between commas there is no field to sort by.
    EmptySortField,
    /// There are more than two fields to sort by.
    TooManySortFields,
    /// The field to sort by is neither a key nor a value.
    InvalidSortField,
    /// The order is neither ascending nor descending.
    InvalidSortModifier,
    /// The event has this histogram already.
    Exists,
    /// A histogram that is to be cleared or continued does not exist.
    NotThere,
    /// There is no memory. Linux logs nothing.
    OutOfMemory,
}

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Self { problem: Problem::OutOfMemory, column: 0 }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoKeys => "No keys found",
            Self::TooManyKeys => "Too many key fields (Max = 3)",
            Self::TooManyValues => "Too many value fields (Max = 2)",
            Self::FieldNotFound => "Couldn't find field",
            Self::BadModifier => "Invalid field modifier",
            Self::TextOperand => "String type can not be an operand in expression",
            Self::EmptyAssignment => "Empty assignment",
            Self::MalformedAssignment => "Malformed assignment",
            Self::BadSize => "Invalid size (128 to 131072)",
            Self::NoAction => "No action found",
            Self::EmptySortField => "Empty sort field",
            Self::TooManySortFields => "Too many sort fields (Max = 2)",
            Self::InvalidSortField => "Sort field must be a key or a val",
            Self::InvalidSortModifier => "Invalid sort modifier",
            Self::Exists => "Hist trigger already exists",
            Self::NotThere => "Can't clear or continue a nonexistent hist trigger",
            Self::OutOfMemory => "Cannot allocate memory",
        })
    }
}

impl core::error::Error for Problem {}
