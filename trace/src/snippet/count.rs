//! Stubs that count all hits of an event in a histogram by numbers, if the event is not recorded.
//!
//! A stub need not know whether the histogram is being cleared. Only a histogram with variables is cleared in place,
//! and no stub counts in one: it has neither tables of CPUs nor words for exponents
//! ([`Histogram::stub_counters`](crate::histogram::Histogram::stub_counters)). Any other histogram is replaced,
//! together with the plans and stubs that count in it.

use aarch64_kprobes::insn::encode::compute::{self, Binary, Branch, Condition};
use aarch64_kprobes::insn::{Literal, encode};
use aarch64_kprobes::probe::{Snippet, Step};

use super::{NoCode, OTHER, SPARE, Steps, THREAD, ZERO, load};
use crate::filter::Number;
use crate::histogram::{CELL, Key, MULTIPLIER, Source, StubCounters, Transform};
use crate::trigger::{Action, BoundTrigger};

/// The register with the address of the table, or of an entry in it.
const TABLE: u8 = 13;
const HASH: u8 = 12;
const FACTOR: u8 = 14;

/// The size of a counter or a part of a key, in bytes. A cell holds the number of hits, the key, and the values; an
/// entry holds the parts of the key, the number of hits, and the values.
const WORD: usize = 8;

impl Steps {
    /// Counts a hit, if the trigger is a histogram. Returns whether interrupts must be masked for it.
    pub(super) fn count(&mut self, bound: &BoundTrigger) -> Result<bool, NoCode> {
        let Action::Histogram(histogram) = &bound.trigger.action else { return Err(NoCode::Stub) };
        if bound.trigger.is_paused() {
            return Err(NoCode::Stub);
        }
        match (&*bound.keys, &*bound.values, histogram.stub_counters()) {
            (&[Key { source: Source::Number { number, .. }, .. }], [], StubCounters::Exponents(distance)) => {
                // Loading the number of the task or CPU takes several steps, between which the task could move to
                // another CPU.
                let is_masked = !matches!(number, Number::Register(_));
                self.count_exponent(number, distance).map(|()| is_masked)
            }
            (keys, values, StubCounters::Cells { addresses, count }) => {
                self.find_cell(keys, addresses, count)?;
                self.add(values, 2 * WORD)?;
                self.hit(0).map(|()| true)
            }
            (keys, values, StubCounters::Entries { addresses, count, stride }) => {
                self.find_entry(keys, addresses, count, stride)?;
                let behind = WORD * keys.len();
                self.add(values, behind + WORD)?;
                self.hit(behind).map(|()| true)
            }
            _ => Err(NoCode::Stub),
        }
    }

    /// Counts by the exponent of the next power of two, which is 64 minus the leading zeros of the number less one,
    /// modulo 64. The hit goes to the word for that number of zeros.
    fn count_exponent(&mut self, number: Number, distance: u64) -> Result<(), NoCode> {
        let number = self.number(number, SPARE)?;
        self.instructions([encode::subtract(SPARE, number, 1), compute::leading_zeros(SPARE, SPARE)])?;
        self.push(Step::Number(OTHER, distance))?;
        self.instructions([compute::add_shifted(OTHER, OTHER, SPARE, 3)])?;
        Ok(self.list.count(OTHER, SPARE, Snippet::has_atomics())?)
    }

    /// Returns a register that holds the number: its own register, or `otherwise`, into which steps load it.
    fn number(&mut self, number: Number, otherwise: u8) -> Result<u8, NoCode> {
        match number {
            Number::Register(part) => self.part(part, otherwise),
            Number::Task => {
                let task = load(otherwise, THREAD, self.offsets.task);
                self.instructions([
                    compute::read_thread(THREAD),
                    task,
                    compute::extend(true, otherwise, otherwise, 32),
                ])?;
                Ok(otherwise)
            }
            Number::Cpu => {
                let cpu = load(otherwise, THREAD, self.offsets.cpu);
                self.instructions([compute::read_thread(THREAD), cpu])?;
                Ok(otherwise)
            }
            Number::Field { .. } | Number::Time(_) => Err(NoCode::Stub),
        }
    }

    /// Returns a register that holds a part of a key: its own register, or `otherwise`, into which steps load it.
    fn key(&mut self, key: &Key, otherwise: u8) -> Result<u8, NoCode> {
        let Source::Number { number, transform } = key.source else { return Err(NoCode::Stub) };
        let number = self.number(number, otherwise)?;
        match transform {
            Transform::None => Ok(number),
            Transform::Buckets(size @ 1..) => {
                self.push(Step::Number(HASH, size))?;
                self.instructions([
                    compute::compute(Binary::Divide, THREAD, number, HASH),
                    compute::compute(Binary::Multiply, THREAD, THREAD, HASH),
                ])?;
                self.instructions([compute::copy(otherwise, THREAD)])?;
                Ok(otherwise)
            }
            Transform::Buckets(_) | Transform::Log2 => Err(NoCode::Stub),
        }
    }

