//! Snippets: a clause as code in the stubs of its probes, if everything that it usually does needs no call.
//!
//! A snippet can compute with arguments, branch on them, and collect for keys that are known when the probe is
//! registered: no key, numbers, the function, the probe, the instruction. Each such key has words at a known distance
//! from the state of every CPU (see `maps::fixed`), so counting is an addition to a word. It can also count and add up
//! for a key of one word that has a slot on its CPU (see `maps::cached`). Values of maps are read, changed and deleted
//! in their tables (see `tables`). Everything else needs a handler.
//!
//! A snippet at a return is the same code, but has no access to the properties of a hit that are unknown there.
//!
//! Unusual cases are detected before anything visible to others is changed. Then everything is left to the handler.
//!
//! Values are in the registers that a [`Snippet`](aarch64_kprobes::probe::Snippet) leaves to its steps. Registers of
//! the probed code are read in place. A clause with more values than registers has no snippet.

mod collect;
mod tables;

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::{self as a64, Binary, Branch};
use aarch64_kprobes::probe::{Step, StepLabel, StepList};
use fallible::OutOfMemory;

use super::allocation::{Allocation, Allocations};
use super::operation::{CommonStep, binary, condition, immediate, is_remainder, with_constant};
use super::{Base, Kernel, Source, ZERO, load};
use crate::ir::{Arithmetic, Builtin, Code, FRAME_WORDS, Op, Operand, Register, Routine, Word};
use crate::maps::{NewWords, Store};

/// The registers for values.
const VALUES: RangeInclusive<u8> = 13..=16;
/// The registers for values in a clause with ops on tables, which use the others.
const FEW_VALUES: RangeInclusive<u8> = 13..=14;
/// The registers that the snippet may have changed.
const CHANGED: RangeInclusive<u8> = 9..=17;
/// The temporary registers of an op.
const ONE: u8 = 11;
const OTHER: u8 = 12;

/// Where a clause runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// Before the probed instruction.
    Instruction,
    /// At the return of a function, where no register holds the return address.
    Return,
}

/// A part of a key that is known before any hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// A number.
    Number(u64),
    /// The virtual address of the probed function.
    Function,
    /// The number of the probe, as [`Machine::probe`](crate::hit::Machine::probe) returns it.
    Probe,
    /// The virtual address of the probed instruction.
    Address,
}

/// The key of a map for which a probe collects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The number of the map.
    pub map: usize,
    /// The parts of the key.
    pub parts: Vec<KeyPart>,
}

/// A clause as steps of a snippet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InStub {
    steps: Vec<Step>,
    /// The steps that load the distance of a key's words, for keys whose parts are all numbers.
    fixed: Vec<(usize, Key)>,
    /// The step that loads the address of the [slots](Store::slots) of a map, and the map.
    slots: Option<(usize, u8)>,
    /// Whether the steps run with interrupts masked.
    pub is_masked: bool,
    /// The key whose [distance](Store::distance) is the operand of each probe.
    pub operand: Option<Key>,
}

impl InStub {
    /// Returns the steps, after filling in the words that all probes share. The words are in `store`, and come from
    /// `new` if they do not exist yet.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`] if there is no memory for the words.
    pub fn steps(mut self, code: &Code, store: &mut Store, new: NewWords<'_>) -> Result<Vec<Step>, OutOfMemory> {
        for (step, key) in &self.fixed {
            let numbers = key.parts.iter().filter_map(|part| match part {
                KeyPart::Number(number) => Some(*number),
                KeyPart::Function | KeyPart::Probe | KeyPart::Address => None,
            });
            let numbers = fallible::collect(numbers)?;
            let distance = store.distance(code, key.map, &numbers, new)?.ok_or(OutOfMemory)?;
            if let Some(step) = self.steps.get_mut(*step) {
                *step = Step::Number(OTHER, distance);
            }
        }
        if let Some((step, map)) = self.slots
            && let Some(step) = self.steps.get_mut(step)
        {
            *step = Step::Number(ONE, store.slots(code, map.into())?.ok_or(OutOfMemory)?);
        }
        Ok(self.steps)
    }
}

