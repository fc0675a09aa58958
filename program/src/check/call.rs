//! Compiles calls of functions, which have a value.

use alloc::string::String;
use alloc::vec::Vec;

use kprobes_types::LineError;
use kprobes_vm::ir::{Builtin, Comparison, Op, Operand, Register, STACK_MAX, Type, Word};

use super::clause::Clause;
use super::value::{SIGNED, UNSIGNED, Value, number};
use crate::builtins::{not_a_value, unknown_function};
use crate::checked::RustValue;
use crate::config::StackMode;
use crate::error::{Error, Problem, Span};
use crate::foreign;
use crate::syntax::{Expression, ExpressionForm, MapReference, Spanned};

/// Returns the text of a string literal.
pub(super) fn written(argument: &Expression) -> Result<&str, Error> {
    match &*argument.form {
        ExpressionForm::Text(text) => Ok(text),
        _ => Err(argument.span.error(Problem::NotLiteral)),
    }
}

/// Returns the map of an expression, with its key if it has one.
pub(super) fn map(argument: &Expression) -> Result<&MapReference, Error> {
    match &*argument.form {
        ExpressionForm::Map(map) => Ok(map),
        _ => Err(argument.span.error(Problem::NotAMap)),
    }
}

impl Clause<'_, '_> {
    /// Returns the constant value of `argument`, which must be from `least` to `most`.
    pub fn known(&mut self, argument: &Expression, least: u64, most: u64) -> Result<u64, Error> {
        match self.bounded(argument, least, most)? {
            Operand::Constant(value) => Ok(value),
            Operand::Word(_) => Err(argument.span.error(Problem::NotConstant)),
        }
    }

    /// Compiles an expression, which must be a number or a pointer.
    pub fn numeric(&mut self, expression: &Expression) -> Result<Value, Error> {
        let value = self.value(expression)?;
        number(value, expression.span)
    }

    /// Returns the number `argument`, which must be from `least` to `most` if it is a constant.
    pub fn bounded(&mut self, argument: &Expression, least: u64, most: u64) -> Result<Operand, Error> {
        match self.numeric(argument)?.at {
            Operand::Constant(value) if !(least..=most).contains(&value) => {
                Err(argument.span.error(Problem::Range { least, most }))
            }
            at => Ok(at),
        }
    }

    /// Compiles a call with a value.
    pub fn call(&mut self, name: &Spanned<String>, arguments: &[Expression], span: Span) -> Result<Value, Error> {
        match (name.node.as_str(), arguments) {
            (question, _) if let Some(answer) = self.question(question, arguments, span)? => Ok(answer),
            ("str", [pointer]) => self.text(pointer, None, span),
            ("str", [pointer, length]) => self.text(pointer, Some(length), span),
            ("kaddr", [path]) => {
                let address = self.symbol(written(path)?, path.span)?;
                Ok(Value { of: UNSIGNED, ..address })
            }
            ("ksym", [address]) => {
                let value = self.value(address)?;
                match value.of {
                    Type::Symbol => Ok(value),
                    _ => Ok(Value { of: Type::Symbol, ..number(value, address.span)? }),
                }
            }
            ("line", [address]) => {
                let value = self.value(address)?;
                let value = if value.of == Type::Symbol { value } else { number(value, address.span)? };
                if self.types(span)?.lines().is_none() {
                    return Err(span.error(Problem::Line { why: LineError::NoLines }));
                }
                Ok(Value { of: self.checker.rust_type(RustValue::Line, 1, span)?, ..value })
            }
            ("reg", [register]) => {
                let which = self::register(written(register)?).ok_or(register.span.error(Problem::Register))?;
                self.allow(self.allowed.hit, Problem::NoHit, span)?;
                self.give(UNSIGNED, |to| Op::Load { to, what: Builtin::Register(which) }, span)
            }
            ("kstack", arguments) if arguments.len() <= 2 => self.formatted_stack(arguments, span),
            ("len", [what]) => self.length(what, span),
            ("strlen", [text]) => {
                let (at, words) = self.string(text)?;
                self.give(UNSIGNED, |to| Op::Length { to, text: at, words }, span)
            }
            ("strstr", [text, part]) => self.find(text, part, span),
            ("strcontains", [text, part]) => {
                let found = self.find(text, part, span)?;
                let (how, left, right) = (Comparison::Unequal, found.at, Operand::Constant(u64::MAX));
                self.give(SIGNED, |to| Op::Compare { to, how, left, right }, span)
            }
            ("has_key", [what, key]) => {
                let (map, key) = self.map_entry(what, key)?;
                self.give(SIGNED, |to| Op::Has { to, map, key }, span)
            }
            ("find", [what, key, variable]) => self.find_key(what, key, variable, span),
            ("macaddr", [address]) => self.hardware_address(address, span),
            ("ntop", [address]) => self.internet_address(None, address, span),
            ("ntop", [family, address]) => self.internet_address(Some(family), address, span),
            ("pton", [text]) => self.parsed_address(text, span),
            ("offsetof", [of, field]) => self.unrun(|clause| clause.offset_of(of, field)),
            ("memcmp", [one, other, length]) => self.compare_bytes(one, other, length, span),
            ("delete", [what, rest @ ..]) if rest.len() < 2 => {
                let (map, key) = self.deleted_entry(what, rest.first())?;
                let found = self.give(SIGNED, |to| Op::Has { to, map, key }, span)?;
                self.push(Op::Delete { map, key }, span)?;
                Ok(found)
            }
            ("bswap", [number]) => self.swap_bytes(number, span),
            ("nsecs", [clock]) => match &*clock.form {
                // In Linux, these clocks differ by the time for which the machine was suspended. This machine is never
                // suspended.
                ExpressionForm::Builtin(name) if matches!(name.as_str(), "boot" | "monotonic") => {
                    self.give(UNSIGNED, |to| Op::Load { to, what: Builtin::Nanoseconds }, span)
                }
                _ => Err(clock.span.error(Problem::Clock)),
            },
            ("nsecs", _) => Err(span.error(Problem::ArgumentCount { least: 0, most: 1 })),
            ("buf", [pointer, length]) => self.bytes(pointer, length, span),
            ("strftime", [format, nanoseconds]) => {
                let of = self.time_format(format)?;
                Ok(Value { of, ..self.numeric(nanoseconds)? })
            }
            ("strncmp", [one, other, length]) => {
                let first = self.value(one)?;
                self.compare(first, [one, other], length, span)
            }
            ("kstack", _) => Err(span.error(Problem::ArgumentCount { least: 0, most: 2 })),
            (other, _) => Err(match not_a_value(other) {
                Some(problem) => span.error(problem),
                None => name.span.error(foreign::value(other).unwrap_or_else(|| unknown_function(other))),
            }),
        }
    }

