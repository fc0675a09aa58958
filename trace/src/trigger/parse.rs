//! The lines that are written to a file `trigger`.
//!
//! ```text
//! [!]hist:PARAMETERS [if FILTER]                        see `histogram`
//! [!]stacktrace[:COUNT] [if FILTER]
//! [!]snapshot[:COUNT] [if FILTER]
//! [!]traceon[:COUNT] [if FILTER], and traceoff
//! [!]enable_event:GROUP:EVENT[:COUNT] [if FILTER], and disable_event
//! [!]enable_hist:GROUP:EVENT[:COUNT] [if FILTER], and disable_hist
//! ```
//!
//! COUNT is a number in decimal, octal (`0…`) or hexadecimal (`0x…`). Blanks can take the place of the first `:`. `!`
//! removes the trigger: the count and the filter are then ignored, except those of a histogram.

use alloc::string::String;
use core::fmt;

use fallible::OutOfMemory;

use crate::definition::number;
use crate::filter::{self, Filter};
use crate::format::Field;
use crate::histogram::{self, Definition, Scope};

use super::TRACEOFF;

/// A parsed line.
#[derive(Debug)]
pub struct Request {
    /// Whether the trigger is to be removed; otherwise it is to be set.
    pub remove: bool,
    /// The trigger.
    pub kind: TriggerKind,
    /// How often the trigger fires at most; `None` means always.
    pub count: Option<u64>,
    /// The filter of the hits at which the trigger fires; `None` means all.
    pub filter: Option<Filter>,
}

/// The kind of a trigger, with its parameters.
#[derive(Debug)]
pub enum TriggerKind {
    /// `hist`
    Histogram(Definition),
    /// `stacktrace`
    Stacktrace {
        /// Whether it is a command of a function. Its count is used only while the trace is on (Linux:
        /// `ftrace_stacktrace_count`), and that of a trigger of an event always.
        is_command: bool,
    },
    /// `snapshot`
    Snapshot,
    /// `traceon`, `traceoff`
    Tracing {
        /// Whether tracing is turned on.
        on: bool,
    },
    /// `enable_event`, `disable_event`
    Event {
        /// Whether the event is enabled.
        on: bool,
        /// The group of the event.
        group: String,
        /// The name of the event.
        event: String,
    },
    /// `enable_hist`, `disable_hist`
    Histograms {
        /// Whether the histograms of the event continue.
        on: bool,
        /// The group of the event.
        group: String,
        /// The name of the event.
        event: String,
    },
}

/// Why a trigger is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The line is not a trigger.
    Invalid,
    /// The histogram is wrong.
    Histogram(histogram::Error),
    /// The filter, which is this text, is wrong.
    Filter(String, filter::Error),
    /// There is no memory.
    OutOfMemory,
}

impl From<OutOfMemory> for Error {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl Request {
    /// Parses a trigger that refers to no other trigger, for an event with these `fields`.
    ///
    /// # Errors
    ///
    /// Returns the problem.
    pub fn parse(text: &str, fields: &[Field]) -> Result<Self, Error> {
        Self::parse_in(text, fields, Scope::NONE)
    }

    /// Parses a trigger as [`parse`](Self::parse) does; it may refer to the triggers in `scope`.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`parse`](Self::parse).
    pub(crate) fn parse_in(text: &str, fields: &[Field], scope: Scope<'_>) -> Result<Self, Error> {
        let Line { remove, name, parameters } = Line::split(text);
        let refuse = |filter: &str, error: filter::Error| match (error, fallible::copy(filter)) {
            (filter::Error { problem: filter::Problem::OutOfMemory, .. }, _) | (_, Err(OutOfMemory)) => {
                Error::OutOfMemory
            }
            (error, Ok(filter)) => Error::Filter(filter, error),
        };
        let parse =
            |filter: &str| Filter::parse(filter, fields, scope.functions).map_err(|error| refuse(filter, error));
        if name == "hist" {
            let (parameters, filter) = split_filter(parameters.ok_or(Error::Invalid)?)?;
            let scope = Scope { is_removal: remove, ..scope };
            let mut parsed = Ok(None);
            let definition = Definition::parse(parameters, "hist:".len(), fields, &scope, &mut || {
                parsed = filter.map(parse).transpose();
                parsed.is_ok()
            });
            let definition = definition.map_err(|error| match error.problem {
                histogram::Problem::OutOfMemory => Error::OutOfMemory,
                _ => Error::Histogram(error),
            })?;
            let (filter, definition) = (parsed?, definition.ok_or(Error::Invalid)?);
            return Ok(Self { remove, kind: TriggerKind::Histogram(definition), count: None, filter });
        }
        let (kind, (count, filter)) = match name {
            "stacktrace" => (TriggerKind::Stacktrace { is_command: false }, split_count(parameters)),
            "snapshot" => (TriggerKind::Snapshot, split_count(parameters)),
            "traceon" | "traceoff" => (TriggerKind::Tracing { on: name == "traceon" }, split_count(parameters)),
            "enable_event" | "disable_event" | "enable_hist" | "disable_hist" => {
                on_event(name, parameters.ok_or(Error::Invalid)?)?
            }
            _ => return Err(Error::Invalid),
        };
        if remove {
            return Ok(Self { remove, kind, count: None, filter: None });
        }
        let count = count.map(parse_count).transpose()?;
        Ok(Self { remove, kind, count, filter: filter.map(after_if).transpose()?.map(parse).transpose()? })
    }
}

/// The count of a trigger, and its filter with the word `if`.
type Limits<'a> = (Option<&'a str>, Option<&'a str>);

/// Splits the parameters of the trigger `name`, which acts on another event.
fn on_event<'a>(name: &str, parameters: &'a str) -> Result<(TriggerKind, Limits<'a>), Error> {
    let (target, filter) = split_word(parameters);
    let mut parts = target.splitn(3, ':');
    let (Some(group), Some(event)) = (parts.next(), parts.next()) else { return Err(Error::Invalid) };
    let (group, event) = (fallible::copy(group)?, fallible::copy(event)?);
    let kind = match name {
        "enable_event" | "disable_event" => TriggerKind::Event { on: name == "enable_event", group, event },
        _ => TriggerKind::Histograms { on: name == "enable_hist", group, event },
    };
    Ok((kind, (parts.next(), filter)))
}

