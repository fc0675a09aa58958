//! The parameters of `hist:`: parsing and printing.
//!
//! ```text
//! [name=HISTOGRAM:]keys=KEY[,KEY[,KEY]]  [:vals=VALUE[,VALUE]]  [:sort=FIELD[.descending][,…]]  [:size=N]
//! [:NAME=EXPRESSION[,…]]  [:clock=CLOCK]  [:nohitcount]  [:ACTION]  [:pause|cont|clear]
//! ```
//!
//! - KEY is a field, optionally with one of the modifiers `.hex`, `.sym`, `.sym-offset`, `.log2` and `.buckets=N`; for
//!   `common_pid` also `.execname`; for a field that is a stack `.stacktrace`. Or it is `common_stacktrace`,
//!   `common_cpu`, `common_timestamp` or `comm`.
//! - VALUE is a number, optionally with `.hex`, `.percent` or `.graph`, or an [expression](super::expression).
//!   `hitcount` is always a value; with a modifier it is shown a second time; `nohitcount` hides it.
//! - HISTOGRAM is a name by which several events share a histogram.
//! - NAME is a variable, and ACTION an [action](super::action).
//!
//! Every parameter except the keys is optional. Numbers are decimal, octal (`0…`) or hexadecimal (`0x…`). `.bucket=N`
//! means `.buckets=N`.

use alloc::string::String;
use alloc::vec::Vec;
use core::{fmt, mem, ptr};

use fallible::{OutOfMemory, TryClone};

use super::action::{ACTIONS_MAX, Action, Added, Effect, ParsedAction};
use super::expression::{Content, Form, NamedPart, Op, Parser, Reference, Scope, VARIABLES_MAX, Value, Variable};
use super::table::VALUES_MAX;
use super::{Error, Histogram, Key, Problem, Source, Transform};
use crate::definition::number;
use crate::filter::{HitString, Number, Time, parse as filter};
use crate::format::Field;
use crate::options::TraceClock;
use crate::recorder::Recorder;
use crate::shown::{are_shown_alike, is_shown_as};

const KEYS_MAX: usize = 3;
const SORTS_MAX: usize = 2;
const SIZE_DEFAULT: u32 = 2048;
const SIZE_MIN: u32 = 128;
const SIZE_MAX: u32 = 131_072;
const HITS: &str = "hitcount";
/// The name that the text of a trigger has for the number of the CPU.
pub(super) const CPU: &str = "common_cpu";

/// The definition of a histogram: what it counts, and how that is shown.
#[derive(Debug)]
pub struct Definition {
    pub(super) keys: Vec<KeyField>,
    /// The name by which several events share the histogram.
    pub(crate) name: Option<String>,
    /// Whether the number of hits is hidden.
    pub(super) no_hits: bool,
    pub(super) values: Vec<ValueField>,
    pub(super) sorts: Vec<Sort>,
    pub(super) size: u32,
    pub(super) variables: Vec<Variable>,
    /// Fields that are parameters of actions, as variables.
    pub(super) fields: Vec<Variable>,
    /// Variables that only actions set.
    pub(super) kept: Vec<Variable>,
    pub(super) actions: Vec<Action>,
    /// The variables of other triggers that are referred to.
    pub(super) references: Vec<Reference>,
    /// Whether the definition uses the time of hits.
    pub(super) has_times: bool,
    /// Whether the histogram only keeps a field for a trigger of another event. It is removed together with that
    /// trigger.
    pub(crate) is_automatic: bool,
    /// The clock that the parameters name; if there is no such clock, the column of its name.
    pub(super) clock: Result<Option<TraceClock>, u32>,
    /// What to do with the histogram if it exists already.
    pub command: Option<Command>,
    /// Whether the histogram must exist already: it is to be continued or cleared.
    pub(crate) must_exist: bool,
}

/// What to do with a histogram besides making it, or instead. If several are given, the greatest one is meant, as in
/// Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Command {
    /// Drop the counts.
    Clear,
    /// Count hits again.
    Continue,
    /// Stop counting hits for now.
    Pause,
}

#[derive(Debug)]
pub(crate) struct KeyField {
    pub(crate) name: String,
    pub(super) modifier: Option<Modifier>,
    pub(super) source: Source,
}

/// A value that is shown for each entry.
#[derive(Debug)]
pub(super) enum ValueField {
    /// The hits, shown a second time.
    Hits(Option<Modifier>),
    Sum(Sum),
}

