//! Arrays of integers: casts between them and integers. Each element takes a word of the frame.

use kprobes_vm::hit::extend;
use kprobes_vm::ir::{Arithmetic, Op, Operand, Type, Word};

use super::clause::Clause;
use super::value::{UNSIGNED, Value, number};
use crate::error::{Error, Problem, Span};
use crate::syntax::{Expression, TypeName};

impl Clause<'_, '_> {
    /// Casts an integer, or an array of integers, to an array.
    pub fn cast_to_array(
        &mut self,
        element: TypeName,
        count: Option<u64>,
        operand: &Expression,
        span: Span,
    ) -> Result<Value, Error> {
        let (value, array) = self.number_of_array(operand)?;
        let whole = number(value, operand.span)?.at;
        let has = match array {
            Some(bytes) => bytes,
            None => (self.width(operand, value)? / 8).into(),
        };
        let bytes = element.bits / 8;
        let wants = count.map_or(has, |count| count.saturating_mul(bytes.into()));
        if wants != has || !has.is_multiple_of(bytes.into()) {
            return Err(operand.span.error(Problem::CastSize { has, wants: wants.max(bytes.into()) }));
        }
        let count = (has / u64::from(bytes)) as usize;
        let of = self.checker.shapes.array(element.signed, bytes, count)?;
        let of = of.ok_or(span.error(Problem::Room { most: u8::MAX.into() }))?;
        let first = self.room(of.words(), span)?;
        for at in 0..of.words() {
            let distance = Operand::Constant(u64::from(at) * u64::from(element.bits));
            let shifted = self.compute(Arithmetic::Right, whole, distance, UNSIGNED, span)?;
            let to = Word(first.0.saturating_add(at));
            let (bits, signed) = (element.bits, element.signed);
            self.push(
                match shifted.at {
                    Operand::Constant(value) => Op::Set { to, from: Operand::Constant(extend(value, bits, signed)) },
                    from if bits == 64 => Op::Set { to, from },
                    from => Op::Extend { to, from, bits, signed },
                },
                span,
            )?;
        }
        Ok(Value { at: Operand::Word(first), of })
    }

    /// Compiles a value, and returns the size of its elements in bytes; `None` if it is no array of integers.
    pub fn element_bytes(&mut self, operand: &Expression) -> Result<Option<u8>, Error> {
        if self.rust_place(operand)?.is_some() {
            return Ok(None);
        }
        match self.value(operand)?.of {
            Type::Tuple { shape, .. } => Ok(Some(self.checker.shapes.element_bytes(shape)).filter(|&bytes| bytes > 0)),
            _ => Ok(None),
        }
    }

    /// Compiles a value. An array of integers of at most 8 bytes becomes one number, which is returned with its size in
    /// bytes.
    pub fn number_of_array(&mut self, operand: &Expression) -> Result<(Value, Option<u64>), Error> {
        let span = operand.span;
        if let Some(place) = self.rust_place(operand)? {
            return match self.or_none(|clause| clause.array_of_bytes(place, span))? {
                Some((spot, count @ (1 | 2 | 4 | 8))) => {
                    Ok((self.load(spot, count as u8, UNSIGNED, span)?, Some(count)))
                }
                _ => Ok((self.scalar(place, span)?, None)),
            };
        }
        let value = self.value(operand)?;
        let (Type::Tuple { shape, words }, Operand::Word(first)) = (value.of, value.at) else {
            return Ok((value, None));
        };
        let bytes = self.checker.shapes.element_bytes(shape);
        if bytes == 0 {
            return Ok((value, None));
        }
        let mut whole = Value::constant(0, false);
        for at in 0..words {
            let from = Operand::Word(Word(first.0.saturating_add(at)));
            let element = match bytes {
                8 => from,
                _ => self.give(UNSIGNED, |to| Op::Extend { to, from, bits: 8 * bytes, signed: false }, span)?.at,
            };
            let distance = Operand::Constant(8 * u64::from(bytes) * u64::from(at));
            let shifted = self.compute(Arithmetic::Left, element, distance, UNSIGNED, span)?;
            whole = self.compute(Arithmetic::Or, whole.at, shifted.at, UNSIGNED, span)?;
        }
        Ok((whole, Some(u64::from(bytes) * u64::from(words))))
    }
}
