//! Fetch arguments in the form that the hit path executes: a short program of fixed operations, made when the event is
//! defined.
//!
//! Many arguments are whole words from registers, or from memory that a register points to. These become `Word`s,
//! which are written straight to the ring. If an event has any other argument, all its arguments become `Op`s, and
//! the record is composed in a buffer first. If all are numbers, though not whole words, they become `PackedNumber`s as
//! well, from which a stub makes the words of the record.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use fallible::{Arc, OutOfMemory};

use crate::format::{Base, FAULTS, Field, Width};
use crate::functions::Functions;

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

    /// Returns the operation that loads the value; `None` for a text.
    fn load(&self) -> Option<Op> {
        Some(match *self {
            Self::Register(register) => Op::Register(register),
            Self::Stack(offset) => Op::Stack(offset),
            Self::Immediate(value) => Op::Immediate(value),
            Self::Entry(word) => Op::Entry(word),
            Self::Fixed(word) => Op::Fixed(word),
            Self::Located(word) => Op::Located(word),
            Self::TaskName | Self::Text(_) => return None,
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

/// A number of a record. A stub combines it with its neighbours to words.
#[derive(Debug)]
pub(crate) struct PackedNumber {
    pub register: Register,
    /// The offsets that are added before each read of memory, innermost first. The last one reads `width`, any other a
    /// word.
    pub reads: Box<[i32]>,
    pub width: Width,
    /// The recorded bits of the value; `None` means the low bits.
    pub bits: Option<BitRange>,
    /// The offset of the number in the record, and its size, in bytes.
    pub at: u16,
    pub size: u8,
}

/// An operation on the value that is being fetched, the accumulator of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Loads a register.
    Register(Register),
    /// Loads the word at this many bytes above the stack pointer.
    Stack(u32),
    /// Loads a constant.
    Immediate(u64),
    /// Loads a private word of the call, which was saved at the entry of the function, or a word of the record that is
    /// the hit.
    Entry(u16),
    /// Loads the address of this word of the record that is the hit.
    Fixed(u16),
    /// Loads the address of a text in the record that is the hit. The lower half of this word of the record is the
    /// offset of the text.
    Located(u16),
    /// Dereference: loads the u64 at value + offset.
    Dereference(i64),
    /// Dereference: loads a number of this width at value + offset.
    Read(i64, Width),
    /// Replaces the value by some of its own bits.
    Bits(BitRange),
    /// Sets the length of the next [`Op::Slice`] to the value, in bytes.
    Length,
    /// Stores the text whose address is the value, with the length that [`Op::Length`] set.
    Slice(Target),
    /// Stores the value.
    Store(Target, Width),
    /// Stores an array: the width of each value, the offset from the value to the first, the number of values, the bits
    /// of each, and the byte of the record for the mask of values that could not be read.
    Array(Target, Width, i64, u8, Option<BitRange>, u16),
    /// Stores the text at value + offset, of at most this many bytes.
    Text(Target, i64, u16),
    /// Stores the texts that an array of pointers at value + offset points to; the last operand is the number of
    /// pointers.
    Texts(Target, i64, u8),
    /// Stores the symbol that contains the value, as a text.
    Symbol(Target),
    /// Stores the name of the task.
    TaskName(Target),
    /// Stores a constant text: the first byte and the number of bytes in [`Ops::data`].
    Data(Target, u16, u16),
}

/// Where a value is stored in the record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// The offset in the record, in bytes.
    pub at: u16,
    /// The number of the argument, which is also its fault bit; at most 31.
    pub argument: u8,
}

/// The program that fetches the arguments of an event.
#[derive(Debug)]
pub(crate) enum FetchProgram {
    Words(Box<[Word]>),
    /// The words of the struct of a static event. The first takes the place of the probe's address.
    Block(Box<[Word]>),
    Ops(Ops),
}

/// A list of operations, executed in order.
#[derive(Debug)]
pub(crate) struct Ops {
    pub list: Box<[Op]>,
    /// The texts that [`Op::Data`] stores.
    pub data: Box<[u8]>,
    /// The index that [`Op::Symbol`] looks names up in.
    pub functions: Option<Arc<Functions>>,
    /// The numbers from which a stub makes the record, in their order in the record; `None` if a stub cannot record the
    /// event.
    pub packed: Option<Box<[PackedNumber]>>,
}

impl FetchProgram {
    /// Compiles the program for `arguments`, whose fields in the record are `fields`, in the bytes `room` of it. Fields
    /// of type `symstr` take their names from `functions`.
    pub fn new<'a>(
        arguments: &'a [Fetch],
        fields: impl Iterator<Item = &'a Field> + Clone,
        room: Range<usize>,
        functions: Option<Arc<Functions>>,
    ) -> Result<Self, OutOfMemory> {
        const WORDS_MAX: usize = 32;
        let words = || arguments.iter().zip(fields.clone()).map(|(argument, field)| Word::of(argument, field));
        if arguments.len() <= WORDS_MAX && words().all(|word| word.is_some()) {
            return Ok(Self::Words(fallible::boxed_slice(words().flatten())?));
        }
        let mut program = (Vec::new(), Vec::new());
        for (number, (argument, field)) in arguments.iter().zip(fields.clone()).enumerate() {
            compile(argument, field, number, &mut program)?;
        }
        let (list, data) = (fallible::boxed_slice(program.0)?, fallible::boxed_slice(program.1)?);
        let packed = PackedNumber::all(arguments.iter().zip(fields), room)?;
        Ok(Self::Ops(Ops { list, data, functions, packed }))
    }

    /// Creates the program for the struct of a static event, which has no address of the probe in front.
    pub fn of_static(arguments: &[Fetch], fields: &[Field]) -> Result<Self, OutOfMemory> {
        // Nothing is packed in an empty room: a stub would write the address of the probe over the first field.
        Ok(match Self::new(arguments, fields.iter(), 0..0, None)? {
            Self::Words(words) => Self::Block(words),
            other => other,
        })
    }
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

impl PackedNumber {
    /// Makes the number that records `argument` in `field`; `None` if a stub cannot fetch the argument.
    fn of(argument: &Fetch, field: &Field) -> Result<Option<Self>, OutOfMemory> {
        let kind = field.kind;
        let (Some(width), Ok(at)) = (kind.base.width().filter(|_| kind.count == 0), u16::try_from(field.offset)) else {
            return Ok(None);
        };
        let (register, stack) = match argument.source {
            Source::Register(register) => (register, None),
            Source::Stack(offset) => (Register::SP, Some(offset.into())),
            _ => return Ok(None),
        };
        let offsets = stack.into_iter().chain(argument.reads.iter().copied());
        if offsets.clone().any(|offset| i32::try_from(offset).is_err()) {
            return Ok(None);
        }
        let bits = match (&argument.part, kind.bits) {
            (RecordedPart::Whole, None) => None,
            (RecordedPart::Whole, Some(of)) => match BitRange::new(of.offset, of.width, false) {
                Some(range) => Some(range),
                None => return Ok(None),
            },
            (RecordedPart::Bits(part), None) => Some(*part),
            _ => return Ok(None),
        };
        let width = match (argument.reads.is_empty(), &argument.part) {
            // A stub reads whole words of the stack.
            (true, _) => Width::W64,
            (false, RecordedPart::Bits(part)) => part.width(),
            (false, _) => width,
        };
        let reads = fallible::boxed_slice(offsets.filter_map(|offset| i32::try_from(offset).ok()))?;
        Ok(Some(Self { register, reads, width, bits, at, size: kind.size() as u8 }))
    }

    /// Makes the numbers that record these arguments in these fields. `None` unless all of them are numbers, in this
    /// order, and within the bytes `room` of the record.
    fn all<'a>(
        arguments: impl Iterator<Item = (&'a Fetch, &'a Field)>,
        room: Range<usize>,
    ) -> Result<Option<Box<[Self]>>, OutOfMemory> {
        let (mut numbers, mut free) = (Vec::new(), room.start);
        for (argument, field) in arguments {
            let Some(number) = Self::of(argument, field)?.filter(|_| field.offset >= free) else { return Ok(None) };
            free = field.offset.saturating_add(number.size.into());
            fallible::push(&mut numbers, number)?;
        }
        if free > room.end { Ok(None) } else { fallible::boxed_slice(numbers).map(Some) }
    }
}

