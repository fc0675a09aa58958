//! The syntax tree of a program. Each node knows its place in the text; equality ignores the place.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use fallible::{OutOfMemory, TryClone};

use super::sampling::{HardwareEvent, Period};
use crate::error::Span;

/// A node with its place in the text.
#[derive(Clone, Debug)]
pub struct Spanned<T> {
    /// The node.
    pub node: T,
    /// Its place in the text.
    pub span: Span,
}

impl<T: PartialEq> PartialEq for Spanned<T> {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

impl<T: Eq> Eq for Spanned<T> {}

/// A program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The settings.
    pub config: Vec<Spanned<Setting>>,
    /// The maps that are declared with a size.
    pub maps: Vec<Spanned<MapDeclaration>>,
    /// The clauses, in the order of the text; never empty.
    pub clauses: Vec<Clause>,
}

/// A setting: `name = value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name, as it is written.
    pub name: String,
    /// The value.
    pub value: SettingValue,
}

/// The value of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// A number.
    Number(u64),
    /// A word or a string.
    Text(String),
}

/// `let @name = hash(100);`: a map with room for a number of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDeclaration {
    /// The name without `@`.
    pub name: String,
    /// The number of keys.
    pub keys: u64,
}

/// A block of statements, with the probes at which it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// The probes; never empty.
    pub probes: Vec<Spanned<Probe>>,
    /// The condition: the body runs only if the value is not 0.
    pub predicate: Option<Expression>,
    /// The statements.
    pub body: Vec<Statement>,
}

/// A place where a clause runs. Globs and function names are matched against demangled paths: see
/// [`matches`](kprobes_symbols::names::matches).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `BEGIN`: once, before all other probes.
    Begin,
    /// `END`: once, after all other probes.
    End,
    /// `interval:s:N` and other units: periodically.
    Interval {
        /// The number of units, not 0.
        count: u64,
        /// The unit.
        unit: Unit,
    },
    /// `profile:hz:N` and other units: periodically on every CPU, in the code that the CPU runs.
    Profile {
        /// The number of units, not 0.
        count: u64,
        /// The unit.
        unit: Unit,
    },
    /// `software:cpu-clock:N`: like [`Profile`](Self::Profile), with a period in nanoseconds.
    CpuClock {
        /// The period, in nanoseconds.
        period: u64,
    },
    /// `hardware:EVENT:N`: on every CPU, in the code that the CPU runs after that number of events.
    Hardware {
        /// The event.
        event: HardwareEvent,
        /// The number of events from one sample to the next, not 0.
        count: u32,
    },
    /// `kprobe:GLOB`: at the entry of every function that matches.
    Kprobe {
        /// The glob for the functions.
        glob: String,
    },
    /// `kretprobe:GLOB`: at the address to which a call of a matching function returns.
    Kretprobe {
        /// The glob for the functions.
        glob: String,
    },
    /// `return:GLOB`: at every instruction that leaves a matching function.
    Return {
        /// The glob for the functions.
        glob: String,
    },
    /// `kprobe:FUNC+OFF`: at one instruction.
    Offset {
        /// The function.
        function: String,
        /// The offset from the entry, in bytes.
        offset: u64,
    },
    /// `kprobe:FILE.rs:LINE`: at every instruction that begins a line of source.
    Line {
        /// The file, or the end of its path.
        file: String,
        /// The line number, from 1.
        line: u32,
    },
    /// `kprobe:FUNC:LINE`: at every instruction of a function that begins a line of it.
    FunctionLine {
        /// The function.
        function: String,
        /// The line number, counted from the declaration of the function; 0 for the entry.
        line: u32,
    },
    /// `insn:FUNC:OFF` or `insn:FUNC:*`: at one instruction, or at each.
    Instruction {
        /// The function.
        function: String,
        /// The offset from the entry, in bytes; `None` for every instruction of the function.
        offset: Option<u64>,
    },
    /// `tracepoint:GROUP:EVENT`: where matching static events happen.
    Tracepoint {
        /// The group, a glob.
        group: String,
        /// The name, a glob.
        event: String,
    },
    /// `watchpoint:ADDRESS:LENGTH:MODE` and `watchpoint:SYMBOL+OFF:LENGTH:MODE`: where memory is accessed.
    Watch {
        /// The static whose memory is watched; `None` if the address is a number.
        symbol: Option<String>,
        /// The offset from the address of the static, or the virtual address, in bytes.
        offset: u64,
        /// The number of watched bytes.
        length: u64,
        /// Whether loads are reported.
        loads: bool,
        /// Whether stores are reported.
        stores: bool,
    },
    /// `inline:GLOB:entry` and `inline:GLOB:return`: at every inlined copy of a matching function.
    Inline {
        /// The glob for the functions.
        function: String,
        /// Whether the probe is at the exits of the copies instead of their entries.
        exit: bool,
    },
}

