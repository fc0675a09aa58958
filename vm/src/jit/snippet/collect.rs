//! Collecting in words at a known distance from the state of the CPU, or in slots that a hash finds.

use alloc::vec::Vec;

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::{self as a64, Binary, Branch, Condition};
use aarch64_kprobes::probe::{Snippet, Step};

use super::super::{Base, ZERO, load};
use super::{Key, KeyPart, KnownWord, Lowering, NoSnippet, ONE, OTHER, is_only_collected};
use crate::ir::{Aggregate, MapValue, Operand, Word, rows};
use crate::maps::{Cached, Layout, MIX, SHIFT};

impl Lowering<'_> {
    /// Adds a value to an aggregation, for a known key.
    pub(super) fn collect(&mut self, number: usize, map: u8, key: Word, value: Operand) -> Result<(), NoSnippet> {
        let of = self.code.maps.get(usize::from(map)).ok_or(NoSnippet::Snippet)?;
        let (MapValue::Aggregate(aggregate), Some(layout)) = (of.value, Layout::of(of.value)) else {
            return Err(NoSnippet::Snippet);
        };
        if !is_only_collected(self.code, map) {
            return Err(NoSnippet::Snippet);
        }
        let mut parts = Vec::new();
        for word in 0..of.key_words() {
            match self.known(Word(key.0.wrapping_add(word as u8))) {
                Some(KnownWord::Is(part)) => fallible::push(&mut parts, part)?,
                _ if of.key_words() == 1 => return self.collect_cached(number, map, key, value, layout),
                _ => return Err(NoSnippet::Snippet),
            }
        }
        self.has_collected = true;
        let key = Key { map: map.into(), parts };
        // The value or row goes to `ONE`, and the distance to `OTHER`.
        let value = match layout {
            Layout::Count => ZERO,
            Layout::Sum => self.operand(number, value, ONE)?,
            Layout::Powers => {
                let value = self.operand(number, value, ONE)?;
                self.instruction(a64::leading_zeros(ONE, value))?;
                ONE
            }
            Layout::Rows(_) => {
                let value = self.operand(number, value, ONE)?;
                let Aggregate::Linear { least, most, step } = aggregate else { return Err(NoSnippet::Snippet) };
                self.linear(value, least, most, step)?;
                ONE
            }
        };
        self.words(key)?;
        if matches!(layout, Layout::Powers | Layout::Rows(_)) {
            self.instruction(a64::add_shifted(OTHER, OTHER, ONE, 3))?;
        }
        if layout != Layout::Sum {
            return Ok(self.steps.count(OTHER, ONE, self.atomics)?);
        }
        self.instruction(a64::compute(Binary::Add, OTHER, Snippet::CPU, OTHER))?;
        self.add_to_words(number, 0, Some(value))
    }

    /// Adds a value to a cached aggregation, if the key, which is in a register, has its slot.
    fn collect_cached(
        &mut self,
        number: usize,
        map: u8,
        key: Word,
        value: Operand,
        layout: Layout,
    ) -> Result<(), NoSnippet> {
        let is_usual = matches!(layout, Layout::Count | Layout::Sum) && self.kernel.cpu.base == Base::Thread;
        if !is_usual || self.has_collected || self.held.is_some() {
            return Err(NoSnippet::Snippet);
        }
        self.has_collected = true;
        let key = self.word(number, key)?;
        self.instruction(a64::read_thread(OTHER))?;
        for &offset in self.kernel.cpu.offsets {
            self.instruction(load(OTHER, OTHER, offset))?;
        }
        self.slots = Some((self.steps.next_number(), map));
        self.push(Step::Number(ONE, 0))?;
        self.instruction(a64::add_shifted(OTHER, ONE, OTHER, 3))?;
        self.instruction(load(OTHER, OTHER, 0))?;
        self.push(Step::Number(ONE, MIX))?;
        self.instruction(a64::compute(Binary::Multiply, ONE, key, ONE))?;
        self.instruction(a64::shift_right(ONE, ONE, SHIFT))?;
        self.instruction(a64::add_shifted(OTHER, OTHER, ONE, Cached::stride(layout)))?;
        self.instruction(load(ONE, OTHER, 0))?;
        self.instruction(a64::compute(Binary::SubtractFlags, ZERO, ONE, key))?;
        self.push(Step::Call(Branch::If(Condition::Ne)))?;
        let value = if layout == Layout::Sum { Some(self.operand(number, value, ONE)?) } else { None };
        self.add_to_words(number, 8, value)
    }

    /// Adds 1 to the word that is `offset` bytes after the address in `OTHER`. Adds `value`, if there is one, to the
    /// next word.
    fn add_to_words(&mut self, number: usize, offset: u16, value: Option<u8>) -> Result<(), NoSnippet> {
        if self.atomics {
            if offset > 0 {
                self.instruction(encode::add(OTHER, OTHER, offset))?;
            }
            self.instruction(encode::add_to(Snippet::ONE, OTHER))?;
            if let Some(value) = value {
                self.instruction(encode::add(OTHER, OTHER, 8))?;
                self.instruction(encode::add_to(value, OTHER))?;
            }
            return Ok(());
        }
        // A register other than those of the value and the address.
        let mut free = [ONE].into_iter().chain(self.values.clone().rev());
        let sum = free.find(|&register| Some(register) != value && !self.is_used(number, register));
        let sum = sum.ok_or(NoSnippet::Snippet)?;
        self.instruction(load(sum, OTHER, offset))?;
        self.instruction(encode::add(sum, sum, 1))?;
        self.instruction(encode::store(sum, OTHER, offset))?;
        if let Some(value) = value {
            self.instruction(load(sum, OTHER, offset + 8))?;
            self.instruction(a64::compute(Binary::Add, sum, sum, value))?;
            self.instruction(encode::store(sum, OTHER, offset + 8))?;
        }
        Ok(())
    }

    /// Returns whether a register has a value that is read after op `number`.
    fn is_used(&self, number: usize, register: u8) -> bool {
        self.allocations.across(number).any(|(_, of)| of == register)
    }

    /// Loads the distance of the words of `key` into `OTHER`.
    fn words(&mut self, key: Key) -> Result<(), NoSnippet> {
        if key.parts.iter().all(|part| matches!(part, KeyPart::Number(_))) {
            fallible::push(&mut self.fixed, (self.steps.next_number(), key))?;
            return self.push(Step::Number(OTHER, 0));
        }
        if self.operand.as_ref().is_some_and(|other| *other != key) {
            return Err(NoSnippet::Snippet);
        }
        self.operand = Some(key);
        self.push(Step::Operand(OTHER))
    }

    /// Computes the number of a value's row into `ONE`, as `hit::map_ops::linear_row` does.
    fn linear(&mut self, value: u8, least: i64, most: i64, step: i64) -> Result<(), NoSnippet> {
        let row =
            self.values.clone().rev().find(|&register| register != value && self.allocations.has_no_value_in(register));
        let row = row.ok_or(NoSnippet::Snippet)?;
        self.push(Step::Number(OTHER, least.cast_unsigned()))?;
        self.instruction(a64::compute(Binary::Subtract, row, value, OTHER))?;
        self.instruction(a64::compute(Binary::SubtractFlags, ZERO, value, OTHER))?;
        self.push(Step::Number(OTHER, step.unsigned_abs()))?;
        self.instruction(a64::compute(Binary::Divide, row, row, OTHER))?;
        // The flags are still those of the comparison with `least`: `divide` and moves do not change them.
        self.instruction(a64::set_if(Condition::Ge, ONE))?;
        self.push(Step::Number(OTHER, rows(least, most, step) as u64))?;
        self.instruction(a64::compute(Binary::SubtractFlags, ZERO, row, OTHER))?;
        self.instruction(a64::select(Condition::Lo, row, row, OTHER))?;
        self.instruction(encode::add(row, row, 1))?;
        self.instruction(a64::compute(Binary::Multiply, ONE, row, ONE))
    }
}
