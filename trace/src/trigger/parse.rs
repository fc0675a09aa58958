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
//! COUNT is a number in decimal, octal (`0…`) or hexadecimal (`0x…`). The printed forms `count=N` and `unlimited` are
//! also accepted. `!` removes the trigger.

use alloc::string::String;
use core::fmt;

use fallible::OutOfMemory;

use crate::definition::number;
use crate::filter::{self, Filter};
use crate::format::Field;
use crate::histogram::{self, Definition, Scope};

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
    Stacktrace,
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
        let text = text.trim_matches(|character: char| character.is_ascii_whitespace());
        let (remove, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (command, filter) = split_filter(text)?;
        let refuse = |filter, error| match (error, fallible::copy(filter)) {
            (filter::Error { problem: filter::Problem::OutOfMemory, .. }, _) | (_, Err(OutOfMemory)) => {
                Error::OutOfMemory
            }
            (error, Ok(filter)) => Error::Filter(filter, error),
        };
        let parse = |filter| Filter::parse(filter, fields, scope.functions).map_err(|error| refuse(filter, error));
        let filter = filter.map(parse).transpose()?;
        let (name, parameters) = match command.split_once(':') {
            Some((name, parameters)) => (name, Some(parameters)),
            None => (command, None),
        };
        if name == "hist" {
            let parameters = parameters.unwrap_or("");
            let scope = Scope { is_removal: remove, ..scope };
            let definition = Definition::parse_in(parameters, "hist:".len(), fields, &scope);
            let definition = definition.map_err(|error| match error.problem {
                histogram::Problem::OutOfMemory => Error::OutOfMemory,
                _ => Error::Histogram(error),
            })?;
            return Ok(Self { remove, kind: TriggerKind::Histogram(definition), count: None, filter });
        }
        let (kind, count) = match (name, parameters) {
            ("stacktrace", count) => (TriggerKind::Stacktrace, count),
            ("snapshot", count) => (TriggerKind::Snapshot, count),
            ("traceon" | "traceoff", count) => (TriggerKind::Tracing { on: name == "traceon" }, count),
            ("enable_event" | "disable_event" | "enable_hist" | "disable_hist", Some(parameters)) => {
                let mut parts = parameters.splitn(3, ':');
                let (Some(group), Some(event)) = (parts.next(), parts.next()) else { return Err(Error::Invalid) };
                let (group, event) = (fallible::copy(group)?, fallible::copy(event)?);
                let kind = match name {
                    "enable_event" | "disable_event" => TriggerKind::Event { on: name == "enable_event", group, event },
                    _ => TriggerKind::Histograms { on: name == "enable_hist", group, event },
                };
                (kind, parts.next())
            }
            _ => return Err(Error::Invalid),
        };
        let count = match count {
            None | Some("unlimited") => None,
            Some(count) => Some(parse_count(count).ok_or(Error::Invalid)?),
        };
        Ok(Self { remove, kind, count, filter })
    }
}

fn parse_count(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("count=").unwrap_or(text);
    let count = number::unsigned(digits).filter(|&count| count < u64::MAX)?;
    digits.starts_with(|first: char| first.is_ascii_digit()).then_some(count)
}

/// Splits the command from the filter after the word `if`.
fn split_filter(text: &str) -> Result<(&str, Option<&str>), Error> {
    let is_space = |character: char| character.is_ascii_whitespace();
    let is_filter = |(at, _): &(usize, &str)| text[..*at].ends_with(is_space) && text[at + 2..].starts_with(is_space);
    let filter = text.match_indices("if").find(is_filter).map(|(at, _)| at);
    let command = text[..filter.unwrap_or(text.len())].trim_end_matches(is_space);
    // The parameters of an action may have spaces between them.
    if command.contains(is_space) && !command.starts_with("hist:") {
        return Err(Error::Invalid);
    }
    Ok((command, filter.map(|at| text[at + 2..].trim_matches(is_space))))
}

impl TriggerKind {
    /// Returns the beginning of the text of such a trigger.
    pub(super) fn name(&self) -> Name<'_> {
        match self {
            Self::Histogram(_) => Name("hist", None),
            Self::Stacktrace => Name("stacktrace", None),
            Self::Snapshot => Name("snapshot", None),
            Self::Tracing { on: true } => Name("traceon", None),
            Self::Tracing { on: false } => Name("traceoff", None),
            Self::Event { on: true, group, event } => Name("enable_event", Some((group, event))),
            Self::Event { on: false, group, event } => Name("disable_event", Some((group, event))),
            Self::Histograms { on: true, group, event } => Name("enable_hist", Some((group, event))),
            Self::Histograms { on: false, group, event } => Name("disable_hist", Some((group, event))),
        }
    }

    /// Whether the trigger takes snapshots.
    pub(crate) fn takes_snapshots(&self) -> bool {
        match self {
            Self::Snapshot => true,
            Self::Histogram(definition) => definition.takes_snapshots(),
            _ => false,
        }
    }

    /// Returns the beginning of the text of the trigger that does the opposite; `None` if there is none.
    pub(super) fn opposite(&self) -> Option<Name<'_>> {
        match self {
            Self::Histogram(_) | Self::Stacktrace | Self::Snapshot => None,
            Self::Tracing { on: true } => Some(Name("traceoff", None)),
            Self::Tracing { on: false } => Some(Name("traceon", None)),
            Self::Event { on: true, group, event } => Some(Name("disable_event", Some((group, event)))),
            Self::Event { on: false, group, event } => Some(Name("enable_event", Some((group, event)))),
            Self::Histograms { on: true, group, event } => Some(Name("disable_hist", Some((group, event)))),
            Self::Histograms { on: false, group, event } => Some(Name("enable_hist", Some((group, event)))),
        }
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
