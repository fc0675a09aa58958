//! Event definitions, in the grammar of Linux's `kprobe_events` and `dynamic_events`
//! (Documentation/trace/kprobetrace.rst, fprobetrace.rst and eprobetrace.rst).
//!
//! ```text
//! p[:[GROUP/][EVENT]] PLACE [ARGUMENT…]              a probe
//! r[MAXACTIVE][:[GROUP/][EVENT]] PLACE [ARGUMENT…]   a return probe
//! f[MAXACTIVE][:[GROUP/][EVENT]] SYMBOL[%return] [ARGUMENT…]
//!                                                    a probe on a function's entry or return, without its registers
//! t[:[GROUP/][EVENT]] EVENT [ARGUMENT…]              a probe on a static event: `NAME` and `$argN` are its fields
//! e[:[GROUP/][EVENT]] GROUP.EVENT [ARGUMENT…] [if FILTER]
//!                                                    a probe on a static or synthetic event, or on one of `p`, `r` or
//!                                                    `f` with one probe: `$NAME` are its fields, which FILTER tests
//! -:[GROUP/][EVENT] [PLACE [ARGUMENT…]]              removes what matches
//!
//! PLACE        SYMBOL[+OFFSET], ADDRESS, FILE.rs:LINE, or SYMBOL%return, which makes a return probe of a `p`
//! ARGUMENT     [NAME=]EXPRESSION[:TYPE]
//! EXPRESSION   %REG, @ADDRESS, @SYMBOL[±OFFSET], $stack, $stackN, $argN, $retval, $comm, ±[u]OFFSET(EXPRESSION),
//!              \NUMBER, \"TEXT", NAME, NAME->FIELD, NAME.FIELD, $retval->FIELD
//!              `$arg*` alone stands for the arguments of the function, each by its name
//! TYPE         u8…u64, s8…s64, x8…x64, char, symbol, symstr, string, ustring, b<width>@<offset>/<size>;
//!              [N] after it makes an array
//! ```
//!
//! `#` begins a comment, except in a name (`f#2`, `f::{closure#0}`). A refused definition gets the text of Linux's
//! `error_log`, at the same column.
//!
//! Symbols are demangled paths. They may contain spaces, but only inside brackets.

mod argument;
mod error;
mod expression;
mod family;
mod name;
mod named;
pub(crate) mod number;
pub mod synthetic;
mod token;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use fallible::{OutOfMemory, Text};

use crate::shown::is_shown_as;

pub use argument::{ARGUMENT_MAX, ARGUMENT_NAME_MAX, ARGUMENTS_MAX, ARRAY_MAX, Argument, BYTES_MAX};
pub use error::{Error, Problem};
pub use expression::{Expression, Origin, PlaceKind};
pub use family::Family;
pub use name::{NAME_MAX, parse_event_name};
pub use named::Named;
pub use number::{boolean, whole};
pub use token::single_colon;

pub(crate) use name::is_identifier as is_name;

use name::{automatic_name, is_identifier, parse_name};
use token::Token;

/// The largest number of instances of a return probe.
pub const MAXACTIVE_MAX: u16 = 4096;

/// First letters of the other kinds of definition in Linux: synthetic events, which have a grammar of their own
/// ([`synthetic`]), and probes of user space.
const OTHERS: [char; 2] = ['s', 'u'];

/// A parsed line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Define an event, or add another probe to it.
    Define(Definition),
    /// Remove probes.
    Remove(Removal),
}

/// The probes to remove: those that match all parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The family; `None` matches any.
    pub family: Option<Family>,
    /// The group; `None` matches any.
    pub group: Option<String>,
    /// The event; `None` matches any.
    pub event: Option<String>,
    /// The place and the first arguments, spelled as `kprobe_events` lists them.
    pub rest: Vec<String>,
}

