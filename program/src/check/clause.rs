//! Compiles the statements of a clause.

use alloc::vec::Vec;

use kprobes_vm::code::{Kept, OPS_MAX, Op, Operand, Type, Word};

use super::Checker;
use super::shapes::Shapes;
use super::value::{SIGNED, Value, Variable, constant, number};
use crate::error::{Error, Noun, Problem, Span};
use crate::syntax::{
    self, Expression, ExpressionForm, MapReference, Operator, Probe, Spanned, Statement, StatementForm, Target,
};

/// The most that `unroll` repeats.
const UNROLL_MAX: u64 = 100;

/// A clause that is being compiled.
pub(super) struct Clause<'c, 's> {
    pub checker: &'c mut Checker<'s>,
    pub ops: Vec<Op>,
    /// How many words of the frame are taken.
    pub free: usize,
    pub variables: Vec<Variable>,
    /// What a map keeps has been guessed in this statement.
    pub guessed: bool,
    /// Jumps to the end.
    pub ends: Vec<usize>,
    pub allowed: Allowed,
    /// The kind of all probes, if they are of one.
    pub kind: Option<&'static str>,
    /// How many statements may still be compiled: those that become nothing are no ops that could be counted.
    fuel: usize,
}

/// What all probes of a clause allow.
#[derive(Clone, Copy)]
pub(super) struct Allowed {
    /// Registers, functions and stacks.
    pub hit: bool,
    /// Arguments.
    pub arguments: bool,
    /// A return value.
    pub result: bool,
}

impl Allowed {
    fn by(probes: &[Spanned<Probe>]) -> Self {
        let all = |allows: fn(&Probe) -> bool| probes.iter().all(|probe| allows(&probe.node));
        Self {
            hit: all(|probe| !matches!(probe, Probe::Begin | Probe::End | Probe::Interval { .. })),
            arguments: all(|probe| matches!(probe, Probe::Entry { .. })),
            result: all(|probe| matches!(probe, Probe::Return { .. } | Probe::Exit { .. })),
        }
    }
}

/// The kind of all these probes, if they are of one.
fn kind(probes: &[Spanned<Probe>]) -> Option<&'static str> {
    let (first, rest) = probes.split_first()?;
    let kind = first.node.kind();
    rest.iter().all(|probe| probe.node.kind() == kind).then_some(kind)
}

impl<'c, 's> Clause<'c, 's> {
    /// The ops of a clause.
    pub fn compile(checker: &'c mut Checker<'s>, clause: &syntax::Clause) -> Result<Vec<Op>, Error> {
        let mut compiled = Self {
            checker,
            ops: Vec::new(),
            free: 0,
            variables: Vec::new(),
            guessed: false,
            ends: Vec::new(),
            allowed: Allowed::by(&clause.probes),
            kind: kind(&clause.probes),
            fuel: OPS_MAX,
        };
        if let Some(predicate) = &clause.predicate {
            let mut ends = Vec::new();
            match compiled.branch(predicate, false, &mut ends) {
                Err(error) if compiled.checker.ends_with(&error) => return Err(error),
                _ => fallible::extend(&mut compiled.ends, ends)?,
            }
            compiled.free = 0;
        }
        compiled.block(&clause.body)?;
        let ends = core::mem::take(&mut compiled.ends);
        compiled.land(&ends);
        Ok(compiled.ops)
    }

    /// Makes the jumps numbered `jumps` go on here.
    pub fn land(&mut self, jumps: &[usize]) {
        let here = self.ops.len() as u16;
        for &jump in jumps {
            if let Some(Op::Branch { target, .. } | Op::Jump { target }) = self.ops.get_mut(jump) {
                *target = here;
            }
        }
    }

    /// Adds a jump that [`land`](Self::land) lets go on somewhere.
    pub fn jump(&mut self, span: Span) -> Result<usize, Error> {
        self.push(Op::Jump { target: 0 }, span)?;
        Ok(self.ops.len() - 1)
    }

