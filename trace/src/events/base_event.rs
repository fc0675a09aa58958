//! Events that are on other events: `t` on a static event; `e` on a static or synthetic event, or on one of `p`, `r` or
//! `f` that has one probe.
//!
//! Linux calls them from the other event's record. Here each has its own probe at the same place, and repeats the other
//! event's fetch. So such events cost no more than others, and are hit whether the other event is enabled or not. Only
//! an event on a synthetic event, which has no place, fetches from the record of the synthetic event.

use alloc::vec::Vec;

use fallible::OutOfMemory;

use super::arguments::{self, Arguments};
use super::resolve::ResolveError;
use super::{Event, Events, RegisteredProbe, named};
use crate::definition::{
    self, ARGUMENT_NAME_MAX, Argument, Base as PlaceBase, Definition, EventKind, Expression, Family, Named, Origin,
    Problem,
};
use crate::fetch::{Fetch, RecordedPart, Source};
use crate::format::{self, Base, Field, Format, Type};
use crate::symbols::Symbols;

/// The event that another one is on, and the family of the other one.
pub(super) struct BaseEvent<'a, P>(&'a Event<P>, Family);

impl<'a, P: RegisteredProbe> BaseEvent<'a, P> {
    /// Finds the event that `definition` is to be on; `None` if it names a place of its own.
    pub fn of(events: &'a Events<P>, definition: &Definition) -> Result<Option<Self>, ResolveError> {
        let PlaceBase::Event(group, name) = &definition.place.base else { return Ok(None) };
        let is_static = definition.family == Family::Tracepoint;
        let problem = if is_static { Problem::NoTracepoint } else { Problem::AttachedEvent };
        let is_meant = |event: &&Event<P>| {
            event.is(group.as_deref(), Some(name)) && (!is_static || event.is_static()) && !event.is_only_for_triggers()
        };
        let mut found = events.iter().filter(is_meant);
        let Some(event) = found.next() else { return Err(problem.into()) };
        if event.definition.family.is_on_event() {
            return Err(ResolveError::new(problem, format_args!("it is on `{}` itself", event.definition.place)));
        }
        if found.next().is_some() {
            let reason = match is_static {
                true => "several groups have an event of this name; `e` takes GROUP.EVENT",
                false => "it has several probes; place this one as the others are, with `p` or `r`",
            };
            return Err(ResolveError::new(Problem::Ambiguous, reason));
        }
        Ok(Some(Self(event, definition.family)))
    }

    /// Returns the virtual address of the probe.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// Whether the event is a probe, with the addresses of a probe in its record.
    pub fn is_probe(&self) -> bool {
        self.0.is_of_probe()
    }

    /// Returns the kind of the probe.
    pub fn kind(&self) -> EventKind {
        match self.0.definition.kind {
            kind @ EventKind::Return { .. } => kind,
            EventKind::Synthetic => EventKind::OnSynthetic,
            _ => EventKind::Probe,
        }
    }

    /// Gives the arguments of `definition` the types of their fields where the definition has none, and replaces
    /// `$arg*` by all fields.
    pub fn settle(&self, definition: &mut Definition) -> Result<(), definition::Error> {
        self.expand(definition)?;
        let by_name = definition.family == Family::Tracepoint;
        for number in 0..definition.arguments.len() {
            let Some(argument) = definition.arguments.get(number) else { break };
            let kind = self.default_type(argument, by_name).map_err(|problem| {
                let at = if let Origin::Named(named) = &argument.expression.origin { named.at } else { 0 };
                let reason = (problem == Problem::Variable).then(|| fallible::copy("the event has no such field").ok());
                definition.error_in(number, at, problem, reason.flatten())
            })?;
            if let (Some(kind), Some(argument)) = (kind, definition.arguments.get_mut(number)) {
                argument.kind = kind;
            }
        }
        Ok(())
    }

    /// Replaces `$arg*` by the fields whose names an argument can have.
    fn expand(&self, definition: &mut Definition) -> Result<(), definition::Error> {
        let is_all = |argument: &Argument| argument.expression.origin == Origin::Arguments;
        let Some(at) = definition.arguments.iter().position(is_all) else { return Ok(()) };
        let is_short = |field: &&Field| field.name.len() <= ARGUMENT_NAME_MAX;
        let fields = self.0.format.arguments().iter().filter(is_short);
        let arguments = fallible::collect_results(fields.map(|field| Argument::of_name(&field.name)))?;
        named::put_in_place(definition, at, arguments)
    }