/// What the compiler knows of a word of the frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KnownWord {
    /// The word is equal to this register.
    In(u8),
    /// The word is equal to this part.
    Is(KeyPart),
}

/// Why there is no snippet.
enum NoSnippet {
    /// The clause does something that a snippet cannot do.
    Snippet,
    Memory,
}

impl From<OutOfMemory> for NoSnippet {
    fn from(_: OutOfMemory) -> Self {
        Self::Memory
    }
}

/// Compiles the clause of `code` with this number to a snippet that runs at `at`. `atomics` says whether the CPUs have
/// atomic additions. `None` if the clause cannot be a snippet, or if `store` was made for fewer CPUs than the kernel
/// has. The steps are valid as long as `store` stays in place.
///
/// # Errors
///
/// [`OutOfMemory`] if there is no memory to compile the clause.
pub fn in_stub(
    code: &Code,
    clause: usize,
    at: At,
    store: &Store,
    kernel: &Kernel,
    atomics: bool,
) -> Result<Option<InStub>, OutOfMemory> {
    let Some(routine) = code.routines.get(clause) else { return Ok(None) };
    // Each CPU finds its slots by its number.
    if store.per_cpu.len() < kernel.cpus {
        return Ok(None);
    }
    let has_tables = routine.ops.iter().any(|op| tables::is_on_table(*op));
    let values = if has_tables { FEW_VALUES } else { VALUES };
    let mut lowering = Lowering {
        code,
        store,
        routine,
        at,
        kernel,
        atomics,
        allocations: Allocations::new(code, &routine.ops, values.clone())?,
        values,
        known: fallible::collect((0..FRAME_WORDS).map(|_| None))?,
        ops: Vec::new(),
        steps: StepList::new(),
        fixed: Vec::new(),
        slots: None,
        operand: None,
        has_collected: false,
        held: None,
    };
    match lowering.lower() {
        Ok(()) => {
            let Lowering { steps, fixed, slots, operand, .. } = lowering;
            Ok(Some(InStub { steps: steps.finish(), fixed, slots, is_masked: has_tables, operand }))
        }
        Err(NoSnippet::Snippet) => Ok(None),
        Err(NoSnippet::Memory) => Err(OutOfMemory),
    }
}

/// Returns whether hits only add to a map, and never ask for its contents. A hit would look only into tables, and miss
/// what stubs collect elsewhere.
fn is_only_collected(code: &Code, map: u8) -> bool {
    !code.ops().any(|op| {
        matches!(
            *op,
            Op::Next { map: of, .. }
                | Op::Has { map: of, .. }
                | Op::Get { map: of, .. }
                | Op::Total { map: of, .. }
                | Op::Delete { map: of, .. }
                if of == map
        )
    })
}

struct Lowering<'a> {
    code: &'a Code,
    store: &'a Store,
    routine: &'a Routine,
    at: At,
    kernel: &'a Kernel,
    atomics: bool,
    /// The registers for values.
    values: RangeInclusive<u8>,
    allocations: Allocations,
    /// What is known of each word, and the op that wrote it. A list, because the stack has no room for so many.
    known: Vec<Option<(KnownWord, usize)>>,
    /// The label before each op, and that of the end, which is never placed.
    ops: Vec<StepLabel>,
    steps: StepList,
    fixed: Vec<(usize, Key)>,
    slots: Option<(usize, u8)>,
    operand: Option<Key>,
    /// Whether something visible to others has been changed.
    has_collected: bool,
    /// The op that deletes the key whose bucket is locked.
    held: Option<usize>,
}

