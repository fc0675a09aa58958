//! Fetch arguments in the form that the hit path executes: a short program of fixed operations, made when the event is
//! defined.
//!
//! Many arguments are whole words from registers, or from memory that a register points to. These become `Word`s,
//! which are written straight to the ring. If an event has any other argument, all its arguments become `Op`s, and
//! the record is composed in a buffer first. If they are numbers all the same, they also become `Part`s, from which a
//! stub makes the words of the record itself.

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
    /// x8, the address for a result that does not fit into registers (AAPCS64, indirect result location).
    pub(crate) const INDIRECT_RESULT: Self = Self(8);
    /// x18, the platform register: a platform may give it a meaning.
    pub(crate) const PLATFORM: Self = Self(18);
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
    /// call. Of an event on a synthetic one: the index of the word in the record of that.
    Entry(u16),
    /// Of an event on a synthetic one: the address of a text in the record of that. The word at this index is the
    /// beginning of the text.
    Fixed(u16),
    /// Of an event on a synthetic one: the address of a text in the record of that. The word at this index says where.
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
    pub taken: Taken,
}

/// The part of a fetched value that is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The low bytes, as many as the type has.
    Whole,
    /// A range of bits, extended to the size of the type.
    Bits(Extract),
    /// The text at the address that the value is. The text has no terminating zero: its length in bytes is fetched from
    /// this source, with these reads.
    Text(Source, Vec<i64>),
    /// The text of at most this many bytes that begins where the last read would be. A shorter text ends with a zero.
    Padded(u16),
}

/// A range of bits of a word that is a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extract {
    /// The number of low bits below the range.
    pub from: u8,
    /// The width of the range: 8, 16, 32 or 64 bits.
    pub width: Width,
    /// Whether the number is signed.
    pub signed: bool,
}

impl Extract {
    /// Returns the number that this range of bits of `value` is.
    #[inline(always)]
    pub(crate) fn apply(self, value: u64) -> u64 {
        let unused = 64_u32.wrapping_sub(self.width.bits()) & 63;
        let moved = value >> (self.from & 63) << unused;
        if self.signed { (moved.cast_signed() >> unused).cast_unsigned() } else { moved >> unused }
    }
}

impl Source {
    /// Returns a copy.
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

impl Taken {
    fn try_copy(&self) -> Result<Self, OutOfMemory> {
        Ok(match self {
            Self::Whole => Self::Whole,
            &Self::Bits(extract) => Self::Bits(extract),
            Self::Text(length, reads) => Self::Text(length.try_copy()?, fallible::collect(reads.iter().copied())?),
            &Self::Padded(size) => Self::Padded(size),
        })
    }
}

impl Fetch {
    /// Returns a copy.
    pub(crate) fn try_copy(&self) -> Result<Self, OutOfMemory> {
        let Self { source, reads, taken } = self;
        let reads = fallible::collect(reads.iter().copied())?;
        Ok(Self { source: source.try_copy()?, reads, taken: taken.try_copy()? })
    }

