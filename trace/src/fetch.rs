//! The values that an event records: where each of them comes from, and the part of it that is recorded. When the event
//! is defined, they are compiled to what the hit path executes.

mod packed;
mod program;
mod word;

use alloc::boxed::Box;
use alloc::vec::Vec;

use fallible::OutOfMemory;

use crate::format::Width;

pub(crate) use packed::PackedNumber;
pub(crate) use program::{FetchProgram, Op, Ops, Target};
pub(crate) use word::{RegisterPart, Word};

/// A register of a trap frame, by its index there: x0 to x30, sp, pc, pstate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(u8);

impl Register {
    /// x0, a function's result (AAPCS64, section 6.9).
    pub(crate) const RESULT: Self = Self(0);
    /// x29, the frame pointer.
    pub(crate) const FRAME: Self = Self(29);
    /// x30, the link register.
    pub(crate) const LINK: Self = Self(30);
    /// The stack pointer.
    pub const SP: Self = Self(31);
    /// The address of the probed instruction; in a return probe, the return address.
    pub const PC: Self = Self(32);
    /// The processor state, in the layout of SPSR_EL1.
    pub const PSTATE: Self = Self(33);

    /// Returns register x`number`; `None` unless `number` is 0 to 30.
    #[must_use]
    pub const fn x(number: u8) -> Option<Self> {
        if number <= 30 { Some(Self(number)) } else { None }
    }

    /// Whether the register has a meaning at the first instruction of a function, because the caller passes something
    /// in it or it identifies the call: x0 to x8, x18, x29, x30, sp, pc. Handlers of call probes do not get the other
    /// registers.
    const fn is_of_a_call(self) -> bool {
        matches!(self.0, 0..=8 | 18 | 29..=32)
    }

    /// Returns the number of one of x0 to x30; `None` for sp, pc and pstate.
    pub(crate) const fn number(self) -> Option<u8> {
        if self.0 <= 30 { Some(self.0) } else { None }
    }

    /// Returns the index in the frame, in words.
    #[inline(always)]
    pub(crate) const fn place(self) -> usize {
        self.0 as usize
    }
}

/// Where the value of an argument comes from, with names resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A register.
    Register(Register),
    /// The word at this many bytes above the stack pointer.
    Stack(u32),
    /// A constant.
    Immediate(u64),
    /// A value that was saved at the entry of the function that has now returned: the index of its private word of the
    /// call. For an event on a synthetic event, the index of a word in the record of the synthetic event.
    Entry(u16),
    /// For an event on a synthetic event, the address of a text in the record of the synthetic event. The text begins
    /// with the word at this index.
    Fixed(u16),
    /// For an event on a synthetic event, the address of a text in the record of the synthetic event. The word at this
    /// index has the offset of the text.
    Located(u16),
    /// The name of the current task.
    TaskName,
    /// A constant text.
    Text(Box<[u8]>),
}

/// A resolved argument: the value to fetch, and the part of it to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Where the value comes from.
    pub source: Source,
    /// The offsets that are added before each read of memory, innermost first.
    pub reads: Vec<i64>,
    /// The part of the value that is recorded.
    pub part: RecordedPart,
}

/// The part of a fetched value that is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedPart {
    /// The low bytes, as many as the type has.
    Whole,
    /// Some bits of the value, extended to the size of the type.
    Bits(BitRange),
    /// The text whose address is the value. The text has no terminating zero: its length in bytes is fetched from this
    /// source, with these reads.
    Text(Source, Vec<i64>),
    /// The text of at most this many bytes at the address of the last read. A shorter text ends with a zero.
    Padded(u16),
}

/// Some bits of a word of 64 bits that are a number of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitRange {
    low: u8,
    bits: u8,
    signed: bool,
}

impl BitRange {
    /// Returns the range of `bits` bits, at least one, from bit `low` on; `None` if a word of 64 bits does not have
    /// them.
    #[must_use]
    pub const fn new(low: u8, bits: u8, signed: bool) -> Option<Self> {
        if bits == 0 || bits > 64 || low > 64 - bits { None } else { Some(Self { low, bits, signed }) }
    }

