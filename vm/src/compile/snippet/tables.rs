//! Reads, changes and deletes the values of maps, in the tables that the interpreter uses: with the bucket held in which the key
//! belongs, and interrupts masked.
//!
//! No other CPU looks at a bucket that is held, and on this one nothing else runs: what `hit::lookup` says of buckets holds here. It
//! is taken with acquire order and let go of with release order, so all that was stored in it before is seen (Arm ARM, B2.3.11).
//! One is held at a time, and nobody waits: where another CPU holds it, where the key is not in its home but may be behind it, and
//! where a new key finds its home in use, the handler has to do all that the clause does. So this stands before anything is
//! changed that others look at.
//!
//! A value that is read, and deleted by an op further on, stays held in between: the key is looked for once, and there is nothing
//! unusual left to be met when it is deleted.
//!
//! How many keys a table has is not counted here: a map of which a clause asks for that is left to the handler.

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::{self as a64, Binary, Branch, Condition};
use aarch64_kprobes::probe::{Snippet, Step};

use super::super::access::Shape;
use super::super::compute::{binary, immediate, is_remainder};
use super::super::places::{each, ways};
use super::super::{ZERO, load};
use super::{Lowering, No, ONE, OTHER};
use crate::code::{Arithmetic, Builtin, Op, Operand, Word};
use crate::store::{HEAD, MIX};

/// The bucket that is held.
const BUCKET: u8 = 15;
/// One of its slots.
const SLOT: u8 = 16;
/// The slots that are taken, those before that one left away.
const TAKEN: u8 = OTHER;

/// Where the words of a bucket are, in bytes.
const TAKEN_AT: u16 = 8;
const FURTHEST_AT: u16 = 16;
const SLOTS_AT: u16 = 8 * HEAD as u16;

/// Whether an op is on the table of a map.
pub(super) fn is_on_table(op: Op) -> bool {
    matches!(op, Op::Get { .. } | Op::Has { .. } | Op::Put { .. } | Op::Modify { .. } | Op::Delete { .. })
}

/// A key that is looked for.
struct Wanted {
    shape: Shape,
    /// The registers that it is in.
    key: [u8; 2],
}

impl Wanted {
    fn key(&self) -> &[u8] {
        self.key.get(..self.shape.key_words).unwrap_or_default()
    }

    /// The register with an address, and how many bytes from there the value is that has been found.
    fn value(&self) -> (u8, u16) {
        if self.key().is_empty() { (BUCKET, SLOTS_AT) } else { (SLOT, 8 * self.shape.key_words as u16) }
    }
}

