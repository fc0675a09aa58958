//! What an event does at a hit, as code for the stub of its probe.
//!
//! A stub records what consists of registers, behind a filter that looks at registers: the usual event of a function's arguments.
//! It writes the record where it stays, in the ring, as [`hit`](crate::hit) does, with interrupts masked. What is
//! unusual it leaves to the handler: a page that has no room for the record. What it does for other events is nothing: their
//! handlers do all.
//!
//! Nobody records while a stub does: it cannot be interrupted, and what else records is nothing that can be probed.

use alloc::vec::Vec;
use core::mem::offset_of;

use aarch64_kprobes::insn::Literal;
use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::{self, Binary, Branch, Condition};
use aarch64_kprobes::probe::{AliasableBox, Insertion, Snippet, Step};
use fallible::OutOfMemory;

use crate::fetch::{Program, Register, Word};
use crate::filter::{ACCEPT, Next, Range, Test, WordQuestion};
use crate::format::Shape;
use crate::host::Offsets;
use crate::recorder::{Flags, Recorder};
use crate::ring::{PAGE, RECORD_HEADER, Ring};

/// Code for the stub of a probe, and what it consists of.
#[derive(Debug)]
pub struct Compiled {
    // Before the snippet that it leads to.
    insertion: AliasableBox<Insertion>,
    _snippet: AliasableBox<Snippet>,
    code: Code,
}

/// What the code consists of: equal code does the same.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Code {
    steps: Vec<Step>,
    /// Interrupts are masked from the first step on.
    is_masked: bool,
}

impl Compiled {
    /// The code, if it fits into a stub.
    pub(crate) fn new(code: Code) -> Result<Option<Self>, OutOfMemory> {
        // SAFETY: it loads and stores in the ring of its CPU, which is never freed, with interrupts masked; and it loads what the
        // kernel says of its tasks, at the places that it promises.
        let Ok(snippet) = (unsafe { Snippet::new(&code.steps, code.is_masked) }) else { return Ok(None) };
        let snippet = AliasableBox::new(fallible::boxed(snippet)?);
        let insertion = AliasableBox::new(fallible::boxed(Insertion::new(&snippet, 0))?);
        Ok(Some(Self { insertion, _snippet: snippet, code }))
    }

    /// What it consists of.
    pub(crate) fn code(&self) -> &Code {
        &self.code
    }

    /// What a probe is given.
    #[must_use]
    pub fn insertion(&self) -> &Insertion {
        &self.insertion
    }
}

