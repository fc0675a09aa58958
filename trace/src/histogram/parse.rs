//! The parameters of `hist:`, and how they are printed.
//!
//! ```text
//! keys=KEY[,KEY[,KEY]]  [:vals=VALUE[,VALUE]]  [:sort=FIELD[.descending][,…]]  [:size=N]  [:pause|cont|clear]
//! ```
//!
//! KEY is a field with one of the modifiers `.hex`, `.sym`, `.sym-offset`, `.log2`, `.buckets=N` and, of `common_pid`,
//! `.execname`; or `common_stacktrace`, `common_cpu` or `comm`. VALUE is a number, which can have `.hex`; `hitcount` is always
//! one. Every parameter but the keys can be left out. Numbers are decimal, octal (`0…`) or hexadecimal (`0x…`); `.bucket=N` is
//! `.buckets=N`.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use fallible::{OutOfMemory, TryClone};

use super::{Error, Problem, Source, Transform, VALUES_MAX};
use crate::definition::number;
use crate::filter::{Number, Text, parse as filter};
use crate::format::Field;
use crate::text::is_shown_as;

const KEYS_MAX: usize = 3;
const SORTS_MAX: usize = 2;
const SIZE_DEFAULT: u32 = 2048;
const SIZE_MIN: u32 = 128;
const SIZE_MAX: u32 = 131_072;
const HITS: &str = "hitcount";

/// What is counted, and how it is shown.
#[derive(Debug)]
pub struct Definition {
    pub(super) keys: Vec<KeyField>,
    pub(super) values: Vec<ValueField>,
    pub(super) sorts: Vec<Sort>,
    pub(super) size: u32,
    /// What is to be done with a histogram that may be there already.
    pub command: Option<Command>,
}

/// What is done with a histogram besides, or instead of, making it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Hits are not counted for now.
    Pause,
    /// They are counted again.
    Continue,
    /// What was counted is forgotten.
    Clear,
}

#[derive(Debug)]
pub(super) struct KeyField {
    pub(super) name: String,
    pub(super) modifier: Option<Modifier>,
    pub(super) source: Source,
}

#[derive(Debug)]
pub(super) struct ValueField {
    pub(super) name: String,
    pub(super) hex: bool,
    pub(super) number: Number,
}

/// How a number in a key is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Modifier {
    Hex,
    Sym,
    SymOffset,
    Execname,
    Log2,
    Buckets(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sort {
    pub(super) by: By,
    pub(super) descending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Hits,
    Value(usize),
    Key(usize),
}

/// A part of the trigger, and how many bytes of it precede.
#[derive(Clone, Copy)]
struct Part<'a> {
    text: &'a str,
    column: usize,
}

impl<'a> Part<'a> {
    fn error(self, problem: Problem) -> Error {
        Error { problem, column: self.column }
    }

    fn split(self, separator: char) -> impl Iterator<Item = Self> {
        self.text.split(separator).map(move |text| {
            let before = text.as_ptr() as usize - self.text.as_ptr() as usize;
            Self { text, column: self.column + before }
        })
    }

    fn split_once(self, separator: char) -> (Self, Option<Self>) {
        match self.text.split_once(separator) {
            Some((left, right)) => {
                let column = self.column + left.len() + separator.len_utf8();
                (Self { text: left, ..self }, Some(Self { text: right, column }))
            }
            None => (self, None),
        }
    }
}

impl Definition {
    /// Reads the parameters of a histogram of an event with these `fields`. `column` bytes of the trigger precede them.
    ///
    /// # Errors
    ///
    /// What is wrong, and where.
    pub fn parse(text: &str, column: usize, fields: &[Field]) -> Result<Self, Error> {
        let all = Part { text, column };
        let (mut keys, mut values, mut sorts) = (None, None, None);
        let mut size = SIZE_DEFAULT;
        let mut command = None;
        for part in all.split(':') {
            let (name, value) = part.split_once('=');
            match (name.text, value) {
                (_, Some(Part { text: "", .. })) => return Err(part.error(Problem::EmptyAssignment)),
                ("keys" | "key", Some(value)) => keys = Some(value),
                ("values" | "vals" | "val", Some(value)) => values = Some(value),
                ("sort", Some(value)) => sorts = Some((part, value)),
                ("size", Some(value)) => size = parse_size(value)?,
                (_, Some(_)) => return Err(part.error(Problem::MalformedAssignment)),
                ("pause", None) => command = Some(Command::Pause),
                ("cont" | "continue", None) => command = Some(Command::Continue),
                ("clear", None) => command = Some(Command::Clear),
                (_, None) => return Err(part.error(Problem::NoAction)),
            }
        }
        let keys = keys.ok_or_else(|| all.error(Problem::NoKeys))?.split(',').map(|key| parse_key(key, fields));
        let keys = fallible::collect_results(keys)?;
        if keys.len() > KEYS_MAX {
            return Err(all.error(Problem::TooManyKeys));
        }
        let values = values
            .into_iter()
            .flat_map(|values| values.split(','))
            .filter(|value| value.text != HITS)
            .map(|value| parse_value(value, fields));
        let values = fallible::collect_results(values)?;
        if values.len() > VALUES_MAX {
            return Err(all.error(Problem::TooManyValues));
        }
        let mut definition = Self { keys, values, sorts: Vec::new(), size, command };
        definition.sorts = definition.parse_sorts(sorts)?;
        Ok(definition)
    }

