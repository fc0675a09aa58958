//! The steps that a snippet may consist of, and the rules for them.

use super::Snippet;
use crate::insn::encode;
use crate::insn::encode::compute::Branch;
use crate::insn::{self, RegisterAccess, Registers, StackPointer, Verdict};

/// A step of a snippet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An instruction that does the same at any address, and goes on to the next one.
    Instruction(u32),
    /// An instruction that does the same at any address, but loads, and may take a data abort. After an abort the
    /// snippet goes on at the handler, as for [`Call`](Self::Call). It is allowed where interrupts are masked, or in a
    /// snippet that does not mask them anywhere, but not in a snippet with a [`Hold`](Self::Hold).
    Load(u32),
    /// Loads into this register the operand that the probe was given together with the snippet.
    Operand(u8),
    /// Loads a number into this register.
    Number(u8, u64),
    /// Goes on at the handler, if the function has returned to a trampoline, whose address is then in
    /// [`Snippet::RETURN_ADDRESS`]. It is allowed in a snippet [of returns](Snippet::of_returns) in which no earlier
    /// step changes that register. Changes the register that it names.
    ReturnAddress(u8),
    /// Goes on at the step of this number, which is a later one, if the condition of the branch holds. The number of
    /// steps stands for the end of the snippet.
    Branch(Branch, usize),
    /// Goes on at the handler, if the condition of the branch holds. The steps before it have changed nothing that
    /// other code looks at.
    Call(Branch),
    /// Masks interrupts, up to [`Unmask`](Self::Unmask). From here on, [`Snippet::CPU`] is the state of this CPU.
    Mask,
    /// Restores the interrupt masks that [`Mask`](Self::Mask) has found.
    Unmask,
    /// Takes the lock word whose virtual address is in the first register: if it is 0, stores another number, with
    /// acquire order. If it is not 0, or if the store fails, the snippet goes on at the handler. Changes the second
    /// register.
    ///
    /// It is allowed where interrupts are masked, but not in a snippet of returns. The lock is released, by `stlr xzr`,
    /// before interrupts are unmasked or the handler is called.
    Hold(u8, u8),
    /// Shifts this register right by one bit and, if it is not 0 then, goes on at the step of this number, which is an
    /// earlier one. No step in between changes the register, so the loop has at most 64 turns.
    Turn(u8, usize),
}

/// The registers that a step may write.
const SCRATCH: Registers = Registers::from_to(11, 16).with(Registers::FLAGS);
/// The registers that a step may write in a snippet of returns.
const SCRATCH_AT_RETURN: Registers = Registers::from_to(10, 14).with(Registers::x(30)).with(Registers::FLAGS);
/// The number of words of [`Step::ReturnAddress`].
const RETURN_ADDRESS: usize = 3;

