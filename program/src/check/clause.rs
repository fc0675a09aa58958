//! Compiles the statements of a clause.

use alloc::string::String;
use alloc::vec::Vec;

use fallible::{OutOfMemory, TryClone};
use kprobes_types::ValuePlace;
use kprobes_vm::ir::{Arithmetic, Comparison, MapValue, OPS_MAX, Op, Operand, Type, Word};

use super::shapes::Shapes;
use super::value::{Named, SIGNED, Value, Variable, constant, join, number};
use super::{Checker, Stage};
use crate::error::{Error, Noun, Problem, Span};
use crate::stack::StackBound;
use crate::syntax::{
    self, Expression, ExpressionForm, LoopRange, MapReference, Operator, Probe, Spanned, Statement, StatementForm,
    Target,
};

/// The maximum number of expressions of a clause, each as often as it is compiled.
const EXPRESSIONS_MAX: usize = 16 * OPS_MAX;
/// The maximum number of repetitions of `unroll`.
const UNROLL_MAX: u64 = 100;

/// A clause that is being compiled.
pub(super) struct Clause<'c, 's> {
    pub checker: &'c mut Checker<'s>,
    pub ops: Vec<Op>,
    /// The number of words of the frame that are in use.
    pub free: usize,
    pub variables: Vec<Named>,
    /// Whether this statement used a guess of what a map keeps, or of the type of a variable.
    pub guessed: bool,
    /// Whether this statement asked about a type.
    pub asked: bool,
    /// The number of enclosing expressions that are only asked about.
    pub unevaluated: usize,
    /// Whether this code never runs, and is compiled only because it tells types.
    is_unreached: bool,
    /// The places of values that depend on the probed instruction: the virtual address of each instruction, and the
    /// place there.
    pub places: Vec<Vec<(u64, ValuePlace)>>,
    /// The jumps to the end of the clause.
    pub ends: Vec<usize>,
    /// The enclosing loops, the innermost last.
    loops: Vec<LoopJumps>,
    pub allowed: Allowed,
    /// The kind of the probes, if all have the same kind.
    pub kind: Option<&'static str>,
    /// The probes of the clause.
    pub probes: Vec<Spanned<Probe>>,
    /// The number of statements that may still be compiled. It bounds the work for statements that produce no ops,
    /// which the limit on ops does not count.
    fuel: usize,
    /// The number of expressions that may still be compiled. It bounds the work for expressions that are compiled more
    /// than once, to be asked about.
    expressions: usize,
    bound: StackBound,
}

/// The jumps out of one iteration of a loop.
#[derive(Default)]
struct LoopJumps {
    /// The jumps to the next iteration.
    continues: Vec<usize>,
    /// The jumps to the op after the loop.
    breaks: Vec<usize>,
}

/// The features that all probes of a clause allow.
#[derive(Clone, Copy)]
pub(super) struct Allowed {
    /// Registers, functions and stacks, which exist only at a hit.
    pub hit: bool,
    /// Arguments in registers.
    pub arguments: bool,
    /// Arguments and locals by their names.
    pub variables: bool,
    /// A return value.
    pub result: bool,
    /// Loops over maps, which take too long at a hit.
    pub time: bool,
}

impl Allowed {
    fn by(probes: &[Spanned<Probe>]) -> Self {
        let all = |allows: fn(&Probe) -> bool| probes.iter().all(|probe| allows(&probe.node));
        Self {
            time: all(|probe| matches!(probe, Probe::Begin | Probe::End | Probe::Interval { .. })),
            hit: all(|probe| !matches!(probe, Probe::Begin | Probe::End | Probe::Interval { .. })),
            arguments: all(|probe| matches!(probe, Probe::Kprobe { .. })),
            variables: all(|probe| matches!(probe, Probe::Kprobe { .. }) || is_on_instructions(probe)),
            result: all(|probe| matches!(probe, Probe::Kretprobe { .. } | Probe::Return { .. })),
        }
    }
}

/// Whether a probe is on instructions that [`Symbols::instructions`](super::Symbols::instructions) tells.
pub(super) fn is_on_instructions(probe: &Probe) -> bool {
    matches!(
        probe,
        Probe::Offset { .. }
            | Probe::Line { .. }
            | Probe::FunctionLine { .. }
            | Probe::Instruction { .. }
            | Probe::Inline { exit: false, .. }
    )
}

