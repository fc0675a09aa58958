//! The problems of a filter, in the words of Linux.

use core::fmt;

use fallible::OutOfMemory;

use crate::errno::Errno;

/// A refused filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The problem.
    pub problem: Problem,
    /// The number of bytes of the filter before the caret. The caret may be up to two bytes after the end of the filter.
    pub column: usize,
}

/// A problem of a filter. `Display` writes the text of Linux's `error_log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// No operator follows a field.
    InvalidOperator,
    /// A `(` without its `)`.
    TooManyOpen,
    /// A `)` without its `(`.
    TooManyClosed,
    /// A quote without its partner.
    MissingQuote,
    /// A string or a number is too long.
    OperandTooLong,
    /// A field that is a string is compared with a number.
    ExpectString,
    /// A field that is a number is compared with a string.
    ExpectDigit,
    /// The operator does not apply to this kind of field.
    IllegalOperation,
    /// The event has no such field.
    FieldNotFound,
    /// The number cannot be read.
    IllegalInteger,
    /// Two tests without an operator between them.
    TooManyTests,
    /// The right side of a test is neither a number nor a string.
    InvalidValue,
    /// There is no test. Linux has no text for it.
    NoTest,
    /// A test lacks its field. Linux has no text for it.
    MissingTest,
    /// A `&&` without a right side follows a `||`. Linux has no text for it.
    OpenEnd,
    /// There is nothing but `!`.
    NoFilter,
    /// No function has the name or contains the address.
    FunctionNotFound,
    /// Several functions have the name.
    FunctionNotUnique,
    /// `CPUS` is not followed by `{`.
    MissingBraceOpen,
    /// A list of CPUs has no `}`.
    MissingBraceClose,
    /// A list of CPUs is empty, or cannot be read.
    InvalidCpuList,
    /// The filter was set for all events of a group, and this event cannot have it.
    OfGroup,
    /// There is no memory. Linux logs nothing for it.
    OutOfMemory,
}

impl Problem {
    /// Whether Linux has a text for the problem.
    pub(crate) fn has_text(self) -> bool {
        !matches!(self, Self::NoTest | Self::MissingTest | Self::OpenEnd)
    }

    /// Returns the error number of the write that fails with this problem. As in Linux, some of these are not meant as
    /// error numbers: they are the codes of the parser.
    pub(crate) fn errno(self) -> Errno {
        match self {
            Self::TooManyClosed | Self::TooManyTests | Self::MissingTest => Errno::NotAllowed,
            Self::TooManyOpen => Errno::NotFound,
            Self::MissingQuote => Errno::NoProcess,
            Self::OutOfMemory => Errno::NoMemory,
            _ => Errno::Invalid,
        }
    }
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
            Self::NoTest | Self::MissingTest | Self::OpenEnd => "Error",
            Self::NoFilter => "No filter found",
            Self::FunctionNotFound => "Function not found",
            Self::FunctionNotUnique => "Several functions have this name; give an address in the one that is meant",
            Self::MissingBraceOpen => "Missing '{'",
            Self::MissingBraceClose => "Missing '}'",
            Self::InvalidCpuList => "Invalid cpulist",
            Self::OfGroup => "Couldn't find or set field in one of a subsystem's events",
            Self::OutOfMemory => "Cannot allocate memory",
        })
    }
}

impl core::error::Error for Problem {}