/// A value that is summed up over hits.
#[derive(Debug)]
pub(super) struct Sum(pub(super) Value);

impl ValueField {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Hits(_) => HITS,
            Self::Sum(Sum(value)) => &value.name,
        }
    }

    /// Returns the name that an entry shows: that of a variable is without its `$`.
    pub(super) fn label(&self) -> &str {
        match self {
            Self::Sum(Sum(Value { form: Form::Reference, name, .. })) => name.strip_prefix('$').unwrap_or(name),
            _ => self.name(),
        }
    }

    pub(super) fn modifier(&self) -> Option<Modifier> {
        match self {
            Self::Hits(modifier) => *modifier,
            Self::Sum(Sum(value)) => value.modifier,
        }
    }

    /// Whether the file `hist` shows the value. Linux leaves out expressions.
    pub(super) fn is_shown(&self) -> bool {
        match self {
            Self::Hits(_) => true,
            Self::Sum(Sum(value)) => value.form != Form::Computed,
        }
    }

    fn sum(&self) -> Option<&Sum> {
        match self {
            Self::Hits(_) => None,
            Self::Sum(sum) => Some(sum),
        }
    }
}

impl Sum {
    /// Returns the number that is summed up; `None` if it is an expression.
    pub(super) fn number(&self) -> Option<Number> {
        match &self.0.content {
            Content::Number(ops) => match ops[..] {
                [Op::Number(number)] => Some(number),
                _ => None,
            },
            _ => None,
        }
    }
}

/// How a number is shown or computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Modifier {
    Hex,
    Sym,
    SymOffset,
    Execname,
    Log2,
    Buckets(u64),
    /// `usecs`: a time in microseconds.
    Microseconds,
    /// The share of a value in its total.
    Percent,
    /// A value as a bar.
    Graph,
    /// A stack as the functions that its addresses are in.
    Stacktrace,
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

/// A part of the trigger's text, and the number of bytes before it.
#[derive(Clone, Copy)]
pub(super) struct Fragment<'a> {
    pub(super) text: &'a str,
    pub(super) column: usize,
}

impl<'a> Fragment<'a> {
    pub(super) fn error(self, problem: Problem) -> Error {
        Error { problem, column: self.column, before: None }
    }

    /// Makes the error of `problem` with its cause where `text` first occurs in the trigger with these parameters.
    /// Linux searches for the cause in the same way.
    pub(super) fn error_about(self, problem: Problem, text: &str) -> Error {
        const COMMAND: &str = "hist:";
        let in_command = COMMAND.find(text).filter(|_| self.column == COMMAND.len());
        let column = in_command.unwrap_or_else(|| self.column + self.text.find(text).unwrap_or(0));
        Error { problem, column, before: None }
    }

    /// Returns the bytes from `start` to `end`.
    pub(super) fn slice(self, start: usize, end: usize) -> Self {
        Self { text: self.text.get(start..end).unwrap_or(""), column: self.column + start }
    }

    pub(super) fn split(self, separator: char) -> impl Iterator<Item = Self> {
        self.text.split(separator).map(move |text| {
            let before = text.as_ptr() as usize - self.text.as_ptr() as usize;
            Self { text, column: self.column + before }
        })
    }

