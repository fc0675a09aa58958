//! Fetch arguments: the values of the probed code that an event records.
//!
//! An argument is `[NAME=]EXPRESSION[:TYPE]`. The expression yields a 64-bit value. The type says how many of its bits
//! count, or what the value points to, and how the result is printed.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use fallible::OutOfMemory;

use super::expression::{Expression, Origin, PlaceKind};
use super::named::Named;
use super::token::{self, Token};
use super::{Family, ParseError, Problem, is_identifier, number};
use crate::format::{Base, Bits, Type, Width};

/// The largest number of arguments of an event.
pub const ARGUMENTS_MAX: usize = 128;
/// The longest argument without its name, in bytes.
pub const ARGUMENT_MAX: usize = 63;
/// The longest name of an argument, in bytes.
pub const ARGUMENT_NAME_MAX: usize = 32;
/// The largest number of bytes of all arguments of an event. A text counts as 4 bytes.
pub const BYTES_MAX: usize = 3072;
/// The largest number of values in an array.
pub const ARRAY_MAX: u8 = 64;

/// The fields that every event has in Linux. No argument may have one of these names.
const RESERVED: [&str; 8] = [
    "common_type",
    "common_flags",
    "common_preempt_count",
    "common_pid",
    "common_tgid",
    "__probe_ip",
    "__probe_ret_ip",
    "__probe_func",
];

/// One argument of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The name, which is printed before the value in the trace.
    pub name: String,
    /// The expression and type as typed.
    pub text: String,
    /// The value to fetch.
    pub expression: Expression,
    /// The type of the recorded value, which decides how it is printed.
    pub kind: Type,
}

impl Argument {
    /// Whether the definition gives a type.
    pub(crate) fn has_type(&self) -> bool {
        type_separator(&self.text).is_some()
    }

    /// Returns the number of bytes that count for [`BYTES_MAX`].
    pub(crate) fn bytes(&self) -> usize {
        let Type { base, count, .. } = self.kind;
        let size = if base.is_text() { 4 } else { base.size() };
        size * usize::from(count.max(1))
    }

    /// Makes the argument that records the function's argument `name` under the same name.
    pub(crate) fn of_name(name: &str) -> Result<Self, OutOfMemory> {
        let origin = Origin::Named(Named::of(name)?);
        let expression = Expression { origin, reads: Vec::new(), operations: 1 };
        Ok(Self { name: fallible::copy(name)?, text: fallible::copy(name)?, expression, kind: Type::DEFAULT })
    }

    /// Makes `$arg*`, which stands for all arguments of the function.
    fn all() -> Result<Self, OutOfMemory> {
        let expression = Expression { origin: Origin::Arguments, reads: Vec::new(), operations: 1 };
        Ok(Self { name: String::new(), text: fallible::copy(ALL)?, expression, kind: Type::DEFAULT })
    }

    /// Returns the number of characters of the text before the place to which Linux points after it parsed the
    /// argument.
    pub(crate) fn inside(&self) -> usize {
        inside(&self.text, &self.expression)
    }
}

/// Returns the number of bytes before the place to which Linux points after it parsed an argument with this `text`: the
/// inside of the outermost read, or the start if there is none. Only ASCII precedes the place.
fn inside(text: &str, expression: &Expression) -> usize {
    text.find('(').filter(|_| !expression.reads.is_empty()).map_or(0, |open| open + 1)
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.expression.origin {
            Origin::Arguments => f.write_str(&self.text),
            _ => write!(f, "{}={}", self.name, self.text),
        }
    }
}

/// The argument that stands for all arguments of the function.
const ALL: &str = "$arg*";

/// Checks the arguments that begin with `$arg`: they are refused inside a function, and `$arg*` may occur only once.
/// Linux checks this before it parses the first argument.
pub(super) fn check_all(tokens: &[Token<'_>], place_kind: PlaceKind) -> Result<(), ParseError> {
    let mut has_all = false;
    for token in tokens {
        let Some(number) = token.text.strip_prefix("$arg") else { continue };
        if place_kind == PlaceKind::Inside {
            return Err(token.error(Problem::ArgumentsInside));
        }
        if number.starts_with('*') {
            if has_all {
                return Err(token.error(Problem::ArgumentsTwice));
            }
            has_all = true;
        } else if !number.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(token.error(Problem::Variable));
        }
    }
    Ok(())
}

/// Parses the argument `token`, which follows `others`, of a probe of this family at such a place. Also returns the
/// number of characters before the expression in `token`.
pub(super) fn parse(
    token: Token<'_>,
    family: Family,
    place_kind: PlaceKind,
    others: &[Argument],
) -> Result<(Argument, usize), ParseError> {
    if token.text == ALL {
        return Ok((Argument::all()?, 0));
    }
    let (name, body) = match token.split_once('=') {
        Some((name, _)) if name.text.len() > ARGUMENT_NAME_MAX => return Err(token.error(Problem::ArgumentNameTooLong)),
        Some((name, _)) if name.text.is_empty() => return Err(token.error(Problem::NoArgumentName)),
        Some((name, body)) => (fallible::copy(name.text)?, body),
        None => match type_separator(token.text).map_or(token.text, |at| token.text.get(..at).unwrap_or_default()) {
            name if is_identifier(name) && name.len() <= ARGUMENT_NAME_MAX => (fallible::copy(name)?, token),
            _ => (fallible::format(format_args!("arg{}", others.len() + 1))?, token),
        },
    };
    if !is_identifier(&name) {
        return Err(token.error(Problem::ArgumentName));
    }
    if RESERVED.contains(&name.as_str()) || others.iter().any(|other| other.name == name) {
        return Err(token.error(Problem::UsedArgumentName));
    }
    if body.text.len() > ARGUMENT_MAX {
        return Err(body.error(Problem::ArgumentTooLong));
    }
    if body.text.is_empty() {
        return Err(body.error(Problem::NoArgument));
    }
    let (source, kind) = match type_separator(body.text) {
        Some(at) => {
            let (source, kind) = body.split_at(at);
            (source, Some(kind.skip(1)))
        }
        None => (body, None),
    };
    let (expression, kind) = parse_typed(source, kind, family, place_kind)?;
    Ok((Argument { name, text: fallible::copy(body.text)?, expression, kind }, body.column - token.column))
}

