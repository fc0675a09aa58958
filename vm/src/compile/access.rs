//! Reads and changes values of maps, as the functions of a table do it: with the bucket held, for which the task that reads it
//! looks.
//!
//! What takes more than a few instructions is left to the kernel's routine, aside: where another CPU holds the bucket, and where
//! a key is new, or behind its home.

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::{self as a64, Binary, Branch, Condition};

use super::assembler::Label;
use super::emit::{Aside, Emitter};
use super::{BUCKET, HOLDER, ONE, OTHER, RIGHT, ROW, SLOT, TAKEN, THIRD, ZERO, load};
use crate::code::{Arithmetic, Operand, Word};
use crate::store::{HEAD, MIX, Store};

/// The most words of a key that are compared by instructions.
const KEY_WORDS_MAX: usize = 2;

/// Where a value is.
#[derive(Clone, Copy)]
pub(super) struct Value {
    /// The register with the address.
    pub base: u8,
    /// In bytes from there.
    pub offset: u16,
}

/// A table as instructions know it.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    map: u8,
    /// The address of the one table; none if each CPU has its own.
    pub alone: Option<u64>,
    pub key_words: usize,
    pub value_words: usize,
    pub ways: usize,
    pub home_bits: u32,
}

/// The places of an op that is not done as usual.
#[derive(Clone, Copy)]
pub(super) struct Ways {
    /// To the routine: nothing has been done.
    pub aside: Label,
    /// The key has no value in its home, which is held.
    pub missing: Label,
    /// The next op.
    pub done: Label,
}

impl Shape {
    /// That of the tables of a map, if their values are found by instructions.
    pub fn of(store: &Store, map: u8) -> Option<Self> {
        let tables = store.tables.get(usize::from(map))?;
        let first = tables.first()?;
        let alone = (tables.len() == 1).then(|| first.address());
        let (key_words, value_words) = (first.key_words(), first.value_words());
        let fits = key_words <= KEY_WORDS_MAX && (key_words == 0 || 8 * (key_words + value_words) < 4096);
        let (ways, home_bits) = (first.ways(), first.home_bits());
        fits.then_some(Self { map, alone, key_words, value_words, ways, home_bits })
    }

    /// The bytes of a slot.
    pub fn slot_bytes(&self) -> usize {
        8 * (self.key_words + self.value_words)
    }

    /// The bytes of a bucket.
    pub fn bucket_bytes(&self) -> usize {
        8 * HEAD + self.ways * self.slot_bytes()
    }
}

impl Emitter<'_> {
    /// The tables of a map, if their values are found by instructions.
    pub fn shape(&self, map: u8) -> Option<Shape> {
        Shape::of(self.store, map)
    }

    /// The places for op `number`.
    pub fn ways(&mut self) -> Ways {
        Ways { aside: self.assembler.label(), missing: self.assembler.label(), done: self.assembler.label() }
    }

    /// Holds the bucket of the key, and finds its value.
    pub fn hold(&mut self, number: usize, shape: Shape, key: Word, ways: Ways) -> Value {
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
        self.home(keys, shape);
        let assembler = &mut self.assembler;
        assembler.push(a64::load_exclusive(HOLDER, BUCKET));
        assembler.branch(Branch::NotZero(HOLDER), ways.aside);
        // Anything but 0.
        assembler.push(a64::store_exclusive(OTHER, BUCKET, BUCKET));
        assembler.branch(Branch::NotZeroWord(OTHER), ways.aside);
        assembler.push(load(TAKEN, BUCKET, 8));
        let [first, rest @ ..] = &*keys else {
            assembler.branch(Branch::BitClear(TAKEN, 0), ways.missing);
            return Value { base: BUCKET, offset: 8 * HEAD as u16 };
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
        assembler.branch(Branch::Always, ways.missing);
        assembler.bind(found);
        Value { base: SLOT, offset: 8 * shape.key_words as u16 }
    }

    /// From the first bucket to the home of the key: see `Table::home`.
    fn home(&mut self, keys: &[u8], shape: Shape) {
        if shape.home_bits == 0 {
            return;
        }
        let assembler = &mut self.assembler;
        assembler.constant(HOLDER, MIX);
        for (number, &key) in keys.iter().enumerate() {
            let mixed = if number == 0 {
                key
            } else {
                assembler.push(a64::xor_shifted(TAKEN, TAKEN, TAKEN, 32));
                assembler.push(a64::compute(Binary::Xor, TAKEN, TAKEN, key));
                TAKEN
            };
            assembler.push(a64::compute(Binary::Multiply, TAKEN, mixed, HOLDER));
        }
        assembler.push(a64::xor_shifted(TAKEN, TAKEN, TAKEN, 32));
        assembler.push(a64::compute(Binary::Multiply, TAKEN, TAKEN, HOLDER));
        assembler.push(a64::shift_right(TAKEN, TAKEN, (u64::BITS - shape.home_bits) as u8));
        assembler.constant(SLOT, shape.bucket_bytes() as u64);
        assembler.push(a64::multiply_add(BUCKET, TAKEN, SLOT, BUCKET));
    }

    /// Lets others have the bucket.
    pub fn release(&mut self) {
        self.assembler.push(a64::store_release(ZERO, BUCKET));
    }

    /// Ends op `number`, which has been done as usual here; a key that is not in its home is the routine's.
    pub fn or_perform(&mut self, number: usize, ways: Ways) {
        self.assembler.bind(ways.done);
        self.put_aside(Aside::Release { from: ways.missing });
        self.put_aside(Aside::Perform { op: number, from: ways.aside, back: ways.done, ready: self.ready });
    }

    /// The value of a map, 0 if the key has none.
    pub fn get(&mut self, number: usize, to: Word, map: u8, key: Word) {
        let Some(shape) = self.shape(map).filter(|shape| shape.value_words == 1) else { return self.perform(number) };
        let ways = self.ways();
        let target = self.target(number, to);
        let value = self.hold(number, shape, key, ways);
        let read = self.assembler.label();
        self.assembler.push(load(OTHER, value.base, value.offset));
        self.assembler.bind(read);
        self.release();
        self.assembler.push(a64::copy(target, OTHER));
        self.keep(number, to);
        self.assembler.bind(ways.done);
        self.put_aside(Aside::Nothing { from: ways.missing, back: read });
        self.put_aside(Aside::Perform { op: number, from: ways.aside, back: ways.done, ready: self.ready });
    }

    /// Gives a map a value for a key.
    pub fn put(&mut self, number: usize, map: u8, key: Word, from: Word) {
        let Some(shape) = self.shape(map).filter(|shape| shape.value_words == 1) else { return self.perform(number) };
        let ways = self.ways();
        let from = self.value(number, Operand::Word(from));
        let value = self.hold(number, shape, key, ways);
        self.assembler.push(encode::store(from, value.base, value.offset));
        self.release();
        self.or_perform(number, ways);
    }

    /// Computes with the value of a map.
    #[expect(clippy::too_many_arguments, reason = "the fields of the op")]
    pub fn modify(&mut self, number: usize, to: Word, map: u8, key: Word, how: Arithmetic, by: Operand, after: bool) {
        let Some(shape) = self.shape(map).filter(|shape| shape.value_words == 1) else { return self.perform(number) };
        let ways = self.ways();
        let by = self.value(number, by);
        let value = self.hold(number, shape, key, ways);
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
        self.or_perform(number, ways);
    }
}
