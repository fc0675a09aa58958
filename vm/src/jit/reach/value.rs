//! Values of registers in the check: a number with a bound, an address in memory that the clause owns, or unknown.

use core::ops::Range;

use aarch64_kprobes::insn::encode::compute::{Binary, Condition};
use aarch64_kprobes::insn::{Instruction, LoadSize, Shift};

use super::super::access::Shape;
use super::super::{BUCKET, SLOT, TAKEN, ZERO};
use super::{AbstractState, Reach};
use crate::ir::FRAME_WORDS;
use crate::maps::HEAD;

/// An area that a clause may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Area {
    /// The frame of this CPU.
    Frame,
    /// A bucket of this map.
    Bucket(u8),
    /// A slot in the locked bucket of this map.
    Slot(u8),
}

/// The contents of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Unknown.
    Any,
    /// A number that is not above this one.
    UpTo(u64),
    /// This number.
    Is(u64),
    /// The address after this many loads along the path to the number of the CPU; after all of them, that number.
    Path(usize),
    /// The address of the row of this CPU.
    Row,
    /// The address of the first bucket of a map for this CPU.
    Table(u8),
    /// An address at most this many bytes after the start of an area.
    In(Area, u64),
    /// The mask of used slots in a bucket of this map, from the slot in `SLOT` on.
    Taken(u8),
    /// The address of the slot after that in `SLOT`, which exists if [`Value::Taken`] is not 0.
    Next(u8),
}

impl Value {
    /// Returns the largest number that the value can be; `None` if it is not a number.
    fn most(self) -> Option<u64> {
        match self {
            Self::UpTo(most) | Self::Is(most) => Some(most),
            _ => None,
        }
    }

    /// Returns whether the value is about slots of a bucket.
    pub(super) fn is_of_slots(self) -> bool {
        matches!(self, Self::In(Area::Slot(_), _) | Self::Taken(_) | Self::Next(_))
    }

    /// Returns what is known of a value that is one or the other.
    pub(super) fn join(self, other: Self) -> Self {
        match (self.most(), other.most()) {
            _ if self == other => self,
            (Some(one), Some(two)) => Self::UpTo(one.max(two)),
            _ => Self::Any,
        }
    }
}