/// The parts of a line that is written to a file `trigger`. As in Linux, blanks can take the place of the first `:`.
pub(crate) struct Line<'a> {
    /// Whether the trigger is to be removed.
    pub remove: bool,
    /// The command.
    pub name: &'a str,
    /// The text after the command, with the filter; `None` if there is none.
    pub parameters: Option<&'a str>,
}

impl<'a> Line<'a> {
    /// Splits a line.
    pub fn split(text: &'a str) -> Self {
        let text = text.trim_matches(is_space);
        let (remove, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (name, rest) = match text.split_once([':', ' ', '\t']) {
            Some((name, rest)) => (name, Some(rest.trim_start_matches(is_space))),
            None => (text, None),
        };
        Self { remove, name, parameters: rest.filter(|rest| !rest.is_empty()) }
    }
}

fn is_space(character: char) -> bool {
    character.is_ascii_whitespace()
}

/// Splits the parameters of a trigger that acts on its own event. They may begin with a count.
fn split_count(parameters: Option<&str>) -> Limits<'_> {
    let is_count = |word: &str| word.starts_with(|first: char| first.is_ascii_digit());
    match parameters.map(split_word) {
        Some((word, filter)) if is_count(word) => (Some(word), filter),
        _ => (None, parameters),
    }
}

/// Splits off the first word. Returns it, and the text after it, if there is any.
fn split_word(text: &str) -> (&str, Option<&str>) {
    match text.split_once([' ', '\t']) {
        Some((word, rest)) => (word, Some(rest.trim_start_matches(is_space)).filter(|rest| !rest.is_empty())),
        None => (text, None),
    }
}

/// Returns the filter after the word `if`.
fn after_if(text: &str) -> Result<&str, Error> {
    match split_word(text) {
        ("if", Some(filter)) => Ok(filter),
        _ => Err(Error::Invalid),
    }
}

/// Parses a count, up to a `:` after it.
fn parse_count(text: &str) -> Result<u64, Error> {
    let count = text.split(':').next().unwrap_or(text);
    let number = number::unsigned(count).filter(|&count| count < u64::MAX);
    let number = number.filter(|_| count.starts_with(|first: char| first.is_ascii_digit()));
    number.ok_or(Error::Invalid)
}

/// Splits the parameters of a histogram, which may have blanks in them, from the filter after the word `if`.
fn split_filter(text: &str) -> Result<(&str, Option<&str>), Error> {
    for (at, word) in text.match_indices("if") {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        match (before.chars().next_back(), after.chars().next()) {
            (None, _) => return Err(Error::Invalid),
            (Some(' ' | '\t'), _) if after.len() < 2 => return Err(Error::Invalid),
            (Some(' ' | '\t'), Some(' ' | '\t')) => {
                return Ok((before.trim_matches(is_space), Some(after.trim_matches(is_space))));
            }
            _ => {}
        }
    }
    Ok((text, None))
}

impl TriggerKind {
    /// Returns the beginning of the text of such a trigger.
    pub(super) fn name(&self) -> Name<'_> {
        self.name_as(false)
    }

    /// Returns the beginning of the text of such a trigger, or of the trigger that does the opposite, if there is one.
    fn name_as(&self, is_opposite: bool) -> Name<'_> {
        let choose = |on: bool, enabled, disabled| if on == is_opposite { disabled } else { enabled };
        match self {
            Self::Histogram(_) => Name("hist", None),
            Self::Stacktrace { .. } => Name("stacktrace", None),
            Self::Snapshot => Name("snapshot", None),
            Self::Tracing { on } => Name(choose(*on, "traceon", TRACEOFF), None),
            Self::Event { on, group, event } => {
                Name(choose(*on, "enable_event", "disable_event"), Some((group, event)))
            }
            Self::Histograms { on, group, event } => {
                Name(choose(*on, "enable_hist", "disable_hist"), Some((group, event)))
            }
        }
    }

    /// Whether the trigger takes snapshots.
    pub(crate) fn takes_snapshots(&self) -> bool {
        match self {
            Self::Snapshot => true,
            Self::Histogram(definition) => definition.snapshots() > 0,
            _ => false,
        }
    }

    /// Returns the beginning of the text of the trigger that does the opposite; `None` if there is none.
    pub(super) fn opposite(&self) -> Option<Name<'_>> {
        let has_opposite = matches!(self, Self::Tracing { .. } | Self::Event { .. } | Self::Histograms { .. });
        has_opposite.then(|| self.name_as(true))
    }
}

/// The beginning of a trigger's text: the command, and the group and name of the event that it acts on.
#[derive(Clone, Copy)]
pub(super) struct Name<'a>(&'static str, Option<(&'a str, &'a str)>);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self(command, None) => f.write_str(command),
            Self(command, Some((group, event))) => write!(f, "{command}:{group}:{event}"),
        }
    }
}
