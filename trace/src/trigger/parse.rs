//! A line that is written to a file `trigger`.
//!
//! ```text
//! [!]hist:PARAMETERS [if FILTER]                        see `histogram`
//! [!]stacktrace[:COUNT] [if FILTER]
//! [!]traceon[:COUNT] [if FILTER], and traceoff
//! [!]enable_event:GROUP:EVENT[:COUNT] [if FILTER], and disable_event
//! ```
//!
//! COUNT is a number, in decimal, octal (`0…`) or hexadecimal (`0x…`); `count=N` and `unlimited`, as they are printed, can be typed as well. `!` removes.

use alloc::borrow::ToOwned;
use alloc::string::String;

use crate::definition::number;
use crate::filter::{self, Filter};
use crate::format::Field;
use crate::histogram::{self, Definition};

/// What is asked for.
#[derive(Debug)]
pub struct Request {
    /// The trigger is to be removed, and not set.
    pub remove: bool,
    /// The trigger.
    pub kind: Kind,
    /// How often it is carried out, if that is limited.
    pub count: Option<u64>,
    /// At which hits, if not at all.
    pub filter: Option<Filter>,
}

/// A trigger.
#[derive(Clone, Debug)]
pub enum Kind {
    /// `hist`
    Histogram(Definition),
    /// `stacktrace`
    Stacktrace,
    /// `traceon`, `traceoff`
    Tracing {
        /// Which of them.
        on: bool,
    },
    /// `enable_event`, `disable_event`
    Event {
        /// Which of them.
        on: bool,
        /// The group of the event.
        group: String,
        /// The event.
        event: String,
    },
}

/// Why a trigger is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// It is no trigger.
    Invalid,
    /// What is wrong with a histogram.
    Histogram(histogram::Error),
    /// What is wrong with a filter, which is this one.
    Filter(String, filter::Error),
}

impl Request {
    /// Reads a trigger of an event with these `fields`.
    ///
    /// # Errors
    ///
    /// What is wrong with it.
    pub fn parse(text: &str, fields: &[Field]) -> Result<Self, Error> {
        let text = text.trim_matches(|character: char| character.is_ascii_whitespace());
        let (remove, text) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (command, filter) = split_filter(text)?;
        let filter = filter
            .map(|filter| Filter::parse(filter, fields).map_err(|error| Error::Filter(filter.to_owned(), error)))
            .transpose()?;
        let (name, parameters) = match command.split_once(':') {
            Some((name, parameters)) => (name, Some(parameters)),
            None => (command, None),
        };
        if name == "hist" {
            let parameters = parameters.unwrap_or("");
            let definition = Definition::parse(parameters, "hist:".len(), fields).map_err(Error::Histogram)?;
            return Ok(Self { remove, kind: Kind::Histogram(definition), count: None, filter });
        }
        let (kind, count) = match (name, parameters) {
            ("stacktrace", count) => (Kind::Stacktrace, count),
            ("traceon" | "traceoff", count) => (Kind::Tracing { on: name == "traceon" }, count),
            ("enable_event" | "disable_event", Some(parameters)) => {
                let mut parts = parameters.splitn(3, ':');
                let (Some(group), Some(event)) = (parts.next(), parts.next()) else { return Err(Error::Invalid) };
                let (group, event) = (group.to_owned(), event.to_owned());
                (Kind::Event { on: name == "enable_event", group, event }, parts.next())
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

/// The command, and the filter behind the word `if`.
fn split_filter(text: &str) -> Result<(&str, Option<&str>), Error> {
    let is_space = |character: char| character.is_ascii_whitespace();
    let Some((command, rest)) = text.split_once(is_space) else { return Ok((text, None)) };
    match rest.trim_start_matches(is_space).split_once(is_space) {
        Some(("if", filter)) => Ok((command, Some(filter.trim_matches(is_space)))),
        _ => Err(Error::Invalid),
    }
}

impl Kind {
    /// What the text of such a trigger begins with.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Histogram(_) => "hist".to_owned(),
            Self::Stacktrace => "stacktrace".to_owned(),
            Self::Tracing { on: true } => "traceon".to_owned(),
            Self::Tracing { on: false } => "traceoff".to_owned(),
            Self::Event { on, group, event } => {
                alloc::format!("{}:{group}:{event}", if *on { "enable_event" } else { "disable_event" })
            }
        }
    }
}
