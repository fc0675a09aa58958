//! The state of a clause that is being compiled: its ops, its variables, and what its probes allow.

use alloc::vec::Vec;

use fallible::{OutOfMemory, TryClone};
use kprobes_types::ValuePlace;
use kprobes_vm::ir::{OPS_MAX, Op, Operand, Type, Word};

use super::rust_place::RustPlace;
use super::value::{Named, Value, Variable};
use super::{Checker, Stage};
use crate::error::{Error, Problem, Span};
use crate::stack::StackBound;
use crate::syntax::{self, Expression, Probe, Spanned};

/// The maximum number of expressions of a clause. An expression counts each time that it is compiled.
const EXPRESSIONS_MAX: usize = 16 * OPS_MAX;

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
    /// Whether the code that is being compiled never runs, and only tells types.
    is_unreached: bool,
    /// The places of values that depend on the probed instruction: the virtual address of each instruction, and the
    /// place there.
    pub places: Vec<Vec<(u64, ValuePlace)>>,
    /// The jumps to the end of the clause.
    pub ends: Vec<usize>,
    /// The enclosing loops, the innermost last.
    pub loops: Vec<LoopJumps>,
    pub allowed: Allowed,
    /// The kind of the probes, if all have the same kind.
    pub kind: Option<&'static str>,
    /// The probes of the clause.
    pub probes: Vec<Spanned<Probe>>,
    /// The number of statements that may still be compiled. It bounds the work for statements that produce no ops,
    /// which the limit on ops does not count.
    pub fuel: usize,
    /// The number of expressions that may still be compiled. It bounds the work for expressions that are compiled more
    /// than once, to be asked about.
    expressions: usize,
    bound: StackBound,
}

/// The jumps out of one iteration of a loop.
#[derive(Default)]
pub(super) struct LoopJumps {
    /// The jumps to the next iteration.
    pub continues: Vec<usize>,
    /// The jumps to the op after the loop.
    pub breaks: Vec<usize>,
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
            time: all(Probe::is_alone),
            hit: all(|probe| !probe.is_alone()),
            arguments: all(|probe| matches!(probe, Probe::Kprobe { .. })),
            variables: all(|probe| matches!(probe, Probe::Kprobe { .. }) || is_on_instructions(probe)),
            result: all(|probe| matches!(probe, Probe::Kretprobe { .. } | Probe::Return { .. })),
        }
    }
}

/// Returns whether [`Symbols::instructions`](super::Symbols::instructions) lists the instructions of the probe.
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
    /// Creates the state before anything of `clause` is compiled.
    pub fn new(checker: &'c mut Checker<'s>, clause: &syntax::Clause) -> Result<Self, OutOfMemory> {
        Ok(Self {
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
        })
    }

    /// Refuses the expression or statement at `span` if the stack has no room for further recursion, or if the clause
    /// is too long.
    pub fn go_on(&mut self, span: Span) -> Result<(), Error> {
        let long = span.error(Problem::LongExpressions { most: EXPRESSIONS_MAX });
        self.expressions = self.expressions.checked_sub(1).ok_or(long)?;
        if self.bound.is_reached() { Err(span.error(Problem::Deep)) } else { Ok(()) }
    }

    /// Returns whether `error` ends the check at once. While types are being inferred, and in code that never runs,
    /// only a lack of memory does.
    pub fn ends_with(&self, error: &Error) -> bool {
        error.problem == Problem::OutOfMemory || !self.checker.is_learning() && !self.is_unreached
    }

    /// Adds an op.
    pub fn push(&mut self, op: Op, span: Span) -> Result<(), Error> {
        if self.ops.len() == OPS_MAX {
            return Err(span.error(Problem::LongCode { most: OPS_MAX }));
        }
        Ok(fallible::push(&mut self.ops, op)?)
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

    /// Calls `compile` for code that never runs. At a later stage, such code tells the types that no other code does.
    pub fn unreached<T>(&mut self, compile: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.checker.is_left |= self.checker.stage < Stage::UnreachedMaps;
        let around = core::mem::replace(&mut self.is_unreached, true);
        let outcome = self.unrun(compile);
        self.is_unreached = around;
        outcome
    }

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

    /// Adds a variable, which hides those of the same name.
    pub fn add_variable(&mut self, name: &str, at: Word, of: Type, declared: Option<usize>) -> Result<(), Error> {
        let name = fallible::copy(name)?;
        let variable = Variable { at, of, declared, guessed: self.guessed };
        Ok(fallible::push(&mut self.variables, Named { name, variable })?)
    }

    /// Returns whether this statement tells the types of the maps and variables that it uses. A block that never runs
    /// tells types only in the stage `unreached`.
    pub fn learns(&self, unreached: Stage) -> bool {
        let is_open = !self.is_unreached || self.checker.stage == unreached;
        self.checker.is_learning() && is_open && !self.guessed && self.unevaluated == 0
    }

    /// Notes that the result of an operation is a number, whatever its operands are. Only the last stage counts it as
    /// certain: until then, other code may tell whether the number has a sign. `around` is whether a guess was used
    /// before the operation.
    pub fn settle(&mut self, around: bool) {
        if self.checker.stage == Stage::UnreachedMaps {
            self.guessed = around;
        }
    }

    /// Calls `compile`, and removes the ops that it adds if it finds nothing. Otherwise another way to compile the same
    /// expression would repeat its reads of memory.
    pub fn or_none<T>(
        &mut self,
        compile: impl FnOnce(&mut Self) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        let (ops, free, ends) = (self.ops.len(), self.free, self.ends.len());
        let found = compile(self)?;
        if found.is_none() {
            self.ops.truncate(ops);
            self.free = free;
            self.ends.truncate(ends);
        }
        Ok(found)
    }

    /// Calls `compile` with the place of a Rust value that `expression` names. Finds nothing if it names none.
    pub fn at_place<T>(
        &mut self,
        expression: &Expression,
        compile: impl FnOnce(&mut Self, RustPlace) -> Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        self.or_none(|clause| match clause.rust_place(expression)? {
            Some(place) => compile(clause, place),
            None => Ok(None),
        })
    }

    /// Calls `compile`, and removes the ops that it adds, with their entries in the tables of the program. The entries
    /// stay if a type was learned, which may refer to them.
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
}
