//! Expressions that a hit of a histogram computes: sums, differences, products and quotients of fields, numbers, times
//! and variables, in the grammar of Linux (Documentation/trace/histogram.rst, section 2.2).
//!
//! ```text
//! EXPRESSION   OPERAND, EXPRESSION + - * / EXPRESSION, or -(EXPRESSION); at most three operators
//! OPERAND      a number, FIELD[.MODIFIER], common_timestamp[.usecs], common_cpu, $VARIABLE, GROUP.EVENT.$VARIABLE
//! ```
//!
//! Operators of equal rank associate from left to right. An expression becomes a list of operations on a stack. A
//! `$VARIABLE` of this trigger that is just a field or a number is replaced by it. All other variables belong to other
//! triggers ([`Reference`]).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;

use fallible::{Arc, OutOfMemory};

use super::parse::{CPU, Fragment, Modifier, parse_modifier};
use super::{Error, Histogram, Problem, STACK_DEPTH, TEXT_WORDS, words_of_text};
use crate::clock::Clock;
use crate::definition::number;
use crate::filter::{self, FindFunction, HitString, Number, Time};
use crate::format::{Field, TEXT_SIZE};
use crate::recorder::Recorder;

/// The largest number of operators in an expression.
const OPERATORS_MAX: usize = 3;
/// The depth of the stack that an expression needs at most.
pub(crate) const OPERANDS_MAX: usize = OPERATORS_MAX + 1;
/// The largest number of variables of a trigger, and of variables that it refers to.
pub(crate) const VARIABLES_MAX: usize = 16;

/// An operation on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Pushes a number of the hit.
    Number(Number),
    Constant(u64),
    /// Pushes the variable of the [`Reference`] with this number.
    Reference(u8),
    /// Replaces the top value by its negation.
    Negate,
    /// Replaces the top two values by the result.
    Combine(Operator),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Operator {
    /// Combines two unsigned numbers, as in Linux. A division by 0 gives -1. Linux divides by some constants by a
    /// multiplication, and may then be one too large.
    #[inline(always)]
    pub(crate) fn apply(self, left: u64, right: u64) -> u64 {
        match self {
            Self::Add => left.wrapping_add(right),
            Self::Subtract => left.wrapping_sub(right),
            Self::Multiply => left.wrapping_mul(right),
            Self::Divide => left.checked_div(right).unwrap_or(u64::MAX),
        }
    }

    const fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
        }
    }
}

/// The type of a value, as far as it matters for a field of a synthetic event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ValueType {
    pub(crate) text: String,
    pub(crate) size: usize,
    pub(crate) signed: bool,
}

impl ValueType {
    /// Makes the unsigned type with this name.
    fn new(text: &str, size: usize) -> Result<Self, OutOfMemory> {
        Ok(Self { text: fallible::copy(text)?, size, signed: false })
    }

    fn of(field: &Field) -> Result<Self, OutOfMemory> {
        let size = if field.kind.base.is_text() { TEXT_SIZE } else { field.size };
        Ok(Self { signed: field.signed, ..Self::new(&field.text, size)? })
    }

    pub(crate) fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(Self { signed: self.signed, ..Self::new(&self.text, self.size)? })
    }
}

/// How a hit obtains a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Number(Vec<Op>),
    Text(HitString),
    /// The return addresses on the stack.
    Stack,
    /// The words of a variable that is not a number, of the [`Reference`] with this number.
    Copy(u8),
}

/// A parsed expression.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) content: Content,
    pub(crate) kind: ValueType,
    /// The number of words of an entry that the value takes.
    pub(crate) words: usize,
    /// The name, as the file `hist` shows it.
    pub(crate) name: String,
    pub(crate) modifier: Option<Modifier>,
    /// The form, which decides how the value is printed inside a larger expression and as a variable.
    pub(crate) form: Form,
    /// The value, if it is the same at every hit.
    pub(crate) constant: Option<u64>,
    /// Whether the value is a time in microseconds, or computed from one.
    pub(crate) is_in_microseconds: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Field,
    Reference,
    Computed,
}

