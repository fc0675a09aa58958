//! Puts values into the frame of a clause.

use alloc::string::String;
use alloc::vec::Vec;

use kprobes_vm::ir::{Arithmetic, FRAME_WORDS, Op, Operand, Type, Word};

use super::clause::Clause;
use super::value::{Value, text_words};
use crate::config::TEXT_MAX;
use crate::error::{Error, Noun, Problem, Span};

impl Clause<'_, '_> {
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

    /// Adds ops that put a value at `to`, which has room for the type `of`. A shorter string is padded with zeros. The
    /// parts of a record are put in the order that they have in `of`.
    pub fn place(&mut self, value: Value, to: Word, of: Type, span: Span) -> Result<(), Error> {
        if let (Type::Tuple { shape: has, .. }, Type::Tuple { shape, .. }) = (value.of, of)
            && value.of != of
        {
            let mut to = to;
            for (number, part) in
                fallible::collect(self.checker.shapes.parts(shape).iter().copied())?.into_iter().enumerate()
            {
                let source = self.checker.shapes.source(shape, number, has).unwrap_or(number);
                let from = self.part(value, source as u64, span)?;
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

    /// Puts values into consecutive words of the frame, each as a type, and returns the first of these `words` words.
    pub fn row(
        &mut self,
        values: impl Iterator<Item = (Value, Type, Span)>,
        words: u8,
        span: Span,
    ) -> Result<Word, Error> {
        let first = self.room(words, span)?;
        let mut to = first;
        for (value, of, at) in values {
            self.place(value, to, of, at)?;
            to = Word(to.0.saturating_add(of.words()));
        }
        Ok(first)
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
        let most = (parts.len() as u64).checked_sub(1).ok_or(span.error(Problem::EmptyTuple))?;
        let found = usize::try_from(number).ok().and_then(|number| Some((parts.get(..number)?, *parts.get(number)?)));
        let (before, of) = found.ok_or(span.error(Problem::Range { least: 0, most }))?;
        let distance = before.iter().map(|part| part.words()).sum::<u8>();
        Ok(Value { at: Operand::Word(Word(first.0.saturating_add(distance))), of })
    }

    /// Builds a tuple of these values.
    pub fn tuple(&mut self, values: &[(Value, Span)], span: Span) -> Result<Value, Error> {
        self.build(values, Vec::new(), span)
    }

    /// Builds a tuple, or a record if there are `names`.
    pub fn build(&mut self, values: &[(Value, Span)], names: Vec<String>, span: Span) -> Result<Value, Error> {
        let types = fallible::collect(values.iter().map(|(value, _)| value.of))?;
        let of = self.checker.shapes.record(types, names, span)?;
        if values.is_empty() {
            return self.give(of, |to| Op::Set { to, from: Operand::Constant(0) }, span);
        }
        let first = self.row(values.iter().map(|&(value, at)| (value, value.of, at)), of.words(), span)?;
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

/// Returns the words of a string, followed by zeros without end.
fn words_of(text: &str) -> impl Iterator<Item = u64> + '_ {
    let mut bytes = text.bytes();
    core::iter::repeat_with(move || (0..8).fold(0, |word, at| word | u64::from(bytes.next().unwrap_or(0)) << (8 * at)))
}