    /// Returns the low bits of a word, as many as the width has.
    #[must_use]
    pub const fn low_bits(width: Width, signed: bool) -> Self {
        Self { low: 0, bits: width.bits() as u8, signed }
    }

    /// Returns the low bits of the range, as many as the width has, or all of them.
    #[must_use]
    pub const fn narrowed(self, width: Width, signed: bool) -> Self {
        let bits = width.bits() as u8;
        Self { low: self.low, bits: if bits < self.bits { bits } else { self.bits }, signed }
    }

    /// Returns the smallest width whose low bits have the range.
    #[must_use]
    pub const fn width(self) -> Width {
        match self.low + self.bits {
            0..=8 => Width::W8,
            9..=16 => Width::W16,
            17..=32 => Width::W32,
            _ => Width::W64,
        }
    }

    /// Returns the number of bits below the range.
    #[must_use]
    pub const fn low(self) -> u8 {
        self.low
    }

    /// Returns the number of bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// Whether the number is signed.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        self.signed
    }

    /// Returns the bits of the range in `value` as a number, extended to 64 bits.
    #[inline(always)]
    pub(crate) fn apply(self, value: u64) -> u64 {
        let unused = 64_u32.wrapping_sub(self.bits.into()) & 63;
        let moved = value >> (self.low & 63) << unused;
        if self.signed { (moved.cast_signed() >> unused).cast_unsigned() } else { moved >> unused }
    }
}

impl Source {
    pub(crate) fn try_copy(&self) -> Result<Self, OutOfMemory> {
        Ok(match self {
            Self::Text(text) => Self::Text(fallible::boxed_slice(text.iter().copied())?),
            &Self::Register(register) => Self::Register(register),
            &Self::Stack(offset) => Self::Stack(offset),
            &Self::Immediate(value) => Self::Immediate(value),
            &Self::Entry(word) => Self::Entry(word),
            &Self::Fixed(word) => Self::Fixed(word),
            &Self::Located(word) => Self::Located(word),
            Self::TaskName => Self::TaskName,
        })
    }

    fn is_of_a_call(&self) -> bool {
        match self {
            Self::Register(register) => register.is_of_a_call(),
            Self::Stack(_) | Self::Immediate(_) | Self::TaskName | Self::Text(_) => true,
            Self::Entry(_) | Self::Fixed(_) | Self::Located(_) => false,
        }
    }
}

impl RecordedPart {
    /// Returns the bits of the value that a field of this width records, as a number with or without a sign. `None` if
    /// the field does not record such a number.
    pub(crate) fn number(&self, width: Width, signed: bool) -> Option<BitRange> {
        match self {
            Self::Whole => Some(BitRange::low_bits(width, signed)),
            Self::Bits(part) if u32::from(part.bits()) >= width.bits() => Some(part.narrowed(width, signed)),
            // The sign is extended to the size of the field, and no further.
            Self::Bits(part) => Some(*part).filter(|part| signed || !part.is_signed()),
            Self::Text(..) | Self::Padded(_) => None,
        }
    }

    fn try_copy(&self) -> Result<Self, OutOfMemory> {
        Ok(match self {
            Self::Whole => Self::Whole,
            &Self::Bits(range) => Self::Bits(range),
            Self::Text(length, reads) => Self::Text(length.try_copy()?, fallible::collect(reads.iter().copied())?),
            &Self::Padded(size) => Self::Padded(size),
        })
    }
}

impl Fetch {
    pub(crate) fn try_copy(&self) -> Result<Self, OutOfMemory> {
        let Self { source, reads, part } = self;
        let reads = fallible::collect(reads.iter().copied())?;
        Ok(Self { source: source.try_copy()?, reads, part: part.try_copy()? })
    }

    /// Whether the argument uses only registers that have a meaning when a function is called.
    pub(crate) fn is_of_a_call(&self) -> bool {
        let length = if let RecordedPart::Text(length, _) = &self.part { length } else { &self.source };
        self.source.is_of_a_call() && length.is_of_a_call()
    }
}
