//! `print(args)` and `print(locals)`: all arguments of a function, all locals that have a place at the probed
//! instruction, or all fields of a static event, by their names.

use alloc::string::String;
use alloc::vec::Vec;

use kprobes_types::{Argument, Function, Unknown, ValuePlace};
use kprobes_vm::ir::{FRAME_WORDS, Type, Word};

use super::clause::Clause;
use super::value::Value;
use super::variable::copies_at;
use super::variable_group::VariableGroup;
use super::{Instruction, VariableScope};
use crate::checked::{Action, PrintKind};
use crate::conversion::{Conversion, Piece, Shown};
use crate::error::{Error, Listed, Problem, Span};
use crate::syntax::{Expression, ExpressionForm};

impl Clause<'_, '_> {
    /// Compiles the print of a group as a record. `(optimised out)` replaces a value that the compiler optimized out,
    /// and `…` a value that cannot be shown or for which the frame has no room left.
    pub fn print_group(&mut self, group: VariableGroup, span: Span) -> Result<(), Error> {
        let names = match group {
            VariableGroup::Arguments if self.is_at_events() => self.field_names(span)?,
            VariableGroup::Arguments => self.argument_names(span)?,
            VariableGroup::Locals => self.local_names(span)?,
        };
        let first = self.free;
        let (mut pieces, mut text, mut separator) = (Vec::new(), String::new(), "{ ");
        for name in names {
            text = fallible::format(format_args!("{text}{separator}.{name} = "))?;
            separator = ", ";
            let argument = ExpressionForm::Builtin(fallible::copy(group.builtin())?);
            let argument = ExpressionForm::Field { of: Expression::new(argument, span)?, name: fallible::copy(name)? };
            let argument = Expression::new(argument, span)?;
            let reason = match self.unrun(|clause| clause.packed(&argument)) {
                Ok(_) => {
                    let of = self.packed(&argument)?.of;
                    let conversion = Some(Conversion { shown: shown(of), of, ..Conversion::default() });
                    fallible::push(&mut pieces, Piece { text: core::mem::take(&mut text), conversion })?;
                    continue;
                }
                Err(Error { problem: Problem::Room { .. } | Problem::NotShown { .. }, .. }) => "…",
                Err(Error {
                    problem: Problem::Lost | Problem::Unknown { .. } | Problem::UnknownInCopy { .. }, ..
                }) => "(optimised out)",
                Err(error) => return Err(error),
            };
            text = fallible::format(format_args!("{text}{reason}"))?;
        }
        text = fallible::format(format_args!("{text} }}\n"))?;
        fallible::push(&mut pieces, Piece { text, conversion: None })?;
        let word = |number: usize| u8::try_from(number).map_err(|_| span.error(Problem::Room { most: FRAME_WORDS }));
        let (from, words) = (Word(word(first)?), word(self.free - first)?);
        self.emit(Action::Format { pieces, kind: PrintKind::Value }, from, words, span)
    }

    /// Compiles an argument to the next words of the frame, and frees the words that were needed to compute it.
    fn packed(&mut self, argument: &Expression) -> Result<Value, Error> {
        let (first, span) = (self.free, argument.span);
        let value = self.printed(argument)?;
        self.free = first;
        let to = self.room(value.of.words(), span)?;
        self.place(value, to, value.of, span)?;
        Ok(value)
    }

    /// Returns the names of the arguments of the first function of the probes. The lookup of each argument compares the
    /// other functions with it.
    fn argument_names(&self, span: Span) -> Result<Vec<&'static str>, Error> {
        let (function, at) = self.first_place(span)?;
        let names = match self.copy_names(VariableGroup::Arguments, at, span)? {
            Some(names) => names,
            None => {
                let names = function.arguments().map(|argument| argument.name).filter(|name| !name.is_empty());
                fallible::collect(names)?
            }
        };
        if names.is_empty() { Err(span.error(Problem::NoArgument { names: Listed::Names(&[]) })) } else { Ok(names) }
    }

    /// Returns the first instruction of the probes, and its function.
    fn first_place(&self, span: Span) -> Result<(Function<'static>, Instruction), Error> {
        self.allow(self.allowed.variables, Problem::VariableAway, span)?;
        let mut first = None;
        self.each_place(span, |function, at| {
            first.get_or_insert((function, at));
            Ok(())
        })?;
        first.ok_or(span.error(Problem::NoSignature))
    }

    /// Returns the names of a group in the innermost copy at an instruction that has variables of the group, each once.
    /// `None` if no copy has any.
    fn copy_names(
        &self,
        group: VariableGroup,
        at: Instruction,
        span: Span,
    ) -> Result<Option<Vec<&'static str>>, Error> {
        let (is_argument, offset) = (group == VariableGroup::Arguments, at.offset());
        let copies = copies_at(self.types(span)?, at).map_err(|problem| span.error(problem))?;
        let is_last = at.scope != VariableScope::All;
        for (_, copy) in copies {
            let mut names = Vec::new();
            for one in copy.variables().filter(|one| one.is_argument == is_argument) {
                let found = copy.find(one.name, is_argument, offset);
                if !names.contains(&one.name) && found.is_some_and(|found| is_argument || found.is_ok()) {
                    fallible::push(&mut names, one.name)?;
                }
            }
            if is_last || !names.is_empty() {
                return Ok(Some(names));
            }
        }
        Ok(None)
    }

    /// Returns the names of the locals that have a place at the first instruction of the probes, each once.
    fn local_names(&self, span: Span) -> Result<Vec<&'static str>, Error> {
        let (_, at) = self.first_place(span)?;
        let none = span.error(Problem::Unknown { why: Unknown::OptimizedOut });
        if let Some(names) = self.copy_names(VariableGroup::Locals, at, span)? {
            return if names.is_empty() { Err(none) } else { Ok(names) };
        }
        let all = self.types(span)?.variables(at.function).ok_or(span.error(Problem::NoTypes))?;
        let offset = at.offset();
        let mut names = Vec::new();
        for local in all.clone().filter(|one| !one.is_argument && one.at(offset).is_some()) {
            let is_somewhere = |found: Argument<'_>| !matches!(found.place, ValuePlace::Unknown(_));
            if !names.contains(&local.name) && all.clone().find(local.name, false, offset).is_some_and(is_somewhere) {
                fallible::push(&mut names, local.name)?;
            }
        }
        if names.is_empty() { Err(none) } else { Ok(names) }
    }

    /// Returns the names of the fields of the first event of the probes.
    fn field_names(&self, span: Span) -> Result<Vec<&'static str>, Error> {
        let mut first = None;
        self.each_event(&mut |known| _ = first.get_or_insert(known));
        let event = first.ok_or(span.error(Problem::NoEvent))?;
        Ok(fallible::collect(event.fields().iter().map(|field| field.name))?)
    }
}

/// Returns the conversion that shows a value of this type as `print` does.
fn shown(of: Type) -> Shown {
    match of {
        Type::Integer { signed: true } => Shown::Signed,
        Type::Integer { signed: false } => Shown::Unsigned,
        Type::Pointer { .. } => Shown::Pointer,
        _ => Shown::Text,
    }
}
