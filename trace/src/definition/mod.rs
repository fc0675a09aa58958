//! Event definitions, in the grammar of Linux's `kprobe_events`.
//!
//! ```text
//! p[:[GROUP/]EVENT] PLACE [ARGUMENT…]              a probe
//! r[MAXACTIVE][:[GROUP/]EVENT] PLACE [ARGUMENT…]   a return probe
//! -:[GROUP/]EVENT                                  removes an event; `-:GROUP/` removes a group
//! ```
//!
//! PLACE is `SYMBOL`, `SYMBOL+OFFSET` or `0xADDRESS`; a symbol is a demangled path, with its spaces (they are
//! all inside brackets). ARGUMENT is `[NAME=]%REG[:TYPE]`, or the same with `$argN` (a probe on a function's entry)
//! or `$retval` (a return probe) in place of the register. `#` begins a comment.
//!
//! Two things are more than Linux has. An event without arguments records x0 to x3, or the return value as
//! `ret`: the first thing that is typed shows something. And a name that is made from a symbol keeps the end
//! of it where it would become too long, which is the telling part of a path.

mod argument;
mod error;
mod token;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use argument::{ARGUMENT_NAME_MAX, Argument, Format, MAX_ARGUMENTS, Source, Type};
pub use error::{Error, Problem};

use argument::Moment;
use token::Token;

/// The longest name of a group or an event, in characters.
pub const NAME_MAX: usize = 63;

/// The largest number of instances of a return probe.
pub const MAXACTIVE_MAX: u16 = 4096;

/// The group of an event that names none.
pub const DEFAULT_GROUP: &str = "kprobes";

/// A line, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Define an event.
    Define(Definition),
    /// Remove every event that is in the group, if one is given, and of the name, if one is given.
    Remove {
        /// The group; an event of any group if none is given.
        group: Option<String>,
        /// The event; every event of the group if none is given.
        event: Option<String>,
    },
}

/// The definition of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// What kind of probe.
    pub kind: Kind,
    /// The group of events that this one belongs to.
    pub group: String,
    /// The name, unique in the group.
    pub event: String,
    /// How many characters of the line precede the name; the place, if the line gives none.
    pub column: usize,
    /// Where the probe goes.
    pub place: Place,
    /// What is recorded; never empty.
    pub arguments: Vec<Argument>,
}

/// What kind of probe an event has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On an instruction.
    Probe,
    /// On a function, hit when it returns.
    Return {
        /// How many calls may be in flight at once; the engine's choice if not given.
        maxactive: Option<u16>,
    },
}

/// Where a probe goes, with the columns of the line at which this was said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// A symbol or an address.
    pub base: Base,
    /// The number of bytes to add to it.
    pub offset: u64,
    /// How many characters of the line precede the symbol or address.
    pub column: usize,
    /// How many characters of the line precede the offset; without an offset, the symbol.
    pub offset_column: usize,
}

/// What a place is relative to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// The function of this demangled name.
    Symbol(String),
    /// A virtual address.
    Address(u64),
}

/// Whether `line` is meant as a definition: its first token is one that no command's name begins with.
#[must_use]
pub fn is_definition(line: &str) -> bool {
    let first = line.split_whitespace().next().unwrap_or("");
    let mut characters = first.chars();
    match characters.next() {
        Some('-') => true,
        Some('p' | 'r') => matches!(characters.next(), None | Some(':' | '0'..='9')),
        _ => false,
    }
}

