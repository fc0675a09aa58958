//! Arguments that are in a register, or one read away from it: the hit path needs no program for them.

use super::{BitRange, Fetch, RecordedPart, Register, Source};
use crate::format::Field;

/// An argument that is a 64-bit word of a register, or of memory at an offset from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub register: Register,
    pub is_memory: bool,
    pub offset: i32,
}

/// A register, or a part of one that is a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterPart {
    pub register: Register,
    pub bits: BitRange,
}

impl Word {
    /// Returns the word that `argument` fetches; `None` if it is not a whole 64-bit word at most one read away from a
    /// register.
    pub fn of(argument: &Fetch, field: &Field) -> Option<Self> {
        let kind = field.kind;
        if kind.size() != 8
            || kind.count != 0
            || kind.bits.is_some()
            || kind.base.is_text()
            || argument.part != RecordedPart::Whole
        {
            return None;
        }
        match (&argument.source, &argument.reads[..]) {
            (Source::Register(register), []) => Some(Self { register: *register, is_memory: false, offset: 0 }),
            (Source::Register(register), [offset]) => {
                Some(Self { register: *register, is_memory: true, offset: i32::try_from(*offset).ok()? })
            }
            (Source::Stack(offset), []) => {
                Some(Self { register: Register::SP, is_memory: true, offset: i32::try_from(*offset).ok()? })
            }
            _ => None,
        }
    }
}

impl RegisterPart {
    /// Returns the part of a register that `field` records; `None` if the field records anything else.
    pub fn of(argument: &Fetch, field: &Field) -> Option<Self> {
        let (&Source::Register(register), []) = (&argument.source, &argument.reads[..]) else { return None };
        let signed = field.signed;
        let width = field.kind.base.width().filter(|_| field.kind.count == 0)?;
        let bits = match (&argument.part, field.kind.bits) {
            (RecordedPart::Whole, Some(of)) => BitRange::new(of.offset, of.width, false).filter(|_| !signed)?,
            (part, None) => part.number(width, signed)?,
            _ => return None,
        };
        Some(Self { register, bits })
    }
}
