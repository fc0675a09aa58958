//! Fields of static events, `args.FIELD` at `tracepoint:GROUP:EVENT`.
//!
//! The function of an event is called with the address of the struct of its fields in x0, so a field is a number or a
//! string in memory. The fields come from the description of the event, not from the table of types.

use aarch64_kprobes::event::{Event, Field, FieldKind};
use kprobes_symbols::names::matches;
use kprobes_vm::ir::{Arithmetic, Builtin, Op, Operand, Register, Type};

use super::clause::Clause;
use super::value::{UNSIGNED, Value, text_words};
use crate::config::TEXT_MAX;
use crate::error::{Described, Error, Listed, Problem, Span};
use crate::syntax::{Expression, ExpressionForm, Probe};

/// The size of a word in bytes, which is the distance from the address of a text to its length.
const WORD: u64 = 8;

impl Clause<'_, '_> {
    /// Returns the value of `expression` if it is a field of the events that the probes mean; `None` for any other
    /// expression, and at probes of other kinds.
    pub fn event_field(&mut self, expression: &Expression) -> Result<Option<Value>, Error> {
        let ExpressionForm::Field { of, name } = &*expression.form else { return Ok(None) };
        if !matches!(&*of.form, ExpressionForm::Builtin(root) if root == "args") || !self.is_at_events() {
            return Ok(None);
        }
        let span = expression.span;
        let field = self.described(name, span)?;
        let what = Builtin::Register(Register::X(0));
        let base = self.give(UNSIGNED, |to| Op::Load { to, what }, span)?.at;
        let address = self.address(base, field.offset as u64, span)?;
        let bytes = field.size as u8;
        Ok(Some(match field.kind {
            FieldKind::Unsigned | FieldKind::Signed | FieldKind::Address => {
                let signed = field.kind == FieldKind::Signed;
                self.give(Type::Integer { signed }, |to| Op::Read { to, address, bytes, signed }, span)?
            }
            FieldKind::Characters => {
                let words = text_words(field.size).or(text_words(TEXT_MAX)).unwrap_or(self.text_words());
                let length = Operand::Constant(field.size as u64);
                self.give(Type::Text { words }, |to| Op::ReadText { to, words, address, length }, span)?
            }
            FieldKind::Text => {
                let (bytes, signed, most) = (WORD as u8, false, self.checker.config.text_length.into());
                let start = self.give(UNSIGNED, |to| Op::Read { to, address, bytes, signed }, span)?.at;
                let address = self.address(address, WORD, span)?;
                let length = self.give(UNSIGNED, |to| Op::Read { to, address, bytes, signed }, span)?.at;
                self.read_text(start, length, most, span)?
            }
        }))
    }

    /// Returns whether all probes are static events.
    pub fn is_at_events(&self) -> bool {
        self.probes.iter().all(|probe| matches!(probe.node, Probe::Tracepoint { .. }))
    }

    fn address(&mut self, base: Operand, offset: u64, span: Span) -> Result<Operand, Error> {
        match offset {
            0 => Ok(base),
            _ => Ok(self.compute(Arithmetic::Add, base, Operand::Constant(offset), UNSIGNED, span)?.at),
        }
    }

    /// Returns the field with this name, if all events of the probes have it in the same place.
    fn described(&self, name: &str, span: Span) -> Result<&'static Field, Error> {
        let mut found: Option<&'static Field> = None;
        let mut problem = None;
        self.each_event(&mut |known| {
            let field = known.fields().iter().find(|field| field.name == name);
            let place = |field: &Field| (field.kind, field.offset, field.size);
            match (field, found) {
                (None, _) => problem = Some(Problem::NoEventField { names: Listed::Event(Described(known)) }),
                (Some(field), Some(other)) if place(field) != place(other) => problem = Some(Problem::Differs),
                _ => found = field,
            }
        });
        match (problem, found) {
            (Some(problem), _) => Err(span.error(problem)),
            (None, Some(field)) => Ok(field),
            // The probe itself is refused when its places are looked up.
            (None, None) => Err(span.error(Problem::NoEvent)),
        }
    }

    /// Calls `each` with every event of the probes.
    pub fn each_event(&self, each: &mut dyn FnMut(&'static Event)) {
        for probe in &self.probes {
            let Probe::Tracepoint { group, event } = &probe.node else { continue };
            self.checker.symbols.each_event(&mut |known: &'static Event| {
                if matches(group, known.group()) && matches(event, known.name()) {
                    each(known);
                }
            });
        }
    }
}