    /// Returns arguments for the fields that the filter of `definition` names, in addition to its own.
    pub fn tested(&self, definition: &Definition) -> Result<Vec<Argument>, definition::Error> {
        let filter = definition.filter.as_deref().unwrap_or_default();
        let is_in_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
        // Every second part is between quotes.
        let unquoted =
            || filter.split(['\'', '"']).step_by(2).flat_map(|part| part.split(|character| !is_in_name(character)));
        let is_named = |field: &&Field| unquoted().any(|name| name == field.name);
        let argument = |field: &Field| -> Result<_, definition::Error> {
            Ok(Argument { kind: own_type(field), ..Argument::of_name(&field.name)? })
        };
        fallible::collect_results(self.0.format.arguments().iter().filter(is_named).map(argument))
    }

    /// Returns the type of an argument that has none, if its field determines it: the type of a text field, or of any
    /// field that is given by name.
    fn default_type(&self, argument: &Argument, by_name: bool) -> Result<Option<Type>, Problem> {
        let Some(field) = self.field(&argument.expression)? else { return Ok(None) };
        if !argument.expression.reads.is_empty() {
            return Ok(None);
        }
        if argument.has_type() {
            // The record of the other event holds the name of a symbol as a text.
            let is_name = field.kind.base == Base::SymbolString && argument.kind == Type::one(Base::String);
            return Ok(is_name.then_some(field.kind));
        }
        let kind = own_type(field);
        let is_named = by_name && matches!(argument.expression.origin, Origin::Named(_));
        Ok((is_named || kind.base.is_text()).then_some(kind))
    }

