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

use super::{BitRange, Fetch, PackedNumber, RecordedPart, Register, Source, Word};
use crate::format::{Base, FAULTS, Field, Width};
use crate::functions::Functions;

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

impl Source {
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
