//! Follows all paths through a function, against the direction of execution.
//!
//! A [`Flow`] has a set of registers for each instruction of a function: those that may be read before they are
//! written. The set follows from those of the instructions that may come next. So one search answers for every
//! instruction, and the number of paths has no bound. The search takes memory for each instruction of the function.

use alloc::vec::Vec;
use core::ops::Range;

use super::walk::is_trap;
use super::{Read, SCRATCH};
use crate::insn::classify;
use crate::insn::control::Control;
use crate::insn::op::Indirect;
use crate::insn::registers::{RegisterAccess, Registers};
use crate::insn::verdict::{Reason, Verdict};

/// The largest number of times that the instructions are looked at before every register counts as found. Loops in
/// loops take one more for each level.
const SWEEPS_MAX: usize = 64;

/// The instructions of a function.
pub(super) struct Flow {
    start: u64,
    instructions: Vec<Instruction>,
    written: Registers,
}

/// Returns what is found before an exit, by what is found after it. All registers are those of [`SCRATCH`].
type Leave<'a> = &'a mut dyn FnMut(Exit, Registers) -> Option<Registers>;

/// What is found where paths go on that no direct branch leads to.
#[derive(Clone, Copy)]
struct Outside {
    /// At the places where indirect jumps may lead in the function.
    landed: Registers,
    /// Past the last instruction.
    ends: Registers,
}

/// Where a path leaves the function.
#[derive(Clone, Copy)]
pub(super) enum Exit {
    /// By a direct call at `at`, after which the path goes on.
    Call { at: u64, function: u64 },
    /// By a direct branch to this address.
    Branch(u64),
    /// Past the last instruction, to this address.
    End(u64),
}

struct Instruction {
    reads: Registers,
    writes: Registers,
    /// How control leaves it; `None` if execution does not get past it.
    control: Option<Control>,
    /// Whether an indirect jump may lead here.
    is_landing: bool,
    /// What was found before the instruction.
    found: Registers,
}

impl Flow {
    /// Reads the function at these virtual addresses; `None` if there is no memory for it.
    pub(super) fn of(function: &Range<u64>, read: Read<'_>) -> Option<Self> {
        let instructions = function.clone().step_by(4).map(|at| Instruction::of(read(at)));
        let mut instructions = fallible::collect(instructions).ok()?;
        let written = instructions.iter().fold(Registers::NONE, |written, instruction| written | instruction.writes);
        // Nothing is known about such an instruction. It is assumed to read only what the function has set.
        for instruction in instructions.iter_mut().filter(|instruction| instruction.reads == Registers::ALL) {
            instruction.reads = written;
        }
        let mut flow = Self { start: function.start, instructions, written };
        flow.find_landings();
        Some(flow)
    }

    /// Returns the registers that the function writes anywhere.
    pub(super) const fn written(&self) -> Registers {
        self.written
    }

    /// Returns what was found before the instruction at `at`; `None` outside the function.
    pub(super) fn found(&self, at: u64) -> Option<Registers> {
        Some(self.instructions.get(self.index(at)?)?.found)
    }

    /// Marks where indirect jumps may lead in the function: the beginnings of blocks to which nothing else is seen to
    /// lead. A block that a direct branch leads to as well is followed from there.
    fn find_landings(&mut self) {
        let mut goes_on = true;
        for instruction in &mut self.instructions {
            instruction.is_landing = !goes_on;
            // A call may be of a function that does not return.
            goes_on = matches!(instruction.control, Some(Control::Next | Control::Either(_)));
        }
        for index in 0..self.instructions.len() {
            let control = self.instructions.get(index).and_then(|instruction| instruction.control);
            let Some(offset) = control.and_then(Control::branch_offset) else { continue };
            if let Some(target) = self.index(self.at(index).wrapping_add_signed(offset.into()))
                && let Some(target) = self.instructions.get_mut(target)
            {
                target.is_landing = false;
            }
        }
    }

