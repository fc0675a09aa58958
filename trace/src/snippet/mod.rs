//! The actions of an event as a snippet for the stub of its probe.
//!
//! A stub can record an event whose record consists of numbers, after a filter that looks only at registers: the usual
//! event with a function's arguments. It writes the record straight into the ring. Or a stub can count in a histogram
//! by numbers, if the event is not recorded. It leaves unusual hits to the handler: a page without room for the record,
//! a key that is new or not in its preferred place, memory that cannot be read. All other events are left to their
//! handlers entirely.
//!
//! A return is recorded in the same way, by code at the return. That code cannot be exchanged while calls are in
//! progress, so it stays as long as the event exists. While there is a plan (the event has a filter or a trigger, or is
//! disabled), the probe leaves all returns to the handler instead.
//!
//! While a stub records or counts, nothing else writes the same words on the same CPU: interrupts are masked, and the
//! handlers that write them cannot be probed. Words that only stubs change, each by one atomic instruction, need no
//! masking.

mod count;
mod filter;
mod record;

use alloc::vec::Vec;

use aarch64_kprobes::insn::Literal;
use aarch64_kprobes::insn::encode::{self, compute};
use aarch64_kprobes::probe::{AliasableBox, Insertion, Snippet, SnippetError, Step, StepLabel, StepList};
use fallible::{Arc, OutOfMemory};

use crate::context::Offsets;
use crate::fetch::{BitRange, Register, RegisterPart, Word};
use crate::format::Width;
use crate::recorder::Recorder;
use crate::trigger::{Plan, Trigger, Work};

/// The code for the stub of an event's probe, and the snippet that the engine gets.
#[derive(Debug)]
pub struct EventSnippet {
    code: Code,
    /// The snippet; `None` if the code does not fit into a stub.
    inserted: Option<Inserted>,
}

/// The parts that the engine refers to, at stable addresses.
#[derive(Debug)]
struct Inserted {
    /// Dropped before the snippet, whose address it contains.
    insertion: AliasableBox<Insertion>,
    snippet: AliasableBox<Snippet>,
}

/// The steps of a snippet.
#[derive(Debug)]
pub(crate) struct Code {
    steps: Vec<Step>,
    /// Whether interrupts are masked from the first step on.
    is_masked: bool,
    /// Whether the code runs at the returns of a function.
    is_of_returns: bool,
    /// The trigger that owns the memory that the steps count in, if they count.
    trigger: Option<Arc<Trigger>>,
}

/// Code is equal if it does the same.
impl PartialEq for Code {
    fn eq(&self, other: &Self) -> bool {
        self.steps == other.steps && self.is_masked == other.is_masked
    }
}

impl EventSnippet {
    /// Makes a snippet of the code, ready to be inserted into a stub.
    pub(crate) fn new(code: Code) -> Result<Self, OutOfMemory> {
        // SAFETY: the steps access three kinds of memory. The ring of this CPU is never freed. The histogram belongs to
        // the trigger that `code` keeps. The task data is where the implementation of `ContextLayout` promises it. They
        // change words with interrupts masked, or by a single atomic instruction.
        let snippet = unsafe {
            match code.is_of_returns {
                true => Snippet::of_returns(&code.steps),
                false => Snippet::new(&code.steps, code.is_masked),
            }
        };
        let snippet = match snippet {
            Ok(snippet) => snippet,
            Err(SnippetError::OutOfMemory) => return Err(OutOfMemory),
            Err(SnippetError::Long) => return Ok(Self { code, inserted: None }),
            Err(error @ SnippetError::Step { .. }) => unreachable!("{error}"),
        };
        let snippet = AliasableBox::new(fallible::boxed(snippet)?);
        let insertion = AliasableBox::new(fallible::boxed(Insertion::new(&snippet, 0))?);
        Ok(Self { code, inserted: Some(Inserted { insertion, snippet }) })
    }

