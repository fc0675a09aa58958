//! Compiles conditions. Where a condition only selects the code to run, it becomes jumps rather than a value.

use alloc::vec::Vec;
use core::mem::discriminant;

use kprobes_vm::ir::{Arithmetic, Comparison, Op, Operand, Type};

use super::clause::Clause;
use super::value::{SIGNED, UNSIGNED, Value, join, number};
use crate::error::{Error, Problem, Span};
use crate::syntax::{Expression, ExpressionForm, Operator, Unary};

impl Clause<'_, '_> {
    /// Compiles `condition` to jumps. If its truth is `when`, a jump that is added to `exits` is taken; otherwise
    /// control continues with the next op.
    pub fn branch(&mut self, condition: &Expression, when: bool, exits: &mut Vec<usize>) -> Result<(), Error> {
        if self.test(condition, when, exits)? == Some(when) {
            let jump = self.jump(condition.span)?;
            fallible::push(exits, jump)?;
        }
        Ok(())
    }

    /// Does the work of [`branch`](Self::branch) for a condition whose truth is known only at a hit. If it is known at
    /// compile time, it is returned, and there is no jump. If the left side of `&&` and `||` decides, the right side is
    /// not compiled.
    pub fn test(&mut self, condition: &Expression, when: bool, exits: &mut Vec<usize>) -> Result<Option<bool>, Error> {
        let span = condition.span;
        self.go_on(span)?;
        let (how, left, right) = match &*condition.form {
            ExpressionForm::Unary { operator: Unary::Not, operand } => {
                return Ok(self.test(operand, !when, exits)?.map(|truth| !truth));
            }
            ExpressionForm::Binary { operator: operator @ (Operator::And | Operator::Or), left, right } => {
                return self.test_both(*operator == Operator::Or, [left, right], when, exits);
            }
            ExpressionForm::Binary { operator, left, right } if operator.is_comparison() => {
                self.comparison(*operator, left, right)?
            }
            ExpressionForm::Text(text) => return Ok(Some(!text.is_empty())),
            _ => {
                let value = self.value(condition)?;
                (Comparison::Unequal, number(value, span)?.at, Operand::Constant(0))
            }
        };
        if let (Operand::Constant(left), Operand::Constant(right)) = (left, right) {
            return Ok(Some(how.holds(left, right)));
        }
        self.branch_if(if when { how } else { how.inverse() }, left, right, exits, span)?;
        Ok(None)
    }

    /// Compiles two conditions that `||` (`deciding` is true) or `&&` joins: if one of them has the truth `deciding`,
    /// so has the whole.
    #[inline(never)]
    fn test_both(
        &mut self,
        deciding: bool,
        [left, right]: [&Expression; 2],
        when: bool,
        exits: &mut Vec<usize>,
    ) -> Result<Option<bool>, Error> {
        let mut decided = Vec::new();
        let first = match deciding == when {
            true => self.test(left, when, exits)?,
            false => self.test(left, !when, &mut decided)?,
        };
        if first == Some(deciding) {
            return Ok(first);
        }
        let second = match first {
            Some(_) => self.test(right, when, exits)?,
            None => {
                self.branch(right, when, exits)?;
                None
            }
        };
        self.land(&decided);
        Ok(second)
    }

    /// Adds a jump that is taken if the comparison holds, and records it in `exits`. A comparison of constants is
    /// decided at compile time.
    pub fn branch_if(
        &mut self,
        how: Comparison,
        left: Operand,
        right: Operand,
        exits: &mut Vec<usize>,
        span: Span,
    ) -> Result<(), Error> {
        if let (Operand::Constant(left), Operand::Constant(right)) = (left, right) {
            if how.holds(left, right) {
                let jump = self.jump(span)?;
                fallible::push(exits, jump)?;
            }
            return Ok(());
        }
        self.push(Op::Branch { how, left, right, target: 0 }, span)?;
        Ok(fallible::push(exits, self.ops.len() - 1)?)
    }

    /// Returns a comparison of two numbers that holds exactly if `left operator right` does.
    #[inline(never)]
    pub fn comparison(
        &mut self,
        operator: Operator,
        left: &Expression,
        right: &Expression,
    ) -> Result<(Comparison, Operand, Operand), Error> {
        if let Some(found) = self.known_comparison(operator, left, right)? {
            return Ok(found);
        }
        let span = left.span.to(right.span);
        // A string literal that is compared with an address names the functions that may contain the address.
        let (one, other) = match (&*left.form, &*right.form) {
            (ExpressionForm::Text(path), _) => {
                let other = self.value(right)?;
                if other.of == Type::Symbol {
                    return self.is_in(operator, other.at, path, left.span, span);
                }
                (self.value(left)?, other)
            }
            (_, ExpressionForm::Text(path)) => {
                let one = self.value(left)?;
                if one.of == Type::Symbol {
                    return self.is_in(operator, one.at, path, right.span, span);
                }
                (one, self.value(right)?)
            }
            _ => (self.value(left)?, self.value(right)?),
        };
        self.compared(operator, one, other, span)
    }