impl Lowering<'_> {
    /// Adds a branch within an op, to where [`lead_here`](Self::lead_here) says.
    fn branch_on(&mut self, branch: Branch) -> Result<usize, No> {
        let number = self.steps.len();
        fallible::push(&mut self.within, number)?;
        self.push(Step::Branch(branch, number))?;
        Ok(number)
    }

    fn lead_here(&mut self, branch: usize) {
        let here = self.steps.len();
        if let Some(Step::Branch(_, target)) = self.steps.get_mut(branch) {
            *target = here;
        }
    }

    /// Lets others have the bucket.
    fn release(&mut self) -> Result<(), No> {
        self.instruction(a64::store_release(ZERO, BUCKET))
    }

    /// Lets others have it, and leaves all to the handler.
    fn leave(&mut self) -> Result<(), No> {
        self.release()?;
        self.push(Step::Call(Branch::Always))
    }

    /// Holds the bucket of the key, and finds out which of its slots are taken.
    fn hold(&mut self, number: usize, map: u8, key: Word) -> Result<Wanted, No> {
        let counts = |op: &Op| matches!(*op, Op::Keys { map: of, .. } if of == map);
        let shape = Shape::of(self.store, map).ok_or(No::Snippet)?;
        let (Some(address), 1) = (shape.alone, shape.value_words) else { return Err(No::Snippet) };
        if self.has_collected
            || self.held.is_some()
            || self.code.routines.iter().flat_map(|routine| &routine.ops).any(counts)
        {
            return Err(No::Snippet);
        }
        let mut wanted = Wanted { shape, key: [ZERO; 2] };
        for (part, register) in (0..shape.key_words as u8).zip(&mut wanted.key) {
            *register = self.word(number, Word(key.0.wrapping_add(part)))?;
        }
        self.push(Step::Number(BUCKET, address))?;
        if shape.home_bits > 0 {
            // See `Table::home`.
            self.push(Step::Number(ONE, MIX))?;
            for (part, &key) in wanted.key().iter().enumerate() {
                let mixed = if part == 0 { key } else { OTHER };
                if part > 0 {
                    self.instruction(a64::xor_shifted(OTHER, OTHER, OTHER, 32))?;
                    self.instruction(a64::compute(Binary::Xor, OTHER, OTHER, key))?;
                }
                self.instruction(a64::compute(Binary::Multiply, OTHER, mixed, ONE))?;
            }
            self.instruction(a64::xor_shifted(OTHER, OTHER, OTHER, 32))?;
            self.instruction(a64::compute(Binary::Multiply, OTHER, OTHER, ONE))?;
            self.instruction(a64::shift_right(OTHER, OTHER, (u64::BITS - shape.home_bits) as u8))?;
            self.push(Step::Number(ONE, shape.bucket_bytes() as u64))?;
            self.instruction(a64::multiply_add(BUCKET, OTHER, ONE, BUCKET))?;
        }
        self.push(Step::Hold(BUCKET, OTHER))?;
        self.instruction(load(TAKEN, BUCKET, TAKEN_AT))?;
        Ok(wanted)
    }

    /// Goes on where the branch that is returned leads to, if the key has a slot; otherwise behind this.
    fn find(&mut self, wanted: &Wanted) -> Result<usize, No> {
        let [first, rest @ ..] = wanted.key() else { return self.branch_on(Branch::NotZero(TAKEN)) };
        self.instruction(encode::add(SLOT, BUCKET, SLOTS_AT))?;
        let again = self.steps.len();
        let next = self.branch_on(Branch::BitClear(TAKEN, 0))?;
        self.instruction(load(ONE, SLOT, 0))?;
        self.instruction(a64::compute(Binary::SubtractFlags, ZERO, ONE, *first))?;
        if let [second] = rest {
            self.instruction(load(ONE, SLOT, 8))?;
            self.instruction(a64::compare_if(Condition::Eq, ONE, *second))?;
        }
        let found = self.branch_on(Branch::If(Condition::Eq))?;
        self.lead_here(next);
        self.instruction(encode::add(SLOT, SLOT, wanted.shape.slot_bytes() as u16))?;
        self.push(Step::Turn(TAKEN, again))?;
        Ok(found)
    }

    /// Goes on behind this if the key has no value; leaves all to the handler if it may be behind its home.
    fn is_absent(&mut self, wanted: &Wanted) -> Result<(), No> {
        if wanted.key().is_empty() {
            return Ok(());
        }
        self.instruction(load(ONE, BUCKET, FURTHEST_AT))?;
        let absent = self.branch_on(Branch::Zero(ONE))?;
        self.leave()?;
        self.lead_here(absent);
        Ok(())
    }

    /// The value of a map, 0 if the key has none. Where it is deleted further on, the bucket stays held up to there.
    pub(super) fn get(&mut self, number: usize, to: Word, map: u8, key: Word) -> Result<(), No> {
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
            self.lead_here(found);
            self.held = deleted;
            return self.instruction(load(target, base, offset));
        }
        self.is_absent(&wanted)?;
        self.push(Step::Number(target, 0))?;
        let read = self.branch_on(Branch::Always)?;
        self.lead_here(found);
        self.instruction(load(target, base, offset))?;
        self.lead_here(read);
        self.release()
    }

    /// 1 if a map has a value for a key, 0 if not.
    pub(super) fn has(&mut self, number: usize, to: Word, map: u8, key: Word) -> Result<(), No> {
        let Some(target) = self.target(number, to)? else { return Ok(()) };
        let wanted = self.hold(number, map, key)?;
        let found = self.find(&wanted)?;
        self.is_absent(&wanted)?;
        self.push(Step::Number(target, 0))?;
        let told = self.branch_on(Branch::Always)?;
        self.lead_here(found);
        self.push(Step::Number(target, 1))?;
        self.lead_here(told);
        self.release()
    }

    /// Gives a map a value for a key. A new key has its home for itself.
    pub(super) fn put(&mut self, number: usize, map: u8, key: Word, from: Word) -> Result<(), No> {
        let wanted = self.hold(number, map, key)?;
        self.has_collected = true;
        let value = Operand::Word(from);
        let (base, offset) = wanted.value();
        let used = if wanted.key().is_empty() { None } else { Some(self.branch_on(Branch::NotZero(TAKEN))?) };
        let far = match used {
            Some(_) => {
                self.instruction(load(ONE, BUCKET, FURTHEST_AT))?;
                Some(self.branch_on(Branch::NotZero(ONE))?)
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
            let done = self.branch_on(Branch::Always)?;
            self.lead_here(used);
            let found = self.find(&wanted)?;
            self.lead_here(far);
            self.leave()?;
            self.lead_here(found);
            let register = self.operand(number, value, ONE)?;
            self.instruction(encode::store(register, base, offset))?;
            self.lead_here(done);
        }
        self.release()
    }

    /// Computes with the value of a map.
    pub(super) fn modify(
        &mut self,
        number: usize,
        (to, after): (Word, bool),
        map: u8,
        key: Word,
        (how, by): (Arithmetic, Operand),
    ) -> Result<(), No> {
        if is_remainder(how) {
            return Err(No::Snippet);
        }
        let wanted = self.hold(number, map, key)?;
        self.has_collected = true;
        let found = self.find(&wanted)?;
        self.leave()?;
        self.lead_here(found);
        let (base, offset) = wanted.value();
        self.instruction(load(ONE, base, offset))?;
        let small = self.number_of(by).map(Operand::Constant).and_then(immediate);
        let word = match (how, small) {
            (Arithmetic::Add, Some(value)) => encode::add(OTHER, ONE, value),
            (Arithmetic::Subtract, Some(value)) => encode::subtract(OTHER, ONE, value),
            _ => {
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

    /// Takes a key out of a map.
    pub(super) fn delete(&mut self, number: usize, map: u8, key: Word) -> Result<(), No> {
        if self.held == Some(number) {
            let shape = Shape::of(self.store, map).ok_or(No::Snippet)?;
            self.held = None;
            self.clear(shape)?;
            self.has_collected = true;
            return self.release();
        }
        let wanted = self.hold(number, map, key)?;
        self.has_collected = true;
        let found = self.find(&wanted)?;
        self.is_absent(&wanted)?;
        let done = self.branch_on(Branch::Always)?;
        self.lead_here(found);
        self.clear(wanted.shape)?;
        self.lead_here(done);
        self.release()
    }

    /// The slot that has been found is taken no more.
    fn clear(&mut self, shape: Shape) -> Result<(), No> {
        if shape.key_words == 0 {
            return self.instruction(encode::store(ZERO, BUCKET, TAKEN_AT));
        }
        // The slots begin where a slot before the first would end, or a part of one: the quotient is one more than its number.
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

    /// The register that has 1: `otherwise`, if there is none already.
    fn one(&mut self, otherwise: u8) -> Result<u8, No> {
        if self.atomics {
            return Ok(Snippet::ONE);
        }
        self.push(Step::Number(otherwise, 1))?;
        Ok(otherwise)
    }

    /// The op, by its number, that deletes from `map` what op `number` reads for `key`, if nothing in between leads elsewhere,
    /// looks at a table, or may be left to the handler.
    fn deleted_at(&self, number: usize, map: u8, key: Word) -> Option<usize> {
        let words = self.code.maps.get(usize::from(map))?.key_words() as u8;
        let behind = self.routine.ops.get(number + 1..)?;
        let away = behind.iter().position(|op| is_on_table(*op) || !leads_on(*op))?;
        let at = number + 1 + away;
        let Op::Delete { map: of, key: deleted } = *behind.get(away)? else { return None };
        let is_target = |op: &Op| ways(*op).0.is_some_and(|target| (number + 1..=at).contains(&target));
        let is_same = (0..words).all(|word| {
            let meant = self.meaning(Word(key.0.wrapping_add(word)), number);
            meant.is_some() && meant == self.meaning(Word(deleted.0.wrapping_add(word)), at)
        });
        (of == map && is_same && !self.routine.ops.iter().any(is_target)).then_some(at)
    }

    /// The op that gives `word` its value before op `number`, if that gives the same wherever it stands in the clause; with no word
    /// for it to go to.
    fn meaning(&self, word: Word, number: usize) -> Option<Op> {
        let before = self.routine.ops.get(..number)?;
        let is_written = |op: &Op| {
            self.code.touched(*op).is_ok_and(|of| each(of.written()).any(|written| written == usize::from(word.0)))
        };
        let last = before.iter().rposition(is_written)?;
        // No jump leads past it.
        let leads_past = |op: &Op| ways(*op).0.is_some_and(|target| target > last);
        if before.get(..last)?.iter().any(leads_past) {
            return None;
        }
        let to = Word(0);
        match *before.get(last)? {
            Op::Load { what: Builtin::Nanoseconds | Builtin::Elapsed | Builtin::Random, .. } => None,
            Op::Load { what, .. } => Some(Op::Load { to, what }),
            Op::Set { from: from @ Operand::Constant(_), .. } => Some(Op::Set { to, from }),
            _ => None,
        }
    }
}

/// Whether an op goes on at the next alone, and is not left to the handler.
fn leads_on(op: Op) -> bool {
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
