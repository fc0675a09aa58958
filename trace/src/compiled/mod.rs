//! What an event does at a hit, as code for the stub of its probe.
//!
//! A stub records what consists of words, behind a filter that looks at registers: the usual event of a function's arguments. It
//! writes the record where it stays, in the ring, as [`hit`](crate::hit) does. Or it counts, in the histogram of an event that is
//! not recorded, by numbers. What is unusual it leaves to the handler: a page that has no room for the record, a key that is new
//! or not in its place, memory that cannot be read. For all other events it does nothing, and their handlers do all.
//!
//! A return is recorded in the same way, by code at the return. That stays as long as the event does, whose calls are in progress,
//! and leaves all to the handler while there is a plan: while the event has a filter or a trigger, or is disabled.
//!
//! While a stub records or counts, nothing else does on the same CPU: interrupts are masked, and no probe can be in the code of the
//! handlers, which write to the same words. Words that stubs alone add to, by one instruction, need no mask.

mod count;
mod filter;
mod record;

use alloc::vec::Vec;
use core::mem;

use aarch64_kprobes::insn::Literal;
use aarch64_kprobes::insn::encode;
use aarch64_kprobes::probe::{AliasableBox, Insertion, Snippet, SnippetError, Step};
use fallible::{Arc, OutOfMemory};

use crate::fetch::{Register, Word};
use crate::host::Offsets;
use crate::recorder::Recorder;
use crate::trigger::{Plan, Task, Trigger};

/// Code for the stub of a probe, and what it consists of.
#[derive(Debug)]
pub struct Compiled {
    code: Code,
    /// Nothing if it does not fit into a stub.
    inserted: Option<Inserted>,
}

/// What the engine is given.
#[derive(Debug)]
struct Inserted {
    /// Dropped before the snippet, which it has the address of.
    insertion: AliasableBox<Insertion>,
    _snippet: AliasableBox<Snippet>,
}

/// What the code consists of.
#[derive(Debug)]
pub(crate) struct Code {
    steps: Vec<Step>,
    /// Interrupts are masked from the first step on.
    is_masked: bool,
    /// It is for the returns of a function.
    is_of_returns: bool,
    /// The trigger that has the memory that the steps count in, if they count.
    trigger: Option<Arc<Trigger>>,
}

/// Equal code does the same.
impl PartialEq for Code {
    fn eq(&self, other: &Self) -> bool {
        self.steps == other.steps && self.is_masked == other.is_masked
    }
}

impl Compiled {
    /// The code, ready to be put into a stub.
    pub(crate) fn new(code: Code) -> Result<Self, OutOfMemory> {
        // SAFETY: it loads and stores in the ring of its CPU, which is never freed, or in the histogram of the trigger that `code`
        // keeps, with interrupts masked; it asks whether there is a plan, in the recorder, which outlives the probe; and it loads what
        // the kernel says of its tasks, at the places that it promises.
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
        Ok(Self { code, inserted: Some(Inserted { insertion, _snippet: snippet }) })
    }

    /// The code.
    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    /// Whether it counts in the memory of a trigger.
    pub(crate) fn counts(&self) -> bool {
        self.code.trigger.is_some()
    }

    /// What a probe is registered with, if the code fits into a stub.
    #[must_use]
    pub fn insertion(&self) -> Option<&Insertion> {
        self.inserted.as_ref().map(|inserted| &*inserted.insertion)
    }
}