/// The value as Linux shows it in a trigger.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_cpu = match &self.content {
            Content::Number(ops) => self.form == Form::Field && matches!(ops[..], [Op::Number(Number::Cpu)]),
            _ => false,
        };
        self.write(if is_cpu { CPU } else { &self.name }, f)
    }
}

/// A value inside a larger expression. There Linux writes the name of the CPU as it was typed, and appends the unit of
/// a time even to an expression.
struct AsOperand<'a>(&'a Value);

impl fmt::Display for AsOperand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(&self.0.name, f)?;
        let is_computed = self.0.form == Form::Computed;
        f.write_str(if is_computed && self.0.is_in_microseconds { ".usecs" } else { "" })
    }
}

impl Value {
    /// Writes the value under this name, with its modifier.
    fn write(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name)?;
        match (self.form, self.modifier) {
            (Form::Field, Some(modifier)) => write!(f, "{modifier}"),
            _ => Ok(()),
        }
    }

    pub(crate) fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let content = match &self.content {
            Content::Number(ops) => Content::Number(fallible::collect(ops.iter().copied())?),
            Content::Text(text) => Content::Text(*text),
            Content::Stack => Content::Stack,
            Content::Copy(reference) => Content::Copy(*reference),
        };
        let (kind, name) = (self.kind.try_clone()?, fallible::copy(&self.name)?);
        Ok(Self { content, kind, name, ..*self })
    }

    pub(super) fn constant(value: u64) -> Result<Self, OutOfMemory> {
        Ok(Self {
            content: Content::Number(fallible::collect([Op::Constant(value)])?),
            kind: ValueType::new("u64", 8)?,
            words: 1,
            name: fallible::format(format_args!("{value}"))?,
            modifier: None,
            form: Form::Field,
            constant: Some(value),
            is_in_microseconds: false,
        })
    }

    fn ops(self, fragment: Fragment<'_>, parser: &Parser<'_>) -> Result<Vec<Op>, Error> {
        match self.content {
            Content::Number(ops) => Ok(ops),
            _ => Err(parser.error(Problem::TextOperand, fragment.text)),
        }
    }
}

/// A variable of a trigger. It has one value for each key.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) value: Value,
}

impl Variable {
    pub(crate) fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(Self { name: fallible::copy(&self.name)?, value: self.value.try_clone()? })
    }
}

/// The variable as Linux shows it in a trigger.
impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)?;
        // As in Linux, the copy of a time has the unit of the time.
        let is_copied = self.value.form == Form::Reference && self.value.is_in_microseconds;
        f.write_str(if is_copied { ".usecs" } else { "" })
    }
}

/// A reference to a variable of another trigger: to its value under the key of the hit.
#[derive(Clone, Debug)]
pub(crate) struct Reference {
    pub(crate) histogram: Arc<Histogram>,
    /// The number of the variable in its trigger.
    pub(crate) variable: usize,
    /// Whether reading the variable also unsets it. This is so if the variable is part of an expression, which then
    /// stands for one pair of hits.
    pub(crate) once: bool,
}

/// A histogram with variables, and its event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VariableSource<'a> {
    pub(crate) event: (&'a str, &'a str),
    pub(crate) histogram: &'a Arc<Histogram>,
}

/// What a trigger can refer to besides the fields of its event.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// The group and the name of the event.
    pub(crate) event: (&'a str, &'a str),
    pub(crate) sources: &'a [VariableSource<'a>],
    pub(crate) clock: Clock,
    pub(crate) others: Option<&'a dyn OtherEvents>,
    /// Where the parser reports which field of another event is needed.
    pub(crate) needed: Option<&'a RefCell<Option<Needed>>>,
    /// How its filter finds functions.
    pub(crate) functions: FindFunction,
    /// Whether the trigger is to be removed. Then its own variables exist already, which is no error.
    pub(crate) is_removal: bool,
}