/// Returns the position of the `:` before the type: the first one that is not half of a path's `::`.
fn type_separator(text: &str) -> Option<usize> {
    if text.starts_with("\\\"") {
        // A text may contain any character, so look after its closing quote.
        return text.rfind('"').filter(|&at| at > 1).and_then(|at| Some(at + text[at..].find(':')?));
    }
    token::single_colon(text)
}

fn parse_typed(
    source: Token<'_>,
    kind: Option<Token<'_>>,
    family: Family,
    place_kind: PlaceKind,
) -> Result<(Expression, Type), ParseError> {
    let (name, count) = match kind {
        Some(kind) => split_array(kind)?,
        None => (None, 0),
    };
    // The token to which an error about the type points.
    let at = kind.unwrap_or(source);
    let is_literal = matches!(source.text, "$comm" | "$COMM") || source.text.starts_with("\\\"");
    // To an event probe, `$comm` is a field like others, whose type is known only when it is looked up.
    let is_field = family == Family::Event && source.text.starts_with('$');
    let base = match name {
        None if is_literal => Base::String,
        Some(name) if is_literal && !is_field && (count > 0 || name.text != "string") => {
            return Err(at.error(Problem::TextType));
        }
        None => Type::DEFAULT.base,
        Some(name) => find(name.text).ok_or_else(|| at.error(Problem::Type))?,
    };
    let mut expression = Expression::parse(source, family, place_kind, source.column)?;
    let constant =
        matches!(expression.origin, Origin::Immediate(_) | Origin::Symbol(..)) && expression.reads.is_empty();
    let is_memory = !expression.reads.is_empty();
    // Whether a named value, or a field of an event, is in memory is known only when it is looked up.
    let is_named = match expression.origin {
        Origin::Named(_) | Origin::ReturnValue => true,
        Origin::Argument(_) => place_kind == PlaceKind::Tracepoint,
        _ => false,
    };
    let inside = source.skip(inside(source.text, &expression));
    let deep = |_: ()| inside.error(Problem::TooDeep);
    match base {
        Base::SymbolString if constant || is_literal && !is_field => return Err(at.error(Problem::SymbolText)),
        Base::String if !is_memory && !constant && !is_literal && !is_named => return Err(at.error(Problem::Text)),
        _ => {}
    }
    // In Linux a store replaces the last read; every other type needs one more operation.
    if !is_memory || base == Base::SymbolString || base == Base::String && count > 0 {
        expression.operate(1).ok_or(()).map_err(deep)?;
    }
    let bits = match name {
        Some(name) if name.text.starts_with('b') => {
            expression.operate(1).ok_or_else(|| at.error(Problem::Bits))?;
            Some(bits(name.text, base).ok_or_else(|| at.error(Problem::Bits))?)
        }
        _ => None,
    };
    if count > 0 {
        if !is_memory && (!is_named || expression.origin == Origin::ReturnValue) && base != Base::String
            || base == Base::SymbolString
        {
            return Err(at.error(Problem::Text));
        }
        expression.operate(1).ok_or(()).map_err(deep)?;
    }
    Ok((expression, Type { base, bits, count }))
}

/// Splits off an array suffix: returns the name of the type, and the number of values, or 0 for no array.
fn split_array(kind: Token<'_>) -> Result<(Option<Token<'_>>, u8), ParseError> {
    let Some((name, size)) = kind.split_once('[') else { return Ok((Some(kind), 0)) };
    let Some((size, behind)) = size.split_once(']') else {
        return Err(size.split_at(size.text.len()).1.error(Problem::UnclosedArray));
    };
    if !behind.text.is_empty() {
        return Err(behind.error(Problem::ArraySuffix));
    }
    match number::unsigned(size.text) {
        None | Some(0) => Err(size.error(Problem::ArraySize)),
        Some(count) if count > u64::from(u32::MAX) => Err(size.error(Problem::ArraySize)),
        Some(count) if count > u64::from(ARRAY_MAX) => Err(size.error(Problem::ArrayTooBig)),
        Some(count) => Ok((Some(name), count as u8)),
    }
}

/// Returns the type of this name; for a bitfield, the integer that contains it.
fn find(name: &str) -> Option<Base> {
    if !name.starts_with('b') {
        return Base::of(name);
    }
    let (_, size) = name.split_once('/')?;
    Some(Base::Unsigned(match number::unsigned(size)? {
        8 => Width::W8,
        16 => Width::W16,
        32 => Width::W32,
        64 => Width::W64,
        _ => return None,
    }))
}

/// Parses the range of a bitfield `b<width>@<offset>/<size>`. `base` is the integer of that size.
fn bits(text: &str, base: Base) -> Option<Bits> {
    let (width, rest) = number::leading(text.strip_prefix('b')?);
    let start = rest.strip_prefix('@')?;
    let (offset, rest) = number::leading(start);
    let is_whole = rest.starts_with('/') && rest.len() < start.len();
    let end = width.checked_add(offset)?;
    (is_whole && width > 0 && end <= 8 * base.size() as u64)
        .then_some(Bits { width: width as u8, offset: offset as u8 })
}