impl TryClone for Probe {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(match self {
            Self::Begin => Self::Begin,
            Self::End => Self::End,
            &Self::Interval { count, unit } => Self::Interval { count, unit },
            &Self::Profile { count, unit } => Self::Profile { count, unit },
            &Self::CpuClock { period } => Self::CpuClock { period },
            &Self::Hardware { event, count } => Self::Hardware { event, count },
            Self::Kprobe { glob } => Self::Kprobe { glob: fallible::copy(glob)? },
            Self::Kretprobe { glob } => Self::Kretprobe { glob: fallible::copy(glob)? },
            Self::Return { glob } => Self::Return { glob: fallible::copy(glob)? },
            Self::Offset { function, offset } => Self::Offset { function: fallible::copy(function)?, offset: *offset },
            Self::Line { file, line } => Self::Line { file: fallible::copy(file)?, line: *line },
            Self::FunctionLine { function, line } => {
                Self::FunctionLine { function: fallible::copy(function)?, line: *line }
            }
            Self::Instruction { function, offset } => {
                Self::Instruction { function: fallible::copy(function)?, offset: *offset }
            }
            Self::Tracepoint { group, event } => {
                Self::Tracepoint { group: fallible::copy(group)?, event: fallible::copy(event)? }
            }
            Self::Watch { symbol, offset, length, loads, stores } => Self::Watch {
                symbol: symbol.as_deref().map(fallible::copy).transpose()?,
                offset: *offset,
                length: *length,
                loads: *loads,
                stores: *stores,
            },
            Self::Inline { function, exit } => Self::Inline { function: fallible::copy(function)?, exit: *exit },
        })
    }
}

/// The unit of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// `us`.
    Microseconds,
    /// `ms`.
    Milliseconds,
    /// `s`.
    Seconds,
    /// `hz`: intervals per second.
    Hertz,
}

impl Unit {
    /// All units, the longest first.
    pub const ALL: [Self; 4] = [Self::Seconds, Self::Milliseconds, Self::Microseconds, Self::Hertz];

    /// Returns the name of the unit in a program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Hertz => "hz",
        }
    }

    /// Returns the nanoseconds of one unit; `None` for [`Hertz`](Self::Hertz).
    #[must_use]
    pub fn nanoseconds(self) -> Option<u64> {
        match self {
            Self::Microseconds => Some(1_000),
            Self::Milliseconds => Some(1_000_000),
            Self::Seconds => Some(1_000_000_000),
            Self::Hertz => None,
        }
    }

    /// Returns the period for `count` units, in nanoseconds. Returns `None` on overflow and for periods below a
    /// microsecond.
    #[must_use]
    pub fn period(self, count: u64) -> Option<u64> {
        let period = match self.nanoseconds() {
            Some(unit) => count.checked_mul(unit),
            None => 1_000_000_000_u64.checked_div(count),
        };
        period.filter(|&period| period >= 1_000)
    }
}

impl Probe {
    /// Returns the kind of the probe, as the builtin `probetype` gives it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Begin | Self::End => "special",
            Self::Interval { .. } => "interval",
            Self::Profile { .. } => "profile",
            Self::CpuClock { .. } => "software",
            Self::Hardware { .. } => "hardware",
            Self::Kprobe { .. } | Self::Offset { .. } | Self::Line { .. } | Self::FunctionLine { .. } => "kprobe",
            Self::Kretprobe { .. } => "kretprobe",
            Self::Return { .. } => "return",
            Self::Instruction { .. } => "insn",
            Self::Tracepoint { .. } => "tracepoint",
            Self::Watch { .. } => "watchpoint",
            Self::Inline { .. } => "inline",
        }
    }

    /// Returns the distance between two samples, if the probe samples the CPUs.
    #[must_use]
    pub fn sampling_period(&self) -> Option<Period> {
        match *self {
            Self::Profile { count, unit } => unit.period(count).map(Duration::from_nanos).map(Period::Time),
            Self::CpuClock { period } => Some(Period::Time(Duration::from_nanos(period))),
            Self::Hardware { event, count } => Some(Period::Events { event, count }),
            _ => None,
        }
    }
}