/// The definition of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// The family, which decides the place and the meaning of arguments.
    pub family: Family,
    /// The kind of probe. For an event that is on another one, `Events::define` takes the kind from the other event.
    pub kind: EventKind,
    /// The group of events that this one belongs to.
    pub group: String,
    /// The name, unique in the group.
    pub event: String,
    /// Where the probe is placed.
    pub place: ProbePlace,
    /// The arguments to record.
    pub arguments: Vec<Argument>,
    /// The filter of an event probe, which tests the fields of the event that it is on. Hits that it rejects do not
    /// count.
    pub filter: Option<String>,
    /// The start of each part of the line, and last the start that a further part would have. Each is a column of the
    /// line and a position in the line as it is logged.
    parts: Vec<(usize, usize)>,
    /// For each argument, the number of its part of the line, and the number of characters of that part before the
    /// expression.
    pub(crate) bodies: Vec<(usize, usize)>,
}

/// The kind of probe that an event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A probe on an instruction.
    Probe,
    /// A probe on a function, hit when the function returns.
    Return {
        /// How many calls may be in flight at once; `None` leaves the number to the engine.
        maxactive: Option<u16>,
    },
    /// No probe: a trigger of another event records this one.
    Synthetic,
    /// No probe: each record of a synthetic event is a hit.
    OnSynthetic,
    /// A probe on the function of a static event of the kernel.
    Static,
    /// A probe on a function, for the commands that `set_ftrace_filter` has for it. No list shows such an event.
    Command,
}

/// Where a probe is placed, and the columns of the place in the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbePlace {
    /// A symbol or an address.
    pub base: Base,
    /// The number of bytes to add to the base.
    pub offset: u64,
    /// The number of characters of the line before the symbol or address.
    pub column: usize,
    /// The number of characters of the line before the offset, or before the symbol if there is no offset.
    pub offset_column: usize,
}

/// What the offset of a place is relative to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// The function with this demangled path.
    Symbol(String),
    /// A virtual address.
    Address(u64),
    /// A line of the source file whose path ends with this one.
    Line(String, u32),
    /// Another event, by its name and its group; without a group, a static event of any group.
    Event(Option<String>, String),
}

/// A problem, and the column of its cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParseError {
    problem: Problem,
    column: usize,
}

impl From<OutOfMemory> for ParseError {
    fn from(_: OutOfMemory) -> Self {
        Self { problem: Problem::OutOfMemory, column: 0 }
    }
}

/// Whether `line` is meant as a definition: no command's name begins with its first token.
#[must_use]
pub fn is_definition(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or("");
    let mut characters = first.chars();
    match characters.next() {
        Some('-') => true,
        Some('p' | 'r' | 'f') => matches!(characters.next(), None | Some(':' | '0'..='9')),
        Some('t' | 'e') => matches!(characters.next(), None | Some(':')),
        Some(letter) => OTHERS.contains(&letter) && characters.next() == Some(':'),
        None => false,
    }
}

/// Returns the line as Linux logs it: its parts, separated by single spaces.
///
/// # Errors
///
/// Fails if there is no memory for the copy.
pub fn logged(line: &str) -> Result<String, OutOfMemory> {
    joined(&token::tokens(line)?)
}

/// Returns the tokens, separated by single spaces.
fn joined(tokens: &[Token<'_>]) -> Result<String, OutOfMemory> {
    let mut joined = Text::default();
    for (number, token) in tokens.iter().enumerate() {
        write!(joined, "{}{}", if number > 0 { " " } else { "" }, token.text).map_err(|_| OutOfMemory)?;
    }
    Ok(joined.0)
}

/// Splits the arguments of an event probe from the filter after the word `if`.
fn split_filter<'t, 'a>(family: Family, tokens: &'t [Token<'a>]) -> (&'t [Token<'a>], Option<&'t [Token<'a>]>) {
    let at = tokens.iter().position(|token| family == Family::Event && token.text == "if");
    match at.and_then(|at| tokens.split_at_checked(at)) {
        Some((arguments, filter)) => (arguments, filter.get(1..)),
        None => (tokens, None),
    }
}

/// Parses a line. Returns `Ok(None)` if the line is empty or only a comment.
///
/// # Errors
///
/// Returns the problem, with the position of its cause.
pub fn parse(line: &str) -> Result<Option<Command>, Error> {
    let tokens = token::tokens(line)?;
    let Some((&first, rest)) = tokens.split_first() else {
        return Ok(None);
    };
    let parts = parts(&tokens)?;
    let command = if first.text.starts_with('-') {
        parse_removal(first, rest).map(Command::Remove)
    } else {
        parse_definition(first, rest, &parts).map(Command::Define)
    };
    command.map(Some).map_err(|error| place_error(&parts, error, None))
}