    /// Returns a comparison with a variant, or of strings that are known before the program runs, by the order of their
    /// bytes; `None` for any other.
    #[inline(never)]
    fn known_comparison(
        &mut self,
        operator: Operator,
        left: &Expression,
        right: &Expression,
    ) -> Result<Option<(Comparison, Operand, Operand)>, Error> {
        for (value, path) in [(left, right), (right, left)] {
            if let Some(found) = self.or_none(|clause| clause.is_variant(operator, value, path))? {
                return Ok(Some(found));
            }
        }
        let texts = self.known_text(left).zip(self.known_text(right));
        Ok(texts.map(|(one, other)| {
            let order = (one.cmp(other) as i64).cast_unsigned();
            (comparison(operator, true), Operand::Constant(order), Operand::Constant(0))
        }))
    }

    /// Returns a comparison of two values.
    #[inline(never)]
    fn compared(
        &mut self,
        operator: Operator,
        one: Value,
        other: Value,
        span: Span,
    ) -> Result<(Comparison, Operand, Operand), Error> {
        let is_equality = matches!(operator, Operator::Equal | Operator::Unequal);
        let nouns = Problem::Types { left: one.of.into(), right: other.of.into() };
        match (one.of, other.of) {
            _ if one.is_number() && other.is_number() => {
                Ok((comparison(operator, join(&one, &other)), one.at, other.at))
            }
            (Type::Text { .. }, Type::Text { .. }) | (Type::Bytes { .. }, Type::Bytes { .. }) if is_equality => {
                let differ = self.differ(one, other, longer(one, other), span)?;
                Ok((comparison(operator, false), differ.at, Operand::Constant(0)))
            }
            (Type::Tuple { .. }, Type::Tuple { .. }) if is_equality => {
                let of = self.checker.shapes.merge(one.of, other.of)?.ok_or(span.error(nouns))?;
                let differ = self.differ(one, other, of, span)?;
                Ok((comparison(operator, false), differ.at, Operand::Constant(0)))
            }
            (Type::Symbol, Type::Symbol | Type::Integer { .. })
            | (Type::Integer { .. }, Type::Symbol)
            | (Type::Stack { .. }, Type::Stack { .. })
                if is_equality =>
            {
                Ok((comparison(operator, false), one.at, other.at))
            }
            (one_of, other_of) if one_of == other_of && is_equality && one_of.words() > 1 => {
                let differ = self.differ(one, other, one_of, span)?;
                Ok((comparison(operator, false), differ.at, Operand::Constant(0)))
            }
            (one_of, other_of) if one_of == other_of && is_equality => {
                Ok((comparison(operator, false), one.at, other.at))
            }
            (Type::Time { .. }, Type::Time { .. }) if is_equality => Err(span.error(Problem::Formats)),
            (one_of, other_of) if discriminant(&one_of) == discriminant(&other_of) && !is_equality => {
                Err(span.error(Problem::Order))
            }
            _ => Err(span.error(nouns)),
        }
    }

    /// Returns a comparison that holds if `address` is (`==`) or is not (`!=`) in one of the functions that the string
    /// `path` names. `at` is the place of the string.
    #[inline(never)]
    fn is_in(
        &mut self,
        operator: Operator,
        address: Operand,
        path: &str,
        at: Span,
        span: Span,
    ) -> Result<(Comparison, Operand, Operand), Error> {
        if !matches!(operator, Operator::Equal | Operator::Unequal) {
            return Err(span.error(Problem::Order));
        }
        let functions = self.checker.symbols.functions(path).map_err(|problem| at.error(problem))?;
        let truth = comparison(operator, false);
        match (address, functions.as_slice()) {
            (_, []) => Err(at.error(Problem::NoSymbol)),
            (Operand::Constant(address), all) => {
                let is_one = all.iter().any(|function| function.contains(&address));
                Ok((truth, Operand::Constant(is_one.into()), Operand::Constant(1)))
            }
            (Operand::Word(_), [one]) => {
                let how = if truth == Comparison::Equal { Comparison::Below } else { Comparison::AboveEqual };
                let start = Operand::Constant(one.start);
                let distance = self.compute(Arithmetic::Subtract, address, start, UNSIGNED, span)?;
                Ok((how, distance.at, Operand::Constant(one.end - one.start)))
            }
            (Operand::Word(_), all) => {
                let found = self.give(SIGNED, |to| Op::Set { to, from: Operand::Constant(1) }, span)?;
                let distance = self.room(1, span)?;
                let mut exits = Vec::new();
                for function in all {
                    let start = Operand::Constant(function.start);
                    self.push(
                        Op::Compute { to: distance, how: Arithmetic::Subtract, left: address, right: start },
                        span,
                    )?;
                    let size = Operand::Constant(function.end - function.start);
                    self.branch_if(Comparison::Below, Operand::Word(distance), size, &mut exits, span)?;
                }
                if let Operand::Word(to) = found.at {
                    self.push(Op::Set { to, from: Operand::Constant(0) }, span)?;
                }
                self.land(&exits);
                Ok((truth, found.at, Operand::Constant(1)))
            }
        }
    }

