//! Actions of histograms: `HANDLER.ACTION`, in the grammar of Linux (Documentation/trace/histogram.rst, section 2.2.3).
//!
//! ```text
//! HANDLER   onmatch(GROUP.EVENT)     at each hit that finds the variables of that event
//!           onmax($V), onchange($V)  at each hit where the variable exceeds its maximum under the key, or changes
//! ACTION    trace(SYNTHETIC,PARAMETER…), SYNTHETIC(PARAMETER…)   records a synthetic event
//!           save(FIELD…)             saves fields, which `hist` shows; not with onmatch
//!           snapshot()               takes a snapshot; not with onmatch
//! ```
//!
//! A parameter is `$VARIABLE` or a field, of this event or of the matched one. Internally every parameter is a
//! variable. A field of this event gets a variable without a name. A field of another event gets a variable there, set
//! by an automatic trigger ([`Problem::NeedsField`]).

use alloc::string::String;
use alloc::vec::Vec;
use core::{fmt, mem};

use fallible::{Arc, OutOfMemory};

use super::expression::{Content, Needed, Parser, ValueType, Variable};
use super::parse::Fragment;
use super::{Error, Problem};
use crate::format::{Base, Field, TEXT_SIZE};
use crate::recorder::Recorder;

/// The largest number of actions of a trigger (`HIST_ACTIONS_MAX`).
pub(super) const ACTIONS_MAX: usize = 8;
/// The largest number of parameters of an action (`SYNTH_FIELDS_MAX`). The name of the event in `trace` does not count.
const PARAMETERS_MAX: usize = 64;

/// When an action is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    Match,
    Max,
    Change,
}

impl Handler {
    /// Returns the name, as it is typed.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Match => "onmatch",
            Self::Max => "onmax",
            Self::Change => "onchange",
        }
    }
}

/// The parts of an action as they are typed.
#[derive(Clone, Copy)]
pub(super) struct ParsedAction<'a> {
    pub(super) handler: Handler,
    /// The text in the parentheses of the handler.
    of: Fragment<'a>,
    name: Fragment<'a>,
    parameters: Fragment<'a>,
}

/// A resolved action.
#[derive(Debug)]
pub(crate) struct Action {
    pub(crate) handler: Handler,
    /// The text that is shown, from the handler on.
    text: String,
    /// The watched variable, and the kept variable with its previous value.
    pub(crate) watched: Option<(usize, usize)>,
    pub(crate) effect: Effect,
}

/// What an action does.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Trace {
        /// The recorder of the synthetic event.
        recorder: Arc<Recorder>,
        sent: Vec<Sent>,
    },
    /// Sets kept variables: the number of the first, and how many.
    Save(usize, usize),
    Snapshot,
}

/// A parameter of a synthetic event: where its value comes from, and where it is recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) from: From,
    /// The words of the record before the field.
    pub(crate) at: usize,
    pub(crate) form: Form,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum From {
    /// The variable of this trigger with this number.
    Own(usize),
    /// The variable of the reference with this number.
    Other(u8),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// A number of this many bytes.
    Number(usize),
    /// A text of this size in bytes, including at least one zero at its end.
    Fixed(usize),
    /// A text after the fields.
    Located,
    /// Return addresses after the fields.
    Stack,
}

impl Action {
    pub(crate) fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let effect = match &self.effect {
            Effect::Trace { recorder, sent } => {
                Effect::Trace { recorder: recorder.clone(), sent: fallible::collect(sent.iter().copied())? }
            }
            Effect::Save(first, count) => Effect::Save(*first, *count),
            Effect::Snapshot => Effect::Snapshot,
        };
        Ok(Self { text: fallible::copy(&self.text)?, effect, ..*self })
    }

    /// Returns the text in the parentheses of the handler.
    pub(super) fn of(&self) -> &str {
        let inner = self.text.split_once('(').map_or("", |(_, rest)| rest);
        inner.split(')').next().unwrap_or("")
    }
}

