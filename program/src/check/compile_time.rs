//! Answers what is known while a program is checked: the types and sizes of values, conditions that are decided, and
//! the assertions about them. An expression that is asked about is not evaluated.

use alloc::vec::Vec;

use kprobes_types::{Flavor, Kind};
use kprobes_vm::code::{Op, Type};

use super::call::written;
use super::clause::Clause;
use super::typed::Typed;
use super::value::Value;
use crate::error::{Error, Problem, Span};
use crate::syntax::{Expression, ExpressionForm, Operator, Unary};

/// The length of a string that is read without a length, in bytes.
pub(super) const TEXT_LENGTH: u64 = 63;

/// What a question about a type distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Integer { signed: bool },
    Pointer,
    Text,
    Array,
    Other,
}

impl Clause<'_, '_> {
    /// Returns the answer to the question `name`; `None` if it is no question.
    pub fn question(&mut self, name: &str, arguments: &[Expression], span: Span) -> Result<Option<Value>, Error> {
        let is: fn(Class) -> bool = match name {
            "is_integer" => |class| matches!(class, Class::Integer { .. }),
            "is_unsigned_integer" => |class| class == Class::Integer { signed: false },
            "is_ptr" => |class| class == Class::Pointer,
            "is_str" => |class| class == Class::Text,
            "is_array" => |class| class == Class::Array,
            "is_literal" | "sizeof" | "strcap" => |_| false,
            _ => return Ok(None),
        };
        let [asked] = arguments else { return Err(span.error(Problem::ArgumentCount { least: 1, most: 1 })) };
        let guessed = core::mem::take(&mut self.guessed);
        let known = match name {
            "is_literal" => matches!(*asked.form, ExpressionForm::Integer(_) | ExpressionForm::Text(_)).into(),
            "sizeof" => self.unevaluated(|clause| clause.size(asked))?,
            "strcap" => self.unevaluated(|clause| clause.capacity(asked))?,
            _ => is(self.unevaluated(|clause| clause.class(asked))?).into(),
        };
        // What depends on a type that is not inferred yet is left to a later pass.
        if core::mem::replace(&mut self.guessed, guessed) && self.checker.learning {
            return Err(span.error(Problem::NotConstant));
        }
        Ok(Some(Value::constant(known, true)))
    }

    /// Calls `ask`, and takes away the ops that it adds.
    fn unevaluated<T>(&mut self, ask: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let (ops, free) = (self.ops.len(), self.free);
        let answer = ask(self);
        self.ops.truncate(ops);
        self.free = free;
        answer
    }

    /// Notes that the answer about `expression` is a guess if it is a variable whose type is not inferred yet.
    fn note_guess(&mut self, expression: &Expression) {
        if let ExpressionForm::Variable(name) = &*expression.form
            && let Some(variable) = self.variables.iter().rev().find(|variable| variable.name == *name)
            && let Some(declared) = variable.declared
        {
            self.guessed |= self.checker.learning && self.checker.declared.iter().all(|(at, _)| *at != declared);
        }
    }

    fn class(&mut self, asked: &Expression) -> Result<Class, Error> {
        self.note_guess(asked);
        let value = match self.typed(asked)? {
            Some(typed) => {
                if matches!(self.rust(typed.of, asked.span)?.kind, Kind::Pointer { .. })
                    && self.is_address(typed, asked)?
                {
                    return Ok(Class::Pointer);
                }
                let followed = self.followed(typed, asked.span)?;
                if matches!(self.rust(followed.of, asked.span)?.kind, Kind::Array { .. }) {
                    return Ok(Class::Array);
                }
                match self.scalar(typed, asked.span) {
                    Err(Error { problem: Problem::NotANumber { .. }, .. }) => return Ok(Class::Other),
                    value => value?,
                }
            }
            None => self.value(asked)?,
        };
        Ok(match value.of {
            Type::Integer { signed } => Class::Integer { signed },
            Type::Pointer { .. } => Class::Pointer,
            Type::Text { .. } => Class::Text,
            _ => Class::Other,
        })
    }

    /// Returns whether a pointer of Rust is read as an address, instead of as the number, string or array behind it.
    fn is_address(&mut self, pointer: Typed, asked: &Expression) -> Result<bool, Error> {
        let Kind::Pointer { flavor, target, .. } = self.rust(pointer.of, asked.span)?.kind else { return Ok(false) };
        let is_simple = matches!(
            self.rust(target, asked.span)?.kind,
            Kind::Integer { .. }
                | Kind::Bool
                | Kind::Char
                | Kind::Enumeration { .. }
                | Kind::Sequence { .. }
                | Kind::Array { .. }
        );
        Ok(flavor == Flavor::Raw || !is_simple)
    }

