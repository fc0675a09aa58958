//! Compiles expressions to values.

use alloc::string::String;

use kprobes_vm::hit::extend;
use kprobes_vm::ir::{Arithmetic, Builtin, COMM_WORDS, Comparison, Op, Operand, Register, STACK_MAX, Type, Word};
use kprobes_vm::maps::Limits;

use super::Stage;
use super::clause::Clause;
use super::map::arithmetic;
use super::value::{SIGNED, UNSIGNED, Value, constant, number};
use crate::builtins::{BUILTIN_WORDS, BuiltinValue, unknown_value};
use crate::config::{Config, StackMode};
use crate::error::{Error, Noun, Problem, Span};
use crate::foreign;
use crate::syntax::{Expression, ExpressionForm, Operator, Spanned, Statement, Target, TypeForm, TypeName, Unary};

/// The least room for a string that a `?:` chooses, in words.
const CHOSEN_WORDS: u8 = 8;

impl Clause<'_, '_> {
    /// Compiles an expression to a value. Work that is not needed while the parts are compiled is done in functions
    /// that are not inlined: the stack frame of each recursion stays small.
    pub fn value(&mut self, expression: &Expression) -> Result<Value, Error> {
        let span = expression.span;
        self.go_on(span)?;
        match &*expression.form {
            ExpressionForm::Integer(value) => Ok(Value::constant(*value, value.cast_signed() >= 0)),
            ExpressionForm::Text(text) => self.literal(text, span),
            ExpressionForm::Variable(name) => self.visible(name, span),
            ExpressionForm::Map(map) => self.read_map(map, span),
            ExpressionForm::Builtin(_)
            | ExpressionForm::Field { .. }
            | ExpressionForm::Part { .. }
            | ExpressionForm::Index { .. } => self.within(expression),
            ExpressionForm::Path(_) => Err(span.error(Problem::Path)),
            ExpressionForm::Call { name, arguments } => self.call(name, arguments, span),
            ExpressionForm::Unary { operator, operand } => self.unary(*operator, operand, span),
            ExpressionForm::Step { target, up, first } => self.step(target, *up, *first, span),
            ExpressionForm::Binary { operator, left, right } if operator.is_arithmetic() => {
                self.arithmetic(*operator, left, right)
            }
            ExpressionForm::Binary { .. } => self.truth(expression),
            ExpressionForm::Choice { condition, then, otherwise } => self.choice(condition, then, otherwise, span),
            ExpressionForm::Cast { to, operand } => self.cast(to, operand, span),
            ExpressionForm::Tuple(parts) => self.parts(parts, span),
            ExpressionForm::Record(parts) => self.record(parts, span),
            ExpressionForm::Block { body, value } => self.block_value(body, value.as_ref(), span),
        }
    }

    #[inline(never)]
    fn visible(&mut self, name: &str, span: Span) -> Result<Value, Error> {
        let variable = self.variable(name).ok_or(span.error(Problem::Unset))?;
        Ok(self.read_variable(variable))
    }

    /// Compiles a builtin, or a part of a value.
    #[inline(never)]
    fn within(&mut self, expression: &Expression) -> Result<Value, Error> {
        let span = expression.span;
        if let Some(value) = self.event_field(expression)? {
            return Ok(value);
        }
        if let Some(place) = self.rust_place(expression)? {
            return self.scalar(place, span);
        }
        match &*expression.form {
            ExpressionForm::Builtin(name) => self.builtin(name, span),
            ExpressionForm::Part { tuple, .. } if matches!(&*tuple.form, ExpressionForm::Integer(_)) => {
                Err(span.error(Problem::Fraction))
            }
            ExpressionForm::Part { tuple, number } => {
                let value = self.value(tuple)?;
                if self.is_guess_of_tuple(value) { Ok(Value::GUESS) } else { self.part(value, *number, span) }
            }
            ExpressionForm::Index { pointer, index } => {
                let (base, distance) = (self.value(pointer)?, self.value(index)?);
                self.element(base, distance, [pointer.span, index.span], span)
            }
            ExpressionForm::Field { of, name } => self.named_part(of, name, span),
            _ => Err(span.error(Problem::Value)),
        }
    }

