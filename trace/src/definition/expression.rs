//! Expressions: the values that an argument can fetch. `%REG`, `@ADDRESS`, `$VARIABLE`, `\IMMEDIATE`, and reads of
//! memory around these.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::named::{self, Named};
use super::token::{Token, find_outside_brackets};
use super::{Family, ParseError, Problem, is_identifier, number};
use crate::fetch::Register;

/// The largest N of `$stackN` and `$argN`, as in Linux: the words of a stack of 16 KiB.
const STACK_WORDS: u64 = 2048;
/// The number of operations that an argument can have in Linux, including the end. It only decides which arguments are
/// refused.
const OPERATIONS: usize = 16;

/// The kind of place that is probed. It decides which values are available there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceKind {
    /// The entry of a function.
    Entry,
    /// An instruction after the entry, or one at a bare address.
    Inside,
    /// The return of a function.
    Return,
    /// A static event, whose fields are the arguments.
    Tracepoint,
    /// Another event, whose fields are the variables.
    Event,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A register.
    Register(Register),
    /// A word of the stack, by its index from 0.
    Stack(u32),
    /// An argument of the function, by its index from 0.
    Argument(u32),
    /// The result of the function.
    ReturnValue,
    /// An argument of the function by its name, or a field of one or of the result.
    Named(Named),
    /// All arguments of the function that can be recorded, under their names.
    Arguments,
    /// A constant.
    Immediate(u64),
    /// The address of this symbol, plus an offset in bytes.
    Symbol(String, i64),
    /// The name of the current task.
    TaskName,
    /// A constant text.
    Text(Box<[u8]>),
}

/// A parsed expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression {
    /// Where the value comes from.
    pub origin: Origin,
    /// The offsets that are added before each read of memory, innermost first.
    pub reads: Vec<i64>,
    /// The number of operations that Linux would need for it.
    pub(super) operations: usize,
}

impl Expression {
    /// Whether the value is a text and not an address.
    pub(super) fn is_text(&self) -> bool {
        matches!(self.origin, Origin::TaskName | Origin::Text(_))
    }

    /// Adds `count` operations. Returns `None` if that is more than Linux has room for.
    pub(super) fn operate(&mut self, count: usize) -> Option<()> {
        self.operations += count;
        (self.operations < OPERATIONS - 1).then_some(())
    }

    /// Parses `token` for a probe of this family at a place of this kind, in an argument whose expression begins at the
    /// column `start`.
    pub(super) fn parse(
        token: Token<'_>,
        family: Family,
        place_kind: PlaceKind,
        start: usize,
    ) -> Result<Self, ParseError> {
        let plain = |origin| Self { origin, reads: Vec::new(), operations: 0 };
        let rest = || token.skip(1);
        let named = || {
            let named = named::parse(token, start)?;
            let mut expression = Self { operations: named.fields.len(), ..plain(Origin::Named(named)) };
            expression.operate(0).ok_or_else(|| token.error(Problem::TooDeep))?;
            Ok(expression)
        };
        match token.text.chars().next() {
            Some(_) if named::begins(token.text) && matches!(place_kind, PlaceKind::Inside | PlaceKind::Event) => {
                Err(token.error(Problem::NoTypes))
            }
            Some('$') if place_kind == PlaceKind::Event => match is_identifier(rest().text) {
                true => {
                    let at = token.column.saturating_sub(start);
                    Ok(plain(Origin::Named(Named { at, ..Named::of(rest().text)? })))
                }
                false => Err(token.error(Problem::Variable)),
            },
            Some(_) if named::begins(token.text) => named(),
            Some('$')
                if place_kind == PlaceKind::Return && token.text.starts_with("$retval") && token.text != "$retval" =>
            {
                let expression = named()?;
                match &expression.origin {
                    Origin::Named(Named { argument: None, .. }) => Ok(expression),
                    _ => Err(token.error(Problem::Variable)),
                }
            }
            Some('$') => variable(rest().text, place_kind).map(plain).map_err(|problem| token.error(problem)),
            Some('%') if family != Family::Kprobe => Err(token.error(Problem::NoRegisters)),
            Some('%') => match register(rest().text) {
                Some(register) => Ok(plain(Origin::Register(register))),
                None => Err(token.error(Problem::Register)),
            },
            Some('@') => memory(token),
            Some('+' | '-') => read(token, family, place_kind, start),
            Some('\\') => immediate(rest()).map(plain),
            _ => Err(token.error(Problem::Argument)),
        }
    }
}

fn register(name: &str) -> Option<Register> {
    match name {
        "lr" => Register::x(30),
        "sp" => Some(Register::SP),
        "pc" => Some(Register::PC),
        "pstate" => Some(Register::PSTATE),
        _ => {
            let digits = name.strip_prefix('x')?;
            let is_plain =
                digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
            is_plain.then(|| Register::x(digits.parse().ok()?))?
        }
    }
}