    /// Returns the steps that the snippet was made from.
    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    /// Whether the code counts in the memory of a trigger.
    pub(crate) fn counts(&self) -> bool {
        self.code.trigger.is_some()
    }

    /// Returns an insertion of this code, which has its address as the operand, for the probe at the virtual address
    /// `address`; `None` if the code does not fit into a stub.
    pub(crate) fn insertion_at(&self, address: u64) -> Option<Insertion> {
        self.inserted.as_ref().map(|inserted| Insertion::new(&inserted.snippet, address))
    }

    /// Returns what a probe is registered with; `None` if the code does not fit into a stub.
    #[must_use]
    pub fn insertion(&self) -> Option<&Insertion> {
        self.inserted.as_ref().map(|inserted| &*inserted.insertion)
    }
}

/// Makes the code for the stub of `recorder` with this `plan`, at the instruction at the virtual address `address`;
/// without an address, at the instruction whose address is the operand of the insertion. `None` if a stub cannot do it.
pub(crate) fn code(
    recorder: &Recorder,
    plan: Option<&Plan>,
    address: Option<u64>,
    offsets: Offsets,
) -> Result<Option<Code>, OutOfMemory> {
    let is_of_returns = recorder.is_of_returns();
    if is_of_returns && recorder.entry_words() > 0 {
        return Ok(None);
    }
    // Code at a return does not run while there is a plan.
    let plan = plan.filter(|_| !is_of_returns);
    let (spare, place) = if is_of_returns { (SPARE_AT_RETURN, PLACE_AT_RETURN) } else { (SPARE, PLACE) };
    let mut list = StepList::new();
    let end = list.label()?;
    let mut steps = Steps { address, is_of_returns, spare, place, offsets, list, end };
    let mut trigger = None;
    let done = match plan.map(Plan::work) {
        None => steps.record(recorder, true).map(|()| true),
        Some(Work::Record(tests)) => steps.tests(tests).and_then(|()| steps.record(recorder, false)).map(|()| false),
        Some(Work::Count(bound)) => {
            trigger = Some(bound.trigger.clone());
            steps.count(bound)
        }
        Some(Work::Other) => Err(NoCode::Stub),
    };
    match done {
        Ok(is_masked) => Ok(Some(Code { steps: steps.list.finish(), is_masked, is_of_returns, trigger })),
        Err(NoCode::Stub) => Ok(None),
        Err(NoCode::Memory) => Err(OutOfMemory),
    }
}

/// Why there is no code.
enum NoCode {
    /// A stub cannot do it.
    Stub,
    Memory,
}

impl From<OutOfMemory> for NoCode {
    fn from(_: OutOfMemory) -> Self {
        Self::Memory
    }
}

/// Registers that all steps share. At a return, `THREAD` already holds the value that the steps load into it elsewhere,
/// and `OTHER` holds the return address until it is recorded.
const SPARE: u8 = 15;
const THREAD: u8 = Snippet::THREAD;
const OTHER: u8 = Snippet::RETURN_ADDRESS;
const SPARE_AT_RETURN: u8 = 10;
const LINK: u8 = 30;
const ZERO: u8 = 31;
/// The register with the address of the record. At a return, x14 is kept for the instructions that end the return.
const PLACE: u8 = 14;
const PLACE_AT_RETURN: u8 = LINK;

struct Steps {
    /// The virtual address of the probed instruction; `None` if it is the operand of the insertion.
    address: Option<u64>,
    /// Whether the steps run at the return of the function.
    is_of_returns: bool,
    /// `SPARE` or `SPARE_AT_RETURN`.
    spare: u8,
    /// `PLACE` or `PLACE_AT_RETURN`.
    place: u8,
    offsets: Offsets,
    list: StepList,
    /// The end of the snippet.
    end: StepLabel,
}

impl Steps {
    fn push(&mut self, step: Step) -> Result<(), NoCode> {
        Ok(self.list.push(step)?)
    }

