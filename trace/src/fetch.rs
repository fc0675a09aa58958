//! Fetch arguments as the hit path has them: a short program of fixed operations, made when the event is defined.
//!
//! Arguments that are whole words from registers, or from memory that a register points to, as most are, become [`Word`]s,
//! which go to the ring without a detour. With any other argument all of them become [`Op`]s, and the record is composed aside.

use alloc::boxed::Box;
use alloc::vec::Vec;

use fallible::{Arc, OutOfMemory};

use crate::format::{Base, FAULTS, Field, Width};
use crate::functions::Functions;

/// A register of a trap frame, by its place: x0 to x30, sp, pc, pstate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register(u8);

impl Register {
    /// x8, where a function is told to store what it returns, if that does not fit into registers.
    pub(crate) const INDIRECT_RESULT: Self = Self(8);
    /// x18, which a platform may give a meaning.
    pub(crate) const PLATFORM: Self = Self(18);
    /// x29, the frame pointer.
    pub(crate) const FRAME: Self = Self(29);
    /// x30, the link register.
    pub(crate) const LINK: Self = Self(30);
    /// The stack pointer.
    pub const SP: Self = Self(31);
    /// The address of the probed instruction; in a return probe, the address that is returned to.
    pub const PC: Self = Self(32);
    /// The processor state, in the layout of SPSR_EL1.
    pub const PSTATE: Self = Self(33);

    /// Register x`number`, 0 to 30.
    #[must_use]
    pub const fn x(number: u8) -> Option<Self> {
        if number <= 30 { Some(Self(number)) } else { None }
    }

    /// Whether the first instruction of a function finds in it what the caller passes, or which call it is: x0 to x8, x18, x29,
    /// x30, sp, pc. The others the handlers there are not shown.
    const fn is_of_a_call(self) -> bool {
        matches!(self.0, 0..=8 | 18 | 29..=32)
    }

    /// Which of x0 to x30 it is, if it is one of these.
    pub(crate) const fn number(self) -> Option<u8> {
        if self.0 <= 30 { Some(self.0) } else { None }
    }

    /// Its place in the frame, in words.
    #[inline(always)]
    pub(crate) const fn place(self) -> usize {
        self.0 as usize
    }
}

/// Where the value of an argument begins, with names resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A register.
    Register(Register),
    /// The word that lies so many bytes above the stack pointer.
    Stack(u32),
    /// This number.
    Immediate(u64),
    /// What a register or the stack had at the entry of the function that has returned: private word so-and-so of the call.
    Entry(u8),
    /// The name of the task.
    TaskName,
    /// This text.
    Text(Box<[u8]>),
}

/// An argument, resolved: what is fetched, and what is made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Where it begins.
    pub source: Source,
    /// The offsets that are added before each read of memory, innermost first.
    pub reads: Vec<i64>,
    /// What of the value is taken then.
    pub taken: Taken,
}

/// What of a value is taken that has been fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// As many of its lower bytes as the type has.
    Whole,
    /// Some of its bits, extended to the size of the type.
    Bits(Extract),
    /// It is the address of a text, which has as many bytes as this word and these reads lead to, and no zero at its end.
    Text(Source, Vec<i64>),
}

/// Bits of a word that are a number of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extract {
    /// How many lower bits do not count.
    pub from: u8,
    /// How many do: 8, 16, 32 or 64.
    pub width: Width,
    /// The number has a sign.
    pub signed: bool,
}

impl Source {
    fn is_of_a_call(&self) -> bool {
        match self {
            Self::Register(register) => register.is_of_a_call(),
            Self::Stack(_) | Self::Immediate(_) | Self::TaskName | Self::Text(_) => true,
            Self::Entry(_) => false,
        }
    }
}

impl Fetch {
    /// Whether it needs no more than what a function is called with.
    pub(crate) fn is_of_a_call(&self) -> bool {
        let length = if let Taken::Text(length, _) = &self.taken { length } else { &self.source };
        self.source.is_of_a_call() && length.is_of_a_call()
    }
}

/// What of an argument is a word of a register, or of memory that one points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub register: Register,
    pub is_memory: bool,
    pub offset: i32,
}

/// An operation on a value that is being fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// The value is a register.
    Register(Register),
    /// The value is so many bytes above the stack pointer.
    Stack(u32),
    /// The value is a number.
    Immediate(u64),
    /// The value was kept at the entry of the function.
    Entry(u8),
    /// The value is what is so many bytes from where it points to.
    Follow(i64),
    /// Likewise, of this width.
    Read(i64, Width),
    /// Of so many bits of the value, those remain that are shifted left and then right by so much.
    Bits(Shift),
    /// The value is some of its own bits.
    Extract(Extract),
    /// The next [`Op::Slice`] has as many bytes as the value says.
    Length,
    /// The text that the value points to goes to the record, as long as [`Op::Length`] has said.
    Slice(Target),
    /// The value goes to the record.
    Store(Target, Width),
    /// So many values from where the value and the offset point to go to the record, and a word to that byte of it which says
    /// which of them could not be read.
    Array(Target, Width, i64, u8, Shift, u16),
    /// The text that the value and the offset point to goes to the record.
    Text(Target, i64),
    /// The texts that so many pointers from there on point to go to the record.
    Texts(Target, i64, u8),
    /// The symbol that contains the value goes to the record as a text.
    Symbol(Target),
    /// The name of the task goes to the record.
    TaskName(Target),
    /// So many bytes of the program's data, from that one on, go to the record as a text.
    Data(Target, u16, u16),
}

/// See [`Op::Bits`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shift {
    pub width: Width,
    pub left: u8,
    pub right: u8,
}

/// Where something goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// The byte of the record.
    pub at: u16,
    /// The number of the argument, as faults are counted: none is above 31.
    pub argument: u8,
}

/// How the arguments of an event are fetched.
#[derive(Debug)]
pub(crate) enum Program {
    Words(Box<[Word]>),
    Ops(Ops),
}

/// Operations, carried out one after the other.
#[derive(Debug)]
pub(crate) struct Ops {
    pub list: Box<[Op]>,
    /// The texts of [`Op::Data`].
    pub data: Box<[u8]>,
    /// What [`Op::Symbol`] looks names up in.
    pub functions: Option<Arc<Functions>>,
}

impl Program {
    /// The program for `arguments`, whose fields in the record are `fields`. Addresses are recorded as names of `functions`, where
    /// a field asks for that.
    pub fn new(arguments: &[Fetch], fields: &[Field], functions: Option<Arc<Functions>>) -> Result<Self, OutOfMemory> {
        const WORDS_MAX: usize = 32;
        let words = || arguments.iter().zip(fields).map(|(argument, field)| Word::of(argument, field));
        if arguments.len() <= WORDS_MAX && words().all(|word| word.is_some()) {
            return Ok(Self::Words(fallible::boxed_slice(words().flatten())?));
        }
        let mut program = (Vec::new(), Vec::new());
        for (number, (argument, field)) in arguments.iter().zip(fields).enumerate() {
            compile(argument, field, number, &mut program)?;
        }
        let (list, data) = (fallible::boxed_slice(program.0)?, fallible::boxed_slice(program.1)?);
        Ok(Self::Ops(Ops { list, data, functions }))
    }
}

impl Word {
    /// What `argument` fetches, if it is a word and `field` has the whole of it.
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
        (Base::String, last, 0) => push(Op::Text(target, last.unwrap_or(0))),
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