/// The steps that do what `recorder` does at a hit of the instruction at the virtual address `address`: to record it, if
/// `filter` accepts it. Nothing if a stub cannot.
pub(crate) fn record(
    recorder: &Recorder,
    filter: Option<&[Test<WordQuestion>]>,
    address: u64,
    offsets: Offsets,
) -> Result<Option<Code>, OutOfMemory> {
    let Program::Words(words) = &recorder.program else { return Ok(None) };
    if recorder.shape != Shape::Probe {
        return Ok(None);
    }
    let mut steps = Steps { address, list: Vec::new(), ends: Vec::new() };
    match steps.all(recorder, filter, words, offsets) {
        Ok(()) => Ok(Some(Code { steps: steps.list, is_masked: filter.is_none() })),
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

/// The registers of the steps.
const RING: u8 = 11;
const POSITION: u8 = 12;
const THREAD: u8 = 13;
const PLACE: u8 = 14;
const ONE: u8 = 15;
const OTHER: u8 = 16;
const ZERO: u8 = 31;

/// Words of a page behind the place of a record of `size` bytes, so that it fits: the last place at which it does, as
/// [`place`](crate::hit) counts them, in words before its first.
const fn last_place(size: usize) -> u16 {
    ((PAGE - 8 - size) / 8) as u16
}

struct Steps {
    /// The virtual address of the instruction.
    address: u64,
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

    /// Goes on at the end, where the hit is counted.
    fn end(&mut self, branch: Branch) -> Result<(), No> {
        fallible::push(&mut self.ends, self.list.len())?;
        self.push(Step::Branch(branch, 0))
    }

    fn all(
        &mut self,
        recorder: &Recorder,
        filter: Option<&[Test<WordQuestion>]>,
        words: &[Word],
        offsets: Offsets,
    ) -> Result<(), No> {
        if let Some(tests) = filter {
            self.tests(tests)?;
        }
        self.push(Step::Number(ONE, recorder.rings.switch_address()))?;
        self.instructions([compute::load_byte(ONE, ONE)])?;
        self.end(Branch::Zero(ONE))?;
        if filter.is_some() {
            self.push(Step::Mask)?;
        }
        self.room(recorder)?;
        // What is read here may fault: nothing has been changed yet but room that is nobody's.
        self.words(words)?;
        self.common(recorder, offsets)?;
        self.head(recorder, offsets)?;
        if filter.is_some() {
            self.push(Step::Unmask)?;
        }
        let end = self.list.len();
        for &branch in &self.ends {
            if let Some(Step::Branch(_, to)) = self.list.get_mut(branch) {
                *to = end;
            }
        }
        Ok(())
    }

    /// Has `RING` and `POSITION` be the ring and its position, and `PLACE` the place of the record, less a word.
    fn room(&mut self, recorder: &Recorder) -> Result<(), No> {
        const LOW: u8 = 3;
        const BITS: u8 = PAGE.trailing_zeros() as u8 - LOW;
        self.push(Step::Number(RING, recorder.rings.distance()))?;
        self.instructions([
            encode::load_at(RING, Snippet::CPU, RING),
            encode::load_pair(POSITION, PLACE, RING, offset_of!(Ring, position) as i16),
            encode::subtract(ONE, POSITION, 8),
            compute::field(ONE, ONE, LOW, BITS),
            compute::compare(ONE, last_place(recorder.size)),
        ])?;
        self.push(Step::Call(Branch::If(Condition::Hi)))?;
        const { assert!(cfg!(loom) || offset_of!(Ring, page) == offset_of!(Ring, position) + 8) };
        self.instructions([compute::add_shifted(PLACE, PLACE, ONE, LOW)])
    }

    /// The first words of the event: what every event has, and its address. Counts the record.
    fn common(&mut self, recorder: &Recorder, offsets: Offsets) -> Result<(), No> {
        /// The I bit of PSTATE.DAIF, as MRS reads it (C5.2.2).
        const IRQ_MASKED: u8 = 7;
        const FLAGS: u8 = 16;
        const TASK: u8 = 32;
        const { assert!(Flags::IRQS_OFF == 1) };
        const { assert!(cfg!(loom) || offset_of!(Ring, interrupt) == offset_of!(Ring, number) + 8) };
        self.instructions([
            encode::load_pair(OTHER, ONE, RING, offset_of!(Ring, number) as i16),
            encode::add(OTHER, OTHER, 1),
            encode::store(OTHER, RING, offset_of!(Ring, number) as u16),
            compute::load_byte(ONE, ONE),
            compute::field(OTHER, Snippet::MASKS, IRQ_MASKED, 1),
            compute::or_shifted(OTHER, OTHER, ONE, Flags::INTERRUPT.trailing_zeros() as u8),
        ])?;
        self.push(Step::Number(ONE, recorder.event.into()))?;
        self.instructions([
            compute::or_shifted(ONE, ONE, OTHER, FLAGS),
            compute::read_thread(THREAD),
            load(OTHER, THREAD, offsets.task),
            compute::or_shifted(ONE, ONE, OTHER, TASK),
        ])?;
        self.push(Step::Number(OTHER, self.address))?;
        self.pair(ONE, OTHER, RECORD_HEADER)
    }

    /// The words that are fetched, two by two.
    fn words(&mut self, words: &[Word]) -> Result<(), No> {
        let mut place = RECORD_HEADER + Shape::Probe.size();
        for pair in words.chunks(2) {
            match *pair {
                [one, other] => {
                    let (one, other) = (self.word(one, ONE)?, self.word(other, OTHER)?);
                    self.pair(one, other, place)?;
                }
                [one] => {
                    let one = self.word(one, ONE)?;
                    self.instructions([encode::store(one, PLACE, 8 + place as u16)])?;
                }
                _ => {}
            }
            place += 16;
        }
        Ok(())
    }

    /// The register that has the word: `otherwise`, if it is in none that can be stored.
    fn word(&mut self, word: Word, otherwise: u8) -> Result<u8, No> {
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

    /// What comes before the record's own words; and publishes the record.
    fn head(&mut self, recorder: &Recorder, offsets: Offsets) -> Result<(), No> {
        let size = recorder.size as u16;
        self.push(Step::Number(ONE, size.into()))?;
        self.instructions([compute::read_counter(OTHER)])?;
        self.pair(ONE, OTHER, 0)?;
        self.instructions([encode::load_pair(ONE, OTHER, THREAD, offsets.name as i16)])?;
        self.pair(ONE, OTHER, 16)?;
        const { assert!(cfg!(loom) || offset_of!(Ring, position) == 0) };
        self.instructions([encode::add(POSITION, POSITION, size), compute::store_release(POSITION, RING)])
    }

    /// Stores two words at byte `at` of the record.
    fn pair(&mut self, one: u8, other: u8, at: usize) -> Result<(), No> {
        match i16::try_from(8 + at) {
            Ok(offset @ ..=504) => self.instructions([encode::store_pair(one, other, PLACE, offset)]),
            _ => Err(No::Stub),
        }
    }

    /// Goes on behind these for a hit that the tests accept, else at the end.
    fn tests(&mut self, tests: &[Test<WordQuestion>]) -> Result<(), No> {
        // Where each test begins, and what branches there.
        let mut branches: Vec<(usize, Next)> = Vec::new();
        let mut starts = Vec::new();
        for (number, test) in tests.iter().enumerate() {
            fallible::push(&mut starts, self.list.len())?;
            let next = if number + 1 == tests.len() { ACCEPT } else { number as Next + 1 };
            let yes = self.question(&test.question)?;
            let ways = match yes {
                Answer::Known(answer) => [Some((Branch::Always, if answer { test.yes } else { test.no })), None],
                Answer::If(branch, _) if test.no == next => [Some((branch, test.yes)), None],
                Answer::If(_, inverse) if test.yes == next => [Some((inverse, test.no)), None],
                Answer::If(branch, _) => [Some((branch, test.yes)), Some((Branch::Always, test.no))],
            };
            for (branch, to) in ways.into_iter().flatten() {
                if to != next || !matches!(branch, Branch::Always) {
                    fallible::push(&mut branches, (self.list.len(), to))?;
                    self.push(Step::Branch(branch, 0))?;
                }
            }
        }
        let behind = self.list.len();
        for (branch, to) in branches {
            let start = match to {
                ACCEPT => behind,
                other => match starts.get(usize::from(other)) {
                    Some(&start) => start,
                    None => {
                        fallible::push(&mut self.ends, branch)?;
                        continue;
                    }
                },
            };
            if let Some(Step::Branch(_, place)) = self.list.get_mut(branch) {
                *place = start;
            }
        }
        Ok(())
    }

    /// Finds the answer out.
    fn question(&mut self, WordQuestion { word, range }: &WordQuestion) -> Result<Answer, No> {
        if word.is_memory {
            return Err(No::Stub);
        }
        let mut number = self.word(*word, ONE)?;
        let Range { mask, low, span } = *range;
        if mask == 0 {
            return Ok(Answer::Known(range.has(0)));
        }
        if mask != u64::MAX {
            self.push(Step::Number(OTHER, mask))?;
            self.instructions([compute::compute(Binary::And, ONE, number, OTHER)])?;
            number = ONE;
        }
        let (least, most) = (low, low.wrapping_add(span));
        const FIRST: u64 = 1 << 63;
        let (with, condition) = match (least, most) {
            _ if span == u64::MAX => return Ok(Answer::Known(true)),
            (0, 0) => return Ok(Answer::If(Branch::Zero(number), Branch::NotZero(number))),
            (1, u64::MAX) => return Ok(Answer::If(Branch::NotZero(number), Branch::Zero(number))),
            _ if least == most => (least, Condition::Eq),
            _ if span == u64::MAX - 1 => (most.wrapping_add(1), Condition::Ne),
            (0, most) => (most, Condition::Ls),
            (least, u64::MAX) => (least, Condition::Hs),
            (FIRST, most) => (most, Condition::Le),
            (least, most) if most == FIRST - 1 => (least, Condition::Ge),
            (least, _) => {
                self.push(Step::Number(OTHER, least))?;
                self.instructions([compute::compute(Binary::Subtract, ONE, number, OTHER)])?;
                number = ONE;
                (span, Condition::Ls)
            }
        };
        self.compare(number, with)?;
        Ok(Answer::If(Branch::If(condition), Branch::If(condition.inverse())))
    }

    fn compare(&mut self, number: u8, with: u64) -> Result<(), No> {
        match u16::try_from(with) {
            Ok(small @ 0..=0xfff) => self.instructions([compute::compare(number, small)]),
            _ => {
                self.push(Step::Number(OTHER, with))?;
                self.instructions([compute::compute(Binary::SubtractFlags, ZERO, number, OTHER)])
            }
        }
    }
}

/// The answer to a question.
enum Answer {
    Known(bool),
    /// Yes if the first of these would be taken; the second, if not.
    If(Branch, Branch),
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