    /// Returns the part of a record that is called `name`.
    #[inline(never)]
    fn named_part(&mut self, of: &Expression, name: &str, span: Span) -> Result<Value, Error> {
        if matches!(&*of.form, ExpressionForm::Builtin(root) if root == "config") {
            return self.setting(name, span);
        }
        let record = self.value(of)?;
        if self.is_guess_of_tuple(record) {
            return Ok(Value::GUESS);
        }
        let names = match record.of {
            Type::Tuple { shape, .. } => self.checker.shapes.names(shape),
            _ => &[],
        };
        match names.iter().position(|known| known == name) {
            Some(number) => self.part(record, number as u64, span),
            None if names.is_empty() => Err(span.error(foreign::field("."))),
            None => Err(span.error(Problem::NoPart)),
        }
    }

    /// Returns whether `value`, of which a part is wanted, is no tuple only because its type is not known yet.
    fn is_guess_of_tuple(&self, value: Value) -> bool {
        self.guessed && self.checker.is_learning() && !matches!(value.of, Type::Tuple { .. })
    }

    /// Returns the value of a setting of the program.
    fn setting(&mut self, name: &str, span: Span) -> Result<Value, Error> {
        let Config { keys, text_length, missing, shows_maps, stack_mode, stack_lines, .. } = self.checker.config;
        Ok(match name {
            "max_map_keys" => Value::constant(keys.unwrap_or(Limits::usual(1).entries) as u64, true),
            "max_strlen" => Value::constant(text_length.into(), true),
            "print_maps_on_exit" => Value::constant(shows_maps.into(), true),
            "show_debug_info" => Value::constant(stack_lines.into(), true),
            "missing_probes" => self.literal(missing.name(), span)?,
            "stack_mode" => self.literal(stack_mode.name(), span)?,
            _ => return Err(span.error(Problem::Setting)),
        })
    }

    /// Returns a part of a tuple or a byte of a string, or reads an element behind a pointer.
    #[inline(never)]
    fn element(&mut self, base: Value, distance: Value, [at, index]: [Span; 2], span: Span) -> Result<Value, Error> {
        if let Type::Tuple { .. } = base.of {
            let distance = number(distance, index)?;
            return self.part(base, constant(distance, index)?, span);
        }
        if let (Type::Text { words }, Operand::Word(first)) = (base.of, base.at) {
            let byte = constant(number(distance, index)?, index)?;
            let most = u64::from(words) * 8 - 1;
            if byte > most {
                return Err(index.error(Problem::Range { least: 0, most }));
            }
            let (word, above) = (Word(first.0.saturating_add((byte / 8) as u8)), Operand::Constant(8 * (byte % 8)));
            let from = self.compute(Arithmetic::Right, Operand::Word(word), above, UNSIGNED, span)?.at;
            return self.give(SIGNED, |to| Op::Extend { to, from, bits: 8, signed: true }, span);
        }
        if !matches!(base.of, Type::Pointer { .. }) {
            return Err(at.error(Problem::NotAPointer));
        }
        let element = self.binary(Operator::Add, base, distance, at, index)?;
        self.read(element, span)
    }

    #[inline(never)]
    fn arithmetic(&mut self, operator: Operator, left: &Expression, right: &Expression) -> Result<Value, Error> {
        let around = self.guessed;
        let (one, other) = (self.value(left)?, self.value(right)?);
        let result = self.binary(operator, one, other, left.span, right.span)?;
        self.settle(around);
        Ok(result)
    }

    #[inline(never)]
    fn parts(&mut self, parts: &[Expression], span: Span) -> Result<Value, Error> {
        let mut values = alloc::vec::Vec::new();
        for part in parts {
            fallible::push(&mut values, (self.value(part)?, part.span))?;
        }
        self.tuple(&values, span)
    }

    #[inline(never)]
    fn record(&mut self, parts: &[(String, Expression)], span: Span) -> Result<Value, Error> {
        let mut values = alloc::vec::Vec::new();
        for (_, part) in parts {
            fallible::push(&mut values, (self.value(part)?, part.span))?;
        }
        let names = fallible::collect_results(parts.iter().map(|(name, _)| fallible::copy(name)))?;
        self.build(&values, names, span)
    }

    #[inline(never)]
    fn block_value(&mut self, body: &[Statement], value: Option<&Expression>, span: Span) -> Result<Value, Error> {
        let (variables, guessed, asked) = (self.variables.len(), self.guessed, self.asked);
        self.statements(body)?;
        (self.guessed, self.asked) = (guessed, asked);
        let value = self.value(value.ok_or(span.error(Problem::NotAValue))?)?;
        self.variables.truncate(variables);
        Ok(value)
    }