fn copy(probe: &Spanned<Probe>) -> Result<Spanned<Probe>, OutOfMemory> {
    Ok(Spanned { node: probe.node.try_clone()?, span: probe.span })
}

/// Returns the kind of these probes, if all have the same kind.
fn kind(probes: &[Spanned<Probe>]) -> Option<&'static str> {
    let (first, rest) = probes.split_first()?;
    let kind = first.node.kind();
    rest.iter().all(|probe| probe.node.kind() == kind).then_some(kind)
}

impl<'c, 's> Clause<'c, 's> {
    /// Compiles a clause to ops.
    pub fn compile(checker: &'c mut Checker<'s>, clause: &syntax::Clause) -> Result<Vec<Op>, Error> {
        let mut compiled = Self {
            checker,
            ops: Vec::new(),
            free: 0,
            variables: Vec::new(),
            guessed: false,
            asked: false,
            unevaluated: 0,
            is_unreached: false,
            places: Vec::new(),
            ends: Vec::new(),
            loops: Vec::new(),
            allowed: Allowed::by(&clause.probes),
            kind: kind(&clause.probes),
            probes: fallible::collect_results(clause.probes.iter().map(copy))?,
            fuel: OPS_MAX,
            expressions: EXPRESSIONS_MAX,
            bound: StackBound::here(),
        };
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

    /// Refuses what is at `span` if the stack has no room for further recursion, or if the clause is too long.
    pub fn go_on(&mut self, span: Span) -> Result<(), Error> {
        let long = span.error(Problem::LongExpressions { most: EXPRESSIONS_MAX });
        self.expressions = self.expressions.checked_sub(1).ok_or(long)?;
        if self.bound.is_reached() { Err(span.error(Problem::Deep)) } else { Ok(()) }
    }

    /// Returns whether `error` ends the check at once. While types are being inferred, and in code that never runs,
    /// only a lack of memory does.
    fn ends_with(&self, error: &Error) -> bool {
        error.problem == Problem::OutOfMemory || !self.checker.is_learning() && !self.is_unreached
    }

    /// Makes the jumps at the indices `jumps` lead to the next op.
    pub fn land(&mut self, jumps: &[usize]) {
        let here = self.ops.len() as u16;
        for &jump in jumps {
            if let Some(Op::Branch { target, .. } | Op::Jump { target }) = self.ops.get_mut(jump) {
                *target = here;
            }
        }
    }

    /// Adds a jump, and returns its index for [`land`](Self::land), which sets its target.
    pub fn jump(&mut self, span: Span) -> Result<usize, Error> {
        self.push(Op::Jump { target: 0 }, span)?;
        Ok(self.ops.len() - 1)
    }

    fn block(&mut self, body: &[Statement]) -> Result<(), Error> {
        let (variables, free) = (self.variables.len(), self.free);
        self.statements(body)?;
        self.variables.truncate(variables);
        self.free = free;
        Ok(())
    }

    /// Compiles statements of a block. Their variables stay.
    pub fn statements(&mut self, body: &[Statement]) -> Result<(), Error> {
        for statement in body {
            self.go_on(statement.span)?;
            (self.guessed, self.asked) = (false, false);
            self.fuel = self.fuel.checked_sub(1).ok_or(statement.span.error(Problem::LongCode { most: OPS_MAX }))?;
            let kept = self.free;
            let count = self.variables.len();
            match self.statement(statement) {
                Err(error) if self.ends_with(&error) => return Err(error),
                Err(_) => self.variables.truncate(count),
                Ok(()) => {}
            }
            // A new variable takes the place of the first value of its statement.
            self.free = match self.variables.get(count) {
                Some(Named { variable, .. }) => usize::from(variable.at.0) + usize::from(variable.of.words()),
                None => kept,
            };
        }
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
                let mut exits = Vec::new();
                let kept = self.free;
                let known = self.test(condition, false, &mut exits)?;
                self.free = kept;
                if let Some(truth) = known {
                    let (taken, other) = if truth { (then, otherwise) } else { (otherwise, then) };
                    // A block that never runs tells the types that other code has left open, unless types decide about
                    // it.
                    if self.checker.is_learning() && !self.asked {
                        self.unreached(|clause| match clause.checker.stage {
                            // What the code that runs leaves open is not known before.
                            Stage::UnreachedVariables | Stage::UnreachedMaps => clause.block(other),
                            _ => Ok(()),
                        })?;
                    }
                    return self.block(taken);
                }
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
            StatementForm::While { condition, body } => {
                let (start, kept) = (self.ops.len(), self.free);
                let mut exits = Vec::new();
                self.branch(condition, false, &mut exits)?;
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

    /// Calls `compile` for code that never runs: it tells types that no other code does, at a later stage.
    pub fn unreached<T>(&mut self, compile: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.checker.is_left |= self.checker.stage < Stage::UnreachedMaps;
        let around = core::mem::replace(&mut self.is_unreached, true);
        let outcome = self.unrun(compile);
        self.is_unreached = around;
        outcome
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
            _ => self.value(expression).map(drop),
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
        let value = self.value(first)?;
        let first = number(value, first.span)?;
        let value = self.value(end)?;
        let last = number(value, end.span)?;
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
        let value = match kept {
            MapValue::Value(of) => of,
            MapValue::Aggregate(aggregate) => aggregate.number().ok_or(map.span.error(Problem::NoNumber))?,
        };
        let wide = map.span.error(Problem::Room { most: u8::MAX.into() });
        let key = match keys.as_slice() {
            [] => return Err(map.span.error(Problem::KeyParts { wanted: 0 })),
            &[alone] => alone,
            _ => self.checker.shapes.tuple(keys)?.ok_or(wide)?,
        };
        let of = self.checker.shapes.tuple(fallible::collect([key, value])?)?.ok_or(wide)?;
        let place = self.room(1, span)?;
        let first = self.room(of.words(), span)?;
        self.push(Op::Set { to: place, from: Operand::Constant(0) }, span)?;
        let (start, mut exits) = (self.ops.len(), Vec::new());
        self.push(Op::Next { place, map: number }, span)?;
        let (left, right) = (Operand::Word(place), Operand::Constant(u64::MAX));
        self.branch_if(Comparison::Equal, left, right, &mut exits, span)?;
        let to = Word(first.0.saturating_add(key.words()));
        self.push(
            match kept {
                MapValue::Value(_) => Op::Get { to, map: number, key: first },
                MapValue::Aggregate(_) => Op::Total { to, map: number, key: first },
            },
            span,
        )?;
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
                let right = self.value(value)?;
                self.binary(operator, old, right, at, value.span)?
            }
            None => self.value(value)?,
        };
        self.assign_known(known, new, value.span)
    }

    /// Gives `new` to a variable that exists.
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

    fn add_variable(&mut self, name: &str, at: Word, of: Type, declared: Option<usize>) -> Result<(), Error> {
        let name = fallible::copy(name)?;
        let variable = Variable { at, of, declared, guessed: self.guessed };
        Ok(fallible::push(&mut self.variables, Named { name, variable })?)
    }

    /// Returns whether what this statement does with a map or a variable tells its type. In a block that never runs, it
    /// does only in the stage `unreached`.
    pub fn learns(&self, unreached: Stage) -> bool {
        let is_open = !self.is_unreached || self.checker.stage == unreached;
        self.checker.is_learning() && is_open && !self.guessed && self.unevaluated == 0
    }

    /// Calls `compile`, and takes away the ops that it adds, with their entries in the tables of the program. Entries
    /// stay while types are being learned from them.
    pub fn unrun<T>(&mut self, compile: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        let (ops, free, ends) = (self.ops.len(), self.free, self.ends.len());
        let counts = |jumps: &LoopJumps| (jumps.continues.len(), jumps.breaks.len());
        let kept = fallible::collect(self.loops.iter().map(counts))?;
        let tables = self.checker.tables();
        let changed = core::mem::replace(&mut self.checker.changed, false);
        let outcome = compile(self);
        self.checker.stack_frames = tables.stack_frames;
        if !self.checker.changed {
            self.checker.truncate(&tables);
        }
        self.checker.changed |= changed;
        self.ops.truncate(ops);
        self.free = free;
        self.ends.truncate(ends);
        for (jumps, (continues, breaks)) in self.loops.iter_mut().zip(kept) {
            jumps.continues.truncate(continues);
            jumps.breaks.truncate(breaks);
        }
        outcome
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
        let new = self.value(value)?;
        if let Some(operator) = operator {
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
