//! The parts of a table that the records of all other parts refer to: types, places, names and inlined functions.

use core::str;

use crate::NAME_OFFSET_BITS;
use crate::model::{TypeId, ValuePlace};
use crate::record::Cursor;

/// These parts of a table, read in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared<'a> {
    /// The address that offsets of instructions and data count from.
    pub base: u64,
    /// The offset of the record of each type.
    pub types: &'a [u32],
    pub places: &'a [u8],
    /// The offset and the length of each name in `text`, in a word each.
    pub names: &'a [u32],
    pub text: &'a [u8],
    pub inlined: &'a [u8],
}

/// An argument of a function, or its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// The name; empty for a result.
    pub name: &'a str,
    /// The type.
    pub of: TypeId,
    /// The location: at the entry of the function; for a result, at the return; for a variable, at an instruction.
    pub place: ValuePlace,
}

impl<'a> Shared<'a> {
    /// Reads an argument.
    pub fn argument(&self, rest: &mut Cursor<'a>) -> Option<Argument<'a>> {
        let name = self.name(rest.word()?)?;
        Some(Argument { name, of: self.id(rest.word()?)?, place: self.place(rest)? })
    }

    /// Reads a reference to a place, and returns the place.
    pub fn place(&self, rest: &mut Cursor<'a>) -> Option<ValuePlace> {
        Cursor(self.places.get(rest.word()? as usize..)?).place()
    }

    /// Returns the name with this number.
    pub fn name(&self, number: u32) -> Option<&'a str> {
        let entry = u32::from_le(*self.names.get(number as usize)?);
        let (offset, length) = (entry & ((1 << NAME_OFFSET_BITS) - 1), entry >> NAME_OFFSET_BITS);
        str::from_utf8(self.text.get(offset as usize..)?.get(..length as usize)?).ok()
    }

    /// Checks that a type with this number exists.
    pub fn id(&self, number: u32) -> Option<TypeId> {
        ((number as usize) < self.types.len()).then_some(TypeId(number))
    }

    /// Returns the record of an inlined function.
    pub fn inlined(&self, at: u32) -> Option<Cursor<'a>> {
        Some(Cursor(self.inlined.get(at as usize..)?))
    }
}
