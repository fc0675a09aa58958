//! What a program says, as a tree. Each node knows where it was said; nodes that say the same are equal wherever that
//! was.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use fallible::{OutOfMemory, TryClone};

use crate::error::Span;

/// Something that was said at a place.
#[derive(Clone, Debug)]
pub struct Spanned<T> {
    /// What.
    pub node: T,
    /// Where.
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
    /// What it does, in the order of the text; never empty.
    pub clauses: Vec<Clause>,
}

/// What is done where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Where; never empty.
    pub probes: Vec<Spanned<Probe>>,
    /// Nothing is done where this is 0.
    pub predicate: Option<Expression>,
    /// What is done.
    pub body: Vec<Statement>,
}

/// Where something is done. Globs and functions are over demangled paths: see [`matches`](crate::syntax::matches).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `BEGIN`: once, before all others.
    Begin,
    /// `END`: once, after all others.
    End,
    /// `interval:s:N` and the like: periodically.
    Interval {
        /// How many, not 0.
        count: u64,
        /// Of what.
        unit: Unit,
    },
    /// `kprobe:GLOB`: on the entry of every function that matches.
    Entry {
        /// The functions.
        glob: String,
    },
    /// `kretprobe:GLOB`: where every call of a function that matches comes back to.
    Return {
        /// The functions.
        glob: String,
    },
    /// `return:GLOB`: on every instruction that leaves a function that matches.
    Exit {
        /// The functions.
        glob: String,
    },
    /// `kprobe:FUNC+OFF`: on an instruction.
    Offset {
        /// The function.
        function: String,
        /// Bytes from its entry.
        offset: u64,
    },
    /// `kprobe:FILE.rs:LINE`: on every instruction that begins a line of source.
    Line {
        /// The file, or the end of its path.
        file: String,
        /// The number of the line.
        line: u32,
    },
    /// `insn:FUNC:OFF`, or `insn:FUNC:*`.
    Instruction {
        /// The function.
        function: String,
        /// Bytes from its entry; every instruction of it if not given.
        offset: Option<u64>,
    },
    /// `inline:FUNC:entry` and `inline:FUNC:return`: on every copy of a function that the compiler has put into others.
    Inline {
        /// The function.
        function: String,
        /// Where it is left, instead of where it is entered.
        exit: bool,
    },
}

impl TryClone for Probe {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(match self {
            Self::Begin => Self::Begin,
            Self::End => Self::End,
            &Self::Interval { count, unit } => Self::Interval { count, unit },
            Self::Entry { glob } => Self::Entry { glob: fallible::copy(glob)? },
            Self::Return { glob } => Self::Return { glob: fallible::copy(glob)? },
            Self::Exit { glob } => Self::Exit { glob: fallible::copy(glob)? },
            Self::Offset { function, offset } => Self::Offset { function: fallible::copy(function)?, offset: *offset },
            Self::Line { file, line } => Self::Line { file: fallible::copy(file)?, line: *line },
            Self::Instruction { function, offset } => {
                Self::Instruction { function: fallible::copy(function)?, offset: *offset }
            }
            Self::Inline { function, exit } => Self::Inline { function: fallible::copy(function)?, exit: *exit },
        })
    }
}

/// What an interval is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// `us`.
    Microseconds,
    /// `ms`.
    Milliseconds,
    /// `s`.
    Seconds,
    /// `hz`: how many intervals a second has.
    Hertz,
}

impl Unit {
    /// All, the longest time first.
    pub const ALL: [Self; 4] = [Self::Seconds, Self::Milliseconds, Self::Microseconds, Self::Hertz];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Microseconds => "us",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Hertz => "hz",
        }
    }

    /// The nanoseconds of one unit; none for [`Hertz`](Self::Hertz).
    #[must_use]
    pub fn nanoseconds(self) -> Option<u64> {
        match self {
            Self::Microseconds => Some(1_000),
            Self::Milliseconds => Some(1_000_000),
            Self::Seconds => Some(1_000_000_000),
            Self::Hertz => None,
        }
    }

    /// The nanoseconds of an interval of `count`, if there is one, from a microsecond on.
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
    /// What it is, as `probetype` says.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Begin => "BEGIN",
            Self::End => "END",
            Self::Interval { .. } => "interval",
            Self::Entry { .. } | Self::Offset { .. } | Self::Line { .. } => "kprobe",
            Self::Return { .. } => "kretprobe",
            Self::Exit { .. } => "return",
            Self::Instruction { .. } => "insn",
            Self::Inline { .. } => "inline",
        }
    }
}