impl Step {
    /// Checks the rules for the step, as step `number` of `steps`.
    pub(super) fn check(
        self,
        number: usize,
        steps: &[Self],
        is_of_returns: bool,
        is_alone: bool,
    ) -> Result<(), &'static str> {
        let scratch = if is_of_returns { SCRATCH_AT_RETURN } else { SCRATCH };
        let is_scratch = |register: u8| (Registers::x(register) - scratch).is_empty() && register < 31;
        match self {
            Self::ReturnAddress(..) if !is_of_returns => Err("uses the return address, which only a return probe has"),
            Self::ReturnAddress(spare) => {
                let address = Registers::x(Snippet::RETURN_ADDRESS);
                let is_changed = |step: &Self| step.writes().intersects(address);
                // A loop around the step runs what follows it before its next turn.
                let is_around = |step: &Self| matches!(step, Self::Turn(_, first) if *first <= number);
                let end = steps.iter().rposition(is_around).map_or(number, |turn| turn.max(number));
                if !is_scratch(spare) {
                    Err("writes a register that a snippet must preserve")
                } else if steps.iter().take(end).any(is_changed) || spare == Snippet::RETURN_ADDRESS {
                    Err("uses the return address, which has been changed")
                } else {
                    Ok(())
                }
            }
            Self::Load(_) if steps.contains(&Self::Mask) && !masks(steps, number) => {
                Err("may fault with interrupts unmasked")
            }
            Self::Load(_) if steps.iter().any(|step| matches!(step, Self::Hold(..))) => {
                Err("may fault while a lock is held")
            }
            Self::Instruction(word) | Self::Load(word) => {
                let verdict = insn::classify(word);
                if verdict != Verdict::Slot {
                    return Err("is not an instruction that runs unchanged anywhere");
                }
                let access = RegisterAccess::under(verdict, word);
                if access.may_write(word) != access.writes || insn::is_floating(word) {
                    return Err("may change registers that are not known");
                }
                if !(access.writes - scratch).is_empty() {
                    return Err("writes a register that a snippet must preserve");
                }
                if StackPointer::after(word) != StackPointer::Moved(0) {
                    return Err("moves the stack pointer");
                }
                Ok(())
            }
            Self::Hold(..) if !is_alone => Err("takes a lock with interrupts unmasked"),
            Self::Hold(..) if is_of_returns => Err("takes a lock, in a snippet of returns"),
            Self::Hold(base, was) if is_scratch(base) && is_scratch(was) && base != was => Ok(()),
            Self::Hold(..) => Err("writes a register that a snippet must preserve"),
            Self::Turn(left, _) if !is_scratch(left) => Err("writes a register that a snippet must preserve"),
            Self::Turn(_, to) if to >= number => Err("does not branch backwards"),
            Self::Turn(_, to) if masks(steps, to) != masks(steps, number) => {
                Err("branches to a step with other interrupt masks")
            }
            Self::Turn(left, to) => {
                let turned = steps.get(to..number).unwrap_or_default();
                let is_counted = |step: &Self| {
                    !step.writes().intersects(Registers::x(left))
                        && !matches!(step, Self::Turn(..) | Self::Mask | Self::Unmask)
                };
                if turned.iter().all(is_counted) { Ok(()) } else { Err("may loop forever") }
            }
            Self::Operand(rd) | Self::Number(rd, _) if is_scratch(rd) => Ok(()),
            Self::Operand(_) | Self::Number(..) => Err("writes a register that a snippet must preserve"),
            Self::Branch(Branch::Literal(_), _) | Self::Call(Branch::Literal(_)) => Err("is not a branch"),
            Self::Branch(
                Branch::Zero(rt) | Branch::NotZero(rt) | Branch::NotZeroWord(rt) | Branch::BitClear(rt, _),
                _,
            )
            | Self::Call(Branch::Zero(rt) | Branch::NotZero(rt) | Branch::NotZeroWord(rt) | Branch::BitClear(rt, _))
                if rt > 31 =>
            {
                Err("names a register that does not exist")
            }
            Self::Branch(Branch::BitClear(_, bit), _) | Self::Call(Branch::BitClear(_, bit)) if bit > 31 => {
                Err("names a bit that does not exist")
            }
            Self::Branch(_, to) if to <= number || to > steps.len() => Err("does not branch forwards"),
            Self::Branch(_, to) if masks(steps, to) != masks(steps, number) => {
                Err("branches to a step with other interrupt masks")
            }
            Self::Mask if masks(steps, number) => Err("masks interrupts that are masked"),
            Self::Unmask if !masks(steps, number) => Err("unmasks interrupts that are not masked"),
            Self::Branch(..) | Self::Call(_) | Self::Mask | Self::Unmask => Ok(()),
        }
    }

    /// Returns the registers that the step changes.
    pub(super) fn writes(self) -> Registers {
        match self {
            Self::Instruction(word) | Self::Load(word) => RegisterAccess::of(word).writes,
            Self::Operand(rd) | Self::Number(rd, _) | Self::ReturnAddress(rd) => Registers::x(rd),
            Self::Hold(_, was) => Registers::x(was),
            Self::Turn(left, _) => Registers::x(left),
            Self::Mask => Registers::x(Snippet::MASKS),
            Self::Branch(..) | Self::Call(_) | Self::Unmask => Registers::NONE,
        }
    }

    /// Returns the number of words of the step, in a snippet that is masked as a whole or not, with or without atomics.
    pub(super) fn words(self, is_masked: bool, atomics: bool) -> usize {
        match self {
            Self::Turn(..) => 2,
            Self::Hold(..) if atomics => 2,
            Self::Hold(..) => 4,
            Self::Mask | Self::Unmask if is_masked => 0,
            Self::Mask => 4,
            Self::ReturnAddress(..) => RETURN_ADDRESS,
            _ => 1,
        }
    }

    /// Returns whether the step has a number at the beginning of the cell.
    pub(super) fn has_number(self) -> bool {
        match self {
            Self::Number(rd, number) => one_word(rd, number).is_none(),
            Self::ReturnAddress(..) => true,
            _ => false,
        }
    }
}

/// Returns whether `steps` have masked interrupts before the step with this number.
pub(super) fn masks(steps: &[Step], number: usize) -> bool {
    let last = steps.iter().take(number).rfind(|step| matches!(step, Step::Mask | Step::Unmask));
    last == Some(&Step::Mask)
}

/// Returns the only instruction that loads `number` into `rd`; `None` if it takes several.
pub(super) fn one_word(rd: u8, number: u64) -> Option<u32> {
    let (mut only, mut count) = (None, 0);
    encode::constant(rd, number, |word| {
        only = Some(word);
        count += 1;
    });
    only.filter(|_| count == 1)
}