    /// Whether the argument uses only registers that have a meaning when a function is called.
    pub(crate) fn is_of_a_call(&self) -> bool {
        let length = if let Taken::Text(length, _) = &self.taken { length } else { &self.source };
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

/// A register, or a part of it that is a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterPart {
    pub register: Register,
    pub bits: Extract,
}

/// A number in a record that is more than whole words.
#[derive(Debug)]
pub(crate) struct Part {
    pub register: Register,
    /// The offsets that are added before each read of memory, innermost first. The last one reads `width`, any other a
    /// word.
    pub reads: Box<[i32]>,
    pub width: Width,
    /// The bits of the value that are recorded, if not the low ones.
    pub bits: Option<BitRange>,
    /// The first byte of the record that has it, and the number of bytes.
    pub at: u16,
    pub size: u8,
}

/// Some bits of a word that are a number: those from bit `low` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BitRange {
    pub low: u8,
    pub bits: u8,
    pub signed: bool,
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
    /// Loads the address in the record that is the hit that this word of it has the offset of, in its lower half.
    Located(u16),
    /// Dereference: loads the u64 at value + offset.
    Follow(i64),
    /// Dereference: loads a number of this width at value + offset.
    Read(i64, Width),
    /// Extracts a bitfield: shifts the value left and then right within the width.
    Bits(Shift),
    /// Replaces the value by a range of its own bits.
    Extract(Extract),
    /// Sets the length of the next [`Op::Slice`] to the value, in bytes.
    Length,
    /// Stores the text at the address that the value is, with the length that [`Op::Length`] set.
    Slice(Target),
    /// Stores the value.
    Store(Target, Width),
    /// Stores an array: the width of each value, the offset from the value to the first, the number of values, the
    /// bitfield of each, and the byte of the record for the mask of values that could not be read.
    Array(Target, Width, i64, u8, Shift, u16),
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

/// The shifts that extract a bitfield; see [`Op::Bits`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shift {
    pub width: Width,
    pub left: u8,
    pub right: u8,
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
    /// Words of memory, of which the first takes the place of the probe's address: those of a static event.
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
    /// The same numbers in the order of the record, if the operations fetch only numbers.
    pub parts: Option<Box<[Part]>>,
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
        let parts = Part::all(arguments.iter().zip(fields), room)?;
        Ok(Self::Ops(Ops { list, data, functions, parts }))
    }

    /// Creates the program for the struct of a static event, which has no address of the probe in front.
    pub fn of_static(arguments: &[Fetch], fields: &[Field]) -> Result<Self, OutOfMemory> {
        // The parts of a record with a text are not all numbers.
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
            || argument.taken != Taken::Whole
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
    /// Returns the part of a register whose value `field` has; `None` if it has anything else.
    pub fn of(argument: &Fetch, field: &Field) -> Option<Self> {
        let (&Source::Register(register), []) = (&argument.source, &argument.reads[..]) else { return None };
        let signed = field.signed;
        let width = field.kind.base.width().filter(|_| field.kind.bits.is_none() && field.kind.count == 0)?;
        let bits = match argument.taken {
            Taken::Whole => Extract { from: 0, width, signed },
            Taken::Bits(part) if part.width.bits() >= width.bits() => Extract { from: part.from, width, signed },
            // The field has a number without a sign, which begins with the sign of another.
            Taken::Bits(part) if part.signed && !signed => return None,
            Taken::Bits(part) => part,
            Taken::Text(..) | Taken::Padded(_) => return None,
        };
        Some(Self { register, bits })
    }
}

impl Part {
    /// Returns the number that `argument` is in `field`; `None` if it is none, or does not come from a register.
    fn of(argument: &Fetch, field: &Field) -> Result<Option<Self>, OutOfMemory> {
        let kind = field.kind;
        let Some(width) = kind.base.width().filter(|_| kind.count == 0) else { return Ok(None) };
        let (register, stack) = match argument.source {
            Source::Register(register) => (register, None),
            Source::Stack(offset) => (Register::SP, Some(offset.into())),
            _ => return Ok(None),
        };
        let offsets = stack.into_iter().chain(argument.reads.iter().copied());
        if offsets.clone().any(|offset| i32::try_from(offset).is_err()) {
            return Ok(None);
        }
        let (read, bits) = match (&argument.taken, kind.bits) {
            (Taken::Whole, None) => (width, None),
            (Taken::Whole, Some(of)) => (width, Some(BitRange { low: of.offset, bits: of.width, signed: false })),
            (&Taken::Bits(Extract { from, width, signed }), None) => {
                (width, Some(BitRange { low: from, bits: width.bits() as u8, signed }))
            }
            _ => return Ok(None),
        };
        let is_within = |range: BitRange| (1..=64).contains(&range.bits) && range.low <= 64 - range.bits;
        // A stack argument without a read of its own is a word.
        let width = if argument.reads.is_empty() { Width::W64 } else { read };
        let Ok(at) = u16::try_from(field.offset) else { return Ok(None) };
        let reads = fallible::boxed_slice(offsets.filter_map(|offset| i32::try_from(offset).ok()))?;
        let part = Self { register, reads, width, bits, at, size: kind.size() as u8 };
        Ok(Some(part).filter(|part| part.bits.is_none_or(is_within)))
    }

