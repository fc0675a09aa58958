//! The code generator: writes the instructions of each op.

use alloc::vec::Vec;
use core::convert::Infallible;

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::{self as a64, Branch};
use fallible::OutOfMemory;

use super::allocation::Allocation;
use super::assembler::Label;
use super::operation::{CommonStep, condition};
use super::words::STACK;
use super::{
    Allocations, Assembler, BUCKET, CallInstruction, Directory, FRAME, HIT, Kernel, LEFT, MachineCode, ONE, OTHER, ROW,
    Refused, WORDS_MAX, ZERO, load,
};
use crate::ir::{Code, Op, Operand, Routine, Touched, Word};
use crate::maps::Store;

/// The registers that are loaded on every path to the current position.
#[derive(Clone, Copy, Default)]
pub(super) struct Ready {
    /// Whether the row of this CPU is in its register.
    pub row: bool,
    /// Whether the frame of this CPU is in its register.
    pub frame: bool,
}

/// Code for an unusual case, written after the clause.
pub(super) enum OutOfLine {
    /// Unlocks the bucket, which has not been changed. Continues with the next out-of-line code.
    Release { from: Label },
    /// Returns to `back` if no key of this home is in a later bucket, so that the key's value is 0. Otherwise unlocks
    /// the bucket, and continues with the next out-of-line code.
    Nothing { from: Label, back: Label },
    /// Calls the kernel's routine for the op.
    Perform { op: usize, from: Label, back: Label, ready: Ready },
}

/// The state of the compilation of a clause.
pub(super) struct Emitter<'a> {
    pub assembler: Assembler,
    pub code: &'a Code,
    pub clause: usize,
    pub routine: &'a Routine,
    pub store: &'a Store,
    pub directory: &'a Directory,
    pub kernel: &'a Kernel,
    pub allocations: Allocations,
    pub ready: Ready,
    out_of_line: Vec<OutOfLine>,
    pub calls: Vec<CallInstruction>,
    /// The position of each op, and of the end.
    labels: Vec<Label>,
    /// For each op and the end, what is loaded on all jumps there; `None` if there are none.
    found: Vec<Option<Ready>>,
}

impl<'a> Emitter<'a> {
    pub fn new(
        code: &'a Code,
        clause: usize,
        routine: &'a Routine,
        store: &'a Store,
        directory: &'a Directory,
        kernel: &'a Kernel,
        allocations: Allocations,
    ) -> Result<Self, OutOfMemory> {
        let mut assembler = Assembler::default();
        let labels = fallible::collect((0..=routine.ops.len()).map(|_| assembler.label()))?;
        let found = fallible::collect((0..=routine.ops.len()).map(|_| None))?;
        Ok(Self {
            assembler,
            code,
            clause,
            routine,
            store,
            directory,
            kernel,
            allocations,
            ready: Ready::default(),
            out_of_line: Vec::new(),
            calls: Vec::new(),
            labels,
            found,
        })
    }

    /// Writes the whole clause.
    pub fn emit(mut self) -> Result<MachineCode, Refused> {
        self.over();
        let mut falls = true;
        for (number, op) in self.routine.ops.iter().enumerate() {
            if self.arrive(number, falls) {
                self.op(number, *op);
                falls = op.successors().1;
            }
            if self.assembler.length() > WORDS_MAX {
                return Err(Refused::Long);
            }
        }
        if self.arrive(self.routine.ops.len(), falls) {
            self.assembler.push(a64::RETURN);
        }
        for code in core::mem::take(&mut self.out_of_line) {
            self.emit_out_of_line(code);
        }
        let stack_bytes = if self.calls.is_empty() { 0 } else { STACK };
        let (words, instructions) = self.assembler.finish()?;
        if words.len() > WORDS_MAX {
            return Err(Refused::Long);
        }
        Ok(MachineCode { words, instructions, stack_bytes, calls: self.calls })
    }

    /// Writes a step that snippets have, too.
    pub fn common(&mut self, step: CommonStep) -> Result<(), Infallible> {
        match step {
            CommonStep::Word(word) => self.assembler.push(word),
            CommonStep::Number(register, number) => self.assembler.constant(register, number),
        }
        Ok(())
    }

    /// Schedules `code` to be written after the clause.
    pub fn push_out_of_line(&mut self, code: OutOfLine) {
        let outcome = fallible::push(&mut self.out_of_line, code);
        self.assembler.need(outcome);
    }