/// The action as Linux shows it in a trigger.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'a> ParsedAction<'a> {
    /// Parses an action of the trigger `all`; returns `None` if `fragment` is not one.
    pub(super) fn parse(all: Fragment<'a>, fragment: Fragment<'a>) -> Result<Option<Self>, Error> {
        let (name, Some(rest)) = fragment.split_once('(') else { return Ok(None) };
        let handlers = [Handler::Match, Handler::Max, Handler::Change];
        let Some(handler) = handlers.into_iter().find(|handler| handler.name() == name.text) else { return Ok(None) };
        let error = |problem| Error { problem, column: 0, before: None };
        let (of, Some(rest)) = rest.split_once(')') else {
            return Err(match handler {
                Handler::Match => all.error_about(Problem::NoClosingParen, rest.text),
                Handler::Max | Handler::Change => error(Problem::MissingOperand),
            });
        };
        if handler == Handler::Match && !of.text.contains('.') {
            return Err(all.error_about(Problem::NoSubsystem, of.text));
        }
        let (_, Some(action)) = rest.split_once('.') else { return Err(error(Problem::NoAction)) };
        let (name, Some(parameters)) = action.split_once('(') else { return Err(error(Problem::NoAction)) };
        let (parameters, behind) = parameters.split_once(')');
        let is = |action: &str| name.text.starts_with(action);
        if is("snapshot") && behind.is_none() {
            return Err(all.error_about(Problem::NoClosingParen, parameters.text));
        }
        if (is("save") || is("snapshot")) && handler == Handler::Match {
            return Err(all.error_about(Problem::ActionMismatch, name.text));
        }
        Ok(Some(Self { handler, of, name, parameters }))
    }

    /// Returns the group and the name of the event that `onmatch` names; `None` for another handler.
    pub(super) fn matched(&self) -> Option<(&'a str, &'a str)> {
        let of = self.of.text;
        (self.handler == Handler::Match).then(|| of.split_once('.').unwrap_or((of, "")))
    }

    fn parameters(&self, parser: &Parser<'a>) -> Result<Vec<Fragment<'a>>, Error> {
        let mut parameters = Vec::new();
        if self.parameters.text.is_empty() && self.name.text.starts_with("snapshot") {
            return Ok(parameters);
        }
        let most = PARAMETERS_MAX + usize::from(self.name.text.starts_with("trace"));
        for fragment in self.parameters.split(',') {
            if parameters.len() == most {
                return Err(Error { problem: Problem::TooManyParameters, column: 0, before: None });
            }
            let blanks = fragment.text.len() - fragment.text.trim_ascii_start().len();
            let fragment = fragment.slice(blanks, blanks + fragment.text.trim_ascii().len());
            if fragment.text.len() < 2 {
                return Err(parser.error(Problem::InvalidParameter, fragment.text));
            }
            fallible::push(&mut parameters, fragment)?;
        }
        Ok(parameters)
    }
}

/// The variables that actions add: those of fields, which each hit sets, and those that only actions set.
#[derive(Debug, Default)]
pub(super) struct Added {
    pub(super) fields: Vec<Variable>,
    pub(super) kept: Vec<Variable>,
}