/// Parses what Linux reads of a definition before it looks for the place: the letter and the place, and for a probe on
/// an event also the name. Returns `Ok(None)` if one of these is wrong, or if the line is no definition.
///
/// # Errors
///
/// Fails if there is no memory for the parts of the line.
pub(crate) fn beginning(line: &str) -> Result<Option<Definition>, OutOfMemory> {
    let tokens = token::tokens(line)?;
    let &[first, place, ..] = tokens.as_slice() else { return Ok(None) };
    let first = match (Family::of_line(line), first.split_once(':')) {
        (Family::Kprobe, Some((letter, _))) => letter,
        _ => first,
    };
    Ok(parse_definition(first, &[place], &parts(&tokens)?).ok())
}

/// Parses a place alone: `SYMBOL[+OFFSET]` or `0xADDRESS`. White space around it is ignored.
///
/// # Errors
///
/// Returns the problem, with the column of its cause. Text after the place is a problem, too.
pub fn parse_place(text: &str) -> Result<ProbePlace, Error> {
    let line = fallible::format(format_args!("p {text}"))?;
    let tokens = token::tokens(&line)?;
    let parsed = match tokens[..] {
        [_, place] => parse_place_token(place),
        [_, _, second, ..] => Err(second.error(Problem::Place)),
        _ => Err(ParseError { problem: Problem::Place, column: line.chars().count() }),
    };
    let shift = |column: usize| column.saturating_sub(2);
    match parsed {
        Ok((place, false)) => {
            Ok(ProbePlace { column: shift(place.column), offset_column: shift(place.offset_column), ..place })
        }
        Ok((_, true)) => Err(ParseError { problem: Problem::PlaceSuffix, column: 2 }),
        Err(error) => Err(error),
    }
    .map_err(|ParseError { problem, column }| Error {
        problem,
        column: shift(column),
        position: shift(column),
        reason: None,
    })
}

fn parts(tokens: &[Token<'_>]) -> Result<Vec<(usize, usize)>, OutOfMemory> {
    let mut position = 0;
    let part = |token: &Token<'_>| {
        let start = position;
        position += token.text.chars().count() + 1;
        (token.column, start)
    };
    let mut parts = fallible::collect(tokens.iter().map(part))?;
    // The start that a further part would have.
    let next = tokens.last().map(|last| (last.column + last.text.chars().count() + 1, position));
    fallible::extend(&mut parts, next)?;
    Ok(parts)
}

/// Adds the position to `error`, in a line with these parts.
fn place_error(parts: &[(usize, usize)], error: ParseError, reason: Option<String>) -> Error {
    let ParseError { problem, column } = error;
    let part = parts.iter().rev().find(|(start, _)| *start <= column);
    let position = part.map_or(column, |(start, position)| position + column - start);
    Error { problem, column, position, reason }
}