    /// Returns a value that is 0 if two values are equal as values of type `of`, and 1 otherwise.
    pub fn differ(&mut self, one: Value, other: Value, of: Type, span: Span) -> Result<Value, Error> {
        let (left, right) = (self.in_words(one, of, span)?, self.in_words(other, of, span)?);
        let bytes = u8::try_from(usize::from(of.words()) * 8);
        let bytes = bytes.map_err(|_| span.error(Problem::Room { most: usize::from(u8::MAX) / 8 }))?;
        self.give(SIGNED, |to| Op::Differ { to, left, right, bytes }, span)
    }

    /// Returns the text of a string that is known before the program runs.
    fn known_text<'e>(&self, text: &'e Expression) -> Option<&'e str> {
        match &*text.form {
            ExpressionForm::Text(text) => Some(text),
            ExpressionForm::Builtin(name) if name == "probetype" => self.kind,
            _ => None,
        }
    }

    /// Returns the address of the function or static called `path`.
    pub fn symbol(&self, path: &str, span: Span) -> Result<Value, Error> {
        let address = self.checker.symbols.address(path).ok_or(span.error(Problem::NoAddress))?;
        Ok(Value { at: Operand::Constant(address), of: Type::Symbol })
    }

    /// Returns a value that is 1 if `condition` holds, and 0 otherwise.
    #[inline(never)]
    pub fn truth(&mut self, condition: &Expression) -> Result<Value, Error> {
        let (span, around) = (condition.span, self.guessed);
        if let ExpressionForm::Binary { operator, left, right } = &*condition.form
            && operator.is_comparison()
        {
            let (how, left, right) = self.comparison(*operator, left, right)?;
            self.settle(around);
            if let (Operand::Constant(left), Operand::Constant(right)) = (left, right) {
                return Ok(Value::constant(how.holds(left, right).into(), true));
            }
            return self.give(SIGNED, |to| Op::Compare { to, how, left, right }, span);
        }
        let (start, free) = (self.ops.len(), self.free);
        let result = self.give(SIGNED, |to| Op::Set { to, from: Operand::Constant(0) }, span)?;
        let mut exits = Vec::new();
        let known = self.test(condition, false, &mut exits)?;
        self.settle(around);
        if let Some(truth) = known {
            if self.ops.len() == start + 1 {
                self.ops.truncate(start);
                self.free = free;
                return Ok(Value::constant(truth.into(), true));
            }
            // The operands have effects.
            if let Operand::Word(to) = result.at {
                self.push(Op::Set { to, from: Operand::Constant(truth.into()) }, span)?;
            }
            return Ok(result);
        }
        if let Operand::Word(to) = result.at {
            self.push(Op::Set { to, from: Operand::Constant(1) }, span)?;
        }
        self.land(&exits);
        Ok(result)
    }
}

/// Returns the type with room for either of two strings or buffers.
fn longer(one: Value, other: Value) -> Type {
    Type::Text { words: one.of.words().max(other.of.words()) }
}

/// Returns the comparison of a comparing operator, for signed or unsigned values.
fn comparison(operator: Operator, signed: bool) -> Comparison {
    match operator {
        Operator::Unequal => Comparison::Unequal,
        Operator::Less if signed => Comparison::Less,
        Operator::Less => Comparison::Below,
        Operator::LessEqual if signed => Comparison::LessEqual,
        Operator::LessEqual => Comparison::BelowEqual,
        Operator::Greater if signed => Comparison::Greater,
        Operator::Greater => Comparison::Above,
        Operator::GreaterEqual if signed => Comparison::GreaterEqual,
        Operator::GreaterEqual => Comparison::AboveEqual,
        _ => Comparison::Equal,
    }
}
