//! Compiles functions of strings and buffers.

use alloc::vec::Vec;

use kprobes_vm::ir::{Arithmetic, Comparison, MapValue, Op, Operand, Type, Word};

use super::clause::Clause;
use super::rust_place::RustPlace;
use super::value::{SIGNED, UNSIGNED, Value, number, text_words};
use crate::config::TEXT_MAX;
use crate::error::{Error, Noun, Problem, Span};
use crate::syntax::{Expression, ExpressionForm};

/// The room for a buffer of unknown length, in words.
const BYTES_WORDS: u8 = 8;

impl Clause<'_, '_> {
    /// Returns the room for a string of unknown length, in words.
    pub fn text_words(&self) -> u8 {
        self.checker.config.text_length / 8 + 1
    }

    /// Returns the first word of a string, and its number of words.
    pub fn string(&mut self, text: &Expression) -> Result<(Word, u8), Error> {
        let value = self.value(text)?;
        let Type::Text { words } = value.of else {
            return Err(text.span.error(Problem::Type { wanted: Noun::Text, found: value.of.into() }));
        };
        Ok((self.in_words(value, value.of, text.span)?, words))
    }

    /// `str`: reads a string from memory. A string stays one.
    pub fn text(&mut self, pointer: &Expression, length: Option<&Expression>, span: Span) -> Result<Value, Error> {
        let text = self.at_place(pointer, |clause, place| clause.sequence_text(place, length, pointer.span))?;
        if let Some(text) = text {
            return Ok(text);
        }
        let value = self.value(pointer)?;
        if let Type::Text { .. } = value.of {
            let Some(length) = length else { return Ok(value) };
            let bytes = self.known(length, 1, TEXT_MAX as u64)?;
            let words = text_words(bytes as usize).ok_or(span.error(Problem::LongText { most: TEXT_MAX }))?;
            let to = self.room(words, span)?;
            self.first_bytes(value, bytes, to, words, span)?;
            return Ok(Value { at: Operand::Word(to), of: Type::Text { words } });
        }
        let address = number(value, pointer.span)?.at;
        let most = u64::from(self.checker.config.text_length);
        let (length, most) = match length {
            None => (Operand::Constant(most), most),
            Some(length) => match self.bounded(length, 1, TEXT_MAX as u64)? {
                length @ Operand::Constant(bytes) => (length, bytes),
                length @ Operand::Word(_) => (length, most),
            },
        };
        self.read_text(address, length, most, span)
    }

    /// Reads a string from memory: at most `length` bytes, and at most `most`.
    pub fn read_text(&mut self, address: Operand, length: Operand, most: u64, span: Span) -> Result<Value, Error> {
        let words = text_words(most as usize).ok_or(span.error(Problem::Range { least: 1, most: TEXT_MAX as u64 }))?;
        let length = match length {
            // The words have room for no more.
            _ if most == u64::from(words) * 8 - 1 => length,
            Operand::Constant(bytes) => Operand::Constant(bytes.min(most)),
            Operand::Word(_) => {
                let fewest = self.room(1, span)?;
                let (left, right) = (Operand::Word(fewest), Operand::Constant(most));
                self.push(Op::Set { to: fewest, from: length }, span)?;
                let mut exits = Vec::new();
                self.branch_if(Comparison::BelowEqual, left, right, &mut exits, span)?;
                self.push(Op::Set { to: fewest, from: right }, span)?;
                self.land(&exits);
                left
            }
        };
        self.give(Type::Text { words }, |to| Op::ReadText { to, words, address, length }, span)
    }

    /// Reads the text of a Rust string or byte sequence, at most `most` bytes, which must be a constant, or as many as
    /// the program sets; `None` for any other value.
    pub fn sequence_text(
        &mut self,
        value: RustPlace,
        most: Option<&Expression>,
        span: Span,
    ) -> Result<Option<Value>, Error> {
        let Some((address, length)) = self.bytes_of(value, span)? else { return Ok(None) };
        let most = match most {
            Some(most) => self.known(most, 1, TEXT_MAX as u64)?,
            None => self.checker.config.text_length.into(),
        };
        self.read_text(address, length, most, span).map(Some)
    }

    /// Copies the first `bytes` bytes of a string to the `words` words from `to` on, and fills these with zeros.
    fn first_bytes(&mut self, text: Value, bytes: u64, to: Word, words: u8, span: Span) -> Result<(), Error> {
        self.place(text, to, Type::Text { words }, span)?;
        let last = (bytes / 8) as u8;
        if last >= words {
            return Ok(());
        }
        let to = Word(to.0.saturating_add(last));
        let (left, right) = (Operand::Word(to), Operand::Constant((1 << (8 * (bytes % 8))) - 1));
        self.push(Op::Compute { to, how: Arithmetic::And, left, right }, span)
    }

