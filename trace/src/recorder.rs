//! An event in the form that its probe hands to the handler, so that a hit is recorded without any lookup.

use alloc::boxed::Box;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;

use fallible::{Arc, OutOfMemory};

use crate::fetch::{Fetch, FetchProgram, Register, RegisterPart};
use crate::filter::Number;
use crate::format::{Field, Format, Parts, Shape};
use crate::functions::Functions;
use crate::ring::{RECORD_HEADER, RECORD_MAX, Rings};
use crate::trigger::PlanCell;

/// The longest fields of a record, in bytes.
const FIELDS_MAX: usize = RECORD_MAX - RECORD_HEADER;
/// The length of a composed record's fields, in words.
pub(crate) const COMPOSED: usize = FIELDS_MAX / 8;
/// The longest text in a record, in bytes, including the terminating zero. A longer text is cut.
pub const TEXT_MAX: usize = 512;

/// The event number of records of the tracer `function`, as in Linux (`TRACE_FN`).
pub const FUNCTION_EVENT: u16 = 1;
/// The event number of returns in the tracer `function_graph`, as in Linux (`TRACE_GRAPH_RET`).
pub const GRAPH_RETURN_EVENT: u16 = 10;
/// The event number of calls in the tracer `function_graph`, as in Linux (`TRACE_GRAPH_ENT`).
pub const GRAPH_ENTRY_EVENT: u16 = 11;
/// The event number of stack records, as in Linux (`TRACE_STACK`). No defined event has it.
pub const STACK_EVENT: u16 = 4;
/// Bytes of a stack record before its addresses: the common fields, and the number of addresses, an int in a word of
/// its own.
pub const STACK_HEADER: usize = 16;
/// The event number of message records, as in Linux (`TRACE_PRINT`). No defined event has it.
pub const PRINT_EVENT: u16 = 5;
/// Bytes of a message record before its text: the common fields, and the address that it was written from.
pub const PRINT_HEADER: usize = 16;
/// The longest text of one message record, in bytes, without the line end and the zero that follow it.
pub const PRINT_MAX: usize = RECORD_MAX - RECORD_HEADER - PRINT_HEADER - 2;

/// The event number of records of raw data, as in Linux (`TRACE_RAW_DATA`). No defined event has it.
pub const RAW_EVENT: u16 = 18;
/// Bytes of a record of raw data before its data: the common fields, and a number.
pub const RAW_HEADER: usize = 12;
/// The largest number of bytes that can be written to `trace_marker_raw`: those of the number, and the data.
pub const RAW_MAX: usize = RECORD_MAX - RECORD_HEADER - 8;

/// The largest number of addresses in a stack record.
pub const STACK_MAX: usize = 32;

/// The data that the handlers of one probe need.
#[derive(Debug)]
#[repr(C)]
pub struct Recorder {
    /// The plan of the event: its filter and its other actions. First, because every hit looks at it.
    pub(crate) plan: PlanCell,
    pub(crate) rings: &'static Rings,
    pub(crate) event: u16,
    /// The shape of the records, which decides the fields that they begin with.
    pub(crate) shape: Shape,
    /// The size of a record in the ring, in bytes, with its header and without the texts after its fields.
    pub(crate) size: usize,
    pub(crate) program: FetchProgram,
    /// The fields that are registers or parts of registers, by offset and size in the record, in bytes.
    registers: Box<[((u16, u8), RegisterPart)]>,
    /// Whether the arguments use only registers that have a meaning when a function is called.
    is_of_a_call: bool,
    /// The values that are saved at the entry of a function until it returns.
    pub(crate) entry: Box<[EntryValue]>,
    /// For synthetic events: whether triggers may record the event.
    pub(crate) armed: AtomicBool,
}

/// A value that is saved at the entry of a function until it returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryValue {
    /// A register.
    Register(Register),
    /// The word at this many bytes above the stack pointer.
    Stack(u32),
}