    pub(super) fn split_once(self, separator: char) -> (Self, Option<Self>) {
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
    /// Parses the parameters of a histogram that may refer to the triggers in `scope`. The event has these `fields`,
    /// and `column` bytes of the trigger precede the parameters. `is_filter_right` is asked after all fields are found,
    /// and before the actions are resolved, which is when Linux parses the filter. Returns `Ok(None)` if the filter is
    /// wrong.
    ///
    /// # Errors
    ///
    /// Returns the problem and its position.
    pub(crate) fn parse(
        text: &str,
        column: usize,
        fields: &[Field],
        scope: &Scope<'_>,
        is_filter_right: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Self>, Error> {
        let all = Fragment { text, column };
        let (mut keys, mut values, mut sorts) = (None, None, None);
        let mut size = SIZE_DEFAULT;
        let (mut command, mut must_exist, mut clock) = (None, false, None);
        let (mut name_of_it, mut no_hits) = (None, false);
        let (mut own, mut actions) = (Vec::new(), Vec::new());
        for fragment in all.split(':') {
            if let Some(action) = ParsedAction::parse(all, fragment)? {
                if actions.len() == ACTIONS_MAX {
                    return Err(fragment.error(Problem::UnknownParameter));
                }
                fallible::push(&mut actions, action)?;
                continue;
            }
            let (name, value) = fragment.split_once('=');
            match (name.text, value) {
                (_, Some(Fragment { text: "", .. })) => {
                    return Err(all.error_about(Problem::EmptyAssignment, fragment.text));
                }
                ("keys" | "key", Some(value)) => keys = Some(value),
                ("values" | "vals" | "val", Some(value)) => values = Some(value),
                ("sort", Some(value)) => sorts = Some(value),
                ("size", Some(value)) => size = parse_size(value)?,
                ("clock", Some(value)) => clock = Some(value),
                ("name", Some(value)) => name_of_it = Some(value.text),
                (_, Some(_)) => fallible::extend(&mut own, fragment.split(','))?,
                ("nohitcount" | "NOHC", None) => no_hits = true,
                ("pause", None) => command = Some(Command::Pause),
                (name @ ("cont" | "continue" | "clear"), None) => {
                    let given = if name == "clear" { Command::Clear } else { Command::Continue };
                    command = command.max(Some(given));
                    must_exist = true;
                }
                (_, None) => return Err(fragment.error(Problem::UnknownParameter)),
            }
        }
        let own = own.into_iter().map(|fragment| match fragment.split_once('=') {
            (_, None) => Err(all.error_about(Problem::MalformedAssignment, fragment.text)),
            (name, Some(value)) => Ok((name, value)),
        });
        let own = fallible::collect_results(own)?;
        if let Some((name, _)) = own.get(VARIABLES_MAX) {
            return Err(all.error_about(Problem::TooManyVariables, name.text));
        }
        let keys = keys.ok_or_else(|| all.error(Problem::NoKeys))?;
        // If one time is in microseconds, all of them are.
        let microseconds = text.contains("common_timestamp.usecs");
        let matched = fallible::collect(actions.iter().filter_map(ParsedAction::matched))?;
        let is_event = |event| scope.others.is_none_or(|others| others.is_event(event));
        if let Some((_, event)) = matched.iter().find(|event| !is_event(**event)) {
            return Err(all.error_about(Problem::NoSuchEvent, event));
        }
        let (references, matched) = (Vec::new(), &matched[..]);
        let mut parser = Parser { all, fields, scope, own: &own, matched, references, keys: Vec::new(), microseconds };
        let mut sums = Vec::new();
        let mut is_first_hits = true;
        for value in values.into_iter().flat_map(|values| values.split(',')) {
            if !(value.text == HITS && mem::take(&mut is_first_hits)) {
                fallible::push(&mut sums, parse_value(value, &mut parser)?)?;
            }
        }
        if no_hits && sums.is_empty() {
            return Err(Error { problem: Problem::NeedsValue, column: 0, before: None });
        }
        if sums.len() > VALUES_MAX {
            return Err(all.error(Problem::TooManyValues));
        }
        let mut variables: Vec<Variable> = Vec::new();
        for &(name, value) in &own {
            refuse_shown(all, value)?;
            let is_taken = variables.iter().any(|variable| variable.name == name.text)
                || !scope.is_removal && command.is_none() && scope.find(scope.event, name.text).is_some();
            if is_taken {
                return Err(parser.error(Problem::DuplicateVariable, name.text));
            }
            let (name, expression) = (fallible::copy(name.text)?, value);
            let value = parser.value(expression)?;
            if matches!(value.modifier, Some(Modifier::Log2 | Modifier::Buckets(_))) {
                return Err(parser.error(Problem::BadModifier, expression.text));
            }
            fallible::push(&mut variables, Variable { name, value })?;
        }
        let time = Time { clock: scope.clock, microseconds };
        let keys = keys.split(',').map(|key| match key.text.contains('$') {
            true => Err(parser.error(Problem::ReferenceInKey, key.text)),
            false => parse_key(all, key, fields, time),
        });
        let keys = fallible::collect_results(keys)?;
        if keys.len() > KEYS_MAX {
            return Err(all.error(Problem::TooManyKeys));
        }
        let sorts = Sorted { all, keys: &keys, values: &sums }.parse(sorts)?;
        if !is_filter_right() {
            return Ok(None);
        }
        let parts =
            keys.iter().map(|key| Ok(NamedPart { words: Key::of(key).words, name: fallible::copy(&key.name)? }));
        parser.keys = fallible::collect_results::<_, Error>(parts)?;
        let mut added = Added::default();
        let actions = actions.into_iter().map(|action| parser.action(action, &variables, &mut added));
        let actions = fallible::collect_results(actions)?;
        let (references, Added { fields, kept }) = (parser.references, added);
        let has_times = text.contains("common_timestamp");
        // As in Linux, only the time needs a clock.
        let clock = clock.filter(|_| has_times).map(|clock| {
            let column = || all.error_about(Problem::Clock, clock.text).column as u32;
            TraceClock::find(clock.text).ok_or_else(column)
        });
        let clock = clock.transpose();
        let values = sums;
        let name = name_of_it.map(fallible::copy).transpose()?;
        Ok(Some(Self {
            keys,
            name,
            no_hits,
            values,
            sorts,
            size,
            variables,
            fields,
            kept,
            actions,
            references,
            has_times,
            is_automatic: false,
            clock,
            command,
            must_exist,
        }))
    }

    /// Returns the number of the variable with this name.
    pub(crate) fn variable(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|variable| variable.name == name)
    }

    /// Returns the names of the variables.
    pub(crate) fn variable_names(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|variable| &*variable.name)
    }

