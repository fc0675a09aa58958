//! Adding values to aggregations, as `add` of the interpreter does.

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::{self as a64, Binary, Branch, Condition};

use super::access::Value;
use super::emit::{Emitter, OutOfLine};
use super::{LEFT, ONE, OTHER, RIGHT, SLOT, TAKEN, ZERO, load};
use crate::ir::{Aggregate, MapValue, Operand, Word, histogram_words, rows};

impl Emitter<'_> {
    /// Adds a value to an aggregation, on this CPU. Only the interpreter adds to a time series.
    pub fn collect(&mut self, number: usize, map: u8, key: Word, value: Operand) {
        let kept = self.code.maps.get(usize::from(map)).map(|map| map.value);
        let (Some(MapValue::Aggregate(aggregate)), Some(shape)) = (kept, self.shape(map)) else {
            return self.perform(number);
        };
        let value = match aggregate {
            Aggregate::Series(_) => return self.perform(number),
            Aggregate::Count => ZERO,
            _ => self.operand(number, value, LEFT),
        };
        let (place, labels) = self.hold(number, shape, key);
        self.add(aggregate, place, value);
        self.release();
        self.or_perform(number, labels, OutOfLine::Release { from: labels.missing });
    }

    /// Adds to the aggregation at `place`, whose bucket is locked.
    fn add(&mut self, aggregate: Aggregate, place: Value, value: u8) {
        let Value { base, offset } = place;
        match aggregate {
            Aggregate::Count => self.increase(base, offset),
            Aggregate::Sum { .. } => {
                self.assembler.push(load(ONE, base, offset));
                self.assembler.push(a64::compute(Binary::Add, ONE, ONE, value));
                self.assembler.push(encode::store(ONE, base, offset));
            }
            // The number of values, and their sum in 128 bits.
            Aggregate::Average { signed } | Aggregate::Statistics { signed } => {
                self.assembler.push(encode::load_pair(ONE, OTHER, base, offset.cast_signed()));
                self.assembler.push(encode::add(ONE, ONE, 1));
                self.assembler.push(a64::compute(Binary::Add, OTHER, OTHER, value));
                self.assembler.push(encode::store_pair(ONE, OTHER, base, offset.cast_signed()));
                // The upper half of the sum changes by the carry of the lower half and, for a value below 0, by its
                // sign.
                self.assembler.push(load(ONE, base, offset + 16));
                self.assembler.push(a64::compute(Binary::SubtractFlags, ZERO, OTHER, value));
                self.assembler.push(a64::set_if(Condition::Lo, TAKEN));
                self.assembler.push(a64::compute(Binary::Add, ONE, ONE, TAKEN));
                if signed {
                    self.assembler.push(a64::compute(Binary::SubtractFlags, ZERO, value, ZERO));
                    self.assembler.push(a64::set_if(Condition::Lt, TAKEN));
                    self.assembler.push(a64::compute(Binary::Subtract, ONE, ONE, TAKEN));
                }
                self.assembler.push(encode::store(ONE, base, offset + 16));
            }
            Aggregate::Least { signed: true } => self.best(place, value, Condition::Ge),
            Aggregate::Least { signed: false } => self.best(place, value, Condition::Hs),
            Aggregate::Greatest { signed: true } => self.best(place, value, Condition::Le),
            Aggregate::Greatest { signed: false } => self.best(place, value, Condition::Ls),
            Aggregate::Histogram { bits: 0 } => {
                self.assembler.push(a64::leading_zeros(ONE, value));
                self.assembler.constant(OTHER, 65);
                self.assembler.push(a64::compute(Binary::Subtract, ONE, OTHER, ONE));
                self.assembler.push(a64::compute(Binary::SubtractFlags, ZERO, value, ZERO));
                self.assembler.push(a64::select(Condition::Lt, ONE, ZERO, ONE));
                self.row_of(place);
            }
            // The same computation as in `power_row`.
            Aggregate::Histogram { bits } => {
                self.assembler.push(a64::leading_zeros(ONE, value));
                self.assembler.constant(OTHER, u64::from(63_u8.saturating_sub(bits)));
                self.assembler.push(a64::compute(Binary::SubtractFlags, OTHER, OTHER, ONE));
                self.assembler.push(a64::select(Condition::Hs, OTHER, OTHER, ZERO));
                self.assembler.push(a64::compute(Binary::Right, RIGHT, value, OTHER));
                self.assembler.push(a64::add_shifted(RIGHT, RIGHT, OTHER, bits));
                self.bounded_row(histogram_words(bits) - 2, value, ZERO, place);
            }
            Aggregate::Linear { least, most, step } => {
                // The registers of the key and of the used slots are free by now.
                self.assembler.constant(ONE, least.cast_unsigned());
                self.assembler.constant(OTHER, step.unsigned_abs());
                self.assembler.push(a64::compute(Binary::Subtract, RIGHT, value, ONE));
                self.assembler.push(a64::compute(Binary::Divide, RIGHT, RIGHT, OTHER));
                self.bounded_row(rows(least, most, step), value, ONE, place);
            }
            // `collect` leaves it to the interpreter.
            Aggregate::Series(_) => {}
        }
    }

    /// Adds 1 to a word.
    fn increase(&mut self, base: u8, offset: u16) {
        self.assembler.push(load(OTHER, base, offset));
        self.assembler.push(encode::add(OTHER, OTHER, 1));
        self.assembler.push(encode::store(OTHER, base, offset));
    }

    /// Adds 1 to row min(`RIGHT`, `last`) + 1. If the value is below the number in register `least`, adds 1 to row 0
    /// instead.
    fn bounded_row(&mut self, last: usize, value: u8, least: u8, place: Value) {
        self.assembler.constant(OTHER, last as u64);
        self.assembler.push(a64::compute(Binary::SubtractFlags, ZERO, RIGHT, OTHER));
        self.assembler.push(a64::select(Condition::Lo, RIGHT, RIGHT, OTHER));
        self.assembler.push(encode::add(RIGHT, RIGHT, 1));
        self.assembler.push(a64::compute(Binary::SubtractFlags, ZERO, value, least));
        self.assembler.push(a64::select(Condition::Lt, ONE, ZERO, RIGHT));
        self.row_of(place);
    }

    /// Adds 1 to the row whose number is in `ONE`.
    fn row_of(&mut self, place: Value) {
        self.assembler.push(a64::add_shifted(SLOT, place.base, ONE, 3));
        self.increase(SLOT, place.offset);
    }

    /// Stores a value, unless there is one already and `unless` holds when the new value is compared with it.
    fn best(&mut self, place: Value, value: u8, unless: Condition) {
        let Value { base, offset } = place;
        let (better, kept) = (self.assembler.label(), self.assembler.label());
        self.assembler.push(encode::load_pair(ONE, OTHER, base, offset.cast_signed()));
        self.assembler.branch(Branch::Zero(ONE), better);
        self.assembler.push(a64::compute(Binary::SubtractFlags, ZERO, value, OTHER));
        self.assembler.branch(Branch::If(unless), kept);
        self.assembler.bind(better);
        self.assembler.constant(TAKEN, 1);
        self.assembler.push(encode::store_pair(TAKEN, value, base, offset.cast_signed()));
        self.assembler.bind(kept);
    }
}