impl<'a> Parser<'a> {
    /// Resolves an action of a trigger with these `variables`; `added` has what earlier actions added.
    pub(super) fn action(
        &mut self,
        parsed: ParsedAction<'a>,
        variables: &[Variable],
        added: &mut Added,
    ) -> Result<Action, Error> {
        let mut parameters = parsed.parameters(self)?;
        let watched = match parsed.handler {
            Handler::Match => None,
            Handler::Max | Handler::Change => {
                let Some(name) = parsed.of.text.strip_prefix('$') else {
                    return Err(self.error(Problem::NotAVariable, parsed.of.text));
                };
                let watched = variables.iter().position(|variable| variable.name == name);
                let watched = watched.ok_or_else(|| self.error(Problem::WatchedNotFound, name))?;
                fallible::push(&mut added.kept, Variable::number()?)?;
                Some((watched, added.kept.len() - 1))
            }
        };
        let handler = parsed.handler.name();
        let name = parsed.name.text;
        let mut text = fallible::Text::default();
        let effect = if name.starts_with("snapshot") {
            Effect::Snapshot
        } else if name.starts_with("save") {
            if added.kept.iter().any(|variable| !variable.name.is_empty()) {
                return Err(Error { problem: Problem::TooManySaves, column: 0, before: None });
            }
            let first = added.kept.len();
            for fragment in &parameters {
                let all = self.all;
                let failed = |error: Error| match error.problem {
                    Problem::OutOfMemory => error,
                    problem => {
                        let create = all.error_about(Problem::FieldVariable, fragment.text);
                        Error { before: Some(error.before.unwrap_or((problem, error.column))), ..create }
                    }
                };
                let value = self.atom(*fragment).map_err(failed)?;
                let variable = Variable { name: fallible::copy(fragment.text)?, value };
                fallible::push(&mut added.kept, variable)?;
            }
            Effect::Save(first, parameters.len())
        } else {
            let event =
                if name.starts_with("trace") && !parameters.is_empty() { parameters.remove(0) } else { parsed.name };
            let effect = self.trace(&parsed, event, &parameters, variables, added)?;
            if name.starts_with("trace") {
                parameters.insert(0, event);
            }
            effect
        };
        fmt::Write::write_fmt(&mut text, format_args!(":{handler}({}).{name}(", parsed.of.text))
            .map_err(|_| OutOfMemory)?;
        for (number, fragment) in parameters.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            fmt::Write::write_fmt(&mut text, format_args!("{comma}{}", fragment.text)).map_err(|_| OutOfMemory)?;
        }
        fmt::Write::write_char(&mut text, ')').map_err(|_| OutOfMemory)?;
        Ok(Action { handler: parsed.handler, text: text.0, watched, effect })
    }

    fn trace(
        &mut self,
        parsed: &ParsedAction<'a>,
        event: Fragment<'a>,
        parameters: &[Fragment<'a>],
        variables: &[Variable],
        added: &mut Added,
    ) -> Result<Effect, Error> {
        let scope = self.scope;
        let (recorder, fields) = scope
            .others
            .and_then(|others| others.synthetic(event.text))
            .ok_or_else(|| self.error(Problem::SyntheticNotFound, event.text))?;
        let mut sent = Vec::new();
        for (number, &fragment) in parameters.iter().enumerate() {
            let mut words = fragment.text.splitn(3, '.');
            let (qualified, last) = match (words.next(), words.next(), words.next()) {
                (Some(group), Some(event), Some(last)) => (Some((group, event)), last),
                (Some(last), None, _) => (None, last),
                _ => return Err(Error { problem: Problem::MissingOperand, column: 0, before: None }),
            };
            let (from, kind) = match last.strip_prefix('$') {
                Some(name) => self.variable(parsed, qualified, name, variables)?,
                None => self.field_variable(parsed, qualified, last, variables.len(), added)?,
            };
            let field = fields.get(number).filter(|field| fits(field, &kind));
            let field = field.ok_or_else(|| self.error(Problem::TypeMismatch, last))?;
            let form = match field.kind.base {
                Base::Characters => Form::Fixed(field.size.min(TEXT_SIZE)),
                Base::String => Form::Located,
                Base::Stack => Form::Stack,
                base => Form::Number(base.size()),
            };
            fallible::push(&mut sent, Sent { from, at: field.offset / 8, form })?;
        }
        if parameters.len() != fields.len() {
            return Err(self.error(Problem::CountMismatch, event.text));
        }
        Ok(Effect::Trace { recorder: recorder.clone(), sent })
    }

    /// Resolves a parameter `$NAME`: a variable of this trigger, of the event that it matches, or of another event.
    fn variable(
        &mut self,
        parsed: &ParsedAction<'a>,
        qualified: Option<(&str, &str)>,
        name: &str,
        variables: &[Variable],
    ) -> Result<(From, ValueType), Error> {
        let is_own = qualified.is_none_or(|event| event == self.scope.event);
        let own = variables.iter().position(|variable| is_own && variable.name == name);
        if let Some(own) = own {
            return Ok((From::Own(own), variables[own].value.kind.try_clone()?));
        }
        let not_found = self.error(Problem::ParameterNotFound, name);
        let not_unique = |error: Error| Error { before: Some((error.problem, error.column)), ..not_found };
        let found = self.find(qualified.or(parsed.matched()), name).map_err(not_unique)?;
        let (histogram, variable) = found.ok_or(not_found)?;
        let number = self.refer(histogram, variable)?;
        Ok((From::Other(number), histogram.definition().variables[variable].value.kind.try_clone()?))
    }

    /// Resolves a parameter that is a field, by adding or finding a variable for it.
    fn field_variable(
        &mut self,
        parsed: &ParsedAction<'a>,
        qualified: Option<(&'a str, &'a str)>,
        name: &'a str,
        before: usize,
        added: &mut Added,
    ) -> Result<(From, ValueType), Error> {
        if qualified.is_none_or(|event| event == self.scope.event) {
            let fragment = Fragment { text: name, column: 0 };
            match self.atom(fragment) {
                Ok(value) => {
                    let kind = value.kind.try_clone()?;
                    fallible::push(&mut added.fields, Variable { name: fallible::copy(name)?, value })?;
                    return Ok((From::Own(before + added.fields.len() - 1), kind));
                }
                Err(error) if error.problem == Problem::OutOfMemory => return Err(error),
                Err(error) if parsed.handler != Handler::Match => {
                    let parse = self.error(Problem::FieldParse, name);
                    let field = self.error(error.problem, name);
                    return Err(Error { before: Some((field.problem, field.column)), ..parse });
                }
                Err(_) => {}
            }
        }
        let Some(event) = qualified.or(parsed.matched()) else {
            return Err(self.error(Problem::FieldNotFound, name));
        };
        let variable = fallible::format(format_args!("synthetic_{name}"))?;
        let Some((histogram, variable)) = self.scope.find(event, &variable) else {
            if let Some(needed) = self.scope.needed {
                let event = (fallible::copy(event.0)?, fallible::copy(event.1)?);
                let (field, keys) = (fallible::copy(name)?, mem::take(&mut self.keys));
                *needed.borrow_mut() = Some(Needed { event, field, keys });
            }
            return Err(self.error(Problem::NeedsField, name));
        };
        let number = self.refer(histogram, variable)?;
        Ok((From::Other(number), histogram.definition().variables[variable].value.kind.try_clone()?))
    }
}

/// Whether a field of a synthetic event can take a value. A text that is too long is cut.
fn fits(field: &Field, kind: &ValueType) -> bool {
    let is_text = kind.text.contains("char[");
    let is_stack = kind.text.contains("long[");
    if field.is_stack() || is_stack {
        return field.is_stack() && is_stack;
    }
    if field.is_text() || is_text {
        return field.is_text() && is_text;
    }
    field.text == kind.text || field.size == kind.size && field.signed == kind.signed
}

impl Variable {
    /// Makes a number that only an action sets.
    fn number() -> Result<Self, OutOfMemory> {
        Ok(Self { name: String::new(), value: super::expression::Value::constant(0)? })
    }

    /// Whether the variable is a stack.
    pub(super) fn is_stack(&self) -> bool {
        self.value.kind.text.contains("long[")
    }

    /// Whether the variable is not a number.
    pub(super) fn is_text(&self) -> bool {
        !matches!(self.value.content, Content::Number(_))
    }
}