fn parse_definition(first: Token<'_>, rest: &[Token<'_>], parts: &[(usize, usize)]) -> Result<Definition, ParseError> {
    let (before, name) = match first.split_once(':') {
        Some((before, name)) => (before, Some(name)),
        None => (first, None),
    };
    let letter = parse_letter(first, before)?;
    let Some((&place, rest)) = rest.split_first() else {
        return Err(first.split_at(first.text.len()).1.error(Problem::NotADefinition));
    };
    let Letter { family, is_return, maxactive, count } = letter;
    let (arguments, filter) = split_filter(family, rest);
    if let Some(&second) = arguments.first().filter(|_| arguments.len() > ARGUMENTS_MAX) {
        return Err(second.error(Problem::TooManyArguments));
    }
    // The end of an unclosed bracket would depend on the rest of the line. No symbol has an unclosed bracket, so refuse
    // it.
    if !token::is_closed(place.text) {
        return Err(place.error(Problem::Place));
    }
    let (place, has_suffix) = match family {
        Family::Kprobe | Family::Fprobe => parse_place_token(place)?,
        // The name of the event comes first in Linux, too: an error in it is reported before one in the place.
        Family::Tracepoint | Family::Event => {
            name.map_or(Ok(()), |name| parse_name(name).map(|_| ()))?;
            (parse_base_event(family, place)?, false)
        }
    };
    let is_return = is_return || has_suffix || family == Family::Fprobe && arguments.iter().any(takes_result);
    let kind = match maxactive {
        Some(_) if !is_return => return Err(count.error(Problem::MaxactiveOnProbe)),
        maxactive if is_return => EventKind::Return { maxactive },
        _ => EventKind::Probe,
    };
    let place_kind = match (family, kind, &place) {
        (Family::Event, ..) => PlaceKind::Event,
        (Family::Tracepoint, ..) => PlaceKind::Tracepoint,
        (
            Family::Fprobe,
            _,
            ProbePlace { offset: 1.., .. } | ProbePlace { base: Base::Line(..) | Base::Address(_), .. },
        ) => {
            return Err(ParseError { problem: Problem::FunctionOnly, column: place.column });
        }
        (_, EventKind::Return { .. }, ProbePlace { offset: 1.., .. } | ProbePlace { base: Base::Line(..), .. }) => {
            return Err(ParseError { problem: Problem::ReturnOffset, column: place.column });
        }
        (
            _,
            EventKind::Return { .. }
            | EventKind::Synthetic
            | EventKind::OnSynthetic
            | EventKind::Static
            | EventKind::Command,
            _,
        ) => PlaceKind::Return,
        (_, EventKind::Probe, ProbePlace { base: Base::Symbol(_), offset: 0, .. }) => PlaceKind::Entry,
        (_, EventKind::Probe, _) => PlaceKind::Inside,
    };
    let (group, event) = match name {
        Some(name) => parse_name(name)?,
        None => (None, None),
    };
    let filter = match filter {
        Some([]) => {
            let (start, _) = parts.last().copied().unwrap_or_default();
            return Err(ParseError { problem: Problem::NoFilter, column: start });
        }
        Some(words) => Some(joined(words)?),
        None => None,
    };
    argument::check_all(arguments, place_kind)?;
    let (mut parsed, mut bodies) = (Vec::new(), Vec::new());
    for (number, &token) in arguments.iter().enumerate() {
        let (argument, body) = argument::parse(token, family, place_kind, &parsed).map_err(|error| match error {
            ParseError { problem: problem @ Problem::Refused, .. } => ParseError { problem, column: place.column },
            error => error,
        })?;
        fallible::push(&mut parsed, argument)?;
        fallible::push(&mut bodies, (2 + number, body))?;
    }
    let group = group.map_or_else(|| fallible::copy(family.group()), Ok)?;
    let event = event.map_or_else(|| automatic_name(family, kind, &place), Ok)?;
    let parts = fallible::collect(parts.iter().copied())?;
    Ok(Definition { family, kind, group, event, place, arguments: parsed, filter, parts, bodies })
}

/// Whether `text` is a letter, alone or followed by digits.
fn is_kind(text: &str) -> bool {
    text.chars().skip(1).all(|character| character.is_ascii_digit())
}

/// The beginning of a definition.
struct Letter<'a> {
    family: Family,
    is_return: bool,
    maxactive: Option<u16>,
    /// What follows the letter: the number of instances, or nothing.
    count: Token<'a>,
}

/// Parses the letter of a definition, and the number after it.
fn parse_letter<'a>(first: Token<'a>, before: Token<'a>) -> Result<Letter<'a>, ParseError> {
    let letter = before.text.chars().next().unwrap_or(' ');
    let Some(family) = Family::of(letter) else {
        let problem = match OTHERS.contains(&letter) && is_kind(before.text) {
            true => Problem::UnsupportedKind,
            false => Problem::NotADefinition,
        };
        return Err(first.error(problem));
    };
    let count = before.skip(1);
    let is_return = letter == 'r';
    let maxactive = match count.text {
        "" => None,
        text if !text.starts_with(|first: char| first.is_ascii_digit()) => {
            return Err(count.error(Problem::NotADefinition));
        }
        _ if !is_return && family != Family::Fprobe => return Err(count.error(Problem::MaxactiveOnProbe)),
        text => match number::unsigned(text) {
            None | Some(0) => return Err(count.error(Problem::Maxactive)),
            Some(calls) if calls > u64::from(u32::MAX) => return Err(count.error(Problem::Maxactive)),
            Some(calls) if calls > u64::from(MAXACTIVE_MAX) => return Err(count.error(Problem::MaxactiveTooBig)),
            Some(calls) => Some(calls as u16),
        },
    };
    Ok(Letter { family, is_return, maxactive, count })
}