fn variable(name: &str, place_kind: PlaceKind) -> Result<Origin, Problem> {
    // Whatever follows is a part of the result.
    if name.starts_with("retval") && place_kind != PlaceKind::Return {
        return Err(Problem::ReturnValueOnProbe);
    }
    if name == "retval" {
        return Ok(Origin::ReturnValue);
    }
    if name == "comm" || name == "COMM" {
        return Ok(Origin::TaskName);
    }
    if let Some(count) = name.strip_prefix("stack") {
        if count.is_empty() {
            return Ok(Origin::Register(Register::SP));
        }
        let is_number = count.starts_with(|first: char| first.is_ascii_digit());
        let count = is_number.then(|| number::decimal(count)).flatten().ok_or(Problem::Variable)?;
        return if count > STACK_WORDS { Err(Problem::StackNumber) } else { Ok(Origin::Stack(count as u32)) };
    }
    match name.strip_prefix("arg") {
        Some("*") => Err(Problem::ArgumentsAlone),
        Some(count) => match number::decimal(count) {
            None => Err(Problem::Variable),
            Some(1..=STACK_WORDS) if place_kind == PlaceKind::Inside => Err(Problem::ArgumentsInside),
            Some(count @ 1..=STACK_WORDS) => Ok(Origin::Argument(count as u32 - 1)),
            Some(_) => Err(Problem::ArgumentNumber),
        },
        None => Err(Problem::Variable),
    }
}

/// Parses `@ADDRESS` or `@SYMBOL[+|-OFFSET]`. As in Linux, a symbol without a name is one that is not found, and a
/// malformed offset prevents the registration of the probe.
fn memory(token: Token<'_>) -> Result<Expression, ParseError> {
    let place = token.skip(1);
    let (origin, operations) = match place.text.chars().next() {
        Some('0'..='9') => match number::unsigned(place.text) {
            Some(address) => (Origin::Immediate(address), 1),
            None => return Err(token.error(Problem::Address)),
        },
        Some('+') => return Err(token.error(Problem::FileOffset)),
        _ => {
            let (symbol, offset) = split_offset(place.text).ok_or_else(|| token.error(Problem::Refused))?;
            (Origin::Symbol(fallible::copy(symbol)?, offset), 2)
        }
    };
    Ok(Expression { origin, reads: fallible::collect([0])?, operations })
}

/// Splits a symbol from the signed offset after it. Returns `None` if the offset is malformed.
pub(super) fn split_offset(text: &str) -> Option<(&str, i64)> {
    match find_outside_brackets(text, |character, _| matches!(character, '+' | '-')) {
        Some(at) => {
            let (symbol, offset) = text.split_at(at);
            Some((symbol, number::signed(offset)?))
        }
        None => Some((text, 0)),
    }
}

/// Parses `+OFFSET(…)` or `-OFFSET(…)`. A `u` after the sign is for the memory of processes, which is the same memory
/// here.
fn read(token: Token<'_>, family: Family, place_kind: PlaceKind, start: usize) -> Result<Expression, ParseError> {
    // Parentheses are resolved from the innermost outwards, without recursion, so that a thousand of them are an error
    // and do not overflow the stack.
    let mut rest = token;
    // The offset of each level, and the text inside its parentheses.
    let mut levels = Vec::new();
    while let Some(sign @ ('+' | '-')) = rest.text.chars().next() {
        let after = rest.skip(1);
        let after = if after.text.starts_with('u') { after.skip(1) } else { after };
        let Some(open) = after.text.find('(') else { return Err(rest.error(Problem::NoParenthesis)) };
        let (digits, inner) = after.split_at(open);
        let size = digits.text.starts_with(|first: char| first.is_ascii_digit());
        let offset = size.then(|| match sign {
            '-' => number::negative(digits.text),
            _ => number::signed(digits.text),
        });
        let offset = offset.flatten().ok_or_else(|| rest.error(Problem::Offset))?;
        let inner = inner.skip(1);
        let Some(close) = inner.text.rfind(')') else {
            return Err(inner.split_at(inner.text.len()).1.error(Problem::Unclosed));
        };
        let (inside, behind) = inner.split_at(close);
        if behind.text != ")" {
            return Err(behind.skip(1).error(Problem::Argument));
        }
        fallible::push(&mut levels, (offset, inside))?;
        rest = inside;
    }
    let mut expression = Expression::parse(rest, family, place_kind, start)?;
    if expression.is_text() {
        return Err(rest.error(Problem::TaskNameRead));
    }
    for (offset, inside) in levels.into_iter().rev() {
        expression.operate(1).ok_or_else(|| inside.error(Problem::TooDeep))?;
        fallible::push(&mut expression.reads, offset)?;
    }
    Ok(expression)
}

/// Parses what follows the `\`: a number, or a text in quotes.
fn immediate(token: Token<'_>) -> Result<Origin, ParseError> {
    if let Some(text) = token.text.strip_prefix('"') {
        return match text.strip_suffix('"') {
            Some(text) => Ok(Origin::Text(fallible::boxed_slice(text.bytes())?)),
            None => Err(token.split_at(token.text.len()).1.error(Problem::UnclosedText)),
        };
    }
    let number = match token.text.chars().next() {
        Some('0'..='9') => number::unsigned(token.text),
        Some('-') => number::signed(token.text).map(|number| number as u64),
        Some('+') => number::signed(&token.text[1..]).map(|number| number as u64),
        _ => None,
    };
    number.map(Origin::Immediate).ok_or_else(|| token.error(Problem::Immediate))
}
