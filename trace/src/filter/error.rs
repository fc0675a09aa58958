//! What can be wrong with a filter, in the words of Linux.

use core::fmt;

use fallible::OutOfMemory;

/// Why a filter is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// What is wrong.
    pub problem: Problem,
    /// Where the caret stands: so many bytes of the filter precede it.
    pub column: usize,
}

/// What is wrong with a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Behind a field there is no operator.
    InvalidOperator,
    /// A `(` is not closed.
    TooManyOpen,
    /// A `)` closes nothing.
    TooManyClosed,
    /// A quote is not closed.
    MissingQuote,
    /// A string or a number is too long.
    OperandTooLong,
    /// A string is compared with a number.
    ExpectString,
    /// A number is compared with a string.
    ExpectDigit,
    /// The operator is not one of this kind of field.
    IllegalOperation,
    /// The event has no such field.
    FieldNotFound,
    /// The number cannot be read.
    IllegalInteger,
    /// Tests do not follow from one another.
    TooManyTests,
    /// What is compared with is neither a number nor a string.
    InvalidValue,
    /// There is nothing in the filter, or a name is missing in it.
    NoFilter,
    /// It was set for all events of a group, and this one cannot have it.
    OfGroup,
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
            Self::InvalidOperator => "Invalid operator",
            Self::TooManyOpen => "Too many '('",
            Self::TooManyClosed => "Too few '('",
            Self::MissingQuote => "Missing matching quote",
            Self::OperandTooLong => "Operand too long",
            Self::ExpectString => "Expecting string field",
            Self::ExpectDigit => "Expecting numeric field",
            Self::IllegalOperation => "Illegal operation for field type",
            Self::FieldNotFound => "Field not found",
            Self::IllegalInteger => "Illegal integer value",
            Self::TooManyTests => "Too many terms in predicate expression",
            Self::InvalidValue => "Invalid value (did you forget quotes)?",
            Self::NoFilter => "No filter found",
            Self::OfGroup => "Couldn't find or set field in one of a subsystem's events",
            Self::OutOfMemory => "Cannot allocate memory",
        })
    }
}

impl core::error::Error for Problem {}