    /// Whether both count the same in the same way; their sizes may differ.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.keys.iter().map(|key| (&key.name, key.modifier)).eq(other.keys.iter().map(|key| (&key.name, key.modifier)))
            && self
                .values
                .iter()
                .map(|value| (&value.name, value.hex))
                .eq(other.values.iter().map(|value| (&value.name, value.hex)))
            && self.sorts == other.sorts
    }

    /// Reads the fields to sort by, in `parameter`, which begins with `sort=`. An error of the list as a whole is one of the
    /// parameter.
    fn parse_sorts(&self, parameter: Option<(Part<'_>, Part<'_>)>) -> Result<Vec<Sort>, Error> {
        let Some((parameter, all)) = parameter else {
            return Ok(fallible::collect([Sort { by: By::Hits, descending: false }])?);
        };
        let mut sorts = Vec::new();
        let mut rest = Some(all);
        while let Some(fields) = rest {
            let (field, behind) = fields.split_once(',');
            if field.text.is_empty() {
                return Err(parameter.error(Problem::EmptySortField));
            }
            if sorts.len() + 1 == SORTS_MAX && behind.is_some() {
                return Err(parameter.error(Problem::TooManySortFields));
            }
            fallible::push(&mut sorts, self.parse_sort(parameter, field)?)?;
            rest = behind;
        }
        Ok(sorts)
    }

    /// Reads a field to sort by: by its name alone, or as it is printed, with its modifier.
    fn parse_sort(&self, parameter: Part<'_>, sort: Part<'_>) -> Result<Sort, Error> {
        let (name, descending) = match (sort.text.strip_suffix(".descending"), sort.text.strip_suffix(".ascending")) {
            (Some(name), _) => (name, true),
            (None, Some(name)) => (name, false),
            (None, None) => (sort.text, false),
        };
        let key = |name: &str| self.keys.iter().position(|key| key.name == name || is_shown_as(key, name)).map(By::Key);
        let value = |name: &str| {
            let value = |value: &ValueField| value.name == name || is_shown_as(value, name);
            self.values.iter().position(value).map(By::Value)
        };
        let find = |name: &str| match name {
            HITS => Some(By::Hits),
            _ => value(name).or_else(|| key(name)),
        };
        match (find(name), sort.split_once('.')) {
            (Some(by), _) => Ok(Sort { by, descending }),
            (None, (Part { text: "", .. }, _)) => Err(parameter.error(Problem::EmptySortField)),
            (None, (field, Some(modifier))) if find(field.text).is_some() => {
                Err(modifier.error(Problem::InvalidSortModifier))
            }
            (None, _) => Err(sort.error(Problem::InvalidSortField)),
        }
    }
}

/// The size: the next power of two.
fn parse_size(value: Part<'_>) -> Result<u32, Error> {
    let size = number::unsigned(value.text).and_then(|size| u32::try_from(size).ok());
    let size = size.filter(|size| (1..=SIZE_MAX).contains(size)).map(u32::next_power_of_two);
    size.filter(|&size| size >= SIZE_MIN).ok_or_else(|| value.error(Problem::BadSize))
}

fn parse_key(key: Part<'_>, fields: &[Field]) -> Result<KeyField, Error> {
    let (field, modifier) = key.split_once('.');
    let modifier = modifier.map(parse_modifier).transpose()?.map(|modifier| (modifier, key));
    let without_modifier = |name: &str, source| match modifier {
        None => Ok(KeyField { name: fallible::copy(name)?, modifier: None, source }),
        Some((_, part)) => Err(part.error(Problem::BadModifier)),
    };
    let number = |name: &str, number| {
        let transform = match modifier {
            Some((Modifier::Log2, _)) => Transform::Log2,
            Some((Modifier::Buckets(size), _)) => Transform::Buckets(size),
            Some((Modifier::Execname, part)) if name != "common_pid" => return Err(part.error(Problem::BadModifier)),
            _ => Transform::None,
        };
        let modifier = modifier.map(|(modifier, _)| modifier);
        Ok(KeyField { name: fallible::copy(name)?, modifier, source: Source::Number { number, transform } })
    };
    match (fields.iter().find(|candidate| candidate.name == field.text), field.text) {
        (Some(found), name) => match (filter::number(found), filter::text(found)) {
            (Some(found), _) => number(name, found),
            (None, Some(text)) => without_modifier(name, Source::Text(text)),
            (None, None) => Err(field.error(Problem::FieldNotFound)),
        },
        (None, "stacktrace" | "common_stacktrace") => without_modifier("common_stacktrace", Source::Stack),
        (None, "comm") => without_modifier("comm", Source::Text(Text::Task)),
        (None, "cpu" | "common_cpu") => number("common_cpu", Number::Cpu),
        (None, _) => Err(field.error(Problem::FieldNotFound)),
    }
}

