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
    /// What Linux logs before that, and where.
    pub before: Option<(Problem, usize)>,
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
    /// Hits are not to be shown, and there is no other value.
    NeedsValue,
    /// A key refers to a variable.
    ReferenceInKey,
    /// There is another histogram of this name, which differs.
    NamedMismatch,
    /// Nothing follows a `=`.
    EmptyAssignment,
    /// After a comma a variable is no `NAME=EXPRESSION`.
    MalformedAssignment,
    /// There is no such clock.
    Clock,
    /// The event has a variable of this name already.
    DuplicateVariable,
    /// Several events have a variable of this name.
    VariableNotUnique,
    /// There are more than 16 variables, of the trigger or referred to.
    TooManyVariables,
    /// There is no such variable.
    VariableNotFound,
    /// There are more than three operators.
    TooManySubexpressions,
    /// An operator has nothing on a side. Linux logs nothing.
    MissingOperand,
    /// A time in microseconds is computed with something else.
    TimestampMismatch,
    /// A number was expected.
    ExpectNumber,
    /// `-(…)` is part of an expression.
    UnaryMinus,
    /// Something is divided by 0.
    DivisionByZero,
    /// The size is no number from 128 to 131072.
    BadSize,
    /// A bracket is not closed.
    NoClosingParen,
    /// The event in `onmatch` has no group.
    NoSubsystem,
    /// There is no event as in `onmatch`.
    NoSuchEvent,
    /// `onmatch` does not keep fields, nor take snapshots.
    ActionMismatch,
    /// A parameter is shorter than two bytes.
    InvalidParameter,
    /// There are more than 64 parameters.
    TooManyParameters,
    /// What `onmax` or `onchange` watches is no `$NAME`.
    NotAVariable,
    /// What `onmax` or `onchange` watches is no variable of this trigger.
    WatchedNotFound,
    /// There is a second `save`.
    TooManySaves,
    /// A field to be saved cannot be.
    FieldVariable,
    /// A parameter is no field.
    FieldParse,
    /// A variable that is a parameter does not exist.
    ParameterNotFound,
    /// There is no such synthetic event.
    SyntheticNotFound,
    /// A parameter is not what the field of the synthetic event is.
    TypeMismatch,
    /// There are more or fewer parameters than fields.
    CountMismatch,
    /// A parameter is a field of another event, for which there is to be a trigger there. Linux logs nothing.
    NeedsField,
    /// The event of such a field has no histogram with these keys.
    NoMatchingHistogram,
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
        Self { problem: Problem::OutOfMemory, column: 0, before: None }
    }
}

impl Problem {
    /// Whether Linux has it in the log.
    pub(crate) fn is_logged(self) -> bool {
        !matches!(self, Self::MissingOperand | Self::NeedsField | Self::OutOfMemory)
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