impl Recorder {
    /// Makes the recorder of the event numbered `event`, whose records have this `format` and go to `rings`. `entry`
    /// lists the values that are saved at the entry of a function; `functions` has the names for `symstr` arguments.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the program.
    pub fn new(
        event: u16,
        format: &Format,
        arguments: &[Fetch],
        entry: Box<[EntryValue]>,
        functions: Option<Arc<Functions>>,
        rings: &'static Rings,
    ) -> Result<Self, OutOfMemory> {
        // Stubs record only the hits of probes.
        let room = match format.shape {
            Shape::Probe | Shape::Return => format.shape.size()..format.size().min(FIELDS_MAX),
            Shape::Synthetic | Shape::Static => 0..0,
        };
        let program = FetchProgram::new(arguments, format.fetched(), room, functions)?;
        let register = |(argument, field): (&Fetch, &Field)| {
            let place = (u16::try_from(field.offset).ok()?, u8::try_from(field.size).ok()?);
            RegisterPart::of(argument, field).map(|part| (place, part))
        };
        let registers = fallible::boxed_slice(arguments.iter().zip(format.fetched()).filter_map(register))?;
        let is_of_a_call = format.shape == Shape::Probe && arguments.iter().all(Fetch::is_of_a_call);
        Ok(Self { registers, is_of_a_call, entry, ..Self::with(event, format, program, rings) })
    }

    /// Makes the recorder of the static event numbered `event`, whose records have this `format` and these `parts` of
    /// the event's struct.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the program.
    pub(crate) fn of_static(
        event: u16,
        format: &Format,
        (arguments, fields): &Parts,
        rings: &'static Rings,
    ) -> Result<Self, OutOfMemory> {
        let program = FetchProgram::of_static(arguments, fields)?;
        Ok(Self { is_of_a_call: true, ..Self::with(event, format, program, rings) })
    }

    fn with(event: u16, format: &Format, program: FetchProgram, rings: &'static Rings) -> Self {
        // The fields of a format are public, so any code can change them. But the hit path writes these words without a
        // check: the common fields, the addresses, and the words of the program.
        let words = match &program {
            FetchProgram::Words(words) => 2 + usize::from(format.shape == Shape::Return) + words.len(),
            FetchProgram::Block(_) | FetchProgram::Ops(_) => 0,
        };
        let fields = format.size().min(FIELDS_MAX);
        let size = match program {
            FetchProgram::Words(_) | FetchProgram::Block(_) => {
                RECORD_HEADER + fields.next_multiple_of(8).max(8 * words)
            }
            FetchProgram::Ops(_) => RECORD_HEADER + fields,
        };
        let (registers, entry) = (Box::default(), Box::default());
        let plan = PlanCell::default();
        let (shape, armed) = (format.shape, AtomicBool::new(false));
        Self { plan, rings, event, shape, size, program, registers, is_of_a_call: false, entry, armed }
    }

    /// Whether the event is a probe that a call handler can record. Such a handler gets only the registers that have a
    /// meaning when a function is called.
    #[must_use]
    pub fn is_of_a_call(&self) -> bool {
        self.is_of_a_call
    }

    /// Whether the event records the returns of a function.
    pub(crate) fn is_of_returns(&self) -> bool {
        self.shape == Shape::Return
    }

    /// Replaces a field of the record by its source, if that is a register, a part of one, or the number of the task.
    ///
    /// A field from memory stays a field: the memory may change meanwhile. It is read once, for the record, and
    /// everything that needs it reads the record.
    pub(crate) fn source(&self, number: Number) -> Number {
        const TASK: Number = Number::Field { offset: 4, size: 4, signed: true, fault: None };
        let Number::Field { offset, size, .. } = number else { return number };
        match self.registers.iter().find(|(place, _)| *place == (offset, size)) {
            _ if number == TASK => Number::Task,
            Some(&(_, part)) => Number::Register(part),
            None => number,
        }
    }

    /// Returns the number of words that are saved at the entry of a function.
    #[must_use]
    pub fn entry_words(&self) -> usize {
        self.entry.len()
    }
}

/// The buffer to compose a record in; each CPU has one.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Bench(pub(crate) UnsafeCell<[u64; COMPOSED]>);

/// The state of the CPU at a hit: the bits of `common_flags`, as in Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// Interrupts were masked.
    pub const IRQS_OFF: u8 = 1 << 0;
    /// The hit was in an interrupt handler.
    pub const INTERRUPT: u8 = 1 << 3;
}