/// What a stub does at the hits of the instruction at the virtual address `address` for `recorder`, where it has this `plan`.
/// Nothing if it cannot.
pub(crate) fn code(
    recorder: &Recorder,
    plan: Option<&Plan>,
    address: u64,
    offsets: Offsets,
) -> Result<Option<Code>, OutOfMemory> {
    let is_of_returns = recorder.is_of_returns();
    if is_of_returns && recorder.entry_words() > 0 {
        return Ok(None);
    }
    // Code at a return asks for the plan.
    let plan = plan.filter(|_| !is_of_returns);
    let mut steps = Steps { address, is_of_returns, offsets, list: Vec::new(), ends: Vec::new() };
    let mut trigger = None;
    let done = match plan.map(Plan::task) {
        None => steps.record(recorder, true).map(|()| true),
        Some(Task::Record(tests)) => steps.tests(tests).and_then(|()| steps.record(recorder, false)).map(|()| false),
        Some(Task::Count(bound)) => {
            trigger = Some(bound.trigger.clone());
            steps.count(bound)
        }
        Some(Task::Other) => Err(No::Stub),
    };
    match done {
        Ok(is_masked) => Ok(Some(Code { steps: steps.finish(), is_masked, is_of_returns, trigger })),
        Err(No::Stub) => Ok(None),
        Err(No::Memory) => Err(OutOfMemory),
    }
}

/// Why there are no steps.
enum No {
    /// A stub cannot do it.
    Stub,
    Memory,
}

impl From<OutOfMemory> for No {
    fn from(_: OutOfMemory) -> Self {
        Self::Memory
    }
}

/// The registers of all steps.
const THREAD: u8 = 13;
const SPARE: u8 = 15;
const OTHER: u8 = 16;
const LINK: u8 = 30;
const ZERO: u8 = 31;

struct Steps {
    /// The virtual address of the instruction.
    address: u64,
    /// They stand where the function has returned.
    is_of_returns: bool,
    offsets: Offsets,
    list: Vec<Step>,
    /// Branches to the end.
    ends: Vec<usize>,
}

impl Steps {
    fn push(&mut self, step: Step) -> Result<(), No> {
        Ok(fallible::push(&mut self.list, step)?)
    }

    fn instructions<const N: usize>(&mut self, words: [u32; N]) -> Result<(), No> {
        words.into_iter().try_for_each(|word| self.push(Step::Instruction(word)))
    }

    /// All of them, with the end where it is now.
    fn finish(mut self) -> Vec<Step> {
        let end = self.list.len();
        for branch in mem::take(&mut self.ends) {
            self.lead(branch, end);
        }
        self.list
    }

    /// Has the branch that is step `branch` lead to step `to`.
    fn lead(&mut self, branch: usize, to: usize) {
        if let Some(Step::Branch(_, target)) = self.list.get_mut(branch) {
            *target = to;
        }
    }

    /// The register that has the word: `otherwise`, if it is in none that can be stored.
    fn word(&mut self, word: Word, otherwise: u8) -> Result<u8, No> {
        let is_link = word.register.number() == Some(LINK);
        if self.is_of_returns && (is_link || word.register == Register::PC) {
            return Err(No::Stub);
        }
        if word.is_memory {
            return self.read(word, otherwise);
        }
        if word.register == Register::PC {
            self.push(Step::Number(otherwise, self.address))?;
            return Ok(otherwise);
        }
        if word.register == Register::SP {
            self.instructions([encode::add(otherwise, encode::SP, 0)])?;
            return Ok(otherwise);
        }
        register(word.register)
    }

    /// Has `to` hold a word of memory.
    fn read(&mut self, Word { register, offset, .. }: Word, to: u8) -> Result<u8, No> {
        let base = if register == Register::SP { encode::SP } else { self::register(register)? };
        let load = match u16::try_from(offset) {
            Ok(near @ ..0x8000) if near.is_multiple_of(8) => encode::load(Literal::Doubleword, to, base, near),
            _ => {
                self.push(Step::Number(to, i64::from(offset).cast_unsigned()))?;
                encode::load_at(to, base, to)
            }
        };
        self.push(Step::Load(load))?;
        Ok(to)
    }
}

/// The number of the register, which the steps find as the probed code has it.
fn register(register: Register) -> Result<u8, No> {
    match register.number() {
        Some(number @ (0..=8 | 18..=30)) => Ok(number),
        _ => Err(No::Stub),
    }
}

fn load(rt: u8, rn: u8, offset: usize) -> u32 {
    encode::load(Literal::Doubleword, rt, rn, offset as u16)
}