impl Reach<'_> {
    fn shape(&self, map: u8) -> Option<Shape> {
        Shape::of(self.store, map)
    }

    /// Returns the map whose first bucket for this CPU is at this address.
    fn table(&self, value: Value) -> Option<u8> {
        match value {
            Value::Table(map) => Some(map),
            Value::Is(address) => (0..=u8::MAX)
                .take(self.store.tables.len())
                .find(|&map| self.shape(map).is_some_and(|shape| shape.alone == Some(address))),
            _ => None,
        }
    }

    /// Returns the area that contains this address, and the largest offset of the address in it.
    pub(super) fn area(&self, value: Value) -> Option<(Area, u64)> {
        match value {
            Value::In(area, most) => Some((area, most)),
            value => Some((Area::Bucket(self.table(value)?), 0)),
        }
    }

    /// Returns the map that has a bucket at this address.
    pub(super) fn bucket(&self, value: Value) -> Option<u8> {
        match self.area(value) {
            Some((Area::Bucket(map), 0)) => Some(map),
            _ => None,
        }
    }

    /// Returns the bytes of an area that may be written, and the map that they belong to.
    pub(super) fn writable(&self, area: Area) -> Option<(Range<u64>, Option<u8>)> {
        let (Area::Bucket(map) | Area::Slot(map)) = area else { return Some((0..8 * FRAME_WORDS as u64, None)) };
        let shape = self.shape(map)?;
        let bytes = match area {
            Area::Slot(_) => 8 * shape.key_words..shape.slot_bytes(),
            // The only slot of the bucket.
            _ if shape.key_words == 0 => 8 * HEAD..shape.bucket_bytes(),
            _ => 0..0,
        };
        Some((bytes.start as u64..bytes.end as u64, Some(map)))
    }

    /// Returns the register that gets the result of an instruction, and what is known of it; `None` if nothing is.
    pub(super) fn computed(&self, state: &AbstractState, instruction: Instruction) -> Option<(u8, Value)> {
        Some(match instruction {
            Instruction::MoveWide { rd, value } => (rd, Value::Is(value)),
            Instruction::MoveKeep { rd, value, mask } => match state.get(rd) {
                Value::Is(before) => (rd, Value::Is(before & !mask | value)),
                _ => return None,
            },
            Instruction::LeadingZeros { rd, .. } => (rd, Value::UpTo(64)),
            Instruction::ShiftRight { rd, rn, signed: false, right } => {
                let value = state.get(rn);
                let is_next = rd == rn
                    && right == 1
                    && matches!((value, state.get(SLOT)), (Value::Taken(map), Value::Next(of)) if of == map);
                (rd, if is_next { value } else { Value::UpTo(u64::MAX >> right) })
            }
            Instruction::Load { rt, rn, offset, size: LoadSize { bytes: 8, .. } } => {
                (rt, self.loaded(state.get(rn), offset, rt))
            }
            // Register 31 is the stack pointer here.
            Instruction::AddImmediate { rd, rn, addend: addend @ 0.. } if rn != ZERO => {
                (rd, self.moved(state, rn, addend.cast_unsigned()))
            }
            Instruction::Binary { how, rd, rn, rm, shift: Shift::Left(left) } => {
                (rd, self.combined(how, state.get(rn), state.get(rm), left))
            }
            Instruction::MultiplyAdd { rd, rn, rm, ra, subtracts: false } => {
                let map = self.table(state.get(ra))?;
                let shape = self.shape(map)?;
                let is_home = state.get(rn).most().is_some_and(|most| most >> shape.home_bits == 0);
                let is_bucket = is_home && state.get(rm) == Value::Is(shape.bucket_bytes() as u64);
                (rd, if is_bucket { Value::In(Area::Bucket(map), 0) } else { Value::Any })
            }
            Instruction::Select { rd, rn, rm, condition, increments: false } => {
                let is_least = condition == Condition::Lo as u8 && state.compared == Some((rn, rm));
                let value = match (state.get(rn).most(), state.get(rm).most()) {
                    (_, Some(most)) if is_least => Value::UpTo(most),
                    (Some(one), Some(other)) => Value::UpTo(one.max(other)),
                    _ => Value::Any,
                };
                (rd, value)
            }
            _ => return None,
        })
    }

    /// Returns the result of a computation with `one` and `other`, which is shifted to the left by `left` bits.
    fn combined(&self, how: Binary, one: Value, other: Value, left: u8) -> Value {
        match (how, self.area(one), other.most()) {
            (Binary::Add, Some((area, most)), Some(rows)) if left == 3 => {
                Value::In(area, rows.saturating_mul(8).saturating_add(most))
            }
            (Binary::Add, ..)
                if one == Value::Is(self.directory.address())
                    && other == Value::Path(self.cpu.offsets.len())
                    && left == 3 + self.directory.shift =>
            {
                Value::Row
            }
            (Binary::Subtract, _, Some(most)) if left == 0 => match one {
                Value::Is(one) if most <= one => Value::UpTo(one),
                _ => Value::Any,
            },
            _ => Value::Any,
        }
    }

    /// Returns the value of register `to` after a load from `offset` bytes after `base`.
    fn loaded(&self, base: Value, offset: u64, to: u8) -> Value {
        match base {
            Value::Path(steps) if self.cpu.offsets.get(steps).is_some_and(|&of| u64::from(of) == offset) => {
                Value::Path(steps + 1)
            }
            Value::Row if offset == 0 => Value::In(Area::Frame, 0),
            Value::Row if offset as usize / 8 <= self.store.tables.len() => Value::Table((offset / 8 - 1) as u8),
            base if offset == 8 && to == TAKEN => self.bucket(base).map_or(Value::Any, Value::Taken),
            _ => Value::Any,
        }
    }

    /// Returns the value of register `n` plus `bytes`.
    fn moved(&self, state: &AbstractState, n: u8, bytes: u64) -> Value {
        let value = state.get(n);
        match self.area(value) {
            Some((Area::Bucket(map), 0)) if n == BUCKET && state.held == Some(map) => {
                let has_slots = bytes == 8 * HEAD as u64 && self.shape(map).is_some_and(|shape| shape.key_words > 0);
                if has_slots { Value::In(Area::Slot(map), 0) } else { Value::Any }
            }
            Some((Area::Slot(map), 0)) if n == SLOT => {
                let is_next = self.shape(map).is_some_and(|shape| shape.slot_bytes() as u64 == bytes);
                if is_next { Value::Next(map) } else { Value::Any }
            }
            Some(_) => Value::Any,
            None => value.most().and_then(|most| most.checked_add(bytes)).map_or(Value::Any, Value::UpTo),
        }
    }
}
