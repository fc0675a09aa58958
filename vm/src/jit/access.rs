//! Reading and changing values of maps, with the bucket's lock held as in `hit::lookup`. The lock also excludes a task
//! that reads the map.
//!
//! Unusual cases are left to the kernel's routine, in code after the clause: another CPU holds the lock, or the key is
//! new or in a bucket after its home.

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::{self as a64, Binary, Branch, Condition};

use super::assembler::Label;
use super::emit::{Emitter, OutOfLine};
use super::operation::CommonStep;
use super::{BUCKET, HOLDER, LEFT, ONE, OTHER, RIGHT, ROW, SLOT, TAKEN, THIRD, ZERO, load};
use crate::ir::{Arithmetic, Operand, Word};
use crate::maps::{HEAD, HashTable, MIX, Store};

/// The largest number of words in a key that instructions compare.
const KEY_WORDS_MAX: usize = 2;

/// The location of a value.
#[derive(Clone, Copy)]
pub(super) struct Value {
    /// The register with the address.
    pub base: u8,
    /// The offset from that address, in bytes.
    pub offset: u16,
}

/// The properties of a table that instructions depend on.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    map: u8,
    /// The address of the single table; `None` if each CPU has its own.
    pub alone: Option<u64>,
    pub key_words: usize,
    pub value_words: usize,
    pub ways: usize,
    pub home_bits: u32,
}

/// Where an op that accesses a table continues in its different cases.
#[derive(Clone, Copy)]
pub(super) struct AccessLabels {
    /// Calls the routine; nothing has been done yet.
    pub unusual: Label,
    /// The key is not in its home, whose lock is held.
    pub missing: Label,
    /// The next op.
    pub done: Label,
}

impl Shape {
    /// Returns the shape of a map's tables; `None` if instructions cannot find values in them.
    pub fn of(store: &Store, map: u8) -> Option<Self> {
        let tables = store.tables.get(usize::from(map))?;
        let first = tables.first()?;
        let alone = (tables.len() == 1).then(|| first.address());
        let &HashTable { key_words, value_words, ways, home_bits, .. } = first;
        let fits = key_words <= KEY_WORDS_MAX && (key_words == 0 || 8 * (key_words + value_words) < 4096);
        fits.then_some(Self { map, alone, key_words, value_words, ways, home_bits })
    }

    pub fn slot_bytes(&self) -> usize {
        8 * (self.key_words + self.value_words)
    }

    pub fn bucket_bytes(&self) -> usize {
        8 * HEAD + self.ways * self.slot_bytes()
    }

    /// Moves the register `bucket` from the first bucket to the home of the key in the registers `keys`, with the steps
    /// that `add` is called with: see `HashTable::home`. They also change `hash`, `factor` and `stride`. The last two
    /// may be the same register.
    pub fn home<E>(
        &self,
        bucket: u8,
        keys: &[u8],
        [hash, factor, stride]: [u8; 3],
        mut add: impl FnMut(CommonStep) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.home_bits == 0 {
            return Ok(());
        }
        add(CommonStep::Number(factor, MIX))?;
        for (number, &key) in keys.iter().enumerate() {
            let mixed = if number == 0 { key } else { hash };
            if number > 0 {
                add(CommonStep::Word(a64::xor_shifted(hash, hash, hash, 32)))?;
                add(CommonStep::Word(a64::compute(Binary::Xor, hash, hash, key)))?;
            }
            add(CommonStep::Word(a64::compute(Binary::Multiply, hash, mixed, factor)))?;
        }
        add(CommonStep::Word(a64::xor_shifted(hash, hash, hash, 32)))?;
        add(CommonStep::Word(a64::compute(Binary::Multiply, hash, hash, factor)))?;
        add(CommonStep::Word(a64::shift_right(hash, hash, (u64::BITS - self.home_bits) as u8)))?;
        add(CommonStep::Number(stride, self.bucket_bytes() as u64))?;
        add(CommonStep::Word(a64::multiply_add(bucket, hash, stride, bucket)))
    }
}