    /// Sets `TABLE` to the address of this CPU's part of the list at the virtual address `addresses`, in which each CPU
    /// has 1 << `shift` bytes.
    fn addresses_of_this_cpu(&mut self, addresses: u64, shift: u8) -> Result<(), NoCode> {
        self.push(Step::Number(TABLE, addresses))?;
        self.instructions([
            compute::read_thread(THREAD),
            load(THREAD, THREAD, self.offsets.cpu),
            compute::add_shifted(TABLE, TABLE, THREAD, shift),
        ])
    }

    /// Sets `TABLE` to the cell of a key in this CPU's table, which has `count` cells, a power of two. The list at
    /// `addresses` has the virtual address of each CPU's table.
    fn find_cell(&mut self, keys: &[Key], addresses: u64, count: usize) -> Result<(), NoCode> {
        let [key] = keys else { return Err(NoCode::Stub) };
        let key = self.key(key, OTHER)?;
        self.addresses_of_this_cpu(addresses, 3)?;
        self.instructions([load(TABLE, TABLE, 0)])?;
        self.push(Step::Call(Branch::Zero(TABLE)))?;
        self.push(Step::Number(FACTOR, MULTIPLIER))?;
        self.instructions([
            compute::compute(Binary::Multiply, HASH, key, FACTOR),
            compute::shift_right(HASH, HASH, shift(count)?),
            compute::add_shifted(TABLE, TABLE, HASH, CELL.trailing_zeros() as u8),
            encode::load_pair(HASH, SPARE, TABLE, 0),
        ])?;
        self.push(Step::Call(Branch::Zero(HASH)))?;
        self.instructions([compute::compute(Binary::SubtractFlags, ZERO, SPARE, key)])?;
        self.push(Step::Call(Branch::If(Condition::Ne)))
    }

    /// Sets `TABLE` to the entry of a key of two words. The list at `addresses` has two words for each CPU: the virtual
    /// addresses of its slots and of its entries. There are `count` slots, a power of two, each with the number of an
    /// entry, from 1. An entry has `stride` words.
    fn find_entry(&mut self, keys: &[Key], addresses: u64, count: usize, stride: usize) -> Result<(), NoCode> {
        let [one, other] = keys else { return Err(NoCode::Stub) };
        let (one, other) = (self.key(one, SPARE)?, self.key(other, OTHER)?);
        self.push(Step::Number(FACTOR, MULTIPLIER))?;
        self.instructions([
            compute::compute(Binary::Multiply, HASH, one, FACTOR),
            compute::xor_shifted(HASH, HASH, HASH, 32),
            compute::compute(Binary::Xor, HASH, HASH, other),
            compute::compute(Binary::Multiply, HASH, HASH, FACTOR),
            compute::xor_shifted(HASH, HASH, HASH, 32),
            compute::compute(Binary::Multiply, HASH, HASH, FACTOR),
            compute::shift_right(HASH, HASH, shift(count)?),
        ])?;
        self.addresses_of_this_cpu(addresses, 4)?;
        // The address of the slots, and that of the entries.
        self.instructions([encode::load_pair(TABLE, THREAD, TABLE, 0)])?;
        self.push(Step::Call(Branch::Zero(TABLE)))?;
        self.instructions([compute::add_shifted(TABLE, TABLE, HASH, 2), encode::load(Literal::Word, HASH, TABLE, 0)])?;
        self.push(Step::Call(Branch::Zero(HASH)))?;
        self.push(Step::Number(FACTOR, (WORD * stride) as u64))?;
        self.instructions([
            encode::subtract(HASH, HASH, 1),
            compute::multiply_add(TABLE, HASH, FACTOR, THREAD),
            encode::load_pair(HASH, THREAD, TABLE, 0),
            compute::compute(Binary::SubtractFlags, ZERO, HASH, one),
            compute::compare_if(Condition::Eq, THREAD, other),
        ])?;
        self.push(Step::Call(Branch::If(Condition::Ne)))
    }

    /// Adds the values to the words from byte `at` of the entry on.
    fn add(&mut self, values: &[Number], at: usize) -> Result<(), NoCode> {
        for (place, &value) in (at..).step_by(WORD).zip(values) {
            let value = self.number(value, FACTOR)?;
            self.instructions([
                load(HASH, TABLE, place),
                compute::compute(Binary::Add, HASH, HASH, value),
                encode::store(HASH, TABLE, place as u16),
            ])?;
        }
        Ok(())
    }

    /// Counts the hit in the word at byte `at`, with a release store: a reader that finds the hit also finds the
    /// values.
    fn hit(&mut self, at: usize) -> Result<(), NoCode> {
        if at > 0 {
            self.instructions([encode::add(TABLE, TABLE, at as u16)])?;
        }
        self.instructions([load(HASH, TABLE, 0), encode::add(HASH, HASH, 1), compute::store_release(HASH, TABLE)])
    }
}

/// Returns how far a hash is shifted right for a place among `count`.
fn shift(count: usize) -> Result<u8, NoCode> {
    u8::try_from(count.leading_zeros() + 1).ok().filter(|shift| *shift < 64).ok_or(NoCode::Stub)
}