/// A map, or an entry of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapReference {
    /// The name without `@`; may be empty.
    pub name: String,
    /// The parts of the key; empty for a map without keys, and for a whole map.
    pub keys: Vec<Expression>,
}

/// A statement with its place in the text.
pub type Statement = Spanned<StatementForm>;

/// A statement without its place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementForm {
    /// `target = value`, or `target += value` with any arithmetic operator.
    Assign {
        /// The variable or map that is assigned.
        target: Spanned<Target>,
        /// The operator that combines the old value with the new one; `None` for plain assignment.
        operator: Option<Operator>,
        /// The new value.
        value: Expression,
    },
    /// `let $name`, `let $name = value`: declares a variable of this block.
    Let {
        /// The name without `$`.
        name: String,
        /// The initial value; `None` initializes with zeros.
        value: Option<Expression>,
    },
    /// A call, `++`, `--` or a block as a statement.
    Do(Expression),
    /// `_ = value`: evaluates a value without using it.
    Discard(Expression),
    /// `if (condition) { … } else { … }`.
    If {
        /// The condition; any value but 0 selects `then`.
        condition: Expression,
        /// The statements for a true condition.
        then: Vec<Statement>,
        /// The statements of the `else` branch; may be empty.
        otherwise: Vec<Statement>,
    },
    /// `unroll (count) { … }`: the body, repeated at compile time.
    Unroll {
        /// The number of repetitions, a constant.
        count: Expression,
        /// The body.
        body: Vec<Statement>,
    },
    /// `while (condition) { … }`.
    While {
        /// The condition for another iteration, false if 0.
        condition: Expression,
        /// The body.
        body: Vec<Statement>,
    },
    /// `for ($name : range) { … }`.
    For {
        /// The name of the loop variable, without `$`.
        name: String,
        /// The values of the loop variable.
        range: LoopRange,
        /// The body.
        body: Vec<Statement>,
    },
    /// `break`: leaves the innermost loop.
    Break,
    /// `continue`: goes on with the next iteration of the innermost loop.
    Continue,
    /// `return`: ends this clause.
    Return,
}

/// The range of a `for` loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoopRange {
    /// `first..end`: the numbers from `first` to one before `end`.
    Numbers {
        /// The first number.
        first: Expression,
        /// The number after the last.
        end: Expression,
    },
    /// `@name`: the entries of a map, as tuples of key and value. The name has no `@`.
    Map(Spanned<String>),
}

/// The left side of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `$name`, without the `$`.
    Variable(String),
    /// `@name`, or an entry of it.
    Map(MapReference),
}

impl Target {
    fn height(&self) -> usize {
        match self {
            Self::Map(map) => map.height(),
            Self::Variable(_) => 0,
        }
    }
}

impl MapReference {
    fn height(&self) -> usize {
        self.keys.iter().map(|key| key.height).max().unwrap_or(0)
    }
}

/// An expression.
#[derive(Clone, Debug)]
pub struct Expression {
    /// The operation and its operands.
    pub form: Box<ExpressionForm>,
    /// The place in the text.
    pub span: Span,
    /// The height of the tree, in nodes.
    pub height: usize,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.form == other.form
    }
}

impl Eq for Expression {}