impl Emitter<'_> {
    /// Returns the shape of a map's tables; `None` if instructions cannot find values in them.
    pub fn shape(&self, map: u8) -> Option<Shape> {
        Shape::of(self.store, map)
    }

    /// Locks the home bucket of the key, and finds the key's value. [`or_perform`](Self::or_perform) places the labels.
    pub fn hold(&mut self, number: usize, shape: Shape, key: Word) -> (Value, AccessLabels) {
        let mut keys = [RIGHT, THIRD];
        let keys = keys.get_mut(..shape.key_words).unwrap_or_default();
        for (part, register) in (0_u8..).zip(keys.iter_mut()) {
            *register = self.word(number, Word(key.0.wrapping_add(part)), *register);
        }
        match shape.alone {
            Some(address) => self.assembler.constant(BUCKET, address),
            None => {
                self.row();
                self.assembler.push(load(BUCKET, ROW, 8 * (1 + u16::from(shape.map))));
            }
        }
        let Ok(()) = shape.home(BUCKET, keys, [TAKEN, HOLDER, SLOT], |step| self.common(step));
        let assembler = &mut self.assembler;
        let labels = AccessLabels { unusual: assembler.label(), missing: assembler.label(), done: assembler.label() };
        assembler.push(a64::load_exclusive(HOLDER, BUCKET));
        assembler.branch(Branch::NotZero(HOLDER), labels.unusual);
        // Any number except 0 marks the bucket as locked.
        assembler.push(a64::store_exclusive(OTHER, BUCKET, BUCKET));
        assembler.branch(Branch::NotZeroWord(OTHER), labels.unusual);
        assembler.push(load(TAKEN, BUCKET, 8));
        let [first, rest @ ..] = &*keys else {
            assembler.branch(Branch::BitClear(TAKEN, 0), labels.missing);
            return (Value { base: BUCKET, offset: 8 * HEAD as u16 }, labels);
        };
        let (again, next, found) = (assembler.label(), assembler.label(), assembler.label());
        assembler.push(encode::add(SLOT, BUCKET, 8 * HEAD as u16));
        assembler.bind(again);
        assembler.branch(Branch::BitClear(TAKEN, 0), next);
        assembler.push(load(ONE, SLOT, 0));
        if let [second] = rest {
            assembler.push(load(OTHER, SLOT, 8));
            assembler.push(a64::compute(Binary::SubtractFlags, super::ZERO, ONE, *first));
            assembler.push(a64::compare_if(Condition::Eq, OTHER, *second));
        } else {
            assembler.push(a64::compute(Binary::SubtractFlags, super::ZERO, ONE, *first));
        }
        assembler.branch(Branch::If(Condition::Eq), found);
        assembler.bind(next);
        assembler.push(encode::add(SLOT, SLOT, shape.slot_bytes() as u16));
        assembler.push(a64::shift_right(TAKEN, TAKEN, 1));
        assembler.branch(Branch::NotZero(TAKEN), again);
        assembler.branch(Branch::Always, labels.missing);
        assembler.bind(found);
        (Value { base: SLOT, offset: 8 * shape.key_words as u16 }, labels)
    }

    /// Unlocks the bucket.
    pub fn release(&mut self) {
        self.assembler.push(a64::store_release(ZERO, BUCKET));
    }

    /// Ends op `number` after its usual case. `missing` is the code for a key that is not in its home; it may continue
    /// with the code that calls the routine.
    pub fn or_perform(&mut self, number: usize, labels: AccessLabels, missing: OutOfLine) {
        self.assembler.bind(labels.done);
        self.push_out_of_line(missing);
        self.push_out_of_line(OutOfLine::Perform {
            op: number,
            from: labels.unusual,
            back: labels.done,
            ready: self.ready,
        });
    }

    /// Loads the value of a key, or 0 if the map does not have the key.
    pub fn get(&mut self, number: usize, to: Word, map: u8, key: Word) {
        let Some(shape) = self.shape(map).filter(|shape| shape.value_words == 1) else { return self.perform(number) };
        let target = self.target(number, to);
        let (value, labels) = self.hold(number, shape, key);
        let read = self.assembler.label();
        self.assembler.push(load(OTHER, value.base, value.offset));
        self.assembler.bind(read);
        self.release();
        self.assembler.push(a64::copy(target, OTHER));
        self.keep(number, to);
        self.or_perform(number, labels, OutOfLine::Nothing { from: labels.missing, back: read });
    }

    /// Sets the value of a key.
    pub fn put(&mut self, number: usize, map: u8, key: Word, from: Word) {
        let Some(shape) = self.shape(map).filter(|shape| shape.value_words == 1) else { return self.perform(number) };
        let from = self.word(number, from, LEFT);
        let (value, labels) = self.hold(number, shape, key);
        self.assembler.push(encode::store(from, value.base, value.offset));
        self.release();
        self.or_perform(number, labels, OutOfLine::Release { from: labels.missing });
    }

    /// Computes with the value of a key.
    #[expect(clippy::too_many_arguments, reason = "the parameters are the fields of the op")]
    pub fn modify(&mut self, number: usize, to: Word, map: u8, key: Word, how: Arithmetic, by: Operand, after: bool) {
        let Some(shape) = self.shape(map).filter(|shape| shape.value_words == 1) else { return self.perform(number) };
        let by = self.operand(number, by, LEFT);
        let (value, labels) = self.hold(number, shape, key);
        self.assembler.push(load(ONE, value.base, value.offset));
        self.registers(RIGHT, how, ONE, by);
        self.assembler.push(encode::store(RIGHT, value.base, value.offset));
        self.release();
        let target = self.target(number, to);
        let result = if after { RIGHT } else { ONE };
        if target != result {
            self.assembler.push(a64::copy(target, result));
        }
        self.keep(number, to);
        self.or_perform(number, labels, OutOfLine::Release { from: labels.missing });
    }
}