/// Reads a line. `Ok(None)` if nothing, or a comment, is in it.
///
/// # Errors
///
/// What is wrong, with the column of it.
pub fn parse(line: &str) -> Result<Option<Command>, Error> {
    let tokens = token::tokens(line)?;
    let Some((&first, rest)) = tokens.split_first() else {
        return Ok(None);
    };
    if first.text.starts_with('-') {
        return parse_removal(first, rest).map(Some);
    }
    let (kind, name) = parse_kind(first)?;
    let column = name.map(|name| name.column);
    let (group, event) = match name {
        Some(name) => parse_name(name)?,
        None => (None, None),
    };
    let Some((&place, arguments)) = rest.split_first() else {
        return Err(Error { problem: Problem::NoPlace, column: line.trim_end().chars().count() });
    };
    let place = parse_place_token(place)?;
    let moment = match (kind, &place) {
        (Kind::Return { .. }, Place { offset: 1.., .. }) => {
            return Err(Error { problem: Problem::ReturnOffset, column: place.offset_column });
        }
        (Kind::Return { .. }, _) => Moment::Return,
        (Kind::Probe, Place { base: Base::Symbol(_), offset: 0, .. }) => Moment::Entry,
        (Kind::Probe, _) => Moment::Inside,
    };
    let arguments = if arguments.is_empty() {
        argument::default_arguments(moment)
    } else {
        arguments.iter().try_fold(Vec::new(), |mut others, &token| {
            others.push(argument::parse(token, moment, &others)?);
            Ok(others)
        })?
    };
    let group = group.unwrap_or_else(|| DEFAULT_GROUP.to_owned());
    let event = event.unwrap_or_else(|| automatic_name(kind, &place));
    let column = column.unwrap_or(place.column);
    Ok(Some(Command::Define(Definition { kind, group, event, column, place, arguments })))
}

/// Reads a place alone: `SYMBOL[+OFFSET]` or `0xADDRESS`, with white space around it.
///
/// # Errors
///
/// What is wrong, with the column of it; also where more than a place is given.
pub fn parse_place(text: &str) -> Result<Place, Error> {
    match token::tokens(text)?[..] {
        [] => Err(Error { problem: Problem::NoPlace, column: text.chars().count() }),
        [place] => parse_place_token(place),
        [_, second, ..] => Err(second.error(Problem::AfterPlace)),
    }
}

/// Reads the name of an event alone: `[GROUP/]EVENT`, with the group if one is given.
///
/// # Errors
///
/// What is wrong, with the column of it.
pub fn parse_event_name(text: &str) -> Result<(Option<String>, String), Error> {
    let token = Token { text, column: 0 };
    let (group, event) = parse_name(token)?;
    let event = event.ok_or(Error { problem: Problem::NoEvent, column: text.chars().count() })?;
    Ok((group, event))
}

/// `p`, `r` or `rN`, and the name that follows a `:`.
fn parse_kind(first: Token<'_>) -> Result<(Kind, Option<Token<'_>>), Error> {
    let (before, name) = match first.split_once(':') {
        Some((before, name)) => (before, Some(name)),
        None => (first, None),
    };
    let letter = before.text.chars().next();
    if !matches!(letter, Some('p' | 'r')) {
        return Err(first.error(Problem::NotADefinition));
    }
    let count = before.skip(1);
    let kind = match (letter, count.text) {
        (Some('p'), "") => Kind::Probe,
        (Some('r'), "") => Kind::Return { maxactive: None },
        (_, text) if !text.starts_with(|c: char| c.is_ascii_digit()) => {
            return Err(count.error(Problem::NotAName));
        }
        (Some('p'), _) => return Err(count.error(Problem::MaxactiveOnProbe)),
        (_, text) => match text.parse() {
            Ok(maxactive @ 1..=MAXACTIVE_MAX) => Kind::Return { maxactive: Some(maxactive) },
            _ => return Err(count.error(Problem::Maxactive)),
        },
    };
    Ok((kind, name))
}

/// `[GROUP/]EVENT` or `[GROUP.]EVENT`; either may be absent, as in Linux: `p:GROUP/` names the event itself.
fn parse_name(name: Token<'_>) -> Result<(Option<String>, Option<String>), Error> {
    let (group, event) = match name.split_once('/').or_else(|| name.split_once('.')) {
        Some((group, event)) => (Some(group), event),
        None => (None, name),
    };
    if let Some(group) = group {
        check_name(group, [Problem::NoGroup, Problem::GroupTooLong, Problem::Group])?;
    }
    if group.is_none() || !event.text.is_empty() {
        check_name(event, [Problem::NoEvent, Problem::EventTooLong, Problem::Event])?;
    }
    let event = Some(event.text.to_owned()).filter(|event| !event.is_empty());
    Ok((group.map(|group| group.text.to_owned()), event))
}