/// An expression without its place in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpressionForm {
    /// A number.
    Integer(u64),
    /// A string.
    Text(String),
    /// `$name`, without the `$`.
    Variable(String),
    /// A map, or an entry of one.
    Map(MapReference),
    /// A builtin value such as `arg0` or `comm`.
    Builtin(String),
    /// `name(arguments)`.
    Call {
        /// The function.
        name: Spanned<String>,
        /// The arguments.
        arguments: Vec<Expression>,
    },
    /// `-x`, `!x`, `~x` or `*x`.
    Unary {
        /// The operator.
        operator: Unary,
        /// The operand.
        operand: Expression,
    },
    /// `x++`, `++x`, `x--` or `--x`.
    Step {
        /// The variable or map that is stepped.
        target: Spanned<Target>,
        /// Whether the step is `++`.
        up: bool,
        /// Whether the value is the one after the step (`++x`), instead of the one before (`x++`).
        first: bool,
    },
    /// `a + b` with any binary operator.
    Binary {
        /// The operator.
        operator: Operator,
        /// The left operand.
        left: Expression,
        /// The right operand.
        right: Expression,
    },
    /// `condition ? then : otherwise`.
    Choice {
        /// The condition; any value but 0 selects `then`.
        condition: Expression,
        /// The value for a true condition.
        then: Expression,
        /// The value for a false condition.
        otherwise: Expression,
    },
    /// `(type)x`.
    Cast {
        /// The type to convert to.
        to: TypeForm,
        /// The value to convert.
        operand: Expression,
    },
    /// `(a, b)`, `(a,)`: a tuple of at least one value.
    Tuple(Vec<Expression>),
    /// `(name = a, other = b)`: a record, a tuple whose parts have names.
    Record(Vec<(String, Expression)>),
    /// `t.0`.
    Part {
        /// The tuple.
        tuple: Expression,
        /// The index of the part, from 0.
        number: u64,
    },
    /// `args.name`: an argument of the probed function, or a field of a Rust value.
    Field {
        /// The value that has the field.
        of: Expression,
        /// The name of the field.
        name: String,
    },
    /// `State::Idle`: a path to a variant, compared with a Rust value.
    Path(String),
    /// `{ … value }`: a value with statements before it.
    Block {
        /// The statements.
        body: Vec<Statement>,
        /// The value; `None` if the block stands for statements only.
        value: Option<Expression>,
    },
    /// `p[i]`.
    Index {
        /// The pointer or array.
        pointer: Expression,
        /// The index of the element.
        index: Expression,
    },
}

impl Expression {
    /// Creates an expression at `span`.
    ///
    /// # Errors
    ///
    /// There is no memory for the node.
    pub fn new(form: ExpressionForm, span: Span) -> Result<Self, OutOfMemory> {
        use ExpressionForm as Form;
        let below = match &form {
            Form::Integer(_) | Form::Text(_) | Form::Variable(_) | Form::Builtin(_) | Form::Path(_) => 0,
            Form::Map(map) => map.height(),
            Form::Step { target, .. } => target.node.height(),
            Form::Call { arguments, .. } => arguments.iter().map(|argument| argument.height).max().unwrap_or(0),
            Form::Record(parts) => parts.iter().map(|(_, part)| part.height).max().unwrap_or(0),
            Form::Tuple(parts) => parts.iter().map(|part| part.height).max().unwrap_or(0),
            Form::Part { tuple: operand, .. } | Form::Field { of: operand, .. } | Form::Unary { operand, .. } => {
                operand.height
            }
            Form::Cast { to: TypeForm::Of { value, .. }, operand } => value.height.max(operand.height),
            Form::Cast { operand, .. } => operand.height,
            Form::Block { body, value } => height(body).max(value.as_ref().map_or(0, |value| value.height)),
            Form::Binary { left, right, .. } => left.height.max(right.height),
            Form::Index { pointer, index } => pointer.height.max(index.height),
            Form::Choice { condition, then, otherwise } => condition.height.max(then.height).max(otherwise.height),
        };
        Ok(Self { form: fallible::boxed(form)?, span, height: below + 1 })
    }
}

/// Returns the height of the tallest of these statements, in nodes.
fn height(body: &[Statement]) -> usize {
    let of = |value: &Option<Expression>| value.as_ref().map_or(0, |value| value.height);
    let heights = body.iter().map(|statement| match &statement.node {
        StatementForm::Assign { target, value, .. } => target.node.height().max(value.height),
        StatementForm::Let { value, .. } => of(value),
        StatementForm::Do(value) | StatementForm::Discard(value) => value.height,
        StatementForm::If { condition, then, otherwise } => condition.height.max(height(then)).max(height(otherwise)),
        StatementForm::Unroll { count: value, body } | StatementForm::While { condition: value, body } => {
            value.height.max(height(body))
        }
        StatementForm::For { range: LoopRange::Numbers { first, end }, body, .. } => {
            first.height.max(end.height).max(height(body))
        }
        StatementForm::For { body, .. } => height(body),
        StatementForm::Break | StatementForm::Continue | StatementForm::Return => 0,
    });
    heights.max().map_or(0, |height| height + 1)
}

/// The type of a cast or a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TypeForm {
    /// A type that is written out.
    Named(TypeName),
    /// `u8[4]`: an array of integers.
    Array {
        /// The type of the elements, which is no pointer.
        element: TypeName,
        /// The number of elements; `None` for as many as the value has.
        count: Option<u64>,
    },
    /// `typeof(value)`, or a pointer to it.
    Of {
        /// The value, which is not evaluated.
        value: Expression,
        /// Whether this is a pointer to the type of the value.
        pointer: bool,
    },
}

