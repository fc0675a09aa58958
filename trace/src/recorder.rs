//! What an event leaves with its probe, so that a hit can be recorded without looking anything up.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;

use fallible::{Arc, OutOfMemory};

use crate::fetch::{Fetch, Program, Register, Word};
use crate::filter::Number;
use crate::format::{Format, Shape};
use crate::functions::Functions;
use crate::ring::{RECORD_HEADER, RECORD_MAX, Rings};
use crate::trigger::PlanCell;

/// Words of a composed record.
pub(crate) const COMPOSED: usize = (RECORD_MAX - RECORD_HEADER) / 8;
/// The longest text in a record, in bytes, with the zero at its end. What is longer is cut.
pub const TEXT_MAX: usize = 512;

/// The number of the event that a record of a stack is of, as in Linux (`TRACE_STACK`). Events that are defined have others.
pub const STACK_EVENT: u16 = 4;
/// Bytes of a record of a stack before its addresses: what every event has, and how many there are, an int, as a word.
pub const STACK_HEADER: usize = 16;
/// The number of the event that a record of a text is of, as in Linux (`TRACE_PRINT`).
pub const PRINT_EVENT: u16 = 5;
/// Bytes of a record of a text before the text: what every event has, and where it was written.
pub const PRINT_HEADER: usize = 16;
/// How long the text of one record is at most, in bytes; with it goes the end of a line, and a zero.
pub const PRINT_MAX: usize = RECORD_MAX - RECORD_HEADER - PRINT_HEADER - 2;

/// How many addresses a record of a stack has at most.
pub const STACK_MAX: usize = 32;

/// What the handlers of one probe of an event need.
#[derive(Debug)]
#[repr(C)]
pub struct Recorder {
    /// What else is to be done; first, as every hit looks at it.
    pub(crate) plan: PlanCell,
    pub(crate) rings: &'static Rings,
    pub(crate) event: u16,
    pub(crate) shape: Shape,
    /// Bytes of a record in the ring, if it is one of words; else of the fields.
    pub(crate) size: usize,
    pub(crate) program: Program,
    /// The fields that are whole words, by their offsets.
    words: Box<[(u16, Word)]>,
    /// No register is asked for that a call passes nothing in.
    is_of_a_call: bool,
    /// What is kept at the entry of a function until it returns.
    pub(crate) entry: Box<[Kept]>,
    /// Of a synthetic event: triggers record it.
    pub(crate) armed: AtomicBool,
}

/// A value that is kept at the entry of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A register.
    Register(Register),
    /// The word that lies so many bytes above the stack pointer.
    Stack(u32),
}

impl Recorder {
    /// A recorder of the event numbered `event`, whose records have this `format`, into `rings`: of its `arguments`, some of
    /// which are kept at the `entry` of a function, and some recorded as names of `functions`.
    ///
    /// # Errors
    ///
    /// There is no memory for it.
    pub fn new(
        event: u16,
        format: &Format,
        arguments: &[Fetch],
        entry: Box<[Kept]>,
        functions: Option<Arc<Functions>>,
        rings: &'static Rings,
    ) -> Result<Self, OutOfMemory> {
        let program = Program::new(arguments, format.arguments(), functions)?;
        let size = match program {
            Program::Words(_) => RECORD_HEADER + format.size(),
            Program::Ops(_) => format.size(),
        };
        let word = |(argument, field)| Word::of(argument, field).map(|word| (field.offset as u16, word));
        let words = fallible::boxed_slice(arguments.iter().zip(format.arguments()).filter_map(word))?;
        let is_of_a_call = format.shape == Shape::Probe && arguments.iter().all(Fetch::is_of_a_call);
        let plan = PlanCell::default();
        let (shape, armed) = (format.shape, AtomicBool::new(false));
        Ok(Self { plan, rings, event, shape, size, program, words, is_of_a_call, entry, armed })
    }

    /// Whether a handler that sees only what a function is called with can record this, if it is at its entry.
    #[must_use]
    pub fn is_of_a_call(&self) -> bool {
        self.is_of_a_call
    }

    /// What its records begin with.
    pub(crate) fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether it records returns of a function.
    pub(crate) fn is_of_returns(&self) -> bool {
        self.shape == Shape::Return
    }

    /// Where a number of a record is had from: from a register, if the field is nothing but that. Memory may change meanwhile, so
    /// all that look at a word of it look at the record, for which it is read once.
    pub(crate) fn source(&self, number: Number) -> Number {
        const TASK: Number = Number::Field { offset: 4, size: 4, signed: true, fault: None };
        let Number::Field { offset, size: 8, signed, .. } = number else {
            return if number == TASK { Number::Task } else { number };
        };
        match self.words.iter().find(|(place, _)| *place == offset) {
            Some(&(_, Word { register, is_memory: false, .. })) => Number::Register { register, signed },
            _ => number,
        }
    }

    /// What is to be done at a hit besides recording it.
    #[must_use]
    pub(crate) fn plan(&self) -> &PlanCell {
        &self.plan
    }

    /// How many words it keeps at the entry of a function.
    #[must_use]
    pub fn entry_words(&self) -> usize {
        self.entry.len()
    }
}

/// Room to compose a record in: one for each CPU.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Bench(pub(crate) UnsafeCell<[u64; COMPOSED]>);

/// The state of the CPU at a hit: the bits of `common_flags`, as Linux has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// Interrupts were masked.
    pub const IRQS_OFF: u8 = 1 << 0;
    /// In an interrupt handler.
    pub const INTERRUPT: u8 = 1 << 3;
}