    /// Returns the clock that the records must have; `None` if the definition does not use the time.
    ///
    /// # Errors
    ///
    /// Fails if there is no clock of the name in the parameters. As in Linux, this matters only to a new histogram.
    pub fn clock(&self) -> Result<Option<TraceClock>, Error> {
        let error = |column| Error { problem: Problem::Clock, column: column as usize, before: None };
        let clock = self.clock.map_err(error)?.unwrap_or(TraceClock::Global);
        Ok(self.has_times.then_some(clock))
    }

    /// Whether other CPUs need what one CPU counts: the definition has variables, references, actions or expressions.
    pub(super) fn uses_variables(&self) -> bool {
        !self.variables.is_empty()
            || !self.references.is_empty()
            || !self.actions.is_empty()
            || self.sums().any(|sum| sum.number().is_none())
    }

    /// Returns the values that are summed up besides hits.
    pub(super) fn sums(&self) -> impl Iterator<Item = &Sum> {
        self.values.iter().filter_map(ValueField::sum)
    }

    /// Returns the number of words of an entry between the hits and this value; `None` for hits.
    pub(super) fn column(&self, value: usize) -> Option<usize> {
        self.values.get(value)?.sum()?;
        Some(self.values.iter().take(value).filter_map(ValueField::sum).count())
    }

    /// Whether the definition refers to a variable of `histogram`.
    pub(crate) fn refers_to(&self, histogram: &Histogram) -> bool {
        self.references.iter().any(|reference| ptr::eq(&*reference.histogram, histogram))
    }

    /// Whether both definitions count and show the same; their sizes may differ.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        fn are_same<T: fmt::Display>(one: &[T], other: &[T]) -> bool {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| are_shown_alike(one, other))
        }
        self.name == other.name
            && are_same(&self.keys, &other.keys)
            && are_same(&self.values, &other.values)
            && are_same(&self.variables, &other.variables)
            && are_same(&self.actions, &other.actions)
            && self.sorts == other.sorts
    }

    /// Whether both definitions, possibly of different events, count the same from the same places of a record.
    pub(crate) fn is_interchangeable(&self, other: &Self) -> bool {
        let values = self.sums().map(|Sum(value)| value).chain(self.variables.iter().map(|variable| &variable.value));
        let others = other.sums().map(|Sum(value)| value).chain(other.variables.iter().map(|variable| &variable.value));
        self.is_same(other)
            && self.keys.iter().map(|key| key.source).eq(other.keys.iter().map(|key| key.source))
            && values.map(|value| &value.content).eq(others.map(|value| &value.content))
    }

    /// Whether an action records a synthetic event.
    pub(crate) fn emits(&self) -> bool {
        self.actions.iter().any(|action| matches!(action.effect, Effect::Trace { .. }))
    }

    /// Returns the number of actions that take a snapshot.
    pub(crate) fn snapshots(&self) -> usize {
        self.actions.iter().filter(|action| matches!(action.effect, Effect::Snapshot)).count()
    }

    /// Whether an action records a synthetic event with `recorder`.
    pub(crate) fn records_with(&self, recorder: &Recorder) -> bool {
        self.actions.iter().any(|action| match &action.effect {
            Effect::Trace { recorder: own, .. } => ptr::eq(&**own, recorder),
            Effect::Save(..) | Effect::Snapshot => false,
        })
    }

    /// Whether the parts of the key have the sizes of these.
    pub(crate) fn has_parts(&self, parts: &[NamedPart]) -> bool {
        self.keys.iter().map(|key| Key::of(key).words).eq(parts.iter().map(|part| part.words))
    }

    /// Returns the names of the keys.
    pub(crate) fn key_names(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|key| key.name.as_str())
    }

    /// Writes the names of the keys, separated by commas.
    pub(crate) fn write_keys(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for (number, key) in self.keys.iter().enumerate() {
            write!(out, "{}{}", if number > 0 { "," } else { "" }, key.name)?;
        }
        Ok(())
    }
}