    /// `buf`: reads bytes from memory, or takes them from a string.
    pub fn bytes(&mut self, pointer: &Expression, length: &Expression, span: Span) -> Result<Value, Error> {
        let value = self.value(pointer)?;
        if let Type::Text { .. } = value.of {
            let bytes = self.known(length, 1, TEXT_MAX as u64 + 1)?;
            let words = bytes.div_ceil(8) as u8;
            let first = self.room(words + 1, span)?;
            self.push(Op::Set { to: first, from: Operand::Constant(bytes) }, span)?;
            self.first_bytes(value, bytes, Word(first.0.saturating_add(1)), words, span)?;
            return Ok(Value { at: Operand::Word(first), of: Type::Bytes { words: words + 1 } });
        }
        let address = number(value, pointer.span)?.at;
        let (length, words) = self.bytes_length(length)?;
        self.give(Type::Bytes { words }, |to| Op::ReadBytes { to, words, address, length }, span)
    }

    /// Returns the length of a buffer, and its number of words.
    fn bytes_length(&mut self, length: &Expression) -> Result<(Operand, u8), Error> {
        let length = self.bounded(length, 1, TEXT_MAX as u64 + 1)?;
        let words = match length {
            Operand::Word(_) => BYTES_WORDS,
            Operand::Constant(bytes) => bytes.div_ceil(8) as u8,
        };
        Ok((length, words + 1))
    }

    /// `memcmp`: 0 if the bytes at two addresses, or of two strings, are equal, and 1 otherwise.
    pub fn compare_bytes(
        &mut self,
        one: &Expression,
        other: &Expression,
        length: &Expression,
        span: Span,
    ) -> Result<Value, Error> {
        let first = self.value(one)?;
        if let Type::Text { .. } = first.of {
            return self.compare(first, [one, other], length, span);
        }
        let left = number(first, one.span)?.at;
        let right = self.numeric(other)?.at;
        let (length, words) = self.bytes_length(length)?;
        let of = Type::Bytes { words };
        let one = self.give(of, |to| Op::ReadBytes { to, words, address: left, length }, span)?;
        let other = self.give(of, |to| Op::ReadBytes { to, words, address: right, length }, span)?;
        self.differ(one, other, of, span)
    }

    /// `len`: the number of keys of a map, frames of a stack, bytes of a string or buffer, or elements of an array.
    pub fn length(&mut self, what: &Expression, span: Span) -> Result<Value, Error> {
        if let ExpressionForm::Map(map) = &*what.form
            && map.keys.is_empty()
        {
            let number = self.map_number(&map.name, what.span)?;
            let keys = self.checker.maps.get(usize::from(number)).and_then(|known| known.keys.as_ref());
            match (keys.map(Vec::is_empty), self.kept(number, what.span)) {
                // Whatever the map turns out to keep, its length is a number without a sign.
                (None, _) | (_, Err(_)) if self.checker.is_learning() => {
                    return Ok(Value { of: UNSIGNED, ..Value::GUESS });
                }
                (Some(false), Ok(MapValue::Value(_))) => {
                    return self.give(UNSIGNED, |to| Op::Keys { to, map: number }, span);
                }
                (Some(false), Ok(MapValue::Aggregate(_))) => return Err(what.span.error(Problem::CollectedKeys)),
                _ => {}
            }
        }
        let count = self.at_place(what, |clause, place| clause.count_of(place, what.span))?;
        if let Some(count) = count {
            return Ok(count);
        }
        let value = self.value(what)?;
        match (value.of, value.at) {
            (Type::Stack { .. }, stack) => self.give(UNSIGNED, |to| Op::Frames { to, stack }, span),
            (Type::Text { words }, Operand::Word(text)) => {
                self.give(UNSIGNED, |to| Op::Length { to, text, words }, span)
            }
            (Type::Bytes { .. }, at) => Ok(Value { at, of: UNSIGNED }),
            (Type::Tuple { shape, words }, _) if self.checker.shapes.element_bytes(shape) > 0 => {
                Ok(Value::constant(words.into(), false))
            }
            (of, _) => Err(what.span.error(Problem::Type { wanted: Noun::Text, found: of.into() })),
        }
    }

    /// `strstr`: the offset of the first occurrence of a string in another, or -1.
    pub fn find(&mut self, text: &Expression, part: &Expression, span: Span) -> Result<Value, Error> {
        let (text, text_words) = self.string(text)?;
        let (part, part_words) = self.string(part)?;
        self.give(SIGNED, |to| Op::Find { to, text, text_words, part, part_words }, span)
    }

    /// `strncmp`: 0 if the first bytes of two strings are equal. `first` is the value of `one`.
    pub fn compare(
        &mut self,
        first: Value,
        [one, other]: [&Expression; 2],
        length: &Expression,
        span: Span,
    ) -> Result<Value, Error> {
        let bytes = self.known(length, 1, TEXT_MAX as u64)? as u8;
        let left = self.compared_text(first, bytes, one.span)?;
        let second = self.value(other)?;
        let right = self.compared_text(second, bytes, other.span)?;
        self.give(SIGNED, |to| Op::Differ { to, left, right, bytes }, span)
    }

    /// Returns the first word of a string with room for `bytes` bytes.
    fn compared_text(&mut self, text: Value, bytes: u8, span: Span) -> Result<Word, Error> {
        let Type::Text { words } = text.of else {
            return Err(span.error(Problem::Type { wanted: Noun::Text, found: text.of.into() }));
        };
        self.in_words(text, Type::Text { words: words.max(bytes.div_ceil(8)) }, span)
    }
}
