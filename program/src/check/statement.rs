//! Compiles the statements of a clause.

use alloc::string::String;
use alloc::vec::Vec;

use kprobes_vm::ir::{Arithmetic, Comparison, MapValue, OPS_MAX, Op, Operand, Type, Word};

use super::clause::{Clause, LoopJumps};
use super::map::{check_move, read_op};
use super::shapes::Shapes;
use super::value::{Named, SIGNED, Value, Variable, join};
use super::{Checker, Stage};
use crate::error::{Error, Noun, Problem, Span};
use crate::syntax::{
    self, Expression, ExpressionForm, LoopRange, MapReference, Operator, Spanned, Statement, StatementForm, Target,
};

/// The maximum number of repetitions of `unroll`.
const UNROLL_MAX: u64 = 100;

/// A branch of a condition.
#[derive(Clone, Copy)]
enum Branch<'a> {
    /// The statements of an `if` or of an `else`, which may be missing.
    Block(&'a [Statement]),
    /// An operand of a `?:` without a value.
    Effect(&'a Expression),
}

impl<'c, 's> Clause<'c, 's> {
    /// Compiles a clause to ops.
    pub fn compile(checker: &'c mut Checker<'s>, clause: &syntax::Clause) -> Result<Vec<Op>, Error> {
        let mut compiled = Self::new(checker, clause)?;
        if let Some(predicate) = &clause.predicate {
            let mut ends = Vec::new();
            match compiled.branch(predicate, false, &mut ends) {
                Err(error) if compiled.ends_with(&error) => return Err(error),
                _ => fallible::extend(&mut compiled.ends, ends)?,
            }
            compiled.free = 0;
        }
        compiled.block(&clause.body)?;
        let ends = core::mem::take(&mut compiled.ends);
        compiled.land(&ends);
        Ok(compiled.ops)
    }

    fn block(&mut self, body: &[Statement]) -> Result<(), Error> {
        let (variables, free) = (self.variables.len(), self.free);
        self.statements(body)?;
        self.variables.truncate(variables);
        self.free = free;
        Ok(())
    }

    /// Compiles the statements of a block. Its variables stay visible afterwards.
    pub fn statements(&mut self, body: &[Statement]) -> Result<(), Error> {
        for statement in body {
            self.attempt(statement.span, |clause| clause.statement(statement))?;
        }
        Ok(())
    }

    /// Compiles a statement by `compile`. While types are learned, an error in it does not end the search: the code
    /// after it may tell the type that it lacks.
    fn attempt(&mut self, span: Span, compile: impl FnOnce(&mut Self) -> Result<(), Error>) -> Result<(), Error> {
        self.go_on(span)?;
        (self.guessed, self.asked) = (false, false);
        self.fuel = self.fuel.checked_sub(1).ok_or(span.error(Problem::LongCode { most: OPS_MAX }))?;
        let kept = self.free;
        let count = self.variables.len();
        match compile(self) {
            Err(error) if self.ends_with(&error) => return Err(error),
            Err(_) => self.variables.truncate(count),
            Ok(()) => {}
        }
        // A new variable takes the place of the first value of its statement.
        self.free = match self.variables.get(count) {
            Some(Named { variable, .. }) => usize::from(variable.at.0) + usize::from(variable.of.words()),
            None => kept,
        };
        Ok(())
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), Error> {
        let span = statement.span;
        match &statement.node {
            StatementForm::Assign { target, operator, value } => match &target.node {
                Target::Variable(name) => self.assign_variable(name, target.span, *operator, value),
                Target::Map(map) => self.assign_map(map, target.span, *operator, value),
            },
            StatementForm::Let { name, value } => self.declare(name, value.as_ref(), span),
            StatementForm::Do(value) => self.effect(value),
            StatementForm::Discard(value) => self.value(value).map(drop),
            StatementForm::If { condition, then, otherwise } => {
                self.if_else(condition, Branch::Block(then), Branch::Block(otherwise), span)
            }
            StatementForm::Unroll { count, body } => {
                let times = self.known(count, 1, UNROLL_MAX)?;
                // What another round tells, the next pass tells, too.
                let times = if self.checker.is_learning() { 1 } else { times };
                (0..times).try_for_each(|_| self.block(body))
            }
            StatementForm::While { condition, body } => {
                let (start, kept) = (self.ops.len(), self.free);
                let mut exits = Vec::new();
                if self.test_to_select(condition, &mut exits)? == Some(false) {
                    let end = self.jump(condition.span)?;
                    fallible::push(&mut exits, end)?;
                }
                self.free = kept;
                self.turn(body, start, exits, None, span)
            }
            StatementForm::For { name, range: LoopRange::Numbers { first, end }, body } => {
                self.numbers(name, first, end, body, span)
            }
            StatementForm::For { name, range: LoopRange::Map(map), body } => self.entries(name, map, body, span),
            StatementForm::Break | StatementForm::Continue => {
                let end = self.jump(span)?;
                let around = self.loops.last_mut().ok_or(span.error(Problem::NoLoop))?;
                let is_break = statement.node == StatementForm::Break;
                Ok(fallible::push(if is_break { &mut around.breaks } else { &mut around.continues }, end)?)
            }
            StatementForm::Return => {
                let end = self.jump(span)?;
                Ok(fallible::push(&mut self.ends, end)?)
            }
        }
    }

    /// Compiles an expression for its effect.
    fn effect(&mut self, expression: &Expression) -> Result<(), Error> {
        match &*expression.form {
            ExpressionForm::Call { name, arguments } => self.action(name, arguments, expression.span),
            ExpressionForm::Block { body, value } => {
                let (variables, free) = (self.variables.len(), self.free);
                self.statements(body)?;
                value.iter().try_for_each(|value| self.effect(value))?;
                self.variables.truncate(variables);
                self.free = free;
                Ok(())
            }
            ExpressionForm::Choice { condition, then, otherwise } => {
                self.if_else(condition, Branch::Effect(then), Branch::Effect(otherwise), expression.span)
            }
            _ => self.value(expression).map(drop),
        }
    }

    /// Compiles the condition of an `if`, a `?:` or a loop to jumps that are taken if it is false, as
    /// [`test`](Self::test) does. While types are learned, a condition that is wrong with the guess of a type counts as
    /// unknown: the code that it selects may tell the type.
    #[inline(never)]
    pub fn test_to_select(&mut self, condition: &Expression, exits: &mut Vec<usize>) -> Result<Option<bool>, Error> {
        let variables = self.variables.len();
        (self.guessed, self.asked) = (false, false);
        match self.test(condition, false, exits) {
            Err(error) if self.guessed && !self.asked && !self.ends_with(&error) => {
                self.variables.truncate(variables);
                Ok(None)
            }
            outcome => outcome,
        }
    }

    /// Compiles an `if`, or a `?:` for its effect.
    #[inline(never)]
    fn if_else(
        &mut self,
        condition: &Expression,
        then: Branch<'_>,
        otherwise: Branch<'_>,
        span: Span,
    ) -> Result<(), Error> {
        let (mut exits, kept) = (Vec::new(), self.free);
        let known = self.test_to_select(condition, &mut exits)?;
        self.free = kept;
        if let Some(truth) = known {
            let (taken, other) = if truth { (then, otherwise) } else { (otherwise, then) };
            self.learn_unreached(other)?;
            return self.compile_branch(taken);
        }
        self.compile_branch(then)?;
        if let Branch::Block([]) = otherwise {
            self.land(&exits);
            return Ok(());
        }
        let end = self.jump(span)?;
        self.land(&exits);
        self.compile_branch(otherwise)?;
        self.land(&[end]);
        Ok(())
    }

    fn compile_branch(&mut self, branch: Branch<'_>) -> Result<(), Error> {
        match branch {
            Branch::Block(body) => self.block(body),
            Branch::Effect(value) => self.attempt(value.span, |clause| clause.effect(value)),
        }
    }

    /// Compiles the branch that a known condition leaves out, to learn the types that other code leaves open. The
    /// branch tells nothing if the condition asks about a type.
    fn learn_unreached(&mut self, branch: Branch<'_>) -> Result<(), Error> {
        if !self.checker.is_learning() || self.asked {
            return Ok(());
        }
        let variables = self.variables.len();
        let outcome = self.unreached(|clause| match clause.checker.stage {
            // Only after the earlier stages is it known which types other code leaves open.
            Stage::UnreachedVariables | Stage::UnreachedMaps => clause.compile_branch(branch),
            _ => Ok(()),
        });
        self.variables.truncate(variables);
        match outcome {
            Err(error) if self.ends_with(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// Compiles the body of a loop whose iteration begins at op `start`. The end of an iteration increments the word
    /// `counter`. `exits` are jumps to the op after the loop.
    fn turn(
        &mut self,
        body: &[Statement],
        start: usize,
        mut exits: Vec<usize>,
        counter: Option<Word>,
        span: Span,
    ) -> Result<(), Error> {
        fallible::push(&mut self.loops, LoopJumps::default())?;
        let outcome = self.block(body);
        let LoopJumps { continues, breaks } = self.loops.pop().unwrap_or_default();
        outcome?;
        self.land(&continues);
        if let Some(to) = counter {
            let (left, right) = (Operand::Word(to), Operand::Constant(1));
            self.push(Op::Compute { to, how: Arithmetic::Add, left, right }, span)?;
        }
        self.push(Op::Again { target: start as u16 }, span)?;
        fallible::extend(&mut exits, breaks)?;
        self.land(&exits);
        Ok(())
    }

    /// Compiles the bounds of a loop over numbers. While types are learned, bounds that are wrong with the guess of a
    /// type count as numbers: the body of the loop may tell the type.
    #[inline(never)]
    fn range_bounds(&mut self, first: &Expression, end: &Expression) -> Result<(Value, Value), Error> {
        let variables = self.variables.len();
        let bounds = self.numeric(first).and_then(|first| Ok((first, self.numeric(end)?)));
        match bounds {
            Err(error) if self.guessed && !self.asked && !self.ends_with(&error) => {
                self.variables.truncate(variables);
                Ok((Value::GUESS, Value::GUESS))
            }
            bounds => bounds,
        }
    }

    /// `for ($name : first..end)`. Each iteration gets a fresh copy of the counter, so assigning the variable does not
    /// change the number of iterations.
    fn numbers(
        &mut self,
        name: &str,
        first: &Expression,
        end: &Expression,
        body: &[Statement],
        span: Span,
    ) -> Result<(), Error> {
        let (free, variables) = (self.free, self.variables.len());
        let (first, last) = self.range_bounds(first, end)?;
        let of = Type::Integer { signed: join(&first, &last) };
        // The bounds are copied, because the body may change the variables that they are computed from.
        let [counter, most, variable] = [self.room(1, span)?, self.room(1, span)?, self.room(1, span)?];
        self.push(Op::Set { to: counter, from: first.at }, span)?;
        self.push(Op::Set { to: most, from: last.at }, span)?;
        let (start, mut exits) = (self.ops.len(), Vec::new());
        let how = if of == SIGNED { Comparison::GreaterEqual } else { Comparison::AboveEqual };
        let (left, right) = (Operand::Word(counter), Operand::Word(most));
        self.branch_if(how, left, right, &mut exits, span)?;
        self.push(Op::Set { to: variable, from: left }, span)?;
        self.add_variable(name, variable, of, None)?;
        let outcome = self.turn(body, start, exits, Some(counter), span);
        self.variables.truncate(variables);
        self.free = free;
        outcome
    }

    /// `for ($name : @map)`: the variable is a tuple of the key and the value.
    fn entries(&mut self, name: &str, map: &Spanned<String>, body: &[Statement], span: Span) -> Result<(), Error> {
        self.allow(self.allowed.time, Problem::LoopAtHit, map.span)?;
        let (free, variables) = (self.free, self.variables.len());
        let number = self.map_number(&map.node, map.span)?;
        let keys = self.checker.maps.get(usize::from(number)).and_then(|known| known.keys.as_ref());
        let keys = fallible::collect(keys.into_iter().flatten().copied())?;
        let kept = self.kept(number, map.span)?;
        let value = kept.read_type().ok_or(map.span.error(Problem::NoNumber))?;
        let key = match keys.as_slice() {
            [] => return Err(map.span.error(Problem::KeyParts { wanted: 0 })),
            &[alone] => alone,
            _ => self.checker.shapes.tuple(keys, map.span)?,
        };
        let of = self.checker.shapes.tuple(fallible::collect([key, value])?, map.span)?;
        let place = self.room(1, span)?;
        let first = self.room(of.words(), span)?;
        self.push(Op::Set { to: place, from: Operand::Constant(0) }, span)?;
        let (start, mut exits) = (self.ops.len(), Vec::new());
        self.push(Op::Next { place, map: number }, span)?;
        let (left, right) = (Operand::Word(place), Operand::Constant(u64::MAX));
        self.branch_if(Comparison::Equal, left, right, &mut exits, span)?;
        let to = Word(first.0.saturating_add(key.words()));
        self.push(read_op(kept, to, number, first), span)?;
        self.add_variable(name, first, of, None)?;
        let outcome = self.turn(body, start, exits, None, span);
        self.variables.truncate(variables);
        self.free = free;
        outcome
    }

    /// `$name = value`, or a compound assignment.
    fn assign_variable(
        &mut self,
        name: &str,
        at: Span,
        operator: Option<Operator>,
        value: &Expression,
    ) -> Result<(), Error> {
        let start = self.free;
        let Some(known) = self.variable(name) else {
            if operator.is_some() {
                return Err(at.error(Problem::Unset));
            }
            let new = self.value(value)?;
            self.free = start;
            let place = self.room(new.of.words(), value.span)?;
            self.place(new, place, new.of, value.span)?;
            return self.add_variable(name, place, new.of, None);
        };
        let new = match operator {
            Some(operator) => {
                let old = self.read_variable(known);
                let right = self.numeric(value)?;
                check_move(operator, old.of, right.of, [at, value.span])?;
                self.binary(operator, old, right, at, value.span)?
            }
            None => self.value(value)?,
        };
        self.assign_known(known, new, value.span)
    }

    /// Assigns `new` to an existing variable.
    pub fn assign_known(&mut self, known: Variable, new: Value, span: Span) -> Result<(), Error> {
        if let Some(number) = known.declared.filter(|_| self.learns(Stage::UnreachedVariables)) {
            self.checker.declare(number, new.of)?;
        }
        let new = convert(&mut self.checker.shapes, new, known.of, span)?;
        self.place(new, known.at, known.of, span)
    }

    /// `let $name`: a new variable of this block. It hides a variable of the same name outside the block.
    fn declare(&mut self, name: &str, value: Option<&Expression>, span: Span) -> Result<(), Error> {
        let start = self.free;
        let (new, declared) = match value {
            Some(value) => (self.value(value)?, None),
            None => {
                let number = self.checker.declaration(span.start, name)?;
                let known = self.checker.declared.get(number).and_then(|declared| declared.of);
                self.guessed |= known.is_none() && self.checker.stage < Stage::Defaults;
                (Value { of: known.unwrap_or(SIGNED), at: Operand::Constant(0) }, Some(number))
            }
        };
        self.free = start;
        let place = self.room(new.of.words(), span)?;
        let first = if new.of.words() > 1 && declared.is_some() { Value::constant(0, true) } else { new };
        self.place(first, place, new.of, span)?;
        self.add_variable(name, place, new.of, declared)
    }

    /// `@name[keys] = value`, or a compound assignment.
    fn assign_map(
        &mut self,
        map: &MapReference,
        at: Span,
        operator: Option<Operator>,
        value: &Expression,
    ) -> Result<(), Error> {
        if operator.is_none()
            && let ExpressionForm::Call { name, arguments } = &*value.form
            && let Some(collected) = self.aggregate(name, arguments, value.span)?
        {
            let (number, key) = self.entry(&map.name, &map.keys, at)?;
            let (kept, value) = collected;
            self.keep(number, kept, at)?;
            return self.push(Op::Collect { map: number, key, value }, at);
        }
        let (number, key) = self.entry(&map.name, &map.keys, at)?;
        // The key does not tell the type of the value.
        self.guessed = false;
        let new = self.value(value)?;
        if let Some(operator) = operator {
            self.settle(false);
            self.modify(number, key, operator, new, value.span, at, true)?;
            return Ok(());
        }
        self.keep(number, MapValue::Value(new.of), at)?;
        let of = match self.kept(number, at)? {
            MapValue::Value(of) => of,
            MapValue::Aggregate(_) => return Err(at.error(Problem::MapKind)),
        };
        let new = convert(&mut self.checker.shapes, new, of, value.span)?;
        let from = self.in_words(new, of, value.span)?;
        self.push(Op::Put { map: number, key, from }, at)
    }
}

/// Converts `value` to the type `of`. Numbers convert to each other, and strings to longer strings, also within tuples.
fn convert(shapes: &mut Shapes, value: Value, of: Type, span: Span) -> Result<Value, Error> {
    let fits = match (value.of, of) {
        (Type::Integer { .. } | Type::Pointer { .. }, Type::Integer { .. } | Type::Pointer { .. }) => true,
        (Type::Text { words }, Type::Text { words: most }) if words > most => {
            return Err(span.error(Problem::LongText { most: usize::from(most) * 8 - 1 }));
        }
        (Type::Text { .. }, Type::Text { .. }) => true,
        (Type::Bytes { words }, Type::Bytes { words: most }) if words > most => {
            return Err(span.error(Problem::LongText { most: usize::from(most) * 8 - 8 }));
        }
        (Type::Bytes { .. }, Type::Bytes { .. }) => true,
        // A tuple with a longer string than `of` has would merge to a type other than `of`.
        (Type::Tuple { .. }, Type::Tuple { .. }) => shapes.merge(of, value.of)? == Some(of),
        (has, wants) => has == wants,
    };
    match fits {
        true => Ok(Value {
            of: if let Type::Text { .. } | Type::Bytes { .. } | Type::Tuple { .. } = of { value.of } else { of },
            ..value
        }),
        false => {
            let (wanted, found): (Noun, Noun) = (of.into(), value.of.into());
            Err(span.error(Problem::Type { wanted, found }))
        }
    }
}