/// The keys and values that entries can be sorted by.
struct Sorted<'a> {
    /// The parameters of the histogram.
    all: Fragment<'a>,
    keys: &'a [KeyField],
    values: &'a [ValueField],
}

impl Sorted<'_> {
    /// Parses the fields to sort by; `None` means the hits.
    fn parse(&self, fields: Option<Fragment<'_>>) -> Result<Vec<Sort>, Error> {
        let Some(fields) = fields else {
            return Ok(fallible::collect([Sort { by: By::Hits, descending: false }])?);
        };
        let mut sorts = Vec::new();
        let mut rest = Some(fields);
        while let Some(fields) = rest {
            let (field, behind) = fields.split_once(',');
            if field.text.is_empty() {
                return Err(self.error(Problem::EmptySortField));
            }
            if sorts.len() + 1 == SORTS_MAX && behind.is_some() {
                return Err(self.error(Problem::TooManySortFields));
            }
            fallible::push(&mut sorts, self.parse_sort(field)?)?;
            rest = behind;
        }
        Ok(sorts)
    }

    /// Makes the error of `problem` with the list of fields as its cause.
    fn error(&self, problem: Problem) -> Error {
        self.all.error_about(problem, "sort=")
    }

    /// Parses a field to sort by: its name alone, or with its modifier as it is printed.
    fn parse_sort(&self, sort: Fragment<'_>) -> Result<Sort, Error> {
        let (name, descending) = match (sort.text.strip_suffix(".descending"), sort.text.strip_suffix(".ascending")) {
            (Some(name), _) => (name, true),
            (None, Some(name)) => (name, false),
            (None, None) => (sort.text, false),
        };
        let key = |name: &str| self.keys.iter().position(|key| key.name == name || is_shown_as(key, name)).map(By::Key);
        let value = |name: &str| {
            let value = |value: &ValueField| value.label() == name || is_shown_as(value, name);
            self.values.iter().position(value).map(By::Value)
        };
        let find = |name: &str| match name {
            HITS => Some(By::Hits),
            _ => value(name).or_else(|| key(name)),
        };
        match (find(name), sort.split_once('.')) {
            (Some(by), _) => Ok(Sort { by, descending }),
            (None, (Fragment { text: "", .. }, _)) => Err(self.error(Problem::EmptySortField)),
            (None, (field, Some(modifier))) if find(field.text).is_some() => {
                Err(self.all.error_about(Problem::InvalidSortModifier, modifier.text))
            }
            (None, (field, _)) => Err(self.all.error_about(Problem::InvalidSortField, field.text)),
        }
    }
}

/// Parses the size, and rounds it up to a power of two.
fn parse_size(value: Fragment<'_>) -> Result<u32, Error> {
    let size = number::unsigned(value.text).and_then(|size| u32::try_from(size).ok());
    let size = size.filter(|size| (1..=SIZE_MAX).contains(size)).map(u32::next_power_of_two);
    size.filter(|&size| size >= SIZE_MIN).ok_or_else(|| value.error(Problem::BadSize))
}