/// Whether the argument `token` of a function's probe asks for the result, which makes it a probe on the return.
fn takes_result(token: &Token<'_>) -> bool {
    const RESULT: &str = "$retval";
    let behind = token.text.split_once(RESULT).map(|(_, behind)| behind.chars().next());
    behind.is_some_and(|next| next.is_none_or(|next| !next.is_ascii_alphanumeric() && next != '_'))
}

/// Parses the event that a definition of this family is placed on.
fn parse_base_event(family: Family, token: Token<'_>) -> Result<ProbePlace, ParseError> {
    let (group, event) = match family {
        Family::Event => match token.split_once('.').or_else(|| token.split_once('/')) {
            Some((group, event)) if !group.text.is_empty() && !event.text.is_empty() => {
                (Some(fallible::copy(group.text)?), event.text)
            }
            _ => return Err(token.error(Problem::NoEventInfo)),
        },
        _ => match token.text.find(|character: char| !character.is_ascii_alphanumeric() && character != '_') {
            Some(at) => return Err(token.split_at(at).1.error(Problem::TracepointName)),
            None => (None, token.text),
        },
    };
    let base = Base::Event(group, fallible::copy(event)?);
    Ok(ProbePlace { base, offset: 0, column: token.column, offset_column: token.column })
}

fn parse_removal(first: Token<'_>, rest: &[Token<'_>]) -> Result<Removal, ParseError> {
    let after = first.skip(1);
    if !after.text.starts_with(':') {
        return Err(after.error(Problem::NotADefinition));
    }
    let name = after.skip(1);
    let (group, event) = match name.split_once('/') {
        Some((group, event)) => (Some(fallible::copy(group.text)?), event),
        None => (None, name),
    };
    if group.is_none() && event.text.is_empty() {
        return Err(event.error(Problem::NothingToRemove));
    }
    let event = Some(fallible::copy(event.text)?).filter(|event| !event.is_empty());
    Ok(Removal {
        family: None,
        group,
        event,
        rest: fallible::collect_results(rest.iter().map(|token| fallible::copy(token.text)))?,
    })
}

/// Parses `FILE.rs:LINE` or `FILE.S:LINE`. No symbol has this form.
fn line(text: &str) -> Option<(&str, u32)> {
    let (file, line) = text.rsplit_once(':')?;
    let is_source = file.ends_with(".rs") || file.ends_with(".S");
    let number = line.bytes().all(|digit| digit.is_ascii_digit()).then(|| line.parse().ok())?;
    number.filter(|&number| is_source && number > 0).map(|number| (file, number))
}

/// Parses a place. The flag says whether `%return` follows it.
fn parse_place_token(token: Token<'_>) -> Result<(ProbePlace, bool), ParseError> {
    if let Some(address) = number::unsigned(token.text) {
        let column = token.column;
        return Ok((ProbePlace { base: Base::Address(address), offset: 0, column, offset_column: column }, false));
    }
    let (place, is_return) = match token.text.find('%') {
        Some(at) => match token.split_at(at) {
            (place, suffix) if suffix.text == "%return" => (place, true),
            (_, suffix) => return Err(suffix.error(Problem::PlaceSuffix)),
        },
        None => (token, false),
    };
    if let Some((file, line)) = line(place.text) {
        let base = Base::Line(fallible::copy(file)?, line);
        return Ok((ProbePlace { base, offset: 0, column: place.column, offset_column: place.column }, is_return));
    }
    let (symbol, offset) = expression::split_offset(place.text).ok_or_else(|| token.error(Problem::Place))?;
    // A name that begins with a digit would be listed as an address. An address takes no offset, as in Linux.
    let is_name = !symbol.starts_with(|first: char| first.is_ascii_digit()) && !symbol.is_empty();
    let offset = u32::try_from(offset).ok().filter(|_| is_name).ok_or_else(|| token.error(Problem::Place))?;
    let has_offset = symbol.len() < place.text.len();
    let offset_column = if has_offset { place.split_at(symbol.len() + 1).1.column } else { place.column };
    let base = Base::Symbol(fallible::copy(symbol)?);
    Ok((ProbePlace { base, offset: offset.into(), column: place.column, offset_column }, is_return))
}

