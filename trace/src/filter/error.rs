//! The problems of a filter, in the words of Linux.

use fallible::OutOfMemory;

use crate::errno::Errno;
use crate::problems::problems;

/// A refused filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The problem.
    pub problem: Problem,
    /// The number of bytes of the filter before the caret. The caret may be up to two bytes after the end of the
    /// filter.
    pub column: usize,
}

problems! {
    /// A problem of a filter. `Display` writes the text of Linux's `error_log`.
    pub enum Problem;

    /// No operator follows a field.
    InvalidOperator = "Invalid operator";
    /// A `(` without its `)`.
    TooManyOpen = "Too many '('";
    /// A `)` without its `(`.
    TooManyClosed = "Too few '('";
    /// A quote without its partner.
    MissingQuote = "Missing matching quote";
    /// A string or a number is too long.
    OperandTooLong = "Operand too long";
    /// A field that is a string is compared with a number.
    ExpectString = "Expecting string field";
    /// A field that is a number is compared with a string.
    ExpectDigit = "Expecting numeric field";
    /// The operator does not apply to this kind of field.
    IllegalOperation = "Illegal operation for field type";
    /// The event has no such field.
    FieldNotFound = "Field not found";
    /// The number cannot be read.
    IllegalInteger = "Illegal integer value";
    /// Two tests without an operator between them.
    TooManyTests = "Too many terms in predicate expression";
    /// The right side of a test is neither a number nor a string.
    InvalidValue = "Invalid value (did you forget quotes)?";
    /// There is no test. Linux has no text for it.
    NoTest = "Error";
    /// A test lacks its field. Linux has no text for it.
    MissingTest = "Error";
    /// The filter ends after an operator.
    Incomplete = "Meaningless filter expression";
    /// There is nothing but `!`.
    NoFilter = "No filter found";
    /// No function has the name or contains the address.
    FunctionNotFound = "Function not found";
    /// Several functions have the name.
    FunctionNotUnique = "Several functions have this name; give an address in the one that is meant";
    /// `CPUS` is not followed by `{`.
    MissingBraceOpen = "Missing '{'";
    /// A list of CPUs has no `}`.
    MissingBraceClose = "Missing '}'";
    /// A list of CPUs is empty, or cannot be read.
    InvalidCpuList = "Invalid cpulist";
    /// The filter was set for all events of a group, and this event cannot have it.
    OfGroup = "Couldn't find or set field in one of a subsystem's events";
    /// There is no memory. Linux logs nothing for it.
    OutOfMemory = "Cannot allocate memory";
}

impl Problem {
    /// Whether Linux has a text for the problem.
    pub(crate) fn has_text(self) -> bool {
        !matches!(self, Self::NoTest | Self::MissingTest)
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

impl core::error::Error for Problem {}
