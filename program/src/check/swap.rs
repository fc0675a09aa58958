//! `bswap`: the bytes of a number in the opposite order, in the width of the place that holds the number.

use kprobes_vm::ir::{Arithmetic, Op, Operand};

use super::clause::Clause;
use super::value::{UNSIGNED, Value, number};
use crate::error::{Error, Span};
use crate::syntax::{Expression, ExpressionForm, TypeForm, TypeName};

impl Clause<'_, '_> {
    /// Returns the width, in bits, of the place from which `number` reads a number; 64 for a computed number. `value`
    /// is the result of compiling `number`, which must have just happened: the last op tells the width.
    pub fn width(&mut self, number: &Expression, value: Value) -> Result<u8, Error> {
        if let ExpressionForm::Cast { to, .. } = &*number.form
            && let TypeName { bits, pointer: false, .. } = self.type_of(to)?
        {
            return Ok(bits);
        }
        // No op shows a cast to 64 bits that is in a block.
        if let ExpressionForm::Cast { to: TypeForm::Named(to), .. } = &*result(number).form
            && !to.pointer
        {
            return Ok(to.bits);
        }
        if let ExpressionForm::Index { pointer: of, .. } | ExpressionForm::Part { tuple: of, .. } = &*number.form
            && let Some(bytes) = self.unrun(|clause| clause.element_bytes(of))?
        {
            return Ok(8 * bytes);
        }
        Ok(match (value.at, self.ops.last()) {
            // The last op belongs to something else: a variable is not read by an op, and a choice is computed.
            _ if matches!(*result(number).form, ExpressionForm::Variable(_) | ExpressionForm::Choice { .. }) => 64,
            (Operand::Word(at), Some(&Op::Read { to, bytes, .. })) if at == to => 8 * bytes,
            (Operand::Word(at), Some(&Op::Extend { to, bits, .. })) if at == to => bits,
            // An argument that always has the same value is a constant, which no op reads. One whose place depends on
            // the probed instruction is set after it was read.
            (Operand::Constant(_), _) | (Operand::Word(_), Some(Op::Set { .. })) => {
                match self.unrun(|clause| clause.rust_place(number))? {
                    Some(place) => match self.rust(place.of, number.span)?.size {
                        bytes @ (1 | 2 | 4) => 8 * bytes as u8,
                        _ => 64,
                    },
                    None => 64,
                }
            }
            (Operand::Word(_), _) => 64,
        })
    }

    /// `bswap`: the bytes of a number in the opposite order.
    pub fn swap_bytes(&mut self, operand: &Expression, span: Span) -> Result<Value, Error> {
        let value = self.value(operand)?;
        let bits = self.width(operand, value)?;
        let mut swapped = match number(value, operand.span)?.at {
            Operand::Constant(value) => return Ok(Value::constant(value.swap_bytes() >> (64 - bits), false)),
            at if bits == 64 => at,
            from @ Operand::Word(_) => self.give(UNSIGNED, |to| Op::Extend { to, from, bits, signed: false }, span)?.at,
        };
        // The halves of the number change places, then the halves of each half, and so on to the bytes.
        let mut half = bits / 2;
        while half >= 8 {
            let low = Operand::Constant((u64::MAX >> (64 - bits)) / ((1 << half) + 1));
            let distance = Operand::Constant(half.into());
            let down = self.compute(Arithmetic::Right, swapped, distance, UNSIGNED, span)?;
            let down = self.compute(Arithmetic::And, down.at, low, UNSIGNED, span)?;
            let up = self.compute(Arithmetic::And, swapped, low, UNSIGNED, span)?;
            let up = self.compute(Arithmetic::Left, up.at, distance, UNSIGNED, span)?;
            swapped = self.compute(Arithmetic::Or, down.at, up.at, UNSIGNED, span)?.at;
            half /= 2;
        }
        Ok(Value { at: swapped, of: UNSIGNED })
    }
}

/// Returns the expression whose value `value` has: that at the end of a block, of which macros consist, too.
fn result(value: &Expression) -> &Expression {
    match &*value.form {
        ExpressionForm::Block { value: Some(value), .. } => result(value),
        _ => value,
    }
}