impl Definition {
    /// Makes the error whose cause is part `part` of the line: 0 is the event's name, 1 the place, 2 the first
    /// argument.
    pub(crate) fn error(&self, part: usize, problem: Problem, reason: Option<String>) -> Error {
        let (column, position) = self.parts.get(part).or(self.parts.last()).copied().unwrap_or_default();
        Error { problem, column, position, reason }
    }

    /// Makes the error whose cause is argument `argument`.
    pub(crate) fn error_of(&self, argument: usize, problem: Problem, reason: Option<String>) -> Error {
        self.error(self.bodies.get(argument).map_or(1, |&(part, _)| part), problem, reason)
    }

    /// Makes the error of the filter, whose cause is `at` characters after its start.
    pub(crate) fn error_in_filter(&self, at: usize, reason: Option<String>) -> Error {
        let words = self.filter.as_deref().unwrap_or_default().split(' ').count();
        let first = self.parts.len().saturating_sub(words + 1);
        // The filter is logged with single spaces; in the line there may be more of them.
        let error = self.error(first, Problem::Filter, reason);
        let position = error.position + at;
        let part = self.parts.iter().rev().find(|&&(_, start)| start <= position);
        Error { column: part.map_or(0, |(column, start)| column + position - start), position, ..error }
    }

    /// Makes the error whose cause is `at` characters after the start of the expression of argument `argument`.
    pub(crate) fn error_in(&self, argument: usize, at: usize, problem: Problem, reason: Option<String>) -> Error {
        let (part, before) = self.bodies.get(argument).copied().unwrap_or_default();
        let error = self.error(part, problem, reason);
        Error { column: error.column + before + at, position: error.position + before + at, ..error }
    }

    /// Whether `other` may give its probe to the event of this definition, as far as the families decide. As in Linux,
    /// `f` and `t` count as one family, and no probe joins a static or synthetic event.
    pub(crate) fn may_share_name(&self, other: &Self) -> bool {
        let family = |definition: &Self| match definition.family {
            Family::Tracepoint => Family::Fprobe,
            family => family,
        };
        matches!(self.kind, EventKind::Probe | EventKind::Return { .. }) && family(self) == family(other)
    }

    /// Compares the definition with that of another probe of one event. Returns the part of the line that differs, or
    /// `None` if both can belong to the same event. As in Linux, if one has more arguments, that is the first of these.
    pub(crate) fn differs(&self, other: &Self) -> Option<usize> {
        let same = |(one, other): (&Argument, &Argument)| {
            one.name == other.name && one.kind.base == other.kind.base && one.kind.count == other.kind.count
        };
        let (count, others) = (self.arguments.len(), other.arguments.len());
        let common = match count == others {
            true => self.arguments.iter().zip(&other.arguments).take_while(|pair| same(*pair)).count(),
            false => count.min(others),
        };
        (common < count.max(others)).then_some(2 + common)
    }

    /// Makes the definition of a synthetic event with this name. It has no arguments: the format of the event has the
    /// fields.
    pub(crate) fn of_synthetic(name: String) -> Result<Self, OutOfMemory> {
        Ok(Self::without_arguments(EventKind::Synthetic, fallible::copy(synthetic::GROUP)?, name, 0))
    }

    /// Makes the definition of a static event, whose function is at the virtual address `address`.
    pub(crate) fn of_static(group: &str, event: &str, address: u64) -> Result<Self, OutOfMemory> {
        let (group, event) = (fallible::copy(group)?, fallible::copy(event)?);
        Ok(Self::without_arguments(EventKind::Static, group, event, address))
    }