    /// Returns the field that an argument fetches; `None` if it fetches something else.
    fn field(&self, expression: &Expression) -> Result<Option<&'a Field>, Problem> {
        Ok(self.number(expression)?.and_then(|number| self.0.format.arguments().get(number)))
    }

    /// Returns the number of the field that an argument fetches.
    fn number(&self, expression: &Expression) -> Result<Option<usize>, Problem> {
        let fields = self.0.format.arguments();
        let number = match &expression.origin {
            Origin::Named(Named { argument: Some(_), fields, .. }) if !fields.is_empty() => {
                return Err(Problem::NoStruct);
            }
            Origin::Named(Named { argument: Some(name), .. }) => {
                match fields.iter().position(|field| field.name == *name) {
                    None if is_task_name(name) => return Ok(None),
                    found => found,
                }
            }
            &Origin::Argument(number) => Some(number as usize).filter(|number| *number < fields.len()),
            _ => return Ok(None),
        };
        number.map(Some).ok_or(match self.1 {
            Family::Event => Problem::Variable,
            _ => Problem::NoArgumentOfName,
        })
    }

    /// Returns what the arguments of `definition` fetch.
    pub fn arguments(&self, definition: &Definition, symbols: &dyn Symbols) -> Result<Arguments, definition::Error> {
        let (others, mut kept) = match self.0.described {
            Some(_) => (Vec::new(), Vec::new()),
            None if self.0.is_synthetic() => (recorded(&self.0.format)?, Vec::new()),
            None => arguments::of(&self.0.definition, symbols)
                .map_err(|ResolveError { problem, reason }| definition.error(1, problem, reason))?,
        };
        let is_return = matches!(self.kind(), EventKind::Return { .. });
        let mut fetch = |argument: &Argument| -> Result<Fetch, ResolveError> {
            let expression = &argument.expression;
            match (self.number(expression)?, &expression.origin) {
                (Some(field), _) => self.fetch(field, argument, &others),
                (None, Origin::Named(_)) if !expression.reads.is_empty() => Err(Problem::TaskNameRead.into()),
                (None, Origin::Named(_)) if argument.kind != Type::one(Base::String) => Err(ResolveError::new(
                    Problem::Text,
                    "the name of the task is a text: it can be fetched only as it is",
                )),
                (None, Origin::Named(_)) => {
                    Ok(Fetch { source: Source::TaskName, reads: Vec::new(), part: RecordedPart::Whole })
                }
                (None, _) => arguments::plain(expression, is_return, &mut kept, symbols),
            }
        };
        let mut fetches = Vec::new();
        for (number, argument) in definition.arguments.iter().enumerate() {
            let fetch = fetch(argument);
            let fetch =
                fetch.map_err(|ResolveError { problem, reason }| definition.error_of(number, problem, reason))?;
            fallible::push(&mut fetches, fetch)?;
        }
        for argument in &self.tested(definition)? {
            let fetch = fetch(argument).map_err(|ResolveError { reason, .. }| definition.error_in_filter(0, reason))?;
            fallible::push(&mut fetches, fetch)?;
        }
        Ok((fetches, kept))
    }

    /// Returns what `argument`, which begins with field `number`, fetches. `others` is what the event's own arguments
    /// fetch.
    fn fetch(&self, number: usize, argument: &Argument, others: &[Fetch]) -> Result<Fetch, ResolveError> {
        let field = self.0.format.arguments().get(number).ok_or(Problem::NoArgumentOfName)?;
        let described = self.0.described.and_then(|event| event.fields().get(number));
        let Fetch { source, mut reads, part } = match described {
            Some(described) => format::fetch(described)?,
            None => others.get(number).ok_or(Problem::NoArgumentOfName)?.try_copy()?,
        };
        let (outer, kind) = (&argument.expression.reads, argument.kind);
        if field.is_stack() {
            return Err(ResolveError::new(Problem::Text, "this field is a stack: it cannot be fetched"));
        }
        let is_text = field.kind.base == Base::Characters || field.kind.base.is_text();
        let is_number = field.kind.count == 0 && !is_text;
        if !is_number {
            // The field is a text or an array, which can be fetched only as it is.
            let is_same = kind.count == field.kind.count
                && (kind.base == field.kind.base || (kind.base, field.kind.base) == (Base::String, Base::Characters));
            // A text is at the address of the field, as in Linux.
            let is_whole = outer.is_empty() || is_text && outer[..] == [0];
            return match is_whole && is_same && kind.bits.is_none() {
                true => Ok(Fetch { source, reads, part }),
                false => Err(ResolveError::new(
                    Problem::Text,
                    "this field is a text or an array: it can be fetched only as it is",
                )),
            };
        }
        let width = field.kind.base.size();
        if !outer.is_empty() || kind.base.is_text() || kind.count > 0 {
            // The value is an address.
            if width < 8 || field.kind.bits.is_some() || part != RecordedPart::Whole {
                let reason = match field.kind.bits {
                    Some(bits) => fallible::format(format_args!("this field has {} bits", bits.width))?,
                    None => fallible::format(format_args!("this field has {width} bytes"))?,
                };
                return Err(ResolveError::new(Problem::Text, format_args!("{reason}, which are no address")));
            }
            fallible::extend(&mut reads, outer.iter().copied())?;
            // A text or an array is at the address of the last read: without reads, at the value itself. A symbol is
            // looked up from the value.
            let is_at_value = outer.is_empty() && kind.base != Base::SymbolString;
            fallible::extend(&mut reads, is_at_value.then_some(0))?;
            return Ok(Fetch { source, reads, part: RecordedPart::Whole });
        }
        if field.kind.bits.is_some() {
            let is_same = kind.base == field.kind.base && kind.bits == field.kind.bits;
            return match is_same {
                true => Ok(Fetch { source, reads, part }),
                false => Err(ResolveError::new(Problem::Bits, "this field is a bitfield: give it the same type")),
            };
        }
        let part = match (part, field.kind.base.width()) {
            // The type is wider than the field, so the number in the field is extended.
            (part, Some(own)) if kind.base.size() > width => {
                let signed = matches!(field.kind.base, Base::Signed(_));
                let reason = "this field extends a number with a sign to one without: give it the same type";
                let range = part.number(own, signed).ok_or_else(|| ResolveError::new(Problem::Type, reason))?;
                RecordedPart::Bits(range)
            }
            (part, _) => part,
        };
        Ok(Fetch { source, reads, part })
    }
}

/// Returns the type with which a field is fetched as it is.
fn own_type(field: &Field) -> Type {
    match field.kind.base {
        Base::Characters => Type::one(Base::String),
        _ => field.kind,
    }
}

/// Returns the fetches of the fields of a synthetic event from its record, which has this `format`.
fn recorded(format: &Format) -> Result<Vec<Fetch>, OutOfMemory> {
    let fetch = |field: &Field| {
        let word = (field.offset / 8) as u16;
        let source = match field.kind.base {
            Base::Characters => Source::Fixed(word),
            base if base.is_text() => Source::Located(word),
            _ => Source::Entry(word),
        };
        Fetch { source, reads: Vec::new(), part: RecordedPart::Whole }
    };
    fallible::collect(format.arguments().iter().map(fetch))
}

/// Whether a variable of event probes is the name of the task, if no field has this name.
fn is_task_name(name: &str) -> bool {
    matches!(name, "comm" | "COMM")
}
