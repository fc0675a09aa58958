//! Ops on tables in snippets: reading, changing and deleting values of maps in the tables that the interpreter uses,
//! with the lock of the key's home held and interrupts masked.
//!
//! No other CPU looks at a locked bucket, and nothing else runs on this CPU, so the invariants of `hit::lookup` hold
//! here. Locking has acquire order and unlocking release order, so all earlier stores to the bucket are seen (Arm ARM,
//! B2.3.11). A snippet holds one lock at a time, and never waits. It leaves the whole clause to the handler if another
//! CPU holds the lock, if the key is not in its home but may be in a later bucket, or if a new key finds slots of its
//! home in use. Therefore these ops must come before anything visible to others is changed.
//!
//! If a value is read and a later op deletes it, the lock is held from the read to the deletion. Then the key is looked
//! up only once, and the deletion has no unusual case left.
//!
//! Snippets do not count the keys of a table. A map whose number of keys a clause asks for is left to the handler.

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::{self as a64, Binary, Branch, Condition};
use aarch64_kprobes::probe::{Snippet, Step, StepLabel};

use super::super::access::Shape;
use super::super::operation::{binary, is_remainder, with_constant};
use super::super::{ZERO, load};
use super::{Lowering, NoSnippet, ONE, OTHER};
use crate::ir::{Arithmetic, Op, Operand, Word};
use crate::maps::HEAD;

/// The register with the address of the locked bucket.
const BUCKET: u8 = 15;
/// The register with the address of a slot.
const SLOT: u8 = 16;
/// The register with the mask of used slots, from that slot on.
const TAKEN: u8 = OTHER;

/// The offsets of the words of a bucket, in bytes.
const TAKEN_AT: u16 = 8;
const FURTHEST_AT: u16 = 16;
const SLOTS_AT: u16 = 8 * HEAD as u16;

/// Returns whether an op accesses the table of a map.
pub(super) fn is_on_table(op: Op) -> bool {
    matches!(op, Op::Get { .. } | Op::Has { .. } | Op::Put { .. } | Op::Modify { .. } | Op::Delete { .. })
}

/// A key to search for.
struct Search {
    shape: Shape,
    /// The registers with the words of the key.
    key: [u8; 2],
}

impl Search {
    fn key(&self) -> &[u8] {
        self.key.get(..self.shape.key_words).unwrap_or_default()
    }

    /// Returns where the value of the found key is: a register with an address, and the offset from there in bytes.
    fn value(&self) -> (u8, u16) {
        if self.key().is_empty() { (BUCKET, SLOTS_AT) } else { (SLOT, 8 * self.shape.key_words as u16) }
    }
}