/// A field of another event that an automatic trigger there must keep, under keys like those of the trigger.
#[derive(Debug)]
pub(crate) struct Needed {
    pub(crate) event: (String, String),
    pub(crate) field: String,
    pub(crate) keys: Vec<NamedPart>,
}

/// A part of a key: its size in words, and its name.
#[derive(Debug)]
pub(crate) struct NamedPart {
    pub(crate) words: usize,
    pub(crate) name: String,
}

/// The other events, which a trigger can name.
pub(crate) trait OtherEvents {
    /// Whether this event exists.
    fn is_event(&self, event: (&str, &str)) -> bool;

    /// Returns the recorder and the fields of a synthetic event; `None` if it does not exist.
    fn synthetic(&self, name: &str) -> Option<(&Arc<Recorder>, &[Field])>;
}

impl Scope<'_> {
    /// The empty scope: a trigger that refers to nothing else.
    pub(crate) const NONE: Self = Self {
        event: ("", ""),
        sources: &[],
        clock: Clock { frequency: 1, origin: 0 },
        others: None,
        needed: None,
        functions: FindFunction::NONE,
        is_removal: false,
    };

    /// Returns the histogram and the number of the variable `name` of an event.
    pub(crate) fn find(&self, event: (&str, &str), name: &str) -> Option<(&Arc<Histogram>, usize)> {
        let of_event = self.sources.iter().filter(|source| source.event == event);
        of_event.filter_map(|source| Some((source.histogram, source.histogram.definition().variable(name)?))).next()
    }
}

/// The parser of expressions.
pub(crate) struct Parser<'a> {
    /// The text of the trigger.
    pub(super) all: Fragment<'a>,
    pub(super) fields: &'a [Field],
    pub(super) scope: &'a Scope<'a>,
    /// The variables of this trigger: their names, and their expressions.
    pub(super) own: &'a [(Fragment<'a>, Fragment<'a>)],
    /// The events that the trigger matches.
    pub(super) matched: &'a [(&'a str, &'a str)],
    pub(super) references: Vec<Reference>,
    /// The parts of the key, once they are known.
    pub(super) keys: Vec<NamedPart>,
    /// Whether times are in microseconds.
    pub(super) microseconds: bool,
}

impl<'a> Parser<'a> {
    /// Makes the error of `problem` with its cause where `text` first occurs in the trigger.
    pub(super) fn error(&self, problem: Problem, text: &str) -> Error {
        self.all.error_about(problem, text)
    }

    /// Parses an expression.
    pub(super) fn value(&mut self, fragment: Fragment<'a>) -> Result<Value, Error> {
        self.expression(fragment, &mut 0)
    }

    fn expression(&mut self, fragment: Fragment<'a>, operators: &mut usize) -> Result<Value, Error> {
        if *operators > OPERATORS_MAX {
            return Err(self.error(Problem::TooManySubexpressions, fragment.text));
        }
        match root(fragment.text) {
            None => self.atom(fragment),
            Some((0, Operator::Subtract)) => self.negation(fragment, operators),
            Some((at, operator)) => {
                *operators += 1;
                let (left, right) = (fragment.slice(0, at), fragment.slice(at + 1, fragment.text.len()));
                if left.text.is_empty() || right.text.is_empty() {
                    return Err(self.error(Problem::MissingOperand, fragment.text));
                }
                let one = self.expression(left, operators)?;
                if !matches!(one.content, Content::Number(_)) {
                    return Err(self.error(Problem::TextOperand, left.text));
                }
                let other = self.expression(right, operators)?;
                self.combine(operator, (left, one), (right, other))
            }
        }
    }

