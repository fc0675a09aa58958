//! The check of the rules of handlers. The compiler should only make instructions that keep them; this verifies every
//! clause, from its words alone, before it may run.
//!
//! The words have few forms, none of which uses floating point, waits, or takes an exception. Branches lead to
//! instructions, and nothing is executed twice, except the search of a bucket, which drops a slot in each turn.
//! Registers that a function must preserve are touched only around calls, by fixed words. Calls go to the address that
//! the kernel has named. `reach` checks where stores go.

use alloc::vec::Vec;

use aarch64_kprobes::insn::encode::compute as a64;
use aarch64_kprobes::insn::{Instruction, Literal, Op, RegisterAccess, Registers, StackPointer, Verdict, classify};
use fallible::OutOfMemory;

use super::assembler::moves;
use super::reach::Reach;
use super::words::{CALL, ENTER, LEAVE, search_offset, target, touches_stack};
use super::{MachineCode, Refused, TAKEN, THIRD};

/// Where control may go after a word.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Successors {
    /// To the next word.
    Falls,
    /// To this word or to the next.
    Either(usize),
    /// To this word.
    Jumps(usize),
    /// Nowhere.
    Ends,
}

/// The registers that a clause may write outside of calls.
const OURS: Registers = Registers::from_to(0, 17);

/// Returns where control may go after a word. Fails if the word has no allowed form, or writes a register that it must
/// not.
fn successors(word: u32, at: usize, words: usize, all: usize) -> Result<Successors, &'static str> {
    const BRANCHES_OUT: &str = "branches out of the instructions";
    let inside = |offset| target(at, offset).filter(|to| *to < words).ok_or(BRANCHES_OUT);
    if word == a64::RETURN {
        return Ok(Successors::Ends);
    }
    if word == CALL || ENTER.contains(&word) || LEAVE.contains(&word) {
        return Ok(Successors::Falls);
    }
    match classify(word) {
        Verdict::Simulate(Op::Branch { offset }) => return inside(offset).map(Successors::Jumps),
        Verdict::Simulate(
            Op::BranchConditional { offset, consistent: false, .. }
            | Op::CompareBranch { offset, .. }
            | Op::TestBranch { offset, .. },
        ) => return inside(offset).map(Successors::Either),
        Verdict::Simulate(Op::LoadLiteral { kind: Literal::Doubleword, offset, .. }) => {
            let literal = target(at, offset).filter(|literal| (words..all).contains(literal) && literal % 2 == 0);
            literal.ok_or("loads from outside the literals")?;
        }
        _ if reads_system(word) || Instruction::decode(word).is_some() => {}
        _ => return Err("is not an instruction of a handler"),
    }
    let is_right = (RegisterAccess::of(word).may_write(word) - OURS - Registers::FLAGS).is_empty()
        && StackPointer::after(word) == StackPointer::Moved(0);
    if is_right { Ok(Successors::Falls) } else { Err("writes what it must not") }
}

/// Returns for each word whether it is the end of a search: it branches back, and each turn shifts the mask of used
/// slots by a bit, in the word before. So the mask becomes 0, because nothing else in a turn changes it, and because no
/// branch leads past the shift.
fn searches(instructions: &[u32], all: &[Successors]) -> Result<Vec<bool>, OutOfMemory> {
    let mut is_target = fallible::collect(all.iter().map(|_| false))?;
    for next in all {
        if let Successors::Either(to) | Successors::Jumps(to) = *next
            && let Some(place) = is_target.get_mut(to)
        {
            *place = true;
        }
    }
    let changes_mask =
        |word: &u32| *word == CALL || RegisterAccess::of(*word).may_write(*word).intersects(Registers::x(TAKEN));
    let is_end = |at: usize, next: &Successors| {
        let Successors::Either(head) = *next else { return false };
        let Some([turn @ .., shift, end]) = instructions.get(head..at + 1) else { return false };
        search_offset(*end).is_some()
            && *shift == a64::shift_right(TAKEN, TAKEN, 1)
            && is_target.get(at) == Some(&false)
            && !turn.iter().any(changes_mask)
    };
    fallible::collect(all.iter().enumerate().map(|(at, next)| is_end(at, next)))
}

/// Whether the word reads one of the system registers that a clause reads: TPIDR_EL1 and CNTVCT_EL0.
fn reads_system(word: u32) -> bool {
    let to = (word & 31) as u8;
    word == a64::read_thread(to) || word == a64::read_counter(to)
}

