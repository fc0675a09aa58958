//! Where a located value is: in the words that a call passes or returns, or in memory; and the reads that yield it from
//! there.

use alloc::vec::Vec;
use core::fmt;

use kprobes_types::ValuePlace;

use super::{ArgumentError, Signature, passed};
use crate::definition::{Named, Problem};
use crate::fetch::{Register, Source};
use crate::recorder::EntryValue;

/// Where a value is located.
#[derive(Debug)]
pub(super) enum Spot {
    /// In what a call passes or returns, at this byte offset.
    Passed(ValuePlace, u64),
    /// In memory, at this byte offset from the address that the reads yield.
    Memory(Source, Vec<i64>, u64),
}

impl Spot {
    pub(super) fn at(self, offset: u64) -> Self {
        match self {
            Self::Passed(place, at) => Self::Passed(place, at.wrapping_add(offset)),
            Self::Memory(source, reads, at) => Self::Memory(source, reads, at.wrapping_add(offset)),
        }
    }

    pub(super) fn copy(&self) -> Result<Self, fallible::OutOfMemory> {
        Ok(match self {
            Self::Passed(place, at) => Self::Passed(*place, *at),
            Self::Memory(source, reads, at) => {
                Self::Memory(source.try_copy()?, fallible::collect(reads.iter().copied())?, *at)
            }
        })
    }
}

impl Signature<'_> {
    /// Returns the source of a word that a call passes or returns. In a return probe, a word passed `at_entry` is saved
    /// there.
    pub(super) fn source(
        &self,
        source: kprobes_types::Source,
        at_entry: bool,
        at: usize,
        kept: &mut Vec<EntryValue>,
    ) -> Result<Source, ArgumentError> {
        let place = match source {
            kprobes_types::Source::Lost => {
                return Err(ArgumentError::new(
                    Problem::NoArgumentOfName,
                    at,
                    "this part of the value is optimised out",
                ));
            }
            kprobes_types::Source::Register(number) => {
                EntryValue::Register(Register::x(number).ok_or_else(|| ArgumentError::bare(Problem::TypeInfo, at))?)
            }
            kprobes_types::Source::Memory { register: kprobes_types::Source::STACK_POINTER, offset: offset @ 0.. } => {
                EntryValue::Stack(offset.cast_unsigned())
            }
            // No call passes anything there.
            kprobes_types::Source::Memory { .. }
            | kprobes_types::Source::Sum { .. }
            | kprobes_types::Source::Bits { .. } => {
                return Err(ArgumentError::bare(Problem::TypeInfo, at));
            }
        };
        Ok(passed(place, self.is_return && at_entry, kept)?)
    }

    /// Returns the word that contains `bytes` bytes at `offset` of the value at `place`, and the bit of the word at
    /// which they begin.
    fn word(
        &self,
        place: ValuePlace,
        offset: u64,
        bytes: u64,
        named: &Named,
        kept: &mut Vec<EntryValue>,
    ) -> Result<(Source, u8), ArgumentError> {
        let no = |reason: &dyn fmt::Display| ArgumentError::new(Problem::NoArgumentOfName, named.at, reason);
        match place {
            ValuePlace::Words { .. } => {
                let part = place.part(offset, bytes);
                let part = part.ok_or_else(|| no(&"this part of the value is optimised out"))?;
                let bit = 8 * (offset - u64::from(part.offset)) as u8;
                Ok((self.source(part.source, named.argument.is_some(), named.at, kept)?, bit))
            }
            ValuePlace::Constant(value) => {
                Ok((Source::Immediate(value.checked_shr(8 * offset as u32).unwrap_or(0)), 0))
            }
            ValuePlace::Unknown(why) => Err(no(&why)),
            ValuePlace::Nothing | ValuePlace::At(_) | ValuePlace::Memory { .. } => Err(no(&"it has no bytes")),
        }
    }

    /// Turns the location of a value that is passed by address into one in memory. Other locations stay.
    pub(super) fn memory(&self, spot: Spot, named: &Named, kept: &mut Vec<EntryValue>) -> Result<Spot, ArgumentError> {
        Ok(match spot {
            Spot::Passed(ValuePlace::At(source), offset) => {
                Spot::Memory(self.source(source, true, named.at, kept)?, Vec::new(), offset)
            }
            other => other,
        })
    }

    /// Locates the target of the pointer at `spot`, `behind` bytes after the address that the pointer holds.
    pub(super) fn pointed(
        &self,
        spot: Spot,
        behind: u64,
        named: &Named,
        kept: &mut Vec<EntryValue>,
    ) -> Result<Spot, ArgumentError> {
        Ok(match self.memory(spot, named, kept)? {
            Spot::Passed(place, offset) => {
                let (source, _) = self.word(place, offset, 8, named, kept)?;
                Spot::Memory(source, Vec::new(), behind)
            }
            Spot::Memory(source, mut reads, offset) => {
                fallible::push(&mut reads, small(offset)?)?;
                Spot::Memory(source, reads, behind)
            }
        })
    }

    /// Returns the source and the reads that yield the first `bytes` bytes at `spot`, from the lowest bit of the result
    /// on.
    pub(super) fn read(
        &self,
        spot: Spot,
        bytes: u64,
        named: &Named,
        kept: &mut Vec<EntryValue>,
    ) -> Result<(Source, Vec<i64>), ArgumentError> {
        self.read_part(spot, bytes, named, kept).map(|(source, reads, _)| (source, reads))
    }

    /// Returns the source and the reads for `bytes` bytes at `spot`, and the bit of the result at which they begin.
    pub(super) fn read_part(
        &self,
        spot: Spot,
        bytes: u64,
        named: &Named,
        kept: &mut Vec<EntryValue>,
    ) -> Result<(Source, Vec<i64>, u8), ArgumentError> {
        Ok(match self.memory(spot, named, kept)? {
            Spot::Passed(place, offset) => {
                let (source, bit) = self.word(place, offset, bytes, named, kept)?;
                (source, Vec::new(), bit)
            }
            Spot::Memory(source, mut reads, offset) => {
                fallible::push(&mut reads, small(offset)?)?;
                (source, reads, 0)
            }
        })
    }
}

/// Converts an offset to the form that reads have.
pub(super) fn small(offset: u64) -> Result<i64, ArgumentError> {
    i64::try_from(offset).map_err(|_| ArgumentError::bare(Problem::TypeInfo, 0))
}