fn compile(
    argument: &Fetch,
    field: &Field,
    number: usize,
    (ops, data): &mut (Vec<Op>, Vec<u8>),
) -> Result<(), OutOfMemory> {
    let kind = field.kind;
    let target = Target { at: field.offset as u16, argument: number.min(FAULTS) as u8 };
    if let RecordedPart::Text(length, reads) = &argument.part {
        for (source, reads, last) in
            [(length, reads, Op::Length), (&argument.source, &argument.reads, Op::Slice(target))]
        {
            let origin = source.load().unwrap_or(Op::Immediate(0));
            let dereferences = reads.iter().map(|&offset| Op::Dereference(offset));
            fallible::extend(ops, core::iter::once(origin).chain(dereferences).chain([last]))?;
        }
        return Ok(());
    }
    let mut push = |op| fallible::push(ops, op);
    match &argument.source {
        Source::TaskName => return push(Op::TaskName(target)),
        Source::Text(text) => {
            push(Op::Data(target, data.len() as u16, text.len() as u16))?;
            return fallible::extend(data, text.iter().copied());
        }
        source => source.load().map_or(Ok(()), &mut push)?,
    }
    let bits = match kind.base {
        Base::Unsigned(width) | Base::Signed(width) | Base::Hexadecimal(width) => width,
        Base::Char | Base::Characters => Width::W8,
        Base::Symbol | Base::SymbolString | Base::String | Base::Stack => Width::W64,
    };
    let range = kind.bits.and_then(|of| BitRange::new(of.offset, of.width, false));
    let (last, before) = match argument.reads.split_last() {
        Some((last, before)) => (Some(*last), before),
        None => (None, &[][..]),
    };
    before.iter().try_for_each(|&offset| push(Op::Dereference(offset)))?;
    match (kind.base, last, kind.count) {
        (Base::SymbolString, last, _) => {
            last.map(Op::Dereference).map_or(Ok(()), &mut push)?;
            push(Op::Symbol(target))
        }
        (Base::String, last, 0) => {
            let longest = if let RecordedPart::Padded(size) = argument.part { size } else { u16::MAX };
            push(Op::Text(target, last.unwrap_or(0), longest))
        }
        (Base::String, last, count) => push(Op::Texts(target, last.unwrap_or(0), count)),
        (_, Some(offset), count @ 1..) => {
            push(Op::Array(target, bits, offset, count, range, field.unread.unwrap_or(0) as u16))
        }
        (_, last, _) => {
            let part = if let RecordedPart::Bits(part) = argument.part { Some(part) } else { None };
            let width = part.map_or(bits, |part| part.width());
            last.map(|offset| Op::Read(offset, width)).map_or(Ok(()), &mut push)?;
            part.into_iter().chain(range).try_for_each(|range| push(Op::Bits(range)))?;
            push(Op::Store(target, bits))
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::format::{Format, Shape, Type};

    /// The fields of a format are public. A stub gets only numbers that it can write from the first to the last, within
    /// the record.
    #[test]
    fn numbers_are_packed_that_are_in_order_and_within_the_record() {
        let types = ["u8", "u64", "u16"].map(|name| Type::one(Base::of(name).unwrap()));
        let argument = Fetch { source: Source::Register(Register::SP), reads: Vec::new(), part: RecordedPart::Whole };
        let arguments = [argument.try_copy().unwrap(), argument.try_copy().unwrap(), argument];
        let packed = |change: &dyn Fn(&mut [Field]), room: Range<usize>| {
            let mut format = Format::new(Shape::Probe, types.map(|kind| ("a", kind))).unwrap();
            let own = format.fields.len() - types.len();
            change(&mut format.fields[own..]);
            let program = FetchProgram::new(&arguments, format.fetched(), room, None).unwrap();
            let FetchProgram::Ops(ops) = program else { panic!("they are not all words") };
            ops.packed.map(|packed| packed.iter().map(|number| (number.at, number.size)).collect::<Vec<_>>())
        };
        assert_eq!(packed(&|_| (), 16..27), Some([(16, 1), (17, 8), (25, 2)].into()));
        assert_eq!(packed(&|fields| fields[2].offset = 30, 16..32), Some([(16, 1), (17, 8), (30, 2)].into()));
        assert_eq!(packed(&|_| (), 16..26), None, "the last is not within the record");
        assert_eq!(packed(&|_| (), 17..27), None, "the first is before the arguments");
        assert_eq!(packed(&|fields| fields[1].offset = 16, 16..27), None, "two share a byte");
        assert_eq!(packed(&|fields| fields.swap(0, 2), 16..27), None, "they are not in order");
        assert_eq!(packed(&|fields| fields[2].offset = 1 << 16, 16..1 << 17), None, "the offset is too large");
        assert_eq!(packed(&|fields| fields[2].offset = usize::MAX, 16..usize::MAX), None, "the offset is too large");
    }
}
