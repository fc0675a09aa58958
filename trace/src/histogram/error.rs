//! The problems of a histogram, in the words of Linux if it has any.

use core::fmt;

use fallible::OutOfMemory;

/// A refused histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The problem.
    pub problem: Problem,
    /// The number of bytes of the trigger before the cause.
    pub column: usize,
    /// A problem that Linux logs before this one, with its column.
    pub before: Option<(Problem, usize)>,
}

/// A problem of a histogram. `Display` writes the text of Linux's `error_log`, or a similar one if Linux logs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There are no keys. Linux logs nothing for it.
    NoKeys,
    /// There are more than three keys. Linux logs nothing for it.
    TooManyKeys,
    /// There are more than two values besides the hits. Linux logs nothing for it.
    TooManyValues,
    /// The event has no such field.
    FieldNotFound,
    /// There is no such modifier, or it does not apply to this field.
    BadModifier,
    /// A text is used as a value or in an expression.
    TextOperand,
    /// Hits are not to be shown, and there is no other value.
    NeedsValue,
    /// A key refers to a variable.
    ReferenceInKey,
    /// Another histogram of this name exists, with a different definition.
    NamedMismatch,
    /// Nothing follows an `=`.
    EmptyAssignment,
    /// A variable after a comma does not have the form `NAME=EXPRESSION`.
    MalformedAssignment,
    /// No clock has the name.
    Clock,
    /// The event already has a variable of this name.
    DuplicateVariable,
    /// Several events have a variable of this name.
    VariableNotUnique,
    /// The trigger has, or refers to, more than 16 variables.
    TooManyVariables,
    /// No variable has the name.
    VariableNotFound,
    /// There are more than three operators.
    TooManySubexpressions,
    /// An operator lacks an operand. Linux logs nothing for it.
    MissingOperand,
    /// A time in microseconds is combined with a value in another unit.
    TimestampMismatch,
    /// An operand begins like a number, but is none.
    ExpectNumber,
    /// `-(…)` is part of an expression.
    UnaryMinus,
    /// An expression divides by the constant 0.
    DivisionByZero,
    /// The size is not a number from 128 to 131072. Linux logs nothing for it.
    BadSize,
    /// A parenthesis is not closed.
    NoClosingParen,
    /// The event in `onmatch` has no group.
    NoSubsystem,
    /// The event in `onmatch` does not exist.
    NoSuchEvent,
    /// `onmatch` with `save` or `snapshot`, which it does not support.
    ActionMismatch,
    /// A parameter is shorter than two bytes.
    InvalidParameter,
    /// There are more than 64 parameters.
    TooManyParameters,
    /// `onmax` or `onchange` watches something that is not a `$NAME`.
    NotAVariable,
    /// `onmax` or `onchange` watches a variable that this trigger does not have.
    WatchedNotFound,
    /// There is a second `save`.
    TooManySaves,
    /// A parameter of `save` cannot be saved.
    FieldVariable,
    /// A parameter is not a field.
    FieldParse,
    /// No variable has the name that a parameter gives.
    ParameterNotFound,
    /// No synthetic event has the name.
    SyntheticNotFound,
    /// The type of a parameter does not fit the field of the synthetic event.
    TypeMismatch,
    /// There are more or fewer parameters than fields.
    CountMismatch,
    /// A parameter is a field of another event, and needs a trigger there. Linux logs nothing for it.
    NeedsField,
    /// The event of a field that a trigger needs has no histogram with the same keys.
    NoMatchingHistogram,
    /// A word is neither a known parameter nor an action, or there are too many actions. Linux logs nothing for it.
    UnknownParameter,
    /// A handler is followed by no action.
    NoAction,
    /// A field to sort by is empty.
    EmptySortField,
    /// There are more than two fields to sort by.
    TooManySortFields,
    /// The field to sort by is neither a key nor a value.
    InvalidSortField,
    /// The order is neither ascending nor descending.
    InvalidSortModifier,
    /// The event already has this histogram.
    Exists,
    /// The histogram to clear or continue does not exist.
    NotThere,
    /// There is no memory. Linux logs nothing for it.
    OutOfMemory,
}

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Self { problem: Problem::OutOfMemory, column: 0, before: None }
    }
}

impl Problem {
    /// Whether `error_log` shows the problem, as in Linux.
    pub(crate) fn is_logged(self) -> bool {
        !matches!(
            self,
            Self::NoKeys
                | Self::TooManyKeys
                | Self::TooManyValues
                | Self::BadSize
                | Self::MissingOperand
                | Self::NeedsField
                | Self::UnknownParameter
                | Self::OutOfMemory
        )
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
            Self::NeedsValue => "Non-hitcount value is required for 'nohitcount'",
            Self::ReferenceInKey => "Using variable references in keys not supported",
            Self::NamedMismatch => "Named hist trigger doesn't match existing named trigger (includes variables)",
            Self::EmptyAssignment => "Empty assignment",
            Self::MalformedAssignment => "Malformed assignment",
            Self::Clock => "Couldn't set trace_clock",
            Self::DuplicateVariable => "Variable already defined",
            Self::VariableNotUnique => {
                "Variable name not unique, need to use fully qualified name (subsys.event.var) for variable"
            }
            Self::TooManyVariables => "Too many variables defined",
            Self::VariableNotFound => "Couldn't find variable",
            Self::TooManySubexpressions => "Too many subexpressions (3 max)",
            Self::MissingOperand => "Missing operand",
            Self::TimestampMismatch => "Timestamp units in expression don't match",
            Self::ExpectNumber => "Expecting numeric literal",
            Self::UnaryMinus => "Unary minus not supported in sub-expressions",
            Self::DivisionByZero => "Division by zero",
            Self::BadSize => "Invalid size (128 to 131072)",
            Self::NoClosingParen => "No closing paren found",
            Self::NoSubsystem => "Missing subsystem",
            Self::NoSuchEvent => "Invalid subsystem or event name",
            Self::ActionMismatch => "Handler doesn't support action",
            Self::InvalidParameter => "Invalid action param",
            Self::TooManyParameters => "Too many action params",
            Self::NotAVariable => "For onmax(x) or onchange(x), x must be a variable",
            Self::WatchedNotFound => "Couldn't find onmax or onchange variable",
            Self::TooManySaves => "Can't have more than one save() action per hist",
            Self::FieldVariable => "Couldn't create field variable",
            Self::FieldParse => "Couldn't parse field variable",
            Self::ParameterNotFound => "Couldn't find param",
            Self::SyntheticNotFound => "Couldn't find synthetic event",
            Self::TypeMismatch => "Param type doesn't match synthetic event field type",
            Self::CountMismatch => "Param count doesn't match synthetic event field count",
            Self::NeedsField => "Couldn't find synthetic variable",
            Self::NoMatchingHistogram => "Matching event histogram not found",
            Self::UnknownParameter | Self::NoAction => "No action found",
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
