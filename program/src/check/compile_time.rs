//! Evaluates `sizeof`, `offsetof`, the types in casts, and assertions, while a program is checked. Their operands are
//! not compiled: only their types count.

use kprobes_types::TypeKind;
use kprobes_vm::ir::Type;

use super::Stage;
use super::call::written;
use super::clause::Clause;
use super::value::Value;
use crate::error::{Error, Noun, Problem, Span};
use crate::syntax::{Expression, ExpressionForm, TypeForm, TypeName, Unary};

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
    /// Returns the answer to the question `name`; `None` if there is no such question with these arguments.
    pub fn question(&mut self, name: &str, arguments: &[Expression], span: Span) -> Result<Option<Value>, Error> {
        let answer: fn(&mut Self, &Expression) -> Result<u64, Error> = match name {
            "is_integer" => |clause, asked| clause.is(asked, |class| matches!(class, Class::Integer { .. })),
            "is_unsigned_integer" => {
                |clause, asked| clause.is(asked, |class| class == Class::Integer { signed: false })
            }
            "is_ptr" => |clause, asked| clause.is(asked, |class| class == Class::Pointer),
            "is_str" => |clause, asked| clause.is(asked, |class| class == Class::Text),
            "is_array" => |clause, asked| clause.is(asked, |class| class == Class::Array),
            "is_literal" => |clause, asked| {
                let is_written = match &*asked.form {
                    ExpressionForm::Integer(_) | ExpressionForm::Text(_) => true,
                    ExpressionForm::Unary { operator: Unary::Negate, operand } => {
                        matches!(*operand.form, ExpressionForm::Integer(_))
                    }
                    _ => false,
                };
                clause.class(asked).map(|_| is_written.into())
            },
            "sizeof" => Self::size,
            "strcap" => Self::capacity,
            _ => return Ok(None),
        };
        let [asked] = arguments else { return Ok(None) };
        let guessed = core::mem::take(&mut self.guessed);
        let known = self.unevaluated(|clause| answer(clause, asked))?;
        self.asked = true;
        // A later pass answers if the answer depends on a type that is not inferred yet.
        if core::mem::replace(&mut self.guessed, guessed) && self.checker.is_learning() {
            return Err(span.error(Problem::NotConstant));
        }
        Ok(Some(Value::constant(known, true)))
    }

    /// Calls `ask`, which compiles an expression that is not evaluated: it tells no types, and its ops are removed.
    fn unevaluated<T>(&mut self, ask: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.unevaluated += 1;
        let answer = self.unrun(ask);
        self.unevaluated -= 1;
        answer
    }

    /// Notes that the room for a string is a guess, as long as later uses may need more.
    fn note_room(&mut self) {
        if self.checker.stage == Stage::Certain {
            (self.guessed, self.checker.is_left) = (true, true);
        }
    }

    /// Returns 1 if `is` holds for the class of `asked`, and 0 otherwise.
    fn is(&mut self, asked: &Expression, is: fn(Class) -> bool) -> Result<u64, Error> {
        self.class(asked).map(|class| is(class).into())
    }

    fn class(&mut self, asked: &Expression) -> Result<Class, Error> {
        let span = asked.span;
        let value = match self.rust_place(asked)? {
            Some(place) => {
                let followed = self.followed(place, span)?;
                if matches!(self.rust(followed.of, span)?.kind, TypeKind::Array { .. }) {
                    return Ok(Class::Array);
                }
                if self.is_address(place.of, span)? {
                    return Ok(Class::Pointer);
                }
                match self.scalar(place, span) {
                    Err(Error { problem: Problem::NotANumber { .. }, .. }) => return Ok(Class::Other),
                    value => value?,
                }
            }
            None => match self.value(asked) {
                // A distribution has no number, but is a value of its map.
                Err(Error { problem: Problem::NoNumber, .. }) if matches!(*asked.form, ExpressionForm::Map(_)) => {
                    return Ok(Class::Other);
                }
                value => value?,
            },
        };
        Ok(match value.of {
            Type::Tuple { shape, .. } if self.checker.shapes.element_bytes(shape) > 0 => Class::Array,
            Type::Integer { signed } => Class::Integer { signed },
            Type::Pointer { .. } => Class::Pointer,
            Type::Text { .. } => Class::Text,
            _ => Class::Other,
        })
    }

    /// Returns the size of a value, in bytes. A number that is computed has 8.
    fn size(&mut self, asked: &Expression) -> Result<u64, Error> {
        if let ExpressionForm::Text(text) = &*asked.form {
            return Ok(text.len() as u64 + 1);
        }
        if let Some(place) = self.rust_place(asked)? {
            return Ok(self.rust(place.of, asked.span)?.size);
        }
        let value = self.value(asked)?;
        match value.of {
            Type::Integer { .. } => Ok((self.width(asked, value)? / 8).into()),
            of => {
                if let Type::Tuple { shape, words } = of
                    && let bytes @ 1.. = self.checker.shapes.element_bytes(shape)
                {
                    return Ok(u64::from(bytes) * u64::from(words));
                }
                if let Type::Text { .. } | Type::Bytes { .. } | Type::Tuple { .. } = of {
                    self.note_room();
                }
                Ok(u64::from(of.words()) * 8)
            }
        }
    }

    /// Returns the number of bytes that a string has room for.
    fn capacity(&mut self, asked: &Expression) -> Result<u64, Error> {
        let (_, words) = self.string(asked)?;
        if let ExpressionForm::Text(text) = &*asked.form {
            return Ok(text.len() as u64);
        }
        self.note_room();
        Ok(u64::from(words) * 8 - 1)
    }

    /// Returns the type that a cast or a declaration names.
    pub fn type_of(&mut self, to: &TypeForm) -> Result<TypeName, Error> {
        let (value, pointer) = match to {
            TypeForm::Named(name) => return Ok(*name),
            // A number that is cast to an array has the size of a computed number.
            TypeForm::Array { .. } => return Ok(TypeName { signed: false, bits: 64, pointer: false }),
            TypeForm::Of { value, pointer } => (value, *pointer),
        };
        self.asked = true;
        let (of, bits) = self.unevaluated(|clause| {
            let known = clause.value(value)?;
            Ok((known.of, clause.width(value, known)?))
        })?;
        match of {
            Type::Integer { signed } => Ok(TypeName { signed, bits, pointer }),
            Type::Pointer { signed, bytes } if !pointer => Ok(TypeName { signed, bits: 8 * bytes, pointer: true }),
            of => Err(value.span.error(Problem::Type { wanted: Noun::Integer, found: of.into() })),
        }
    }

    /// Evaluates `static_assert`, `assert_str` or `fail`. Returns `false` if `name` is another call, or has other
    /// arguments.
    pub fn assertion(&mut self, name: &str, arguments: &[Expression]) -> Result<bool, Error> {
        match (name, arguments) {
            ("static_assert", [condition, message]) => {
                written(message)?;
                match self.unevaluated(|clause| clause.test(condition, false, &mut alloc::vec::Vec::new()))? {
                    Some(true) => Ok(true),
                    Some(false) => Err(message.span.error(Problem::Asserted)),
                    None => Err(condition.span.error(Problem::NotConstant)),
                }
            }
            ("fail", [message, ..]) => {
                written(message)?;
                Err(message.span.error(Problem::Failed))
            }
            ("assert_str", [text]) => self.unevaluated(|clause| clause.string(text)).map(|_| true),
            _ => Ok(false),
        }
    }
}