impl MachineCode {
    /// Checks the rules. `may` says whether a virtual address may be called, and `reach` describes what the clause may
    /// use.
    ///
    /// # Errors
    ///
    /// [`Refused::Flaw`] with the first broken rule; [`Refused::OutOfMemory`] if there is no memory for the check.
    pub(super) fn verify(&self, may: impl Fn(u64) -> bool, reach: Reach<'_>) -> Result<(), Refused> {
        let flaw = |word, what| Refused::Flaw { word, what };
        let instructions = self.words.get(..self.instructions).ok_or(flaw(0, "has fewer words than instructions"))?;
        let mut all = Vec::new();
        all.try_reserve_exact(instructions.len()).map_err(OutOfMemory::from)?;
        for (at, &word) in instructions.iter().enumerate() {
            all.push(successors(word, at, instructions.len(), self.words.len()).map_err(|what| flaw(at, what))?);
        }
        if !matches!(all.last(), Some(Successors::Ends | Successors::Jumps(_))) {
            return Err(flaw(instructions.len(), "runs past its end"));
        }
        self.calls(instructions, &all, may)?;
        let searches = searches(instructions, &all)?;
        // The number of words that lead to each word. The branch back of a search is left out.
        let leads_to = |at: usize| {
            let next = all.get(at).copied().unwrap_or(Successors::Ends);
            let target = match next {
                Successors::Either(_) if searches.get(at) == Some(&true) => None,
                Successors::Either(to) | Successors::Jumps(to) => Some(to),
                _ => None,
            };
            target.into_iter().chain(matches!(next, Successors::Falls | Successors::Either(_)).then_some(at + 1))
        };
        let mut leading = fallible::collect(all.iter().map(|_| 0_usize))?;
        for to in (0..all.len()).flat_map(leads_to) {
            if let Some(count) = leading.get_mut(to) {
                *count += 1;
            }
        }
        // The number of words that lead to each word and are not in order yet.
        let mut left = fallible::collect(leading.iter().copied())?;
        // Each word is in both lists at most once.
        let (mut ready, mut order) = (Vec::new(), Vec::new());
        for list in [&mut ready, &mut order] {
            list.try_reserve_exact(all.len()).map_err(OutOfMemory::from)?;
        }
        ready.extend((0..all.len()).filter(|&at| left.get(at) == Some(&0)));
        while let Some(at) = ready.pop() {
            order.push(at);
            for to in leads_to(at) {
                let Some(count) = left.get_mut(to) else { continue };
                *count -= 1;
                if *count == 0 {
                    ready.push(to);
                }
            }
        }
        if let Some(at) = left.iter().position(|count| *count > 0) {
            return Err(flaw(at, "may loop forever"));
        }
        reach.check(self, &order, &leading, leads_to)
    }

    /// Checks that all calls are listed, that the fixed words around a call save what it does not preserve, and that
    /// these words are nowhere else.
    fn calls(&self, instructions: &[u32], all: &[Successors], may: impl Fn(u64) -> bool) -> Result<(), Refused> {
        let flaw = |word, what| Refused::Flaw { word, what };
        let mut calls = self.calls.iter();
        let mut inside = fallible::collect(instructions.iter().map(|_| false))?;
        let mut at = 0;
        while at < instructions.len() {
            let rest = instructions.get(at..).unwrap_or(&[]);
            if !rest.starts_with(&ENTER) {
                if rest.first().is_some_and(|word| touches_stack(*word) || *word == CALL) {
                    return Err(flaw(at, "uses the stack outside of a call"));
                }
                at += 1;
                continue;
            }
            let length =
                rest.windows(LEAVE.len()).position(|words| words == LEAVE).ok_or(flaw(at, "does not return"))?;
            let call = calls.next().filter(|call| call.word > at && call.word < at + length && may(call.to));
            let call = call.ok_or(flaw(at, "calls a function that it must not"))?;
            let within = rest.get(ENTER.len()..length).unwrap_or(&[]);
            if within.iter().filter(|word| **word == CALL).count() != 1
                || instructions.get(call.word) != Some(&CALL)
                || within.iter().any(|word| touches_stack(*word))
                || self.loaded(call.word) != Some(call.to)
            {
                return Err(flaw(call.word, "is not the call that is declared for it"));
            }
            let end = at + length + LEAVE.len();
            inside.iter_mut().take(end).skip(at + 1).for_each(|inside| *inside = true);
            at = end;
        }
        if calls.next().is_some() {
            return Err(flaw(instructions.len(), "has fewer calls than are declared"));
        }
        for (at, next) in all.iter().enumerate() {
            let to = match *next {
                Successors::Either(to) | Successors::Jumps(to) => inside.get(to) == Some(&true),
                _ => false,
            };
            if to || inside.get(at) == Some(&true) && *next != Successors::Falls {
                return Err(flaw(at, "branches within a call"));
            }
        }
        Ok(())
    }

    /// Returns the number that the words before word `at` load into the register for calls.
    fn loaded(&self, at: usize) -> Option<u64> {
        let before = self.words.get(..at)?;
        if let Verdict::Simulate(Op::LoadLiteral { rt: THIRD, kind: Literal::Doubleword, offset }) =
            classify(*before.last()?)
        {
            let literal = target(at - 1, offset)?;
            let &[low, high] = self.words.get(literal..literal.checked_add(2)?)? else { return None };
            return Some(u64::from(low) | u64::from(high) << 32);
        }
        let call = self.calls.iter().find(|call| call.word == at)?;
        before.ends_with(moves(THIRD, call.to, &mut [0; 4])).then_some(call.to)
    }
}
