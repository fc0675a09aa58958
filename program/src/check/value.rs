//! The values and the variables of a clause during compilation: their types, and their places in the frame.

use alloc::string::String;

use kprobes_vm::ir::{Operand, Type, Word};

use crate::config::TEXT_MAX;
use crate::error::{Error, Noun, Problem, Span};

/// A value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    /// The place of the value; its first word if it has several.
    pub at: Operand,
    pub of: Type,
}

/// The type of signed numbers; comparisons have this type.
pub(super) const SIGNED: Type = Type::Integer { signed: true };
/// The type of unsigned numbers.
pub(super) const UNSIGNED: Type = Type::Integer { signed: false };

impl Value {
    /// The guess of a value whose type is not known yet: a number that is not known before the program runs.
    pub const GUESS: Self = Self { at: Operand::Word(Word(0)), of: SIGNED };

    /// Creates a number that is known at compile time.
    pub fn constant(value: u64, signed: bool) -> Self {
        Self { at: Operand::Constant(value), of: Type::Integer { signed } }
    }

    pub fn is_signed(&self) -> bool {
        matches!(self.of, Type::Integer { signed: true })
    }

    /// Returns whether the value is a number or a pointer.
    pub fn is_number(&self) -> bool {
        matches!(self.of, Type::Integer { .. } | Type::Pointer { .. })
    }
}

/// Returns whether the result of a binary operation is signed: only if both operands are.
pub(super) fn join(left: &Value, right: &Value) -> bool {
    left.is_signed() && right.is_signed()
}

/// A variable, by its name without `$`.
#[derive(Debug)]
pub(super) struct Named {
    pub name: String,
    pub variable: Variable,
}

/// The place and the type of a variable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variable {
    /// The first word of its value.
    pub at: Word,
    pub of: Type,
    /// The number of a declaration without a value, whose type is inferred from all assignments. `None` if the
    /// declaration gives a value.
    pub declared: Option<usize>,
    /// Whether the type is a guess.
    pub guessed: bool,
}

/// Returns the number of words of a string of `bytes` bytes and its terminating zero; `None` if the string is too long.
pub(super) fn text_words(bytes: usize) -> Option<u8> {
    u8::try_from(bytes / 8 + 1).ok().filter(|_| bytes <= TEXT_MAX)
}

/// Returns `value` if it is a number or a pointer.
pub(super) fn number(value: Value, span: Span) -> Result<Value, Error> {
    match value.is_number() {
        true => Ok(value),
        false => Err(span.error(Problem::Type { wanted: Noun::Integer, found: value.of.into() })),
    }
}

/// Returns the value of a constant.
pub(super) fn constant(value: Value, span: Span) -> Result<u64, Error> {
    match value.at {
        Operand::Constant(constant) => Ok(constant),
        Operand::Word(_) => Err(span.error(Problem::NotConstant)),
    }
}
