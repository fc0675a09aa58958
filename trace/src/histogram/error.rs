//! The problems of a histogram, in the words of Linux if it has any.

use fallible::OutOfMemory;

use crate::errno::Errno;
use crate::problems::problems;

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

problems! {
    /// A problem of a histogram. `Display` writes the text of Linux's `error_log`, or a similar one if Linux logs
    /// nothing.
    pub enum Problem;

    /// There are no keys. Linux logs nothing for it.
    NoKeys = "No keys found";
    /// There are more than three keys. Linux logs nothing for it.
    TooManyKeys = "Too many key fields (Max = 3)";
    /// There are more than two values besides the hits. Linux logs nothing for it.
    TooManyValues = "Too many value fields (Max = 2)";
    /// The event has no such field.
    FieldNotFound = "Couldn't find field";
    /// There is no such modifier, or it does not apply to this field.
    BadModifier = "Invalid field modifier";
    /// A text is used as a value or in an expression.
    TextOperand = "String type can not be an operand in expression";
    /// Hits are not to be shown, and there is no other value.
    NeedsValue = "Non-hitcount value is required for 'nohitcount'";
    /// A key refers to a variable.
    ReferenceInKey = "Using variable references in keys not supported";
    /// Another histogram of this name exists, with a different definition.
    NamedMismatch = "Named hist trigger doesn't match existing named trigger (includes variables)";
    /// Nothing follows an `=`.
    EmptyAssignment = "Empty assignment";
    /// A variable after a comma does not have the form `NAME=EXPRESSION`.
    MalformedAssignment = "Malformed assignment";
    /// No clock has the name.
    Clock = "Couldn't set trace_clock";
    /// The event already has a variable of this name.
    DuplicateVariable = "Variable already defined";
    /// Several events have a variable of this name.
    VariableNotUnique = "Variable name not unique, need to use fully qualified name (subsys.event.var) for variable";
    /// The trigger has, or refers to, more than 16 variables.
    TooManyVariables = "Too many variables defined";
    /// No variable has the name.
    VariableNotFound = "Couldn't find variable";
    /// There are more than three operators.
    TooManySubexpressions = "Too many subexpressions (3 max)";
    /// An operator lacks an operand. Linux logs nothing for it.
    MissingOperand = "Missing operand";
    /// A time in microseconds is combined with a value in another unit.
    TimestampMismatch = "Timestamp units in expression don't match";
    /// An operand begins like a number, but is none.
    ExpectNumber = "Expecting numeric literal";
    /// `-(…)` is part of an expression.
    UnaryMinus = "Unary minus not supported in sub-expressions";
    /// An expression divides by the constant 0.
    DivisionByZero = "Division by zero";
    /// The size is not a number from 128 to 131072. Linux logs nothing for it.
    BadSize = "Invalid size (128 to 131072)";
    /// A parenthesis is not closed.
    NoClosingParen = "No closing paren found";
    /// The event in `onmatch` has no group.
    NoSubsystem = "Missing subsystem";
    /// The event in `onmatch` does not exist.
    NoSuchEvent = "Invalid subsystem or event name";
    /// `onmatch` with `save` or `snapshot`, which it does not support.
    ActionMismatch = "Handler doesn't support action";
    /// A parameter is shorter than two bytes.
    InvalidParameter = "Invalid action param";
    /// There are more than 64 parameters.
    TooManyParameters = "Too many action params";
    /// `onmax` or `onchange` watches something that is not a `$NAME`.
    NotAVariable = "For onmax(x) or onchange(x), x must be a variable";
    /// `onmax` or `onchange` watches a variable that this trigger does not have.
    WatchedNotFound = "Couldn't find onmax or onchange variable";
    /// There is a second `save`.
    TooManySaves = "Can't have more than one save() action per hist";
    /// The histogram that would keep a field of another event cannot be set.
    CreateHistogram = "Couldn't create histogram for field";
    /// A parameter of `save` cannot be saved.
    FieldVariable = "Couldn't create field variable";
    /// A parameter is not a field.
    FieldParse = "Couldn't parse field variable";
    /// No variable has the name that a parameter gives.
    ParameterNotFound = "Couldn't find param";
    /// No synthetic event has the name.
    SyntheticNotFound = "Couldn't find synthetic event";
    /// The type of a parameter does not fit the field of the synthetic event.
    TypeMismatch = "Param type doesn't match synthetic event field type";
    /// There are more or fewer parameters than fields.
    CountMismatch = "Param count doesn't match synthetic event field count";
    /// A parameter is a field of another event, and needs a trigger there. Linux logs nothing for it.
    NeedsField = "Couldn't find synthetic variable";
    /// The event of a field that a trigger needs has no histogram with the same keys.
    NoMatchingHistogram = "Matching event histogram not found";
    /// A word is neither a known parameter nor an action, or there are too many actions. Linux logs nothing for it.
    UnknownParameter = "No action found";
    /// A handler is followed by no action.
    NoAction = "No action found";
    /// A field to sort by is empty.
    EmptySortField = "Empty sort field";
    /// There are more than two fields to sort by.
    TooManySortFields = "Too many sort fields (Max = 2)";
    /// The field to sort by is neither a key nor a value.
    InvalidSortField = "Sort field must be a key or a val";
    /// The order is neither ascending nor descending.
    InvalidSortModifier = "Invalid sort modifier";
    /// The event already has this histogram.
    Exists = "Hist trigger already exists";
    /// The histogram to clear or continue does not exist.
    NotThere = "Can't clear or continue a nonexistent hist trigger";
    /// There is no memory. Linux logs nothing for it.
    OutOfMemory = "Cannot allocate memory";
}

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Self { problem: Problem::OutOfMemory, column: 0, before: None }
    }
}

impl Error {
    /// Returns the entries of the log, as in Linux: the problems, each with its column.
    pub(crate) fn entries(self) -> impl Iterator<Item = (Problem, usize)> {
        let (first, own) = (self.before.map_or(0, |(_, column)| column), self.column);
        // To an expression, a variable that several events have is one that it does not find.
        let variable = Some((Problem::VariableNotFound, first));
        // What is saved is read as a field.
        let (field, parse) = (Some((Problem::FieldNotFound, own)), Some((Problem::FieldParse, own)));
        let between = match (self.before.map(|(problem, _)| problem), self.problem) {
            (Some(Problem::VariableNotUnique), Problem::FieldNotFound) => [variable, None, None],
            (Some(Problem::VariableNotUnique), Problem::FieldVariable) => [variable, field, parse],
            (Some(Problem::VariableNotFound), Problem::FieldVariable) => [field, parse, None],
            (Some(_), Problem::FieldVariable) => [parse, None, None],
            _ => [None; 3],
        };
        let entries = self.before.into_iter().chain(between.into_iter().flatten()).chain([(self.problem, self.column)]);
        entries.filter(|(problem, _)| problem.is_logged())
    }
}

impl Problem {
    /// Returns the error number of the write that fails with this problem.
    pub(crate) fn errno(self) -> Errno {
        match self {
            Self::NeedsValue | Self::NotThere => Errno::NotFound,
            Self::DivisionByZero => Errno::Domain,
            Self::Exists | Self::TooManySaves => Errno::Exists,
            _ => Errno::Invalid,
        }
    }

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

impl core::error::Error for Problem {}