    fn emit_out_of_line(&mut self, code: OutOfLine) {
        match code {
            OutOfLine::Release { from } => {
                self.assembler.bind(from);
                self.release();
            }
            OutOfLine::Nothing { from, back } => {
                self.assembler.bind(from);
                self.assembler.push(load(OTHER, BUCKET, 16));
                self.assembler.branch(Branch::Zero(OTHER), back);
                self.release();
            }
            OutOfLine::Perform { op, from, back, ready } => {
                self.assembler.bind(from);
                self.ready = ready;
                self.perform(op);
                self.assembler.branch(Branch::Always, back);
            }
        }
    }

    /// Ends the clause at once if the program has asked to end. Writes nothing if the program never does. Compiled code
    /// runs only at hits, so this holds for a clause that runs after the end, too.
    fn over(&mut self) {
        if self.code.ops().any(Op::is_exit) {
            self.assembler.constant(BUCKET, self.store.over_address());
            self.assembler.push(encode::load_bytes(1, BUCKET, BUCKET, 0));
            self.branch_to_op(Branch::NotZeroWord(BUCKET), self.routine.ops.len());
        }
    }

    /// Begins op `number`. Returns whether any path leads there.
    fn arrive(&mut self, number: usize, falls: bool) -> bool {
        if let Some(&label) = self.labels.get(number) {
            self.assembler.bind(label);
        }
        let jumps = self.found.get(number).copied().flatten();
        self.ready = match jumps {
            Some(found) if falls => Ready { row: found.row & self.ready.row, frame: found.frame & self.ready.frame },
            Some(found) => found,
            None => self.ready,
        };
        falls || jumps.is_some()
    }

    /// Writes a branch to op `target`.
    pub fn branch_to_op(&mut self, branch: Branch, target: usize) {
        let (Some(&label), Some(found)) = (self.labels.get(target), self.found.get_mut(target)) else { return };
        let Ready { row, frame } = found.unwrap_or(self.ready);
        *found = Some(Ready { row: row & self.ready.row, frame: frame & self.ready.frame });
        self.assembler.branch(branch, label);
    }

    /// Returns the words that an op touches. The op is known to keep the rules.
    pub fn touched(&self, number: usize) -> Touched {
        self.routine.ops.get(number).and_then(|op| self.code.touched(*op).ok()).unwrap_or_default()
    }

    /// Returns the offset of a word from the address of the frame, in bytes.
    pub fn offset(word: usize) -> u16 {
        8 * word as u16
    }

    /// Returns the register with `word` for op `number`: its own, or `otherwise`, into which the word is loaded.
    pub fn word(&mut self, number: usize, word: Word, otherwise: u8) -> u8 {
        let word = usize::from(word.0);
        match self.allocations.before(word, number) {
            Allocation::Register(register) => register,
            Allocation::Memory | Allocation::Nowhere => {
                self.assembler.push(load(otherwise, FRAME, Self::offset(word)));
                otherwise
            }
        }
    }

    /// Returns the register with an operand of op `number`: its own, or `otherwise`, into which it is loaded; the zero
    /// register for 0.
    pub fn operand(&mut self, number: usize, operand: Operand, otherwise: u8) -> u8 {
        match operand {
            Operand::Word(word) => self.word(number, word, otherwise),
            Operand::Constant(0) => ZERO,
            Operand::Constant(value) => {
                self.assembler.constant(otherwise, value);
                otherwise
            }
        }
    }

    /// Returns the register into which op `number` must put its result `to`. [`keep`](Self::keep) must follow.
    pub fn target(&self, number: usize, to: Word) -> u8 {
        match self.allocations.after(to.0.into(), number) {
            Allocation::Register(register) => register,
            Allocation::Memory | Allocation::Nowhere => ONE,
        }
    }

    /// Moves `to` from the register of [`target`](Self::target) to its place, if that is in memory.
    pub fn keep(&mut self, number: usize, to: Word) {
        if self.allocations.after(to.0.into(), number) == Allocation::Memory {
            self.assembler.push(encode::store(ONE, FRAME, Self::offset(to.0.into())));
        }
    }

    fn is_needed(&self, number: usize, to: Word) -> bool {
        self.allocations.after(to.0.into(), number) != Allocation::Nowhere
    }