/// A map, or an entry of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapReference {
    /// Without `@`; may be empty.
    pub name: String,
    /// The parts of the key; none for a map that has no keys, or a whole map.
    pub keys: Vec<Expression>,
}

/// What is done.
pub type Statement = Spanned<StatementForm>;

/// What is done, wherever it is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementForm {
    /// `target = value`, or `target += value` and the like.
    Assign {
        /// What becomes the value.
        target: Spanned<Target>,
        /// What is done with the old value and the new one, if not only the new one counts.
        operator: Option<Operator>,
        /// The new value.
        value: Expression,
    },
    /// `let $name`, `let $name = value`: a variable of this block.
    Let {
        /// Without `$`.
        name: String,
        /// Its first value, if not zeros.
        value: Option<Expression>,
    },
    /// A call, or `++` and `--`, for what it does.
    Do(Expression),
    /// `if (condition) { … } else { … }`.
    If {
        /// Not 0 for the first.
        condition: Expression,
        /// What is done then.
        then: Vec<Statement>,
        /// What is done otherwise.
        otherwise: Vec<Statement>,
    },
    /// `unroll (count) { … }`: the same, several times.
    Unroll {
        /// How many times.
        count: Expression,
        /// What.
        body: Vec<Statement>,
    },
    /// `while (condition) { … }`.
    While {
        /// Not 0 for another turn.
        condition: Expression,
        /// What is done in each.
        body: Vec<Statement>,
    },
    /// `for ($name : range) { … }`.
    For {
        /// Without `$`.
        name: String,
        /// What it is in turn.
        range: Range,
        /// What is done for each.
        body: Vec<Statement>,
    },
    /// `break`: no more turns of the innermost loop.
    Break,
    /// `continue`: the next turn of the innermost loop.
    Continue,
    /// `return`: no more of this clause.
    Return,
}

/// What a loop goes through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// `first..end`: the numbers from the first up to one before the end.
    Numbers {
        /// The first.
        first: Expression,
        /// One behind the last.
        end: Expression,
    },
    /// `@name`: the keys and values of a map, as tuples. The name is without `@`.
    Map(Spanned<String>),
}

/// What can be given a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `$name`, without the `$`.
    Variable(String),
    /// `@name`, or an entry of it.
    Map(MapReference),
}

/// A value, how it is computed.
#[derive(Clone, Debug)]
pub struct Expression {
    /// How.
    pub form: Box<ExpressionForm>,
    /// Where it is said.
    pub span: Span,
    /// The longest way down, in nodes.
    pub height: usize,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.form == other.form
    }
}

impl Eq for Expression {}

/// How a value is computed, wherever it is said.
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
    /// A value that is there: `arg0`, `comm`.
    Builtin(String),
    /// `name(arguments)`.
    Call {
        /// The function.
        name: Spanned<String>,
        /// What it is given.
        arguments: Vec<Expression>,
    },
    /// `-x` and the like.
    Unary {
        /// What is done with it.
        operator: Unary,
        /// The value.
        operand: Expression,
    },
    /// `x++` and the like.
    Step {
        /// What is stepped.
        target: Spanned<Target>,
        /// Up instead of down.
        up: bool,
        /// The value is the one after the step, instead of the one before.
        first: bool,
    },
    /// `a + b` and the like.
    Binary {
        /// What is done with them.
        operator: Operator,
        /// The value before the operator.
        left: Expression,
        /// The value behind it.
        right: Expression,
    },
    /// `condition ? then : otherwise`.
    Choice {
        /// Not 0 for the first.
        condition: Expression,
        /// The value then.
        then: Expression,
        /// The value otherwise.
        otherwise: Expression,
    },
    /// `(type)x`.
    Cast {
        /// What it becomes.
        to: TypeName,
        /// The value.
        operand: Expression,
    },
    /// `(a, b)`: two at least.
    Tuple(Vec<Expression>),
    /// `t.0`.
    Part {
        /// A tuple.
        tuple: Expression,
        /// Which part of it.
        number: u64,
    },
    /// `args.name`: a field of a value of Rust, or an argument.
    Field {
        /// What has it.
        of: Expression,
        /// Its name.
        name: String,
    },
    /// `State::Idle`: what a value of Rust is compared with.
    Path(String),
    /// `p[i]`.
    Index {
        /// A pointer.
        pointer: Expression,
        /// How many elements behind it.
        index: Expression,
    },
}