    /// Returns the size of a value, in bytes. A number that is computed has 8.
    fn size(&mut self, asked: &Expression) -> Result<u64, Error> {
        self.note_guess(asked);
        if let ExpressionForm::Text(text) = &*asked.form {
            return Ok(text.len() as u64 + 1);
        }
        if let Some(typed) = self.typed(asked)? {
            return Ok(self.rust(typed.of, asked.span)?.size);
        }
        let value = self.value(asked)?;
        match value.of {
            Type::Integer { .. } => Ok((self.width(asked)? / 8).into()),
            of => Ok(u64::from(of.words()) * 8),
        }
    }

    /// Returns the number of bytes that a string has room for.
    fn capacity(&mut self, asked: &Expression) -> Result<u64, Error> {
        self.note_guess(asked);
        let (_, words) = self.string(asked)?;
        match &*asked.form {
            ExpressionForm::Text(text) => Ok(text.len() as u64),
            _ => Ok(u64::from(words) * 8 - 1),
        }
    }

    /// Returns the width of a number in the place that it is read from, in bits; 64 for a computed one.
    pub fn width(&mut self, number: &Expression) -> Result<u8, Error> {
        let span = number.span;
        let bytes = match &*number.form {
            ExpressionForm::Cast { to, .. } if !to.pointer => return Ok(to.bits),
            ExpressionForm::Unary { operator: Unary::Read, operand: pointer }
            | ExpressionForm::Index { pointer, .. }
                if let Ok(Type::Pointer { bytes, .. }) = self.unevaluated(|clause| Ok(clause.value(pointer)?.of)) =>
            {
                bytes.into()
            }
            ExpressionForm::Field { .. } if self.is_at_events() => self.event_field_size(number)?,
            _ => self.unevaluated(|clause| {
                let Some(typed) = clause.typed(number)? else { return Ok(8) };
                let followed = clause.followed(typed, span)?;
                Ok(clause.rust(followed.of, span)?.size)
            })?,
        };
        Ok(match bytes {
            1 | 2 | 4 => bytes as u8 * 8,
            _ => 64,
        })
    }

    /// Returns the truth of `condition` if it is known; `None` if it is known only at a hit. The right side of `&&` and
    /// `||` is not looked at if the left side decides.
    pub fn decided(&mut self, condition: &Expression) -> Result<Option<bool>, Error> {
        if let ExpressionForm::Unary { operator: Unary::Not, operand } = &*condition.form {
            return Ok(self.decided(operand)?.map(|truth| !truth));
        }
        if let ExpressionForm::Binary { operator: operator @ (Operator::And | Operator::Or), left, right } =
            &*condition.form
        {
            return match self.decided(left)? {
                Some(truth) if truth == (*operator == Operator::And) => self.decided(right),
                decided => Ok(decided),
            };
        }
        self.unevaluated(|clause| {
            let start = clause.ops.len();
            let mut exits = Vec::new();
            clause.branch(condition, false, &mut exits)?;
            Ok(match (clause.ops.get(start..).unwrap_or(&[]), exits.as_slice()) {
                ([], []) => Some(true),
                ([Op::Jump { .. }], [_]) => Some(false),
                _ => None,
            })
        })
    }

    /// Compiles an assertion about the program, or a refusal of it; returns `false` if `name` is neither.
    pub fn assertion(&mut self, name: &str, arguments: &[Expression], span: Span) -> Result<bool, Error> {
        match (name, arguments) {
            ("static_assert", [condition, message]) => {
                written(message)?;
                match self.decided(condition)? {
                    Some(true) => Ok(true),
                    Some(false) => Err(message.span.error(Problem::Asserted)),
                    None => Err(condition.span.error(Problem::NotConstant)),
                }
            }
            ("static_assert", _) => Err(span.error(Problem::ArgumentCount { least: 2, most: 2 })),
            ("fail", [message, ..]) => {
                written(message)?;
                Err(message.span.error(Problem::Failed))
            }
            ("fail", []) => Err(span.error(Problem::ArgumentCount { least: 1, most: 32 })),
            ("assert_str", [text]) => self.unevaluated(|clause| clause.string(text)).map(|_| true),
            ("assert_str", _) => Err(span.error(Problem::ArgumentCount { least: 1, most: 1 })),
            _ => Ok(false),
        }
    }
}
