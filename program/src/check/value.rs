//! The values of a clause while it is compiled: their types, and their places in the frame.

use alloc::string::String;

use kprobes_vm::ir::{Arithmetic, FRAME_WORDS, OPS_MAX, Op, Operand, Type, Word};

use super::clause::Clause;
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

/// What is known of a variable.
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

impl Clause<'_, '_> {
    /// Returns the variable called `name` that is visible here.
    pub fn variable(&self, name: &str) -> Option<Variable> {
        self.variables.iter().rev().find(|known| known.name == name).map(|known| known.variable)
    }

    /// Returns the value of a variable.
    pub fn read_variable(&mut self, variable: Variable) -> Value {
        self.guessed |= variable.guessed;
        self.checker.is_left |= variable.guessed;
        Value { at: Operand::Word(variable.at), of: variable.of }
    }

    /// Adds an op.
    pub fn push(&mut self, op: Op, span: Span) -> Result<(), Error> {
        if self.ops.len() == OPS_MAX {
            return Err(span.error(Problem::LongCode { most: OPS_MAX }));
        }
        Ok(fallible::push(&mut self.ops, op)?)
    }

    /// Reserves `words` words of the frame, and returns the first of them.
    pub fn room(&mut self, words: u8, span: Span) -> Result<Word, Error> {
        let problem = span.error(Problem::Room { most: FRAME_WORDS });
        if self.free + usize::from(words) > FRAME_WORDS {
            return Err(problem);
        }
        let first = u8::try_from(self.free).map_err(|_| problem)?;
        self.free += usize::from(words);
        Ok(Word(first))
    }

    /// Adds the op that `op` returns for a new place in the frame, and returns the value at that place.
    pub fn give(&mut self, of: Type, op: impl FnOnce(Word) -> Op, span: Span) -> Result<Value, Error> {
        let to = self.room(of.words(), span)?;
        self.push(op(to), span)?;
        Ok(Value { at: Operand::Word(to), of })
    }

    /// Computes a value from two operands, at compile time if both are constants.
    pub fn compute(
        &mut self,
        how: Arithmetic,
        left: Operand,
        right: Operand,
        of: Type,
        span: Span,
    ) -> Result<Value, Error> {
        if let (Operand::Constant(left), Operand::Constant(right)) = (left, right) {
            return Ok(Value { at: Operand::Constant(how.apply(left, right)), of });
        }
        self.give(of, |to| Op::Compute { to, how, left, right }, span)
    }

    /// Adds ops that put a value at `to`, which has room for the type `of`. A shorter string is padded with zeros.
    pub fn place(&mut self, value: Value, to: Word, of: Type, span: Span) -> Result<(), Error> {
        if let (Type::Tuple { .. }, Type::Tuple { shape, .. }) = (value.of, of)
            && value.of != of
        {
            let mut to = to;
            for (number, part) in
                fallible::collect(self.checker.shapes.parts(shape).iter().copied())?.into_iter().enumerate()
            {
                let from = self.part(value, number as u64, span)?;
                self.place(from, to, part, span)?;
                to = Word(to.0.saturating_add(part.words()));
            }
            return Ok(());
        }
        let (has, wants) = (value.of.words(), of.words());
        match value.at {
            Operand::Word(from) if from == to => {}
            from if wants == 1 => self.push(Op::Set { to, from }, span)?,
            Operand::Word(from) => self.push(Op::Copy { to, from, words: has.min(wants) }, span)?,
            from @ Operand::Constant(_) => self.push(Op::Set { to, from }, span)?,
        }
        for word in has..wants {
            let to = Word(to.0.saturating_add(word));
            self.push(Op::Set { to, from: Operand::Constant(0) }, span)?;
        }
        Ok(())
    }

    /// Returns the first word of the value as the type `of`. A value that already fits is not copied.
    pub fn in_words(&mut self, value: Value, of: Type, span: Span) -> Result<Word, Error> {
        match value.at {
            Operand::Word(at) if value.of.fits_as(of) => Ok(at),
            _ => {
                let to = self.room(of.words(), span)?;
                self.place(value, to, of, span)?;
                Ok(to)
            }
        }
    }

    /// Returns the part of a tuple with this index, from 0.
    pub fn part(&mut self, tuple: Value, number: u64, span: Span) -> Result<Value, Error> {
        let (Type::Tuple { shape, .. }, Operand::Word(first)) = (tuple.of, tuple.at) else {
            return Err(span.error(Problem::Type { wanted: Noun::Tuple, found: tuple.of.into() }));
        };
        let parts = self.checker.shapes.parts(shape);
        let most = (parts.len() as u64).saturating_sub(1);
        let found = usize::try_from(number).ok().and_then(|number| Some((parts.get(..number)?, *parts.get(number)?)));
        let (before, of) = found.ok_or(span.error(Problem::Range { least: 0, most }))?;
        let distance = before.iter().map(|part| part.words()).sum::<u8>();
        Ok(Value { at: Operand::Word(Word(first.0.saturating_add(distance))), of })
    }

    /// Builds a tuple of these values.
    pub fn tuple(&mut self, values: &[(Value, Span)], span: Span) -> Result<Value, Error> {
        self.build(values, alloc::vec::Vec::new(), span)
    }

    /// Builds a tuple, or a record if there are `names`.
    pub fn build(
        &mut self,
        values: &[(Value, Span)],
        names: alloc::vec::Vec<String>,
        span: Span,
    ) -> Result<Value, Error> {
        let types = fallible::collect(values.iter().map(|(value, _)| value.of))?;
        let of = self.checker.shapes.record(types, names)?.ok_or(span.error(Problem::Room { most: u8::MAX.into() }))?;
        let first = self.room(of.words(), span)?;
        let mut to = first;
        for &(value, at) in values {
            self.place(value, to, value.of, at)?;
            to = Word(to.0.saturating_add(value.of.words()));
        }
        Ok(Value { at: Operand::Word(first), of })
    }

    /// Puts a string literal into the frame.
    pub fn literal(&mut self, text: &str, span: Span) -> Result<Value, Error> {
        let words = text_words(text.len()).ok_or(span.error(Problem::LongText { most: TEXT_MAX }))?;
        let first = self.room(words, span)?;
        for (number, word) in (0..words).zip(words_of(text)) {
            let to = Word(first.0.saturating_add(number));
            self.push(Op::Set { to, from: Operand::Constant(word) }, span)?;
        }
        Ok(Value { at: Operand::Word(first), of: Type::Text { words } })
    }
}

/// Returns the number of words of a string of `bytes` bytes and its terminating zero; `None` if the string is too long.
pub(super) fn text_words(bytes: usize) -> Option<u8> {
    u8::try_from(bytes / 8 + 1).ok().filter(|_| bytes <= TEXT_MAX)
}

/// Returns the words of a string, followed by zeros without end.
fn words_of(text: &str) -> impl Iterator<Item = u64> + '_ {
    let mut bytes = text.bytes();
    core::iter::repeat_with(move || (0..8).fold(0, |word, at| word | u64::from(bytes.next().unwrap_or(0)) << (8 * at)))
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