    /// Parses `-(…)`.
    fn negation(&mut self, fragment: Fragment<'a>, operators: &mut usize) -> Result<Value, Error> {
        *operators += 1;
        if *operators > OPERATORS_MAX {
            return Err(self.error(Problem::TooManySubexpressions, fragment.text));
        }
        let (Some(1), Some(end)) = (fragment.text.find('('), fragment.text.rfind(')')) else {
            return Err(self.error(Problem::MissingOperand, fragment.text));
        };
        if end + 1 != fragment.text.len() {
            return Err(self.error(Problem::UnaryMinus, fragment.slice(2, fragment.text.len()).text));
        }
        let inner = fragment.slice(2, end);
        let operand = self.expression(inner, operators)?;
        let name = fallible::format(format_args!("-({})", AsOperand(&operand)))?;
        let (kind, is_in_microseconds) = (operand.kind.try_clone()?, operand.is_in_microseconds);
        let mut ops = operand.ops(inner, self)?;
        fallible::push(&mut ops, Op::Negate)?;
        let content = Content::Number(ops);
        let (modifier, form, constant) = (None, Form::Computed, None);
        Ok(Value { content, kind, words: 1, name, modifier, form, constant, is_in_microseconds })
    }

    fn combine(
        &mut self,
        operator: Operator,
        (left, one): (Fragment<'a>, Value),
        (right, other): (Fragment<'a>, Value),
    ) -> Result<Value, Error> {
        if !matches!(other.content, Content::Number(_)) {
            return Err(self.error(Problem::TextOperand, right.text));
        }
        if one.is_in_microseconds != other.is_in_microseconds {
            return Err(Error { problem: Problem::TimestampMismatch, column: 0, before: None });
        }
        if operator == Operator::Divide && other.constant == Some(0) {
            return Err(self.error(Problem::DivisionByZero, right.text));
        }
        for operand in [&one, &other] {
            if let (Form::Reference, Content::Number(ops)) = (operand.form, &operand.content)
                && let [Op::Reference(number)] = ops[..]
            {
                self.references[usize::from(number)].once = true;
            }
        }
        if let (Some(one), Some(other)) = (one.constant, other.constant) {
            return Ok(Value::constant(operator.apply(one, other))?);
        }
        let (kind, is_in_microseconds) = (one.kind.try_clone()?, one.is_in_microseconds);
        let name = fallible::format(format_args!("{}{}{}", AsOperand(&one), operator.sign(), AsOperand(&other)))?;
        let mut ops = one.ops(left, self)?;
        fallible::extend(&mut ops, other.ops(right, self)?)?;
        fallible::push(&mut ops, Op::Combine(operator))?;
        let content = Content::Number(ops);
        let (modifier, form, constant) = (None, Form::Computed, None);
        Ok(Value { content, kind, words: 1, name, modifier, form, constant, is_in_microseconds })
    }

    /// Parses a single operand.
    pub(super) fn atom(&mut self, fragment: Fragment<'a>) -> Result<Value, Error> {
        if fragment.text.starts_with(|first: char| first.is_ascii_digit()) {
            let value =
                number::unsigned(fragment.text).ok_or_else(|| self.error(Problem::ExpectNumber, fragment.text))?;
            return Ok(Value::constant(value)?);
        }
        let mut words = fragment.text.splitn(3, '.');
        let (qualified, rest) = match (words.next(), words.next(), words.next()) {
            (Some(group), Some(event), Some(name)) => (Some((group, event)), name),
            _ => (None, fragment.text),
        };
        let Some(name) = rest.strip_prefix('$').filter(|name| !name.is_empty()) else { return self.field(fragment) };
        if qualified.is_none_or(|event| event == self.scope.event)
            && let Some(&(_, field)) = self.own.iter().find(|(own, _)| own.text == name)
            && root(field.text).is_none()
            && !field.text.contains('$')
        {
            return if field.text.starts_with(|first: char| first.is_ascii_digit()) {
                self.atom(field)
            } else {
                self.field(field)
            };
        }
        let not_found = |variable: Error| {
            let field = self.error(Problem::FieldNotFound, rest);
            Error { before: Some((variable.problem, variable.column)), ..field }
        };
        let found = self.find(qualified, name).map_err(not_found)?;
        let (histogram, variable) = found.ok_or_else(|| not_found(self.error(Problem::VariableNotFound, name)))?;
        let number = self.refer(histogram, variable)?;
        let meant = &histogram.definition().variables[variable].value;
        let content = match meant.content {
            Content::Number(_) => Content::Number(fallible::collect([Op::Reference(number)])?),
            _ => Content::Copy(number),
        };
        let name = match qualified {
            Some((group, event)) => fallible::format(format_args!("${group}.{event}.{name}"))?,
            None => fallible::format(format_args!("${name}"))?,
        };
        Ok(Value {
            content,
            kind: meant.kind.try_clone()?,
            words: meant.words,
            name,
            modifier: None,
            form: Form::Reference,
            constant: meant.constant,
            is_in_microseconds: meant.is_in_microseconds,
        })
    }

    /// Looks up a variable of another trigger: in the `qualified` event, otherwise in the events that this trigger
    /// matches, and then in all.
    ///
    /// # Errors
    ///
    /// Fails with [`VariableNotUnique`](Problem::VariableNotUnique) alone.
    pub(super) fn find(
        &self,
        qualified: Option<(&str, &str)>,
        name: &str,
    ) -> Result<Option<(&'a Arc<Histogram>, usize)>, Error> {
        let scope = self.scope;
        if let Some(event) = qualified {
            return Ok(scope.find(event, name));
        }
        let mut found = self.matched.iter().filter_map(|&event| scope.find(event, name));
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => return Err(self.error(Problem::VariableNotUnique, name)),
            (Some(found), None) => return Ok(Some(found)),
            (None, _) => {}
        }
        let mut having = scope
            .sources
            .iter()
            .filter(|source| source.histogram.definition().variable(name).is_some())
            .map(|source| source.event);
        match having.next() {
            Some(first) if having.any(|event| event != first) => Err(self.error(Problem::VariableNotUnique, name)),
            Some(first) => Ok(scope.find(first, name)),
            None => Ok(None),
        }
    }

    /// Returns the number of the reference to a variable of another trigger, which is added if it is new.
    pub(super) fn refer(&mut self, histogram: &Arc<Histogram>, variable: usize) -> Result<u8, Error> {
        let is_same = |one: &Reference| Arc::ptr_eq(&one.histogram, histogram) && one.variable == variable;
        if let Some(number) = self.references.iter().position(is_same) {
            return Ok(number as u8);
        }
        if self.references.len() == VARIABLES_MAX {
            return Err(self.error(Problem::TooManyVariables, ""));
        }
        fallible::push(&mut self.references, Reference { histogram: histogram.clone(), variable, once: false })?;
        Ok((self.references.len() - 1) as u8)
    }

    /// Parses a field with its modifier.
    fn field(&mut self, fragment: Fragment<'a>) -> Result<Value, Error> {
        let (field, modifier) = fragment.split_once('.');
        let misapplied = self.error(Problem::BadModifier, modifier.map_or(fragment.text, |modifier| modifier.text));
        let modifier = modifier.map(|modifier| parse_modifier(self.all, modifier)).transpose()?;
        let other = |name: &str, kind: ValueType, words: usize, content: Content| -> Result<Value, OutOfMemory> {
            let (form, constant, is_in_microseconds) = (Form::Field, None, false);
            let name = fallible::copy(name)?;
            Ok(Value { content, kind, words, name, modifier, form, constant, is_in_microseconds })
        };
        let number = |name: &str, kind: ValueType, number: Number| -> Result<Value, OutOfMemory> {
            let content = Content::Number(fallible::collect([Op::Number(number)])?);
            let is_in_microseconds = modifier == Some(Modifier::Microseconds);
            Ok(Value { is_in_microseconds, ..other(name, kind, 1, content)? })
        };
        let found = self.fields.iter().find(|candidate| candidate.name == field.text);
        Ok(match (found, field.text) {
            (_, "common_timestamp") => {
                let time = Time { clock: self.scope.clock, microseconds: self.microseconds };
                number("common_timestamp", ValueType::new("u64", 8)?, Number::Time(time))?
            }
            (Some(found), "common_pid") if modifier == Some(Modifier::Execname) => {
                let kind = ValueType::new("char[]", TEXT_SIZE)?;
                other(&found.name, kind, words_of_text(HitString::Task), Content::Text(HitString::Task))?
            }
            (Some(_), _) if modifier == Some(Modifier::Execname) => {
                return Err(misapplied);
            }
            (Some(found), _) if modifier == Some(Modifier::Stacktrace) && !found.is_stack() => {
                return Err(misapplied);
            }
            (Some(found), name) => match (filter::parse::number(found), filter::parse::text(found)) {
                (Some(of_field), _) => number(name, ValueType::of(found)?, of_field)?,
                (None, Some(text)) => other(name, ValueType::of(found)?, words_of_text(text), Content::Text(text))?,
                (None, None) => match filter::parse::stack(found).filter(|_| modifier == Some(Modifier::Stacktrace)) {
                    Some(text) => {
                        let kind = ValueType::new("unsigned long[]", 8 * STACK_DEPTH)?;
                        other(name, kind, STACK_DEPTH, Content::Text(text))?
                    }
                    None => return Err(self.error(Problem::FieldNotFound, field.text)),
                },
            },
            (None, name @ ("cpu" | "CPU" | CPU)) => {
                let kind = ValueType::new("unsigned int", 4)?;
                number(name, kind, Number::Cpu)?
            }
            (None, "comm") => other(
                "comm",
                ValueType::new("char[16]", 16)?,
                words_of_text(HitString::Task),
                Content::Text(HitString::Task),
            )?,
            (None, "stacktrace" | "STACKTRACE" | "common_stacktrace") => {
                let kind = ValueType::new("unsigned long[]", 8 * STACK_DEPTH)?;
                other("common_stacktrace", kind, STACK_DEPTH, Content::Stack)?
            }
            (None, _) => return Err(self.error(Problem::FieldNotFound, field.text)),
        })
    }
}

/// Returns the operator that is applied last, with its position: the last one of the lowest rank.
fn root(text: &str) -> Option<(usize, Operator)> {
    let is_modifier = |at: usize| text[..at].ends_with(".sym") && text[at..].starts_with("-offset");
    let find = |sign: char, operator| {
        let at = text.char_indices().rev().find(|&(at, other)| other == sign && !is_modifier(at));
        at.map(|(at, _)| (at, operator))
    };
    let last = |one: Option<(usize, Operator)>, other: Option<(usize, Operator)>| match (one, other) {
        (Some(one), Some(other)) => Some(if other.0 > one.0 { other } else { one }),
        (one, other) => one.or(other),
    };
    let minus = find('-', Operator::Subtract);
    // Linux takes the last operator for the root, and refuses this form.
    if text.starts_with('-') && text.find(')') == Some(text.len() - 1) {
        return Some((0, Operator::Subtract));
    }
    if minus.is_some_and(|(at, _)| at == 0) {
        return minus;
    }
    last(minus, find('+', Operator::Add)).or_else(|| last(find('/', Operator::Divide), find('*', Operator::Multiply)))
}

/// Returns the operations of a value that is a number; none for another value.
pub(crate) fn ops_of(value: &Value) -> Result<Box<[Op]>, OutOfMemory> {
    match &value.content {
        Content::Number(ops) => fallible::boxed_slice(ops.iter().copied()),
        _ => fallible::boxed_slice([]),
    }
}

const _: () = assert!(8 * TEXT_WORDS == TEXT_SIZE);