    #[inline(never)]
    fn unary(&mut self, operator: Unary, operand: &Expression, span: Span) -> Result<Value, Error> {
        let around = self.guessed;
        let value = self.value(operand)?;
        let result = self.applied(operator, value, operand.span, span)?;
        self.settle(around);
        Ok(result)
    }

    #[inline(never)]
    fn applied(&mut self, operator: Unary, value: Value, at: Span, span: Span) -> Result<Value, Error> {
        if operator == Unary::Read {
            return self.read(value, at);
        }
        let value = number(value, at)?;
        match (operator, value.at) {
            (Unary::Not, Operand::Constant(constant)) => Ok(Value::constant((constant == 0).into(), true)),
            (Unary::Not, left) => {
                let right = Operand::Constant(0);
                self.give(SIGNED, |to| Op::Compare { to, how: Comparison::Equal, left, right }, span)
            }
            (Unary::Negate, right) => self.compute(Arithmetic::Subtract, Operand::Constant(0), right, SIGNED, span),
            _ => {
                let of = Type::Integer { signed: value.is_signed() };
                self.compute(Arithmetic::Xor, value.at, Operand::Constant(u64::MAX), of, span)
            }
        }
    }

    /// Dereferences a pointer.
    #[inline(never)]
    fn read(&mut self, pointer: Value, span: Span) -> Result<Value, Error> {
        let Type::Pointer { signed, bytes } = pointer.of else {
            return Err(span.error(Problem::NotAPointer));
        };
        let address = pointer.at;
        self.give(Type::Integer { signed }, |to| Op::Read { to, address, bytes, signed }, span)
    }

    /// Compiles a binary operation on numbers.
    #[inline(never)]
    pub fn binary(
        &mut self,
        operator: Operator,
        left: Value,
        right: Value,
        left_span: Span,
        right_span: Span,
    ) -> Result<Value, Error> {
        let (left, right) = (number(left, left_span)?, number(right, right_span)?);
        let span = left_span.to(right_span);
        if let (Operator::Add, Type::Integer { .. }, Type::Pointer { .. }) = (operator, left.of, right.of) {
            return self.binary(operator, right, left, right_span, left_span);
        }
        let (how, of) = arithmetic(operator, left.of, right.of).ok_or(span.error(Problem::Value))?;
        match self.distance_of_elements(operator, left.of, right, span)? {
            Some(distance) => self.compute(how, left.at, distance, left.of, span),
            None => self.compute(how, left.at, right.at, of, span),
        }
    }

    /// Returns the bytes by which `operator` moves a value of type `of` by `elements`; `None` if it does not move a
    /// pointer by a number.
    #[inline(never)]
    pub fn distance_of_elements(
        &mut self,
        operator: Operator,
        of: Type,
        elements: Value,
        span: Span,
    ) -> Result<Option<Operand>, Error> {
        let (Operator::Add | Operator::Subtract, Type::Pointer { bytes, .. }, Type::Integer { .. }) =
            (operator, of, elements.of)
        else {
            return Ok(None);
        };
        let bytes = Operand::Constant(bytes.into());
        self.compute(Arithmetic::Multiply, elements.at, bytes, SIGNED, span).map(|distance| Some(distance.at))
    }

    /// `++` and `--`.
    #[inline(never)]
    fn step(&mut self, target: &Spanned<Target>, up: bool, first: bool, span: Span) -> Result<Value, Error> {
        let operator = if up { Operator::Add } else { Operator::Subtract };
        let one = Value::constant(1, true);
        match &target.node {
            Target::Map(map) => {
                let (number, key) = self.entry(&map.name, &map.keys, target.span)?;
                self.modify(number, key, operator, one, span, target.span, first)
            }
            Target::Variable(name) => {
                let known = self.variable(name).ok_or(target.span.error(Problem::Unset))?;
                let old = self.read_variable(known);
                let kept = match first {
                    true => old,
                    false => self.give(known.of, |to| Op::Set { to, from: old.at }, span)?,
                };
                let new = self.binary(operator, old, one, target.span, span)?;
                self.place(new, known.at, known.of, span)?;
                Ok(kept)
            }
        }
    }