/// Parses a key of the histogram with the parameters `all`.
fn parse_key(all: Fragment<'_>, key: Fragment<'_>, fields: &[Field], time: Time) -> Result<KeyField, Error> {
    let (field, modifier) = key.split_once('.');
    let fragment = modifier.unwrap_or(key);
    let modifier = modifier.map(|modifier| parse_modifier(all, modifier)).transpose()?;
    let misapplied = || all.error_about(Problem::BadModifier, fragment.text);
    let not_found = || all.error_about(Problem::FieldNotFound, field.text);
    let without_modifier = |name: &str, source| match modifier {
        None => Ok(KeyField { name: fallible::copy(name)?, modifier: None, source }),
        Some(_) => Err(misapplied()),
    };
    let number = |name: &str, number| {
        let transform = match modifier {
            Some(Modifier::Log2) => Transform::Log2,
            Some(Modifier::Buckets(size)) => Transform::Buckets(size),
            Some(Modifier::Execname) if name != "common_pid" => return Err(misapplied()),
            Some(Modifier::Stacktrace | Modifier::Percent | Modifier::Graph) => return Err(misapplied()),
            _ => Transform::None,
        };
        Ok(KeyField { name: fallible::copy(name)?, modifier, source: Source::Number { number, transform } })
    };
    let stack = |found: &Field| {
        let text = filter::stack(found).filter(|_| modifier == Some(Modifier::Stacktrace))?;
        Some(Source::Recorded(text))
    };
    match (fields.iter().find(|candidate| candidate.name == field.text), field.text) {
        (_, "common_timestamp") => number("common_timestamp", Number::Time(time)),
        (Some(found), name) => match (filter::number(found), filter::text(found)) {
            (Some(found), _) => number(name, found),
            (None, Some(text)) => without_modifier(name, Source::Text(text)),
            (None, None) => match stack(found) {
                Some(source) => {
                    Ok(KeyField { name: fallible::copy(name)?, modifier: Some(Modifier::Stacktrace), source })
                }
                None => Err(not_found()),
            },
        },
        (None, "stacktrace" | "STACKTRACE" | "common_stacktrace") => {
            without_modifier("common_stacktrace", Source::Stack)
        }
        (None, "comm") => without_modifier("comm", Source::Text(HitString::Task)),
        (None, name @ ("cpu" | "CPU" | CPU)) => number(name, Number::Cpu),
        (None, _) => Err(not_found()),
    }
}

/// Parses a modifier in the histogram with the parameters `all`.
pub(super) fn parse_modifier(all: Fragment<'_>, modifier: Fragment<'_>) -> Result<Modifier, Error> {
    Ok(match modifier.text {
        "hex" => Modifier::Hex,
        "sym" => Modifier::Sym,
        "sym-offset" => Modifier::SymOffset,
        "execname" => Modifier::Execname,
        "log2" => Modifier::Log2,
        "usecs" => Modifier::Microseconds,
        "percent" => Modifier::Percent,
        "graph" => Modifier::Graph,
        "stacktrace" => Modifier::Stacktrace,
        other => {
            // The error is about what is left, as in Linux.
            let rest = other.strip_prefix("bucket").map(|rest| rest.strip_prefix('s').unwrap_or(rest));
            let size = rest.and_then(|rest| rest.strip_prefix('='));
            let cause = size.or(rest).unwrap_or(other);
            let size = size.and_then(number::unsigned).filter(|&size| size > 0);
            Modifier::Buckets(size.ok_or_else(|| all.error_about(Problem::BadModifier, cause))?)
        }
    })
}

/// Refuses a variable with a modifier that only applies to shown values, in the histogram with the parameters `all`.
fn refuse_shown(all: Fragment<'_>, value: Fragment<'_>) -> Result<(), Error> {
    match value.split_once('.') {
        (_, Some(Fragment { text: modifier @ ("percent" | "graph"), .. })) => {
            Err(all.error_about(Problem::BadModifier, modifier))
        }
        _ => Ok(()),
    }
}

fn parse_value<'a>(fragment: Fragment<'a>, parser: &mut Parser<'a>) -> Result<ValueField, Error> {
    const SHOWN: &[Modifier] = &[Modifier::Hex, Modifier::Microseconds, Modifier::Percent, Modifier::Graph];
    let is_shown = |modifier: Option<Modifier>| modifier.is_none_or(|modifier| SHOWN.contains(&modifier));
    if let (Fragment { text: HITS, .. }, modifier) = fragment.split_once('.') {
        let shown = modifier.map(|modifier| parse_modifier(parser.all, modifier)).transpose()?;
        return match is_shown(shown) {
            true => Ok(ValueField::Hits(shown)),
            false => Err(parser.error(Problem::BadModifier, fragment.text)),
        };
    }
    let value = parser.value(fragment)?;
    match (&value.content, value.modifier) {
        (Content::Number(_), modifier) if is_shown(modifier) => Ok(ValueField::Sum(Sum(value))),
        (_, Some(_)) => Err(parser.error(Problem::BadModifier, fragment.text)),
        (_, None) => Err(parser.error(Problem::TextOperand, fragment.text)),
    }
}