    /// Returns the numbers that these arguments are in these fields, if they are in this order and in `room`.
    fn all<'a>(
        arguments: impl Iterator<Item = (&'a Fetch, &'a Field)>,
        room: Range<usize>,
    ) -> Result<Option<Box<[Self]>>, OutOfMemory> {
        let (mut parts, mut free) = (Vec::new(), room.start);
        for (argument, field) in arguments {
            let Some(part) = Self::of(argument, field)?.filter(|_| field.offset >= free) else { return Ok(None) };
            free = field.offset.saturating_add(part.size.into());
            fallible::push(&mut parts, part)?;
        }
        if free > room.end { Ok(None) } else { fallible::boxed_slice(parts).map(Some) }
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
    if let Taken::Text(length, reads) = &argument.taken {
        for (source, reads, last) in
            [(length, reads, Op::Length), (&argument.source, &argument.reads, Op::Slice(target))]
        {
            let origin = match source {
                Source::Register(register) => Op::Register(*register),
                Source::Stack(offset) => Op::Stack(*offset),
                Source::Entry(word) => Op::Entry(*word),
                Source::Fixed(word) => Op::Fixed(*word),
                Source::Located(word) => Op::Located(*word),
                Source::Immediate(value) => Op::Immediate(*value),
                Source::TaskName | Source::Text(_) => Op::Immediate(0),
            };
            let follows = reads.iter().map(|&offset| Op::Follow(offset));
            fallible::extend(ops, core::iter::once(origin).chain(follows).chain([last]))?;
        }
        return Ok(());
    }
    let mut push = |op| fallible::push(ops, op);
    match &argument.source {
        Source::Register(register) => push(Op::Register(*register)),
        Source::Stack(offset) => push(Op::Stack(*offset)),
        Source::Immediate(value) => push(Op::Immediate(*value)),
        Source::Entry(word) => push(Op::Entry(*word)),
        Source::Fixed(word) => push(Op::Fixed(*word)),
        Source::Located(word) => push(Op::Located(*word)),
        Source::TaskName => return push(Op::TaskName(target)),
        Source::Text(text) => {
            push(Op::Data(target, data.len() as u16, text.len() as u16))?;
            return fallible::extend(data, text.iter().copied());
        }
    }?;
    let bits = match kind.base {
        Base::Unsigned(width) | Base::Signed(width) | Base::Hexadecimal(width) => width,
        Base::Char | Base::Characters => Width::W8,
        Base::Symbol | Base::SymbolString | Base::String | Base::Stack => Width::W64,
    };
    let shift = match kind.bits {
        Some(of) => {
            let unused = bits.bits() as u8 - of.width;
            Shift { width: bits, left: unused - of.offset, right: unused }
        }
        None => Shift { width: bits, left: 0, right: 0 },
    };
    let (last, before) = match argument.reads.split_last() {
        Some((last, before)) => (Some(*last), before),
        None => (None, &[][..]),
    };
    before.iter().try_for_each(|&offset| push(Op::Follow(offset)))?;
    match (kind.base, last, kind.count) {
        (Base::SymbolString, last, _) => {
            last.map(Op::Follow).map_or(Ok(()), &mut push)?;
            push(Op::Symbol(target))
        }
        (Base::String, last, 0) => {
            let longest = if let Taken::Padded(size) = argument.taken { size } else { u16::MAX };
            push(Op::Text(target, last.unwrap_or(0), longest))
        }
        (Base::String, last, count) => push(Op::Texts(target, last.unwrap_or(0), count)),
        (_, Some(offset), count @ 1..) => {
            push(Op::Array(target, bits, offset, count, shift, field.unread.unwrap_or(0) as u16))
        }
        (_, last, _) => {
            let width = if let Taken::Bits(part) = argument.taken { part.width } else { bits };
            last.map(|offset| Op::Read(offset, width)).map_or(Ok(()), &mut push)?;
            if let Taken::Bits(part) = argument.taken {
                push(Op::Extract(part))?;
            }
            if kind.bits.is_some() {
                push(Op::Bits(shift))?;
            }
            push(Op::Store(target, bits))
        }
    }
}