    fn op(&mut self, number: usize, op: Op) {
        let touched = self.touched(number);
        let in_memory = touched.read().any(|word| self.allocations.before(word, number) == Allocation::Memory)
            || touched.written().any(|word| self.allocations.after(word, number) == Allocation::Memory);
        if in_memory {
            self.frame();
        }
        match op {
            Op::Set { to, .. }
            | Op::Load { to, .. }
            | Op::Compute { to, .. }
            | Op::Extend { to, .. }
            | Op::Compare { to, .. }
            | Op::Differ { to, .. }
                if !self.is_needed(number, to) => {}
            Op::Set { to, from } => {
                let target = self.target(number, to);
                match from {
                    Operand::Constant(value) => self.assembler.constant(target, value),
                    Operand::Word(word) => {
                        let from = self.word(number, word, target);
                        if from != target {
                            self.assembler.push(a64::copy(target, from));
                        }
                    }
                }
                self.keep(number, to);
            }
            Op::Copy { to, from, words } => {
                for word in 0..words {
                    let (to, from) = (Word(to.0.wrapping_add(word)), Word(from.0.wrapping_add(word)));
                    if self.is_needed(number, to) {
                        let target = self.target(number, to);
                        let from = self.word(number, from, target);
                        if from != target {
                            self.assembler.push(a64::copy(target, from));
                        }
                        self.keep(number, to);
                    }
                }
            }
            Op::Load { to, what } => self.load(number, to, what),
            Op::Comm { to } => self.comm(number, to),
            Op::Compute { to, how, left, right } => {
                let target = self.target(number, to);
                self.arithmetic(number, target, how, left, right);
                self.keep(number, to);
            }
            Op::Extend { to, from, bits, signed } => {
                let target = self.target(number, to);
                let from = self.operand(number, from, LEFT);
                self.assembler.push(a64::extend(signed, target, from, bits));
                self.keep(number, to);
            }
            Op::Compare { to, how, left, right } => {
                let target = self.target(number, to);
                self.compare(number, left, right);
                self.assembler.push(a64::set_if(condition(how), target));
                self.keep(number, to);
            }
            Op::Differ { to, left, right, bytes } => self.differ(number, to, left, right, bytes),
            Op::Branch { how, left, right, target } => self.branch(number, how, left, right, target.into()),
            Op::Jump { target } if usize::from(target) == self.routine.ops.len() => self.assembler.push(a64::RETURN),
            Op::Jump { target } => self.branch_to_op(Branch::Always, target.into()),
            Op::Collect { map, key, value } => self.collect(number, map, key, value),
            Op::Get { to, map, key } => self.get(number, to, map, key),
            Op::Put { map, key, from } => self.put(number, map, key, from),
            Op::Modify { to, map, key, how, by, after } => self.modify(number, to, map, key, how, by, after),
            Op::Stack { .. }
            | Op::Read { .. }
            | Op::ReadText { .. }
            | Op::ReadBytes { .. }
            | Op::Find { .. }
            | Op::Length { .. }
            | Op::Frames { .. }
            | Op::Has { .. }
            | Op::Keys { .. }
            | Op::Again { .. }
            | Op::Next { .. }
            | Op::Total { .. }
            | Op::Delete { .. }
            | Op::Emit { .. }
            | Op::Exit { .. } => self.perform(number),
        }
    }

    /// Loads the row of this CPU.
    pub fn row(&mut self) {
        if !self.ready.row {
            self.follow(ROW, self.kernel.cpu);
            self.assembler.constant(BUCKET, self.directory.address());
            self.assembler.push(a64::add_shifted(ROW, BUCKET, ROW, 3 + self.directory.shift));
            self.ready.row = true;
        }
    }

    /// Loads the frame of this CPU.
    pub fn frame(&mut self) {
        if !self.ready.frame {
            self.row();
            self.assembler.push(load(FRAME, ROW, 0));
            self.ready.frame = true;
        }
    }

    /// Loads the word at the end of `path` into `rd`.
    pub fn follow(&mut self, rd: u8, path: super::Path) {
        let mut base = match path.base {
            super::Base::Hit => HIT,
            super::Base::Thread => {
                self.assembler.push(a64::read_thread(rd));
                rd
            }
        };
        for &offset in path.offsets {
            self.assembler.push(load(rd, base, offset));
            base = rd;
        }
    }
}