impl Lowering<'_> {
    fn lower(&mut self) -> Result<(), NoSnippet> {
        let labels = (0..=self.routine.ops.len()).map(|_| self.steps.label());
        self.ops = fallible::collect_results(labels)?;
        self.over()?;
        for (number, &op) in self.routine.ops.iter().enumerate() {
            if let Some(&label) = self.ops.get(number) {
                self.steps.place(label);
            }
            self.op(number, op)?;
        }
        // A clause without an effect needs no snippet.
        if self.has_collected { Ok(()) } else { Err(NoSnippet::Snippet) }
    }

    /// Adds a branch to the op of this number, or to the end of the clause.
    fn branch(&mut self, branch: Branch, op: usize) -> Result<(), NoSnippet> {
        let label = self.ops.get(op).or(self.ops.last()).ok_or(NoSnippet::Snippet)?;
        Ok(self.steps.branch(branch, *label)?)
    }

    fn push(&mut self, step: Step) -> Result<(), NoSnippet> {
        Ok(self.steps.push(step)?)
    }

    fn instruction(&mut self, word: u32) -> Result<(), NoSnippet> {
        self.push(Step::Instruction(word))
    }

    /// Adds a step that handlers have, too.
    fn common(&mut self, step: CommonStep) -> Result<(), NoSnippet> {
        self.push(match step {
            CommonStep::Word(word) => Step::Instruction(word),
            CommonStep::Number(register, number) => Step::Number(register, number),
        })
    }

    /// Ends the clause at once if the program has asked to end. A snippet runs only at hits, so this holds for a clause
    /// that runs after the end, too.
    fn over(&mut self) -> Result<(), NoSnippet> {
        if self.code.ops().any(Op::is_exit) {
            self.push(Step::Number(ONE, self.store.over_address()))?;
            self.instruction(encode::load_bytes(1, ONE, ONE, 0))?;
            self.branch(Branch::NotZeroWord(ONE), self.routine.ops.len())?;
        }
        Ok(())
    }

    /// Returns the register with `word` before op `number`.
    fn word(&self, number: usize, word: Word) -> Result<u8, NoSnippet> {
        match (self.allocations.before(word.0.into(), number), self.known(word)) {
            (_, Some(KnownWord::In(register))) => Ok(register),
            (_, Some(KnownWord::Is(_))) | (Allocation::Memory | Allocation::Nowhere, None) => Err(NoSnippet::Snippet),
            (Allocation::Register(register), None) => Ok(register),
        }
    }

    fn known(&self, word: Word) -> Option<KnownWord> {
        self.known.get(usize::from(word.0)).copied().flatten().map(|(known, _)| known)
    }

    /// Returns `operand` if it is a known number.
    fn number_of(&self, operand: Operand) -> Option<u64> {
        match operand {
            Operand::Constant(value) => Some(value),
            Operand::Word(word) => match self.known(word) {
                Some(KnownWord::Is(KeyPart::Number(value))) => Some(value),
                _ => None,
            },
        }
    }

    /// Returns the register with `operand`: its own, or `otherwise`, into which it is loaded; the zero register for 0.
    fn operand(&mut self, number: usize, operand: Operand, otherwise: u8) -> Result<u8, NoSnippet> {
        match (self.number_of(operand), operand) {
            (Some(0), _) => Ok(ZERO),
            (Some(value), _) => {
                self.push(Step::Number(otherwise, value))?;
                Ok(otherwise)
            }
            (None, Operand::Word(word)) => self.word(number, word),
            (None, Operand::Constant(_)) => Err(NoSnippet::Snippet),
        }
    }

    /// Returns the register for the result `to` of op `number`; `None` if it is never read.
    fn target(&self, number: usize, to: Word) -> Result<Option<u8>, NoSnippet> {
        match self.allocations.after(to.0.into(), number) {
            Allocation::Register(register) => Ok(Some(register)),
            Allocation::Nowhere => Ok(None),
            Allocation::Memory => Err(NoSnippet::Snippet),
        }
    }

    /// Notes that `to` is `known` after op `number`. Returns false if another op writes the word before it is last
    /// read; then nothing is noted.
    fn remember(&mut self, number: usize, to: Word, known: KnownWord) -> bool {
        let last = self.allocations.last(to.0.into(), number);
        let others = self.routine.ops.get(number + 1..=last).unwrap_or_default();
        // A jump over the op may carry another value of the word.
        let is_first = self.allocations.before(to.0.into(), number) == Allocation::Nowhere;
        let is_only = is_first && !others.iter().any(|op| self.writes(*op, to));
        if let (true, Some(place)) = (is_only, self.known.get_mut(usize::from(to.0))) {
            *place = Some((known, number));
        }
        is_only
    }

    /// Returns whether an op writes `word`.
    fn writes(&self, op: Op, word: Word) -> bool {
        self.code.touched(op).is_ok_and(|of| of.written().any(|written| written == usize::from(word.0)))
    }

    fn op(&mut self, number: usize, op: Op) -> Result<(), NoSnippet> {
        let touched = self.code.touched(op).map_err(|_| NoSnippet::Snippet)?;
        self.step(number, op)?;
        for word in touched.written() {
            if let Some(known) = self.known.get_mut(word) {
                *known = known.filter(|&(_, by)| by == number);
            }
        }
        Ok(())
    }

    fn step(&mut self, number: usize, op: Op) -> Result<(), NoSnippet> {
        match op {
            Op::Set { to, from } => {
                let Some(target) = self.target(number, to)? else { return Ok(()) };
                if let Some(value) = self.number_of(from) {
                    if self.remember(number, to, KnownWord::Is(KeyPart::Number(value))) {
                        return Ok(());
                    }
                    return self.push(Step::Number(target, value));
                }
                if let Operand::Word(word) = from
                    && let Some(known @ KnownWord::Is(_)) = self.known(word)
                {
                    return if self.remember(number, to, known) { Ok(()) } else { Err(NoSnippet::Snippet) };
                }
                let from = self.operand(number, from, target)?;
                self.instruction(a64::copy(target, from))
            }
            Op::Copy { to, from, words } => {
                for word in 0..words {
                    let (to, from) = (Word(to.0.wrapping_add(word)), Word(from.0.wrapping_add(word)));
                    let Some(target) = self.target(number, to)? else { continue };
                    if let Some(known @ KnownWord::Is(_)) = self.known(from) {
                        if !self.remember(number, to, known) {
                            return Err(NoSnippet::Snippet);
                        }
                        continue;
                    }
                    let from = self.word(number, from)?;
                    // A later copy of this op may read what this one writes.
                    if words > 1 && from != target {
                        return Err(NoSnippet::Snippet);
                    }
                    self.instruction(a64::copy(target, from))?;
                }
                Ok(())
            }
            Op::Load { to, what } => self.load(number, to, what),
            Op::Compute { to, how, left, right } => {
                let Some(target) = self.target(number, to)? else { return Ok(()) };
                self.arithmetic(number, target, how, left, right)
            }
            Op::Extend { to, from, bits, signed } => {
                let Some(target) = self.target(number, to)? else { return Ok(()) };
                let from = self.operand(number, from, ONE)?;
                self.instruction(a64::extend(signed, target, from, bits))
            }
            Op::Compare { to, how, left, right } => {
                let Some(target) = self.target(number, to)? else { return Ok(()) };
                self.compare(number, left, right)?;
                self.instruction(a64::set_if(condition(how), target))
            }
            Op::Branch { how, left, right, target } => {
                use crate::ir::Comparison::{Equal, Unequal};
                let branch = match (how, self.number_of(right)) {
                    (Equal, Some(0)) => Branch::Zero(self.operand(number, left, ONE)?),
                    (Unequal, Some(0)) => Branch::NotZero(self.operand(number, left, ONE)?),
                    _ => {
                        self.compare(number, left, right)?;
                        Branch::If(condition(how))
                    }
                };
                self.branch(branch, target.into())
            }
            Op::Jump { target } => self.branch(Branch::Always, target.into()),
            Op::Collect { map, key, value } => self.collect(number, map, key, value),
            Op::Get { to, map, key } => self.get(number, to, map, key),
            Op::Has { to, map, key } => self.has(number, to, map, key),
            Op::Put { map, key, from } => self.put(number, map, key, from),
            Op::Modify { to, map, key, how, by, after } => self.modify(number, (to, after), map, key, (how, by)),
            Op::Delete { map, key } => self.delete(number, map, key),
            _ => Err(NoSnippet::Snippet),
        }
    }

    /// Loads a property of the hit.
    fn load(&mut self, number: usize, to: Word, what: Builtin) -> Result<(), NoSnippet> {
        let Some(target) = self.target(number, to)? else { return Ok(()) };
        let part = match what {
            Builtin::Register(Register::Pc | Register::X(30)) if self.at == At::Return => {
                return Err(NoSnippet::Snippet);
            }
            Builtin::Function => KeyPart::Function,
            Builtin::Probe => KeyPart::Probe,
            Builtin::Register(Register::Pc) => KeyPart::Address,
            Builtin::Register(Register::X(register)) => {
                if CHANGED.contains(&register) {
                    return Err(NoSnippet::Snippet);
                }
                if self.remember(number, to, KnownWord::In(register)) {
                    return Ok(());
                }
                return self.instruction(a64::copy(target, register));
            }
            Builtin::Register(Register::Sp) => return self.instruction(encode::add(target, encode::SP, 0)),
            Builtin::Task => match self.kernel.task {
                Some(Source::Path(path)) if path.base == Base::Thread => {
                    self.instruction(a64::read_thread(target))?;
                    return path.offsets.iter().try_for_each(|&offset| self.instruction(load(target, target, offset)));
                }
                _ => return Err(NoSnippet::Snippet),
            },
            Builtin::Nanoseconds => return self.time(target, 0),
            Builtin::Elapsed => return self.time(target, self.store.start),
            // The stub leaves these to the handler.
            _ => return Err(NoSnippet::Snippet),
        };
        if self.remember(number, to, KnownWord::Is(part)) { Ok(()) } else { Err(NoSnippet::Snippet) }
    }

    /// Loads the nanoseconds since the time `since` into `target`.
    fn time(&mut self, target: u8, since: u64) -> Result<(), NoSnippet> {
        let clock = self.kernel.nanoseconds.ok_or(NoSnippet::Snippet)?;
        clock.read(target, since, [ONE, OTHER], |step| self.common(step))
    }

    /// Sets the flags by comparing `left` with `right`.
    fn compare(&mut self, number: usize, left: Operand, right: Operand) -> Result<(), NoSnippet> {
        let left = self.operand(number, left, ONE)?;
        match self.number_of(right).and_then(immediate) {
            Some(value) if left != ZERO => self.instruction(a64::compare(left, value)),
            _ => {
                let right = self.operand(number, right, OTHER)?;
                self.instruction(a64::compute(Binary::SubtractFlags, ZERO, left, right))
            }
        }
    }

    fn arithmetic(
        &mut self,
        number: usize,
        target: u8,
        how: Arithmetic,
        left: Operand,
        right: Operand,
    ) -> Result<(), NoSnippet> {
        let one = self.operand(number, left, ONE)?;
        if let Some(word) = self.number_of(right).and_then(|value| with_constant(how, target, one, value)) {
            return self.instruction(word);
        }
        let other = self.operand(number, right, OTHER)?;
        if is_remainder(how) {
            // The quotient must not replace an operand.
            let quotient = if one == ONE { target } else { ONE };
            if quotient == other || quotient == one {
                return Err(NoSnippet::Snippet);
            }
            self.instruction(a64::compute(binary(how), quotient, one, other))?;
            return self.instruction(a64::multiply_subtract(target, quotient, other, one));
        }
        self.instruction(a64::compute(binary(how), target, one, other))
    }
}