fn check_name(name: Token<'_>, [absent, long, malformed]: [Problem; 3]) -> Result<(), Error> {
    let problem = if name.text.is_empty() {
        absent
    } else if name.text.chars().count() > NAME_MAX {
        long
    } else if !is_identifier(name.text) {
        malformed
    } else {
        return Ok(());
    };
    Err(name.error(problem))
}

/// Whether `text` is an identifier of C: what Linux asks of names.
fn is_identifier(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

fn parse_removal(first: Token<'_>, rest: &[Token<'_>]) -> Result<Command, Error> {
    let after = first.skip(1);
    let name = match after.text.strip_prefix(':') {
        Some(_) => after.skip(1),
        None => return Err(after.error(Problem::NotAName)),
    };
    if let Some(more) = rest.first() {
        return Err(more.error(Problem::AfterRemoval));
    }
    let (group, event) = parse_name(name)?;
    Ok(Command::Remove { group, event })
}

fn parse_place_token(token: Token<'_>) -> Result<Place, Error> {
    let (base, offset) = match token::find_outside(token.text, '+') {
        Some(at) => {
            let (base, rest) = token.split_at(at);
            (base, Some(rest.skip(1)))
        }
        None => (token, None),
    };
    if base.text.is_empty() {
        return Err(base.error(Problem::NoPlace));
    }
    let column = base.column;
    let base = if base.text.starts_with(|first: char| first.is_ascii_digit()) {
        Base::Address(number(base.text).ok_or_else(|| base.error(Problem::Address))?)
    } else {
        Base::Symbol(base.text.to_owned())
    };
    let (offset, offset_column) = match offset {
        Some(token) => (number(token.text).ok_or_else(|| token.error(Problem::Offset))?, token.column),
        None => (0, column),
    };
    Ok(Place { base, offset, column, offset_column })
}

/// A number without a sign, in decimal, or in hexadecimal after `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) if digits.starts_with(|c: char| c.is_ascii_hexdigit()) => u64::from_str_radix(digits, 16).ok(),
        None if text.starts_with(|c: char| c.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

/// The name of an event whose definition gives none: `p_SYMBOL_OFFSET`, `r_SYMBOL_0` or `p_0xADDRESS`, with
/// one `_` for every run of characters that a name cannot have, cut at the front to the longest name.
fn automatic_name(kind: Kind, place: &Place) -> String {
    let letter = match kind {
        Kind::Probe => 'p',
        Kind::Return { .. } => 'r',
    };
    let long = match &place.base {
        Base::Symbol(symbol) => format!("{symbol}_{}", place.offset),
        Base::Address(address) => format!("{:#x}", address.wrapping_add(place.offset)),
    };
    let mut plain = String::new();
    for character in long.chars() {
        if character.is_ascii_alphanumeric() {
            plain.push(character);
        } else if !plain.is_empty() && !plain.ends_with('_') {
            plain.push('_');
        }
    }
    let excess = (plain.len() + 2).saturating_sub(NAME_MAX);
    format!("{letter}_{}", plain[excess..].trim_start_matches('_'))
}

/// The definition as `kprobe_events` lists it: with everything that it leaves out filled in.
impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Probe => f.write_str("p")?,
            Kind::Return { maxactive: None } => f.write_str("r")?,
            Kind::Return { maxactive: Some(maxactive) } => write!(f, "r{maxactive}")?,
        }
        write!(f, ":{}/{} {}", self.group, self.event, self.place)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.base {
            Base::Symbol(symbol) => f.write_str(symbol)?,
            Base::Address(address) => write!(f, "{address:#x}")?,
        }
        match self.offset {
            0 => Ok(()),
            offset => write!(f, "+{offset}"),
        }
    }
}

#[cfg(test)]
mod tests;
