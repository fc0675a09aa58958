//! The names of groups and events.

use alloc::string::String;

use fallible::OutOfMemory;

use super::token::Token;
use super::{Base, Error, EventKind, Family, ParseError, ProbePlace, Problem};

/// Names of files in the directories of groups and events. No group and no event may have one of these names.
const RESERVED: [&str; 8] = ["enable", "filter", "format", "header_event", "header_page", "hist", "id", "trigger"];

/// The longest name of a group or an event, in characters.
pub const NAME_MAX: usize = 63;

/// Parses the name of an event alone: `[GROUP/]EVENT`. Returns the group, if there is one, and the event.
///
/// # Errors
///
/// Returns the problem, with the column of its cause.
pub fn parse_event_name(text: &str) -> Result<(Option<String>, String), Error> {
    let error = match parse_name(Token { text, column: 0 }) {
        Ok((group, Some(event))) => return Ok((group, event)),
        Ok((_, None)) => ParseError { problem: Problem::NoEvent, column: text.chars().count() },
        Err(error) => error,
    };
    let ParseError { problem, column } = error;
    Err(Error { problem, column, position: column, reason: None })
}

/// Parses `[GROUP/]EVENT` or `[GROUP.]EVENT`; `GROUP/` leaves the name of the event to [`automatic_name`].
pub(super) fn parse_name(name: Token<'_>) -> Result<(Option<String>, Option<String>), ParseError> {
    let (group, event) = match name.split_once('/').or_else(|| name.split_once('.')) {
        Some((group, event)) => (Some(group), event),
        None => (None, name),
    };
    if let Some(group) = group {
        check_name(group, is_group, [Problem::NoGroup, Problem::GroupTooLong, Problem::Group])?;
    }
    if group.is_none() || !event.text.is_empty() {
        check_name(event, is_identifier, [Problem::NoEvent, Problem::EventTooLong, Problem::Event])?;
    }
    let event = Some(fallible::copy(event.text)?).filter(|event| !event.is_empty());
    Ok((group.map(|group| fallible::copy(group.text)).transpose()?, event))
}

fn check_name(
    name: Token<'_>,
    is_good: fn(&str) -> bool,
    [absent, long, malformed]: [Problem; 3],
) -> Result<(), ParseError> {
    let problem = if name.text.is_empty() {
        absent
    } else if name.text.len() > NAME_MAX {
        long
    } else if !is_good(name.text) {
        malformed
    } else if RESERVED.contains(&name.text) {
        Problem::ReservedName
    } else {
        return Ok(());
    };
    Err(name.error(problem))
}

/// Whether `text` is an identifier of C, but for hyphens, which Linux allows in the names of groups.
fn is_group(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|character| character.is_ascii_alphanumeric() || matches!(character, '_' | '-'))
}

/// Whether `text` is an identifier of C, as Linux requires of names.
pub(crate) fn is_identifier(text: &str) -> bool {
    !text.starts_with(|first: char| first.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

/// Returns the name of an event whose definition gives none: `p_SYMBOL_OFFSET`, `r_SYMBOL_0`, `p_0xADDRESS` or
/// `p_FILE_LINE`; `SYMBOL__entry` or `SYMBOL__exit` for an fprobe; for an event that is on another one, the name of
/// that event. Each character that a name cannot have becomes `_`, and the name is cut at the longest length. Linux
/// replaces `:` and `.` in this way.
pub(super) fn automatic_name(family: Family, kind: EventKind, place: &ProbePlace) -> Result<String, OutOfMemory> {
    let is_return = matches!(kind, EventKind::Return { .. });
    let letter = if is_return { 'r' } else { 'p' };
    let suffix = match family {
        Family::Fprobe if is_return => "__exit",
        Family::Fprobe => "__entry",
        _ => "",
    };
    let name = match &place.base {
        Base::Symbol(symbol) if family == Family::Fprobe => fallible::copy(symbol),
        Base::Symbol(symbol) => fallible::format(format_args!("{letter}_{symbol}_{}", place.offset)),
        Base::Address(address) => fallible::format(format_args!("{letter}_{address:#018x}")),
        Base::Line(file, line) => fallible::format(format_args!("{letter}_{file}_{line}")),
        Base::Event(_, event) if event.starts_with(|first: char| first.is_ascii_digit()) => {
            fallible::format(format_args!("_{event}"))
        }
        Base::Event(_, event) => fallible::copy(event),
    }?;
    let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
    let mut automatic = String::new();
    // Each character is one byte.
    automatic.try_reserve_exact(NAME_MAX)?;
    automatic.extend(name.chars().map(plain).take(NAME_MAX - suffix.len()).chain(suffix.chars()));
    Ok(automatic)
}