/// The name of a type: an integer, or a pointer to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeName {
    /// Whether the integer is signed.
    pub signed: bool,
    /// The width of the integer: 8, 16, 32 or 64.
    pub bits: u8,
    /// Whether this is a pointer to the integer.
    pub pointer: bool,
}

impl TypeName {
    /// Parses the name of an integer type: `u32`, `uint32`, `s32`, `i32`, `int32`, with `_t` or without.
    #[must_use]
    pub fn integer(name: &str) -> Option<Self> {
        let name = name.strip_suffix("_t").unwrap_or(name);
        let digits = name.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let signed = match name.strip_suffix(digits)? {
            "u" | "uint" => false,
            "s" | "i" | "int" => true,
            _ => return None,
        };
        let bits = match digits {
            "8" => 8,
            "16" => 16,
            "32" => 32,
            "64" => 64,
            _ => return None,
        };
        Some(Self { signed, bits, pointer: false })
    }
}

/// A unary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// `-x`.
    Negate,
    /// `~x`.
    Invert,
    /// `!x`.
    Not,
    /// `*x`.
    Read,
}

/// A binary operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `||`.
    Or,
    /// `&&`.
    And,
    /// `|`.
    BitOr,
    /// `^`.
    BitXor,
    /// `&`.
    BitAnd,
    /// `==`.
    Equal,
    /// `!=`.
    Unequal,
    /// `<`.
    Less,
    /// `<=`.
    LessEqual,
    /// `>`.
    Greater,
    /// `>=`.
    GreaterEqual,
    /// `<<`.
    Left,
    /// `>>`.
    Right,
    /// `+`.
    Add,
    /// `-`.
    Subtract,
    /// `*`.
    Multiply,
    /// `/`.
    Divide,
    /// `%`.
    Remainder,
}

/// Every operator with its token and its precedence. A `static`, so that the recursive parser does not copy it to the
/// stack.
static OPERATORS: [(Operator, &str, u8); 18] = [
    (Operator::Or, "||", 1),
    (Operator::And, "&&", 2),
    (Operator::BitOr, "|", 3),
    (Operator::BitXor, "^", 4),
    (Operator::BitAnd, "&", 5),
    (Operator::Equal, "==", 6),
    (Operator::Unequal, "!=", 6),
    (Operator::Less, "<", 7),
    (Operator::LessEqual, "<=", 7),
    (Operator::Greater, ">", 7),
    (Operator::GreaterEqual, ">=", 7),
    (Operator::Left, "<<", 8),
    (Operator::Right, ">>", 8),
    (Operator::Add, "+", 9),
    (Operator::Subtract, "-", 9),
    (Operator::Multiply, "*", 10),
    (Operator::Divide, "/", 10),
    (Operator::Remainder, "%", 10),
];

impl Operator {
    /// The lowest precedence of any operator.
    pub const WEAKEST: u8 = 1;

    /// Returns the operator with this token.
    #[must_use]
    pub fn of_sign(sign: &str) -> Option<Self> {
        OPERATORS.iter().find(|(_, of, _)| *of == sign).map(|&(operator, ..)| operator)
    }

    /// Returns the operator of a compound assignment token: `+` for `+=`.
    #[must_use]
    pub fn of_assignment(sign: &str) -> Option<Self> {
        let operator = Self::of_sign(sign.strip_suffix('=')?)?;
        operator.is_arithmetic().then_some(operator)
    }

    /// Returns the token.
    #[must_use]
    pub fn sign(self) -> &'static str {
        OPERATORS.iter().find(|(of, ..)| *of == self).map_or("", |(_, sign, _)| sign)
    }

    /// Returns the precedence; a higher number binds more strongly.
    #[must_use]
    pub fn strength(self) -> u8 {
        OPERATORS.iter().find(|(of, ..)| *of == self).map_or(0, |(.., strength)| *strength)
    }

    /// Returns whether the operator compares.
    #[must_use]
    pub fn is_comparison(self) -> bool {
        matches!(self.strength(), 6 | 7)
    }

    /// Returns whether the operator computes a number: it neither compares nor combines conditions.
    #[must_use]
    pub fn is_arithmetic(self) -> bool {
        matches!(self.strength(), 3..=5 | 8..)
    }
}