impl Expression {
    /// An expression at `span`.
    ///
    /// # Errors
    ///
    /// There is no memory for it.
    pub fn new(form: ExpressionForm, span: Span) -> Result<Self, OutOfMemory> {
        use ExpressionForm as Form;
        let of = |map: &MapReference| map.keys.iter().map(|key| key.height).max().unwrap_or(0);
        let below = match &form {
            Form::Integer(_) | Form::Text(_) | Form::Variable(_) | Form::Builtin(_) | Form::Path(_) => 0,
            Form::Map(map) => of(map),
            Form::Step { target, .. } => match &target.node {
                Target::Map(map) => of(map),
                Target::Variable(_) => 0,
            },
            Form::Call { arguments, .. } => arguments.iter().map(|argument| argument.height).max().unwrap_or(0),
            Form::Tuple(parts) => parts.iter().map(|part| part.height).max().unwrap_or(0),
            Form::Part { tuple: operand, .. }
            | Form::Field { of: operand, .. }
            | Form::Unary { operand, .. }
            | Form::Cast { operand, .. } => operand.height,
            Form::Binary { left, right, .. } => left.height.max(right.height),
            Form::Index { pointer, index } => pointer.height.max(index.height),
            Form::Choice { condition, then, otherwise } => condition.height.max(then.height).max(otherwise.height),
        };
        Ok(Self { form: fallible::boxed(form)?, span, height: below + 1 })
    }
}

/// The name of a type: an integer, or a pointer to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TypeName {
    /// It has a sign.
    pub signed: bool,
    /// 8, 16, 32 or 64.
    pub bits: u8,
    /// It is a pointer to that.
    pub pointer: bool,
}

impl TypeName {
    /// The integer type called `name`, in one of its spellings: `u32`, `uint32`, `s32`, `i32`, `int32`, with `_t` or
    /// without.
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

/// What is done with one value.
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

/// What is done with two values.
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

/// Every operator with its sign, and how strongly it binds. Not copied to the stack, which values within values need.
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
    /// How strongly any operator binds, at least.
    pub const WEAKEST: u8 = 1;

    /// The operator of this sign.
    #[must_use]
    pub fn of_sign(sign: &str) -> Option<Self> {
        OPERATORS.iter().find(|(_, of, _)| *of == sign).map(|&(operator, ..)| operator)
    }

    /// The operator that `sign` assigns with: that of `+` for `+=`.
    #[must_use]
    pub fn of_assignment(sign: &str) -> Option<Self> {
        let operator = Self::of_sign(sign.strip_suffix('=')?)?;
        operator.is_arithmetic().then_some(operator)
    }

    /// Its sign.
    #[must_use]
    pub fn sign(self) -> &'static str {
        OPERATORS.iter().find(|(of, ..)| *of == self).map_or("", |(_, sign, _)| sign)
    }

    /// How strongly it binds.
    #[must_use]
    pub fn strength(self) -> u8 {
        OPERATORS.iter().find(|(of, ..)| *of == self).map_or(0, |(.., strength)| *strength)
    }

    /// Whether it compares.
    #[must_use]
    pub fn is_comparison(self) -> bool {
        matches!(self.strength(), 6 | 7)
    }

    /// Whether it computes: neither compares nor combines conditions.
    #[must_use]
    pub fn is_arithmetic(self) -> bool {
        matches!(self.strength(), 3..=5 | 8..)
    }
}
