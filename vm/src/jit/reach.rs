//! The check of where stores go: it follows the contents of registers through the words, along every path, from the
//! first word on.
//!
//! A store is refused if its address is not in memory that the clause owns, if it goes past the end of that memory, or
//! if it goes to a bucket, or a slot in it, whose lock is not held. Only one sequence of words may lock a bucket, and
//! every path must unlock it before a call and before the end.
//!
//! The check assumes that the number of the CPU, at the place that the kernel names, is below the number of rows in the
//! directory; that the rows hold the addresses of the store's data; and that the mask in a bucket has no bits beyond
//! its slots. Loads are not checked: they go to the places that the kernel has named.

mod value;

use alloc::boxed::Box;
use alloc::vec::Vec;

use aarch64_kprobes::insn::encode::compute::{self as a64, Binary};
use aarch64_kprobes::insn::{Instruction, Op, RegisterAccess, Registers, Shift, Verdict, classify};

use super::words::{CALL, ENTER, LEAVE, search_offset, target};
use super::{BUCKET, Base, Directory, HIT, HOLDER, MachineCode, ONE, OTHER, Path, ROW, Refused, SLOT, TAKEN, ZERO};
use crate::maps::Store;
use value::{Area, Value};

/// The rule that is broken, as a predicate about the word.
type Broken = &'static str;
const FOREIGN_WRITE: Broken = "writes what it must not";

/// What is known before a word is executed: the state of an abstract interpretation.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AbstractState {
    registers: [Value; 18],
    /// The registers whose comparison the flags hold.
    compared: Option<(u8, u8)>,
    /// The values of `HIT` and `ROW` before a call.
    saved: [Value; 2],
    /// The map whose bucket, at `BUCKET`, is locked.
    held: Option<u8>,
}

impl AbstractState {
    fn get(&self, number: u8) -> Value {
        match number {
            ZERO => Value::Is(0),
            _ => self.registers.get(usize::from(number)).copied().unwrap_or(Value::Any),
        }
    }

    fn set(&mut self, number: u8, value: Value) -> Result<(), Broken> {
        if number == BUCKET && self.held.is_some() {
            return Err("overwrites the address of the bucket that it holds");
        }
        self.compared = self.compared.filter(|&(one, two)| one != number && two != number);
        if let Some(place) = self.registers.get_mut(usize::from(number)) {
            *place = value;
        }
        Ok(())
    }

    /// Forgets everything about slots.
    fn forget_slots(&mut self) {
        let slots = self.registers.iter_mut().filter(|value| value.is_of_slots());
        slots.for_each(|value| *value = Value::Any);
    }

    /// Keeps only what is also known in `other`.
    fn join(&mut self, other: &Self) -> Result<(), Broken> {
        let values = self.registers.iter_mut().chain(&mut self.saved);
        values.zip(other.registers.iter().chain(&other.saved)).for_each(|(value, other)| *value = value.join(*other));
        self.compared = self.compared.filter(|_| self.compared == other.compared);
        if self.held == other.held { Ok(()) } else { Err("is reached both with and without a bucket") }
    }

    /// Returns what is known where a search continues with the next slot; `None` if such a slot may not exist.
    fn searched(&self) -> Option<Self> {
        let (Value::Taken(map), Value::Next(of)) = (self.get(TAKEN), self.get(SLOT)) else { return None };
        let mut next = self.clone();
        next.set(SLOT, Value::In(Area::Slot(map), 0)).ok()?;
        (map == of).then_some(next)
    }

    /// Returns whether everything that is known here also holds in `other`.
    fn follows_from(&self, other: &Self) -> bool {
        let mut both = self.clone();
        both.join(other).is_ok() && both == *self
    }
}

/// The data that a clause may use.
#[derive(Clone, Copy)]
pub(super) struct Reach<'a> {
    pub store: &'a Store,
    pub directory: &'a Directory,
    /// The path to the number of the CPU.
    pub cpu: Path,
}