    #[inline(never)]
    fn choice(
        &mut self,
        condition: &Expression,
        then: &Expression,
        otherwise: &Expression,
        span: Span,
    ) -> Result<Value, Error> {
        let mut exits = alloc::vec::Vec::new();
        let (around, asked) = (self.guessed, core::mem::take(&mut self.asked));
        let known = self.test_to_select(condition, &mut exits)?;
        let is_by_type = core::mem::replace(&mut self.asked, asked);
        self.asked |= is_by_type;
        // The condition does not tell the type of the choice.
        self.guessed = false;
        if let Some(truth) = known {
            let (taken, other) = if truth { (then, otherwise) } else { (otherwise, then) };
            let value = self.value(taken)?;
            // The type of a choice depends on both branches, unless the condition asks about a type.
            let of = match is_by_type {
                true => value.of,
                false => {
                    let guessed = core::mem::take(&mut self.guessed);
                    let of = self.unreached(|clause| {
                        let entries = clause.checker.entries_of_types();
                        let other = clause.value(other)?;
                        let of = clause.chosen([value.of, other.of], guessed, span)?;
                        // The entries that a type refers to stay if the type takes the place of a guess.
                        let is_kept = guessed && of != value.of && clause.checker.entries_of_types() > entries;
                        clause.checker.changed |= is_kept;
                        Ok(of)
                    })?;
                    // The only value that is chosen needs no room for the other one.
                    if has_room(value.of) { value.of } else { of }
                }
            };
            self.guessed |= around;
            return Ok(Value { of, ..value });
        }
        let one = self.value(then)?;
        let guessed = core::mem::take(&mut self.guessed);
        let place = match has_room(one.of) {
            // The room is known only after the other value.
            true => None,
            false => Some(self.copied(one, one.of, then.span)?),
        };
        let end = self.jump(span)?;
        self.land(&exits);
        let other = self.value(otherwise)?;
        let of = self.chosen([one.of, other.of], guessed, span)?;
        self.guessed |= around;
        let to = match place {
            Some(to) => {
                self.place(other, to, of, otherwise.span)?;
                self.land(&[end]);
                to
            }
            None => self.either([one, other], end, of, [then.span, otherwise.span])?,
        };
        Ok(Value { at: Operand::Word(to), of })
    }

    /// Returns the type of a choice between values of these types. `guessed` tells whether the first is a guess, and
    /// `self.guessed` whether the second is. If a guess does not fit the other type, or no other code tells the type,
    /// only the other type counts.
    #[inline(never)]
    fn chosen(&mut self, [one, other]: [Type; 2], guessed: bool, span: Span) -> Result<Type, Error> {
        let of = self.choice_of(one, other, span);
        let gives_way = match &of {
            Ok(_) => self.checker.stage == Stage::UnreachedMaps,
            Err(error) => !self.ends_with(error),
        };
        if guessed != self.guessed && gives_way {
            self.guessed = false;
            let certain = if guessed { other } else { one };
            return self.choice_of(certain, certain, span);
        }
        self.guessed |= guessed;
        of
    }

    /// Copies `value` to a new place with room for the type `of`.
    fn copied(&mut self, value: Value, of: Type, span: Span) -> Result<Word, Error> {
        let to = self.room(of.words(), span)?;
        self.place(value, to, of, span)?;
        Ok(to)
    }

    /// Copies one of two values to a new place with room for the type `of`: the first value if control comes from the
    /// jump at the index `first`, and the second one if it comes from the op before.
    #[inline(never)]
    fn either(
        &mut self,
        [one, other]: [Value; 2],
        first: usize,
        of: Type,
        [at, other_at]: [Span; 2],
    ) -> Result<Word, Error> {
        let to = self.copied(other, of, other_at)?;
        let end = self.jump(other_at)?;
        self.land(&[first]);
        self.place(one, to, of, at)?;
        self.land(&[end]);
        Ok(to)
    }

    /// Returns the type of a value that is chosen from values of these types. Strings, buffers and tuples get room for
    /// both.
    #[inline(never)]
    fn choice_of(&mut self, one: Type, other: Type, span: Span) -> Result<Type, Error> {
        let problem = match (one, other) {
            (Type::Text { words }, Type::Text { words: others }) => {
                return Ok(Type::Text { words: words.max(others).max(CHOSEN_WORDS).max(self.text_words()) });
            }
            _ if one == other => return Ok(one),
            (Type::Integer { .. } | Type::Pointer { .. }, Type::Integer { .. } | Type::Pointer { .. }) => {
                return Ok(Type::Integer { signed: one == SIGNED && other == SIGNED });
            }
            (Type::Bytes { .. }, Type::Bytes { .. }) | (Type::Tuple { .. }, Type::Tuple { .. })
                if let Some(merged) = self.checker.shapes.merge(one, other)? =>
            {
                return Ok(merged);
            }
            // The format of a time belongs to its type, so both branches need the same format.
            (Type::Time { .. }, Type::Time { .. }) => Problem::Formats,
            _ => Problem::Types { left: one.into(), right: other.into() },
        };
        Err(span.error(problem))
    }