    fn block(&mut self, body: &[Statement]) -> Result<(), Error> {
        let (variables, free) = (self.variables.len(), self.free);
        for statement in body {
            self.guessed = false;
            self.fuel = self.fuel.checked_sub(1).ok_or(statement.span.error(Problem::LongCode { most: OPS_MAX }))?;
            let kept = self.free;
            let count = self.variables.len();
            match self.statement(statement) {
                Err(error) if self.checker.ends_with(&error) => return Err(error),
                _ => {}
            }
            // A variable that is new lies where the first value of its statement has been.
            self.free = match self.variables.get(count) {
                Some(new) => usize::from(new.at.0) + usize::from(new.of.words()),
                None => kept,
            };
        }
        self.variables.truncate(variables);
        self.free = free;
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
            StatementForm::Do(value) => match &*value.form {
                ExpressionForm::Call { name, arguments } => self.action(name, arguments, value.span),
                _ => self.value(value).map(drop),
            },
            StatementForm::If { condition, then, otherwise } => {
                let mut exits = Vec::new();
                let kept = self.free;
                self.branch(condition, false, &mut exits)?;
                self.free = kept;
                self.block(then)?;
                if otherwise.is_empty() {
                    self.land(&exits);
                    return Ok(());
                }
                let end = self.jump(span)?;
                self.land(&exits);
                self.block(otherwise)?;
                self.land(&[end]);
                Ok(())
            }
            StatementForm::Unroll { count, body } => {
                let value = self.value(count)?;
                let value = number(value, count.span)?;
                let times = constant(value, count.span)?;
                if !(1..=UNROLL_MAX).contains(&times) {
                    return Err(count.span.error(Problem::Range { least: 1, most: UNROLL_MAX }));
                }
                (0..times).try_for_each(|_| self.block(body))
            }
            StatementForm::Return => {
                let end = self.jump(span)?;
                Ok(fallible::push(&mut self.ends, end)?)
            }
        }
    }

    /// `$name = value`, or with an operator.
    fn assign_variable(
        &mut self,
        name: &str,
        at: Span,
        operator: Option<Operator>,
        value: &Expression,
    ) -> Result<(), Error> {
        let start = self.free;
        let known = self.variables.iter().rev().find(|variable| variable.name == name);
        let Some(&Variable { at: place, of, declared, .. }) = known else {
            if operator.is_some() {
                return Err(at.error(Problem::Unset));
            }
            let new = self.value(value)?;
            self.free = start;
            let place = self.room(new.of.words(), value.span)?;
            self.place(new, place, new.of, value.span)?;
            return self.add_variable(name, place, new.of, None);
        };
        let old = Value { at: Operand::Word(place), of };
        let new = match operator {
            Some(operator) => {
                let right = self.value(value)?;
                self.binary(operator, old, right, at, value.span)?
            }
            None => self.value(value)?,
        };
        if let Some(at) = declared.filter(|_| self.checker.learning && !self.guessed) {
            self.checker.declare(at, new.of)?;
        }
        let new = convert(&mut self.checker.shapes, new, of, value.span)?;
        self.place(new, place, of, value.span)
    }

    /// `let $name`, which is a new variable, whatever is outside this block.
    fn declare(&mut self, name: &str, value: Option<&Expression>, span: Span) -> Result<(), Error> {
        let start = self.free;
        let (new, declared) = match value {
            Some(value) => (self.value(value)?, None),
            None => {
                let known = self.checker.declared.iter().find(|(at, _)| *at == span.start);
                let of = known.map_or(SIGNED, |(_, of)| *of);
                (Value { of, at: Operand::Constant(0) }, Some(span.start))
            }
        };
        self.free = start;
        let place = self.room(new.of.words(), span)?;
        let first = if new.of.words() > 1 && declared.is_some() { Value::constant(0, true) } else { new };
        self.place(first, place, new.of, span)?;
        self.add_variable(name, place, new.of, declared)
    }

    fn add_variable(&mut self, name: &str, at: Word, of: Type, declared: Option<usize>) -> Result<(), Error> {
        let name = fallible::copy(name)?;
        Ok(fallible::push(&mut self.variables, Variable { name, at, of, declared })?)
    }

    /// `@name[keys] = value`, or with an operator.
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
        let new = self.value(value)?;
        if let Some(operator) = operator {
            self.modify(number, key, operator, new, value.span, at, true)?;
            return Ok(());
        }
        self.keep(number, Kept::Value(new.of), at)?;
        let of = match self.kept(number, at)? {
            Kept::Value(of) => of,
            Kept::Aggregate(_) => return Err(at.error(Problem::MapKind)),
        };
        let new = convert(&mut self.checker.shapes, new, of, value.span)?;
        let from = self.in_words(new, of, value.span)?;
        self.push(Op::Put { map: number, key, from }, at)
    }
}

/// `value` as what `of` is: numbers become each other, and strings become longer, in tuples, too.
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
        // What is longer in a part of it would be merged to something else.
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