    /// Finds the registers before each instruction. Where paths leave the function, `leave` is called, for an exit
    /// often several times, with what has been found so far after a call, and returns what is found before the exit.
    /// After returns, and after indirect jumps that are tail calls, nothing is read. Returns `None` if `leave` does.
    pub(super) fn solve(&mut self, leave: Leave<'_>) -> Option<()> {
        let ends = match self.instructions.last().and_then(|instruction| instruction.control) {
            Some(Control::Next | Control::Either(_) | Control::Call(_)) => {
                leave(Exit::End(self.at(self.instructions.len())), Registers::NONE)?
            }
            Some(Control::Jump(_) | Control::Register { .. }) | None => Registers::NONE,
        };
        let mut outside = Outside { landed: Registers::NONE, ends };
        for sweep in 0..=SWEEPS_MAX {
            if sweep == SWEEPS_MAX {
                outside.landed = SCRATCH;
                self.instructions.iter_mut().for_each(|instruction| instruction.found = SCRATCH);
            }
            let mut is_changed = false;
            for index in (0..self.instructions.len()).rev() {
                let next = self.after(index, outside, leave)?;
                let Some(instruction) = self.instructions.get_mut(index) else { continue };
                let found = (next - instruction.writes) | instruction.reads;
                is_changed |= instruction.found != found;
                instruction.found = found;
            }
            let landings = self.instructions.iter().filter(|instruction| instruction.is_landing);
            let all = landings.fold(Registers::NONE, |all, landing| all | landing.found);
            is_changed |= all != outside.landed;
            outside.landed = all;
            if !is_changed {
                break;
            }
        }
        Some(())
    }

    /// Returns what has been found so far after the instruction with this index; before it, if paths leave there.
    fn after(&self, index: usize, outside: Outside, leave: Leave<'_>) -> Option<Registers> {
        let at = self.at(index);
        let past = || self.instructions.get(index + 1).map_or(outside.ends, |instruction| instruction.found);
        let target = |offset: i32| at.wrapping_add_signed(offset.into());
        Some(match self.instructions.get(index)?.control {
            Some(Control::Next) => past(),
            Some(Control::Jump(offset)) => self.before_target(target(offset), leave)?,
            Some(Control::Either(offset)) => self.before_target(target(offset), leave)? | past(),
            Some(Control::Call(offset)) => leave(Exit::Call { at, function: target(offset) }, past())?,
            Some(Control::Register { kind: Indirect::Jump, .. }) => outside.landed,
            // A function that is called by a register follows the standard, otherwise it could not be called.
            Some(Control::Register { kind: Indirect::Call | Indirect::Return, .. }) | None => Registers::NONE,
        })
    }

    fn before_target(&self, target: u64, leave: Leave<'_>) -> Option<Registers> {
        match self.found(target) {
            Some(found) => Some(found),
            None => leave(Exit::Branch(target), Registers::NONE),
        }
    }

    const fn at(&self, index: usize) -> u64 {
        self.start.wrapping_add(4 * index as u64)
    }

    /// Returns the index of the instruction at `at`, if it is in the function.
    fn index(&self, at: u64) -> Option<usize> {
        let index = usize::try_from(at.checked_sub(self.start)? / 4).ok()?;
        (index < self.instructions.len()).then_some(index)
    }
}

impl Instruction {
    /// Takes the instruction `word`; `None` is outside the text. One that reads [`Registers::ALL`] is unknown.
    fn of(word: Option<u32>) -> Self {
        const NOTHING: Instruction = Instruction {
            reads: Registers::NONE,
            writes: Registers::NONE,
            control: None,
            is_landing: false,
            found: Registers::NONE,
        };
        let Some(word) = word else { return NOTHING };
        let verdict = classify(word);
        if is_trap(word, verdict) {
            return NOTHING;
        }
        let RegisterAccess { reads, writes } = RegisterAccess::under(verdict, word);
        let reads = if reads == Registers::ALL { reads } else { reads & SCRATCH };
        let control = match verdict {
            Verdict::Reject(Reason::ExceptionReturn) => None,
            _ => Some(Control::after(word, verdict)),
        };
        Self { reads, writes: writes & SCRATCH, control, ..NOTHING }
    }
}
