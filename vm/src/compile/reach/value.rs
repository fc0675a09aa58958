//! Values of registers in the check: a number with a bound, the address of something that the clause owns, or unknown.

use core::ops::Range;

use aarch64_kprobes::insn::encode::compute::Condition;

use super::super::access::Shape;
use super::super::verify::{register, target};
use super::super::{BUCKET, Base, SLOT, TAKEN, ZERO};
use super::{AbstractState, Reach};
use crate::code::FRAME_WORDS;
use crate::store::HEAD;

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
            Value::Is(address) => (0..self.store.tables.len() as u8)
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

    /// Returns the result of word `at`, which is not a store.
    pub(super) fn computed(&self, state: &AbstractState, words: &[u32], at: usize) -> Value {
        let word = words.get(at).copied().unwrap_or(0);
        let (d, n, m) = (register(word, 0), register(word, 5), register(word, 16));
        let (one, other, sum) = (state.get(n), state.get(m), state.get(register(word, 10)));
        let immediate = u64::from(word >> 10 & 0xfff);
        let of_shift = word >> 10 & 0x3f;
        let (away, is_literal) = ((word >> 21 & 3) * 16, word >> 24 == 0x58);
        let half = u64::from(word >> 5 & 0xffff) << away;
        // The forms of `verify`: MOVZ, MOVN, MOVK.
        match word & 0xff80_0000 {
            0xd280_0000 => return Value::Is(half),
            0x9280_0000 => return Value::Is(!half),
            0xf280_0000 => {
                let Value::Is(before) = state.get(d) else { return Value::Any };
                return Value::Is(before & !(0xffff << away) | half);
            }
            _ if is_literal => {
                let literal = target(word, at, 5, 19).and_then(|at| words.get(at..at + 2));
                let Some(&[low, high]) = literal else { return Value::Any };
                return Value::Is(u64::from(low) | u64::from(high) << 32);
            }
            _ if word & 0xffff_ffe0 == 0xd538_d080 && self.cpu.base == Base::Thread => return Value::Path(0),
            _ => {}
        }
        // CLZ; LSR, which are the forms of UBFM that end with bit 63.
        match word & 0xffff_fc00 {
            0xdac0_1000 => return Value::UpTo(64),
            form if form & 0xffc0_fc00 == 0xd340_fc00 => {
                let away = word >> 16 & 63;
                let is_next = d == n
                    && away == 1
                    && matches!((one, state.get(SLOT)), (Value::Taken(map), Value::Next(of)) if of == map);
                return if is_next { one } else { Value::UpTo(u64::MAX >> away) };
            }
            _ => {}
        }
        // LDR, ADD (immediate).
        match word & 0xffc0_0000 {
            0xf940_0000 => return self.loaded(one, 8 * immediate, d),
            0x9100_0000 if n != ZERO => return self.moved(state, n, immediate),
            _ => {}
        }
        // ADD and SUB (shifted register), MADD, CSEL.
        match word & 0xffe0_0000 {
            0x8b00_0000 => match (self.area(one), other.most()) {
                (Some((area, most)), Some(rows)) if of_shift == 3 => {
                    Value::In(area, rows.saturating_mul(8).saturating_add(most))
                }
                _ if one == Value::Is(self.directory.address())
                    && other == Value::Path(self.cpu.offsets.len())
                    && of_shift == 3 + u32::from(self.directory.shift) =>
                {
                    Value::Row
                }
                _ => Value::Any,
            },
            0xcb00_0000 => match (one, other.most()) {
                (Value::Is(one), Some(most)) if most <= one && of_shift == 0 => Value::UpTo(one),
                _ => Value::Any,
            },
            0x9b00_0000 if word >> 15 & 1 == 0 => {
                let Some((map, shape)) = self.table(sum).and_then(|map| Some((map, self.shape(map)?))) else {
                    return Value::Any;
                };
                let is_home = one.most().is_some_and(|most| most >> shape.home_bits == 0);
                let is_bucket = is_home && other == Value::Is(shape.bucket_bytes() as u64);
                if is_bucket { Value::In(Area::Bucket(map), 0) } else { Value::Any }
            }
            0x9a80_0000 if word >> 10 & 3 == 0 => {
                let is_least = word >> 12 & 15 == Condition::Lo as u32 && state.compared == Some((n, m));
                match (one.most(), other.most()) {
                    (_, Some(most)) if is_least => Value::UpTo(most),
                    (Some(one), Some(other)) => Value::UpTo(one.max(other)),
                    _ => Value::Any,
                }
            }
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