fn parse_modifier(modifier: Part<'_>) -> Result<Modifier, Error> {
    Ok(match modifier.text {
        "hex" => Modifier::Hex,
        "sym" => Modifier::Sym,
        "sym-offset" => Modifier::SymOffset,
        "execname" => Modifier::Execname,
        "log2" => Modifier::Log2,
        other => {
            let size = other.strip_prefix("buckets=").or_else(|| other.strip_prefix("bucket="));
            let size = size.and_then(number::unsigned).filter(|&size| size > 0);
            Modifier::Buckets(size.ok_or_else(|| modifier.error(Problem::BadModifier))?)
        }
    })
}

fn parse_value(value: Part<'_>, fields: &[Field]) -> Result<ValueField, Error> {
    let (field, modifier) = value.split_once('.');
    let hex = match modifier {
        None => false,
        Some(Part { text: "hex", .. }) => true,
        Some(modifier) => return Err(modifier.error(Problem::BadModifier)),
    };
    let found = fields.iter().find(|candidate| candidate.name == field.text);
    let number = match (found.and_then(filter::number), field.text) {
        (Some(number), _) => number,
        (None, "cpu" | "common_cpu") => Number::Cpu,
        (None, _) if found.is_some_and(|found| filter::text(found).is_some()) => {
            return Err(field.error(Problem::TextOperand));
        }
        (None, _) => return Err(field.error(Problem::FieldNotFound)),
    };
    let name = if number == Number::Cpu { "common_cpu" } else { field.text };
    Ok(ValueField { name: fallible::copy(name)?, hex, number })
}

impl TryClone for Definition {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let key = |KeyField { name, modifier, source }: &KeyField| -> Result<_, OutOfMemory> {
            Ok(KeyField { name: fallible::copy(name)?, modifier: *modifier, source: *source })
        };
        let value = |ValueField { name, hex, number }: &ValueField| -> Result<_, OutOfMemory> {
            Ok(ValueField { name: fallible::copy(name)?, hex: *hex, number: *number })
        };
        Ok(Self {
            keys: fallible::collect_results(self.keys.iter().map(key))?,
            values: fallible::collect_results(self.values.iter().map(value))?,
            sorts: fallible::collect(self.sorts.iter().copied())?,
            size: self.size,
            command: self.command,
        })
    }
}

/// The parameters with what was left out filled in, as they can be typed again.
impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comma = |number| if number > 0 { "," } else { "" };
        f.write_str("keys=")?;
        for (number, key) in self.keys.iter().enumerate() {
            write!(f, "{}{key}", comma(number))?;
        }
        write!(f, ":vals={HITS}")?;
        self.values.iter().try_for_each(|value| write!(f, ",{value}"))?;
        f.write_str(":sort=")?;
        for (number, sort) in self.sorts.iter().enumerate() {
            f.write_str(comma(number))?;
            match sort.by {
                By::Hits => f.write_str(HITS)?,
                By::Value(index) => self.values.get(index).into_iter().try_for_each(|value| write!(f, "{value}"))?,
                By::Key(index) => self.keys.get(index).into_iter().try_for_each(|key| write!(f, "{key}"))?,
            }
            f.write_str(if sort.descending { ".descending" } else { "" })?;
        }
        write!(f, ":size={}", self.size)
    }
}

impl fmt::Display for KeyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match self.modifier {
            None => Ok(()),
            Some(Modifier::Hex) => f.write_str(".hex"),
            Some(Modifier::Sym) => f.write_str(".sym"),
            Some(Modifier::SymOffset) => f.write_str(".sym-offset"),
            Some(Modifier::Execname) => f.write_str(".execname"),
            Some(Modifier::Log2) => f.write_str(".log2"),
            Some(Modifier::Buckets(size)) => write!(f, ".buckets={size}"),
        }
    }
}

impl fmt::Display for ValueField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        f.write_str(if self.hex { ".hex" } else { "" })
    }
}