impl TryClone for Definition {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let key = |KeyField { name, modifier, source }: &KeyField| -> Result<_, OutOfMemory> {
            Ok(KeyField { name: fallible::copy(name)?, modifier: *modifier, source: *source })
        };
        let value = |value: &ValueField| -> Result<_, OutOfMemory> {
            Ok(match value {
                ValueField::Hits(modifier) => ValueField::Hits(*modifier),
                ValueField::Sum(Sum(value)) => ValueField::Sum(Sum(value.try_clone()?)),
            })
        };
        Ok(Self {
            name: self.name.try_clone()?,
            no_hits: self.no_hits,
            keys: fallible::collect_results(self.keys.iter().map(key))?,
            values: fallible::collect_results(self.values.iter().map(value))?,
            sorts: fallible::collect(self.sorts.iter().copied())?,
            size: self.size,
            variables: fallible::collect_results(self.variables.iter().map(Variable::try_clone))?,
            fields: fallible::collect_results(self.fields.iter().map(Variable::try_clone))?,
            kept: fallible::collect_results(self.kept.iter().map(Variable::try_clone))?,
            actions: fallible::collect_results(self.actions.iter().map(Action::try_clone))?,
            references: fallible::collect(self.references.iter().cloned())?,
            has_times: self.has_times,
            is_automatic: self.is_automatic,
            clock: self.clock,
            command: self.command,
            must_exist: self.must_exist,
        })
    }
}

/// The parameters with defaults filled in, as Linux shows them. They can be typed again, but for a variable of a time,
/// after which Linux shows `.usecs`.
impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comma = |number| if number > 0 { "," } else { "" };
        if let Some(name) = &self.name {
            write!(f, "name={name}:")?;
        }
        f.write_str("keys=")?;
        for (number, key) in self.keys.iter().enumerate() {
            write!(f, "{}{key}", comma(number))?;
        }
        f.write_str(":vals=")?;
        f.write_str(if self.no_hits { "" } else { HITS })?;
        for (number, value) in self.values.iter().enumerate() {
            write!(f, "{}{value}", if self.no_hits { comma(number) } else { "," })?;
        }
        for (number, variable) in self.variables.iter().enumerate() {
            write!(f, "{}{variable}", if number > 0 { "," } else { ":" })?;
        }
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
        write!(f, ":size={}", self.size)?;
        if let Ok(Some(clock)) = self.clock() {
            write!(f, ":clock={}", clock.name())?;
        }
        f.write_str(if self.no_hits { ":nohitcount" } else { "" })?;
        self.actions.iter().try_for_each(|action| action.fmt(f))
    }
}

impl fmt::Display for KeyField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_cpu = matches!(self.source, Source::Number { number: Number::Cpu, .. });
        f.write_str(if is_cpu { CPU } else { &self.name })?;
        self.modifier.map_or(Ok(()), |modifier| write!(f, "{modifier}"))
    }
}

/// The modifier as it is typed, with its dot.
impl fmt::Display for Modifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hex => f.write_str(".hex"),
            Self::Sym => f.write_str(".sym"),
            Self::SymOffset => f.write_str(".sym-offset"),
            Self::Execname => f.write_str(".execname"),
            Self::Log2 => f.write_str(".log2"),
            Self::Buckets(size) => write!(f, ".buckets={size}"),
            Self::Microseconds => f.write_str(".usecs"),
            Self::Percent => f.write_str(".percent"),
            Self::Graph => f.write_str(".graph"),
            Self::Stacktrace => f.write_str(".stacktrace"),
        }
    }
}

impl fmt::Display for ValueField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hits(None) => f.write_str(HITS),
            Self::Hits(Some(modifier)) => write!(f, "{HITS}{modifier}"),
            Self::Sum(Sum(value)) => value.fmt(f),
        }
    }
}