    /// `kstack(mode, frames)`, where either may be left out.
    fn formatted_stack(&mut self, arguments: &[Expression], span: Span) -> Result<Value, Error> {
        let mode = arguments.first().and_then(|first| match &*first.form {
            ExpressionForm::Builtin(name) => StackMode::of_name(name),
            _ => None,
        });
        let frames = match arguments {
            [] => STACK_MAX,
            [_] if mode.is_some() => STACK_MAX,
            [frames] => self.known(frames, 1, STACK_MAX as u64)? as usize,
            [_, frames] if mode.is_some() => self.known(frames, 1, STACK_MAX as u64)? as usize,
            [first, ..] => return Err(first.span.error(Problem::StackMode)),
        };
        self.stack(mode.unwrap_or(self.checker.config.stack_mode), frames, span)
    }

    /// `find`: whether a map has a value for a key, which is then given to a variable.
    fn find_key(
        &mut self,
        what: &Expression,
        key: &Expression,
        variable: &Expression,
        span: Span,
    ) -> Result<Value, Error> {
        let ExpressionForm::Variable(name) = &*variable.form else {
            return Err(variable.span.error(Problem::NoTarget));
        };
        let (map, key) = self.map_entry(what, key)?;
        let found = self.give(SIGNED, |to| Op::Has { to, map, key }, span)?;
        let mut exits = Vec::new();
        self.branch_if(Comparison::Equal, found.at, Operand::Constant(0), &mut exits, span)?;
        let value = self.read_entry(map, key, what.span)?;
        let known = self.variable(name).ok_or(variable.span.error(Problem::Unset))?;
        self.assign_known(known, value, variable.span)?;
        self.land(&exits);
        Ok(found)
    }

    /// Returns the number of the map `what` and the word of the key, where the key is an argument of its own.
    pub fn map_entry(&mut self, what: &Expression, key: &Expression) -> Result<(u8, Word), Error> {
        let reference = map(what)?;
        if !reference.keys.is_empty() {
            return Err(what.span.error(Problem::NotAMap));
        }
        let (map, key) = self.entry(&reference.name, core::slice::from_ref(key), what.span)?;
        self.is_kept(map, what.span)?;
        Ok((map, key))
    }

    /// Returns the number of the map `what` and the word of the key that a `delete` removes. Without an argument of its
    /// own, the key is in the brackets of the map.
    pub fn deleted_entry(&mut self, what: &Expression, key: Option<&Expression>) -> Result<(u8, Word), Error> {
        if let Some(key) = key {
            return self.map_entry(what, key);
        }
        let MapReference { name, keys } = map(what)?;
        let (map, key) = self.entry(name, keys, what.span)?;
        self.is_kept(map, what.span)?;
        Ok((map, key))
    }

    pub fn is_kept(&self, map: u8, span: Span) -> Result<(), Error> {
        if self.checker.is_learning() { Ok(()) } else { self.kept(map, span).map(drop) }
    }
}

/// Returns the register with this name.
fn register(name: &str) -> Option<Register> {
    match name {
        "sp" => Some(Register::Sp),
        "pc" => Some(Register::Pc),
        "pstate" => Some(Register::Pstate),
        "lr" => Some(Register::X(30)),
        _ => {
            let digits = name.strip_prefix(['x', 'r'])?;
            let is_plain = digits.len() == 1 || !digits.starts_with('0');
            let number = digits.parse().ok().filter(|number| is_plain && *number <= 30)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then_some(Register::X(number))
        }
    }
}