impl Reach<'_> {
    /// Follows the words in `order`, in which each word comes after all that lead to it, except for the ends of
    /// searches. `successors` returns the words that a word leads to. `leading` has the number of words that lead to
    /// each word.
    ///
    /// # Errors
    ///
    /// [`Refused::Flaw`] with the first word that breaks a rule, and the rule; [`Refused::OutOfMemory`] if there is no
    /// memory for the check.
    pub fn check<W: Iterator<Item = usize>>(
        &self,
        machine_code: &MachineCode,
        order: &[usize],
        leading: &[usize],
        successors: impl Fn(usize) -> W,
    ) -> Result<(), Refused> {
        let words = machine_code.words.as_slice();
        let mut first =
            AbstractState { registers: [Value::Any; 18], compared: None, saved: [Value::Any; 2], held: None };
        if self.cpu.base == Base::Hit {
            first.registers[usize::from(HIT)] = Value::Path(0);
        }
        let mut states: Vec<Option<Box<AbstractState>>> = fallible::collect(words.iter().map(|_| None))?;
        if let Some(place) = states.first_mut() {
            *place = Some(fallible::boxed(first)?);
        }
        // What is known at the beginnings of searches, each identified by its first word.
        let heads = order.iter().filter_map(|&at| searches_from(words, at));
        let mut searches: Vec<(usize, Option<AbstractState>)> = fallible::collect(heads.map(|head| (head, None)))?;
        searches.sort_unstable_by_key(|(head, _)| *head);
        searches.dedup_by_key(|(head, _)| *head);
        for &at in order {
            // A word that nothing leads to is never executed.
            let Some(mut state) = states.get_mut(at).and_then(Option::take) else { continue };
            let broken = |what| Refused::Flaw { word: at, what };
            let found = searches.binary_search_by_key(&at, |(head, _)| *head);
            if let Some((_, head)) = found.ok().and_then(|found| searches.get_mut(found)) {
                // The search changes these registers. Where it continues, everything else must be as it is here.
                state.set(ONE, Value::Any).and(state.set(OTHER, Value::Any)).map_err(broken)?;
                state.compared = None;
                *head = Some(AbstractState::clone(&state));
            }
            self.execute(&mut state, words, leading, at).map_err(broken)?;
            if let Some(head) = searches_from(words, at) {
                let found = searches.iter().find(|(other, _)| *other == head).and_then(|(_, known)| known.as_ref());
                let holds = found.zip(state.searched()).is_some_and(|(head, next)| head.follows_from(&next));
                holds.then_some(()).ok_or(broken("searches past the end of a bucket"))?;
            }
            let is_taken = at.checked_sub(1).and_then(|at| words.get(at)) == Some(&TAKE);
            for to in successors(at) {
                let mut state = AbstractState::clone(&state);
                if is_taken && to == at + 1 {
                    state.held = self.bucket(state.get(BUCKET));
                }
                match states.get_mut(to) {
                    Some(Some(known)) => known.join(&state).map_err(|what| Refused::Flaw { word: to, what })?,
                    Some(place) => *place = Some(fallible::boxed(state)?),
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Word `at` is an exclusive store. Checks that it is part of the sequence that locks a bucket: `ldaxr`, `cbnz`,
    /// `stxr`, `cbnz`. Control may enter the sequence only at its beginning.
    fn take(&self, state: &AbstractState, words: &[u32], leading: &[usize], at: usize) -> Result<(), Broken> {
        let sequence =
            at.checked_sub(2).and_then(|start| Some((words.get(start..at + 2)?, leading.get(start + 1..at + 2)?)));
        let is_whole = sequence.is_some_and(|(words, leading)| {
            let leaves = |word: u32, register: u8, is_wide: bool| {
                matches!(classify(word), Verdict::Simulate(Op::CompareBranch { rt, wide, nonzero: true, .. })
                    if rt == register && wide == is_wide)
            };
            matches!(*words, [load, held, TAKE, failed] if load == a64::load_exclusive(HOLDER, BUCKET)
                && leaves(held, HOLDER, true)
                && leaves(failed, OTHER, false))
                && leading == [1; 3]
        });
        let takes = is_whole && state.held.is_none() && self.bucket(state.get(BUCKET)).is_some();
        if takes { Ok(()) } else { Err("takes a bucket out of sequence") }
    }

    /// Updates what is known by executing word `at`, and checks the word's rules.
    fn execute(&self, state: &mut AbstractState, words: &[u32], leading: &[usize], at: usize) -> Result<(), Broken> {
        let word = words.get(at).copied().unwrap_or(0);
        if word == a64::RETURN || word == ENTER[0] {
            return if state.held.is_none() { Ok(()) } else { Err("does not release its bucket") };
        }
        if word == ENTER[1] || word == LEAVE[1] {
            return Ok(());
        }
        if word == ENTER[2] {
            state.saved = [state.get(HIT), state.get(ROW)];
            return Ok(());
        }
        if word == CALL {
            (state.registers, state.compared) = ([Value::Any; 18], None);
            return Ok(());
        }
        if word == LEAVE[0] {
            let [hit, row] = state.saved;
            return state.set(HIT, hit).and(state.set(ROW, row));
        }
        let instruction = Instruction::decode(word);
        match instruction {
            Some(Instruction::StoreRelease { rt, rn }) => {
                state.forget_slots();
                let is_right = state.held.take().is_some() && (rt, rn) == (ZERO, BUCKET);
                return if is_right { Ok(()) } else { Err("releases a bucket that it does not hold") };
            }
            Some(Instruction::StoreExclusive { .. }) => self.take(state, words, leading, at)?,
            Some(Instruction::Store { rn, offset, .. }) => self.store(state, rn, offset, 8)?,
            Some(Instruction::StorePair { rn, offset, .. }) => {
                self.store(state, rn, u64::try_from(offset).map_err(|_| FOREIGN_WRITE)?, 16)?;
            }
            Some(Instruction::Binary { how: Binary::SubtractFlags, rd, rn, rm, shift }) => {
                state.compared = (rd == ZERO && shift == Shift::Left(0)).then_some((rn, rm));
            }
            Some(Instruction::CompareImmediate { .. } | Instruction::CompareIf { .. }) => state.compared = None,
            _ => {}
        }
        let result = match instruction {
            Some(instruction) => self.computed(state, instruction),
            None => self.read(words, at, word),
        };
        if matches!((instruction, result), (Some(Instruction::Load { .. }), Some((_, Value::Taken(_))))) {
            state.forget_slots();
        }
        let written = RegisterAccess::of(word).may_write(word);
        for number in (0..18).filter(|&number| written.intersects(Registers::x(number))) {
            let value = result.filter(|(to, _)| *to == number).map_or(Value::Any, |(_, value)| value);
            state.set(number, value)?;
        }
        Ok(())
    }

    /// Returns the register that word `at` loads a literal or the base of the path to the number of the CPU into, and
    /// what that is; `None` for other words.
    fn read(&self, words: &[u32], at: usize, word: u32) -> Option<(u8, Value)> {
        if let Verdict::Simulate(Op::LoadLiteral { rt, offset, .. }) = classify(word) {
            let literal = target(at, offset)?;
            let &[low, high] = words.get(literal..literal.checked_add(2)?)? else { return None };
            return Some((rt, Value::Is(u64::from(low) | u64::from(high) << 32)));
        }
        let to = (word & 31) as u8;
        (word == a64::read_thread(to) && self.cpu.base == Base::Thread).then_some((to, Value::Path(0)))
    }

    /// Checks that `length` bytes may be stored at `offset` bytes after the address in register `base`.
    fn store(&self, state: &AbstractState, base: u8, offset: u64, length: u64) -> Result<(), Broken> {
        let (area, most) = self.area(state.get(base)).ok_or(FOREIGN_WRITE)?;
        let (bytes, map) = self.writable(area).ok_or(FOREIGN_WRITE)?;
        if offset < bytes.start || most.saturating_add(offset + length) > bytes.end {
            return Err("writes past the end of its memory");
        }
        if map.is_none() || map == state.held { Ok(()) } else { Err("changes a bucket that it does not hold") }
    }
}

/// The word that locks a free bucket: any number except 0 does.
const TAKE: u32 = a64::store_exclusive(OTHER, BUCKET, BUCKET);

/// Returns the first word of the search that word `at` ends; `None` if it ends none.
fn searches_from(words: &[u32], at: usize) -> Option<usize> {
    let offset = search_offset(*words.get(at)?)?;
    target(at, offset).filter(|&head| head <= at)
}