    /// Makes the definition of the event for the commands of the function at the virtual address `address`. Its group
    /// is empty, which no typed group is.
    pub(crate) fn of_commands(address: u64) -> Result<Self, OutOfMemory> {
        let event = fallible::format(format_args!("{address:#x}"))?;
        Ok(Self::without_arguments(EventKind::Command, String::new(), event, address))
    }

    fn without_arguments(kind: EventKind, group: String, event: String, address: u64) -> Self {
        let place = ProbePlace { base: Base::Address(address), offset: 0, column: 0, offset_column: 0 };
        let (arguments, parts, bodies) = (Vec::new(), Vec::new(), Vec::new());
        Self { family: Family::Kprobe, kind, group, event, place, arguments, filter: None, parts, bodies }
    }
}

impl Removal {
    /// Removes all probes of events of this family; `None` means all families.
    #[must_use]
    pub const fn of_all(family: Option<Family>) -> Self {
        Self { family, group: None, event: None, rest: Vec::new() }
    }

    /// Whether the probe of `definition` is one of those to remove.
    #[must_use]
    pub fn matches(&self, definition: &Definition) -> bool {
        let is = |wanted: &Option<String>, name: &str| wanted.as_ref().is_none_or(|wanted| wanted == name);
        let mut arguments = definition.arguments.iter();
        let mut words = definition.filter.iter().flat_map(|filter| core::iter::once("if").chain(filter.split(' ')));
        let mut is_next = |wanted: &String| match arguments.next() {
            Some(argument) => is_shown_as(argument, wanted),
            None => words.next() == Some(wanted),
        };
        let mut rest = self.rest.iter();
        self.family.is_none_or(|family| family == definition.family)
            && is(&self.group, &definition.group)
            && is(&self.event, &definition.event)
            && rest.next().is_none_or(|wanted| ListedPlace(definition).is_named_by(wanted))
            && rest.all(&mut is_next)
    }
}

/// The place of a definition as it is listed: that of an fprobe says whether it is at the return.
struct ListedPlace<'a>(&'a Definition);

impl ListedPlace<'_> {
    /// Whether `name` is the place as it is listed, or the event of an event probe in its other form, `GROUP/EVENT`.
    fn is_named_by(&self, name: &str) -> bool {
        match (&self.0.place.base, name.split_once('/')) {
            (Base::Event(Some(group), event), Some(named)) => named == (group, event),
            _ => is_shown_as(self, name),
        }
    }
}

impl fmt::Display for ListedPlace<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Definition { family, kind, place, .. } = self.0;
        let suffix = if let (Family::Fprobe, EventKind::Return { .. }) = (family, kind) { "%return" } else { "" };
        write!(f, "{place}{suffix}")
    }
}

/// The definition as `kprobe_events` lists it: with defaults filled in for the parts that were left out.
impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, kind, group, event, .. } = self;
        match (kind, family) {
            (EventKind::Synthetic, _) => return write!(f, "s:{group}/{event}"),
            (EventKind::Static, _) => return write!(f, "{group}:{event}"),
            (EventKind::Return { .. }, Family::Kprobe) => f.write_str("r")?,
            _ => write!(f, "{family}")?,
        }
        if let (EventKind::Return { maxactive: Some(maxactive) }, false) = (kind, family.is_on_event()) {
            write!(f, "{maxactive}")?;
        }
        write!(f, ":{group}/{event} {}", ListedPlace(self))?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))?;
        self.filter.as_ref().map_or(Ok(()), |filter| write!(f, " if {filter}"))
    }
}

impl fmt::Display for ProbePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.base {
            Base::Symbol(symbol) => f.write_str(symbol)?,
            Base::Address(address) => write!(f, "{address:#018x}")?,
            Base::Line(file, line) => write!(f, "{file}:{line}")?,
            Base::Event(Some(group), event) => write!(f, "{group}.{event}")?,
            Base::Event(None, event) => f.write_str(event)?,
        }
        match self.offset {
            0 => Ok(()),
            offset => write!(f, "+{offset}"),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod fuzz;
#[cfg(all(test, not(loom)))]
mod tests;