    fn instructions<const N: usize>(&mut self, words: [u32; N]) -> Result<(), NoCode> {
        words.into_iter().try_for_each(|word| self.push(Step::Instruction(word)))
    }

    /// Adds the step that loads the virtual address of the instruction into `to`.
    fn address(&mut self, to: u8) -> Result<(), NoCode> {
        self.push(self.address.map_or(Step::Operand(to), |address| Step::Number(to, address)))
    }

    /// Returns a register that holds the word: its own register if that can be stored, or `otherwise`, into which steps
    /// load it.
    fn word(&mut self, word: Word, otherwise: u8) -> Result<u8, NoCode> {
        let Word { register, is_memory, offset } = word;
        if !is_memory {
            return self.whole(register, otherwise);
        }
        let base = self.base(register)?;
        self.read(base, offset, Width::W64, otherwise).map(|()| otherwise)
    }

    /// Returns a register that holds the value of `register`: that itself, if it can be stored, or `otherwise`, into
    /// which steps load it.
    fn whole(&mut self, register: Register, otherwise: u8) -> Result<u8, NoCode> {
        match register {
            Register::PC if self.is_of_returns => Err(NoCode::Stub),
            Register::PC => self.address(otherwise).map(|()| otherwise),
            Register::SP => self.instructions([encode::add(otherwise, encode::SP, 0)]).map(|()| otherwise),
            register => self.base(register),
        }
    }

    /// Returns a register that holds the number: its own register if that has nothing else, or `otherwise`, into which
    /// steps load it.
    fn part(&mut self, RegisterPart { register, bits }: RegisterPart, otherwise: u8) -> Result<u8, NoCode> {
        let whole = self.whole(register, otherwise)?;
        if bits.bits() == 64 {
            return Ok(whole);
        }
        self.extract(bits, whole, otherwise)?;
        Ok(otherwise)
    }

    /// Extracts these bits of register `from` into `to`.
    fn extract(&mut self, range: BitRange, from: u8, to: u8) -> Result<(), NoCode> {
        self.instructions([compute::extract(range.is_signed(), to, from, range.low(), range.bits())])
    }

    /// Loads a number of this width from memory into `to`.
    fn read(&mut self, base: u8, offset: i32, width: Width, to: u8) -> Result<(), NoCode> {
        let bytes = width.bytes() as u8;
        let is_near = |near: u16| near.is_multiple_of(bytes.into()) && near / u16::from(bytes) < 0x1000;
        let load = match (u16::try_from(offset), i16::try_from(offset)) {
            (Ok(near), _) if is_near(near) => encode::load_bytes(bytes, to, base, near),
            // The number would take the place of the base.
            (_, Ok(far @ -0xfff..=0xfff)) if base == to => {
                let magnitude = far.unsigned_abs();
                let moved =
                    if far < 0 { encode::subtract(to, base, magnitude) } else { encode::add(to, base, magnitude) };
                self.instructions([moved])?;
                encode::load_bytes(bytes, to, to, 0)
            }
            _ if base == to => return Err(NoCode::Stub),
            _ => {
                self.push(Step::Number(to, i64::from(offset).cast_unsigned()))?;
                encode::load_bytes_at(bytes, to, base, to)
            }
        };
        self.push(Step::Load(load))
    }

    /// Returns the number of a register that addresses memory, as the probed code left it.
    fn base(&self, register: Register) -> Result<u8, NoCode> {
        match register {
            Register::SP => Ok(encode::SP),
            Register::LINK if self.is_of_returns => Err(NoCode::Stub),
            register => self::register(register),
        }
    }
}

/// Returns the number of a register that still holds the probed code's value when the steps run.
fn register(register: Register) -> Result<u8, NoCode> {
    match register.number() {
        Some(number @ (0..=8 | 18..=30)) => Ok(number),
        _ => Err(NoCode::Stub),
    }
}

fn load(rt: u8, rn: u8, offset: usize) -> u32 {
    encode::load(Literal::Doubleword, rt, rn, offset as u16)
}