    #[inline(never)]
    fn cast(&mut self, to: &TypeForm, operand: &Expression, span: Span) -> Result<Value, Error> {
        if let TypeForm::Array { element, count } = to {
            return self.cast_to_array(*element, *count, operand, span);
        }
        let (around, to) = (self.guessed, self.type_of(to)?);
        let (value, array) = self.number_of_array(operand)?;
        self.settle(around);
        let wants = if to.pointer { 8 } else { u64::from(to.bits / 8) };
        if let Some(has) = array.filter(|has| *has != wants) {
            return Err(operand.span.error(Problem::CastSize { has, wants }));
        }
        self.converted(to, value, operand.span, span)
    }

    #[inline(never)]
    fn converted(&mut self, to: TypeName, value: Value, at: Span, span: Span) -> Result<Value, Error> {
        if !value.is_number() && value.of != Type::Symbol {
            let problem = Problem::Type { wanted: Noun::Integer, found: value.of.into() };
            return Err(at.error(problem));
        }
        let TypeName { signed, bits, pointer } = to;
        if pointer {
            return Ok(Value { of: Type::Pointer { signed, bytes: bits / 8 }, ..value });
        }
        let of = Type::Integer { signed };
        match value.at {
            at if bits == 64 => Ok(Value { at, of }),
            Operand::Constant(constant) => Ok(Value { at: Operand::Constant(extend(constant, bits, signed)), of }),
            from @ Operand::Word(_) => self.give(of, |to| Op::Extend { to, from, bits, signed }, span),
        }
    }

    /// Returns `problem` as an error unless `allowed`, which tells whether the probes of this clause permit a feature.
    pub fn allow(&self, allowed: bool, problem: Problem, span: Span) -> Result<(), Error> {
        if allowed { Ok(()) } else { Err(span.error(problem)) }
    }

    #[inline(never)]
    fn builtin(&mut self, name: &str, span: Span) -> Result<Value, Error> {
        let load = |what| move |to| Op::Load { to, what };
        let register = match BUILTIN_WORDS.iter().find(|word| word.name == name).map(|word| word.value) {
            Some(BuiltinValue::Loaded { of, what, needs_hit }) => {
                self.allow(self.allowed.hit || !needs_hit, Problem::NoHit, span)?;
                return self.give(of, load(what), span);
            }
            Some(BuiltinValue::ProbeKind) => {
                return self.literal(self.kind.ok_or(span.error(Problem::ProbeKinds))?, span);
            }
            Some(BuiltinValue::Comm) => return self.give(Type::Text { words: COMM_WORDS }, |to| Op::Comm { to }, span),
            Some(BuiltinValue::TextLength) => {
                return Ok(Value::constant(self.checker.config.text_length.into(), true));
            }
            Some(BuiltinValue::Result) => {
                self.allow(self.allowed.result, Problem::NoReturnValue, span)?;
                0
            }
            None if name == "kstack" => return self.stack(self.checker.config.stack_mode, STACK_MAX, span),
            None => {
                let number = name.strip_prefix("arg").and_then(|digits| digits.parse::<u8>().ok());
                let Some(number) = number else {
                    return Err(span.error(foreign::value(name).unwrap_or_else(|| unknown_value(name))));
                };
                if number > 7 || name.len() > "arg7".len() {
                    return Err(span.error(Problem::ArgumentNumber));
                }
                self.allow(self.allowed.arguments, Problem::ArgumentAway, span)?;
                number
            }
        };
        self.allow(self.allowed.hit, Problem::NoHit, span)?;
        self.give(UNSIGNED, load(Builtin::Register(Register::X(register))), span)
    }

    /// Adds an op that captures the stack, at most `frames` frames.
    pub fn stack(&mut self, mode: StackMode, frames: usize, span: Span) -> Result<Value, Error> {
        self.allow(self.allowed.hit, Problem::NoHit, span)?;
        self.checker.stack_frames = self.checker.stack_frames.max(frames);
        let frames = u8::try_from(frames).unwrap_or(u8::MAX);
        self.give(mode.stack(), |to| Op::Stack { to, frames }, span)
    }
}

/// Returns whether values of this type may have different rooms.
fn has_room(of: Type) -> bool {
    matches!(of, Type::Text { .. } | Type::Bytes { .. } | Type::Tuple { .. })
}