impl Lowering<'_> {
    /// Unlocks the bucket.
    fn release(&mut self) -> Result<(), NoSnippet> {
        self.instruction(a64::store_release(ZERO, BUCKET))
    }

    /// Unlocks the bucket, and leaves the whole clause to the handler.
    fn leave(&mut self) -> Result<(), NoSnippet> {
        self.release()?;
        self.push(Step::Call(Branch::Always))
    }

    /// Locks the home bucket of the key, and loads the mask of its used slots.
    fn hold(&mut self, number: usize, map: u8, key: Word) -> Result<Search, NoSnippet> {
        let counts = |op: &Op| matches!(*op, Op::Keys { map: of, .. } if of == map);
        let shape = Shape::of(self.store, map).ok_or(NoSnippet::Snippet)?;
        let (Some(address), 1) = (shape.alone, shape.value_words) else { return Err(NoSnippet::Snippet) };
        if self.has_collected || self.held.is_some() || self.code.ops().any(counts) {
            return Err(NoSnippet::Snippet);
        }
        let mut wanted = Search { shape, key: [ZERO; 2] };
        for (part, register) in (0..shape.key_words as u8).zip(&mut wanted.key) {
            *register = self.word(number, Word(key.0.wrapping_add(part)))?;
        }
        self.push(Step::Number(BUCKET, address))?;
        shape.home(BUCKET, wanted.key(), [OTHER, ONE, ONE], |step| self.common(step))?;
        self.push(Step::Hold(BUCKET, OTHER))?;
        self.instruction(load(TAKEN, BUCKET, TAKEN_AT))?;
        Ok(wanted)
    }

    /// Searches for the key. Control goes on at the returned label if the key has a slot, and otherwise after this.
    fn find(&mut self, wanted: &Search) -> Result<StepLabel, NoSnippet> {
        let [first, rest @ ..] = wanted.key() else { return Ok(self.steps.branch_ahead(Branch::NotZero(TAKEN))?) };
        self.instruction(encode::add(SLOT, BUCKET, SLOTS_AT))?;
        let again = self.steps.next_number();
        let next = self.steps.branch_ahead(Branch::BitClear(TAKEN, 0))?;
        self.instruction(load(ONE, SLOT, 0))?;
        self.instruction(a64::compute(Binary::SubtractFlags, ZERO, ONE, *first))?;
        if let [second] = rest {
            self.instruction(load(ONE, SLOT, 8))?;
            self.instruction(a64::compare_if(Condition::Eq, ONE, *second))?;
        }
        let found = self.steps.branch_ahead(Branch::If(Condition::Eq))?;
        self.steps.place(next);
        self.instruction(encode::add(SLOT, SLOT, wanted.shape.slot_bytes() as u16))?;
        self.push(Step::Turn(TAKEN, again))?;
        Ok(found)
    }

    /// Continues after this if the key has no value. Leaves the clause to the handler if the key may be in a bucket
    /// after its home.
    fn is_absent(&mut self, wanted: &Search) -> Result<(), NoSnippet> {
        if wanted.key().is_empty() {
            return Ok(());
        }
        self.instruction(load(ONE, BUCKET, FURTHEST_AT))?;
        let absent = self.steps.branch_ahead(Branch::Zero(ONE))?;
        self.leave()?;
        self.steps.place(absent);
        Ok(())
    }

    /// Loads the value of a key, or 0 if the map does not have the key. If a later op deletes the key, the lock stays
    /// held until then.
    pub(super) fn get(&mut self, number: usize, to: Word, map: u8, key: Word) -> Result<(), NoSnippet> {
        let target = self.target(number, to)?;
        let deleted = self.deleted_at(number, map, key);
        if target.is_none() && deleted.is_none() {
            return Ok(());
        }
        let wanted = self.hold(number, map, key)?;
        let found = self.find(&wanted)?;
        let target = target.unwrap_or(ONE);
        let (base, offset) = wanted.value();
        if deleted.is_some() {
            self.leave()?;
            self.steps.place(found);
            self.held = deleted;
            return self.instruction(load(target, base, offset));
        }
        self.is_absent(&wanted)?;
        self.push(Step::Number(target, 0))?;
        let read = self.steps.branch_ahead(Branch::Always)?;
        self.steps.place(found);
        self.instruction(load(target, base, offset))?;
        self.steps.place(read);
        self.release()
    }

    /// Tests whether a map has a key.
    pub(super) fn has(&mut self, number: usize, to: Word, map: u8, key: Word) -> Result<(), NoSnippet> {
        let Some(target) = self.target(number, to)? else { return Ok(()) };
        let wanted = self.hold(number, map, key)?;
        let found = self.find(&wanted)?;
        self.is_absent(&wanted)?;
        self.push(Step::Number(target, 0))?;
        let told = self.steps.branch_ahead(Branch::Always)?;
        self.steps.place(found);
        self.push(Step::Number(target, 1))?;
        self.steps.place(told);
        self.release()
    }

    /// Sets the value of a key. A new key is added only if its home is empty.
    pub(super) fn put(&mut self, number: usize, map: u8, key: Word, from: Word) -> Result<(), NoSnippet> {
        let wanted = self.hold(number, map, key)?;
        self.has_collected = true;
        let value = Operand::Word(from);
        let (base, offset) = wanted.value();
        let used = if wanted.key().is_empty() { None } else { Some(self.steps.branch_ahead(Branch::NotZero(TAKEN))?) };
        let far = match used {
            Some(_) => {
                self.instruction(load(ONE, BUCKET, FURTHEST_AT))?;
                Some(self.steps.branch_ahead(Branch::NotZero(ONE))?)
            }
            None => None,
        };
        let first = self.one(ONE)?;
        self.instruction(encode::store(first, BUCKET, TAKEN_AT))?;
        let register = self.operand(number, value, ONE)?;
        match *wanted.key() {
            [only] => self.instruction(encode::store_pair(only, register, BUCKET, SLOTS_AT.cast_signed()))?,
            [one, other] => {
                self.instruction(encode::store_pair(one, other, BUCKET, SLOTS_AT.cast_signed()))?;
                self.instruction(encode::store(register, BUCKET, SLOTS_AT + 16))?;
            }
            _ => self.instruction(encode::store(register, BUCKET, SLOTS_AT))?,
        }
        if let (Some(used), Some(far)) = (used, far) {
            let done = self.steps.branch_ahead(Branch::Always)?;
            self.steps.place(used);
            let found = self.find(&wanted)?;
            self.steps.place(far);
            self.leave()?;
            self.steps.place(found);
            let register = self.operand(number, value, ONE)?;
            self.instruction(encode::store(register, base, offset))?;
            self.steps.place(done);
        }
        self.release()
    }

    /// Computes with the value of a key.
    pub(super) fn modify(
        &mut self,
        number: usize,
        (to, after): (Word, bool),
        map: u8,
        key: Word,
        (how, by): (Arithmetic, Operand),
    ) -> Result<(), NoSnippet> {
        if is_remainder(how) {
            return Err(NoSnippet::Snippet);
        }
        let wanted = self.hold(number, map, key)?;
        self.has_collected = true;
        let found = self.find(&wanted)?;
        self.leave()?;
        self.steps.place(found);
        let (base, offset) = wanted.value();
        self.instruction(load(ONE, base, offset))?;
        let word = match self.number_of(by).and_then(|value| with_constant(how, OTHER, ONE, value)) {
            Some(word) => word,
            None => {
                let by = self.operand(number, by, OTHER)?;
                a64::compute(binary(how), OTHER, ONE, by)
            }
        };
        self.instruction(word)?;
        self.instruction(encode::store(OTHER, base, offset))?;
        if let Some(target) = self.target(number, to)? {
            self.instruction(a64::copy(target, if after { OTHER } else { ONE }))?;
        }
        self.release()
    }

    /// Removes a key from a map.
    pub(super) fn delete(&mut self, number: usize, map: u8, key: Word) -> Result<(), NoSnippet> {
        if self.held == Some(number) {
            let shape = Shape::of(self.store, map).ok_or(NoSnippet::Snippet)?;
            self.held = None;
            self.clear(shape)?;
            self.has_collected = true;
            return self.release();
        }
        let wanted = self.hold(number, map, key)?;
        self.has_collected = true;
        let found = self.find(&wanted)?;
        self.is_absent(&wanted)?;
        let done = self.steps.branch_ahead(Branch::Always)?;
        self.steps.place(found);
        self.clear(wanted.shape)?;
        self.steps.place(done);
        self.release()
    }

    /// Frees the slot that was found.
    fn clear(&mut self, shape: Shape) -> Result<(), NoSnippet> {
        if shape.key_words == 0 {
            return self.instruction(encode::store(ZERO, BUCKET, TAKEN_AT));
        }
        // The words before the slots are at least as long as one slot and shorter than two, so the quotient is one more
        // than the number of the slot.
        const { assert!(HEAD == 3) };
        self.instruction(a64::compute(Binary::Subtract, ONE, SLOT, BUCKET))?;
        if shape.slot_bytes().is_power_of_two() {
            self.instruction(a64::shift_right(ONE, ONE, shape.slot_bytes().trailing_zeros() as u8))?;
        } else {
            self.push(Step::Number(OTHER, shape.slot_bytes() as u64))?;
            self.instruction(a64::compute(Binary::Divide, ONE, ONE, OTHER))?;
        }
        let one = self.one(OTHER)?;
        self.instruction(a64::compute(Binary::Left, OTHER, one, ONE))?;
        self.instruction(load(ONE, BUCKET, TAKEN_AT))?;
        self.instruction(a64::xor_shifted(ONE, ONE, OTHER, 1))?;
        self.instruction(encode::store(ONE, BUCKET, TAKEN_AT))
    }

    /// Returns a register with 1: the one that snippets have, or `otherwise`, into which it is loaded.
    fn one(&mut self, otherwise: u8) -> Result<u8, NoSnippet> {
        if self.atomics {
            return Ok(Snippet::ONE);
        }
        self.push(Step::Number(otherwise, 1))?;
        Ok(otherwise)
    }

    /// Returns the op that deletes from `map` the `key` that op `number` reads. `None` if an op in between jumps,
    /// accesses a table, or may be left to the handler.
    fn deleted_at(&self, number: usize, map: u8, key: Word) -> Option<usize> {
        let words = self.code.maps.get(usize::from(map))?.key_words() as u8;
        let behind = self.routine.ops.get(number + 1..)?;
        let away = behind.iter().position(|op| is_on_table(*op) || !falls_through(*op))?;
        let at = number + 1 + away;
        let Op::Delete { map: of, key: deleted } = *behind.get(away)? else { return None };
        let is_target = |op: &Op| op.successors().0.is_some_and(|target| (number + 1..=at).contains(&target));
        let is_same = (0..words).all(|word| {
            let meant = self.meaning(Word(key.0.wrapping_add(word)), number);
            meant.is_some() && meant == self.meaning(Word(deleted.0.wrapping_add(word)), at)
        });
        (of == map && is_same && !self.routine.ops.iter().any(is_target)).then_some(at)
    }

    /// Returns the op that writes `word` before op `number`, with its destination cleared. `None` unless the op has the
    /// same result anywhere in the clause.
    fn meaning(&self, word: Word, number: usize) -> Option<Op> {
        let before = self.routine.ops.get(..number)?;
        let last = before.iter().rposition(|op| self.writes(*op, word))?;
        // No jump may skip the op.
        let leads_past = |op: &Op| op.successors().0.is_some_and(|target| target > last);
        if before.get(..last)?.iter().any(leads_past) {
            return None;
        }
        let to = Word(0);
        match *before.get(last)? {
            Op::Load { what, .. } if what.changes() => None,
            Op::Load { what, .. } => Some(Op::Load { to, what }),
            Op::Set { from: from @ Operand::Constant(_), .. } => Some(Op::Set { to, from }),
            _ => None,
        }
    }
}

/// Returns whether control always goes from an op to the next, and the op is never left to the handler.
fn falls_through(op: Op) -> bool {
    matches!(
        op,
        Op::Set { .. }
            | Op::Copy { .. }
            | Op::Load { .. }
            | Op::Compute { .. }
            | Op::Extend { .. }
            | Op::Compare { .. }
            | Op::Collect { .. }
    )
}
