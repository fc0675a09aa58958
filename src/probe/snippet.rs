//! What a probe does, as code in its stub: the steps that it may consist of, and how they are assembled.
//! `hit::snippet_cell` describes where the code lies, and what is done there.
//!
//! The steps of a kernel compute and store. The engine adds words of its own: a prologue before them, which finds the
//! state of the CPU, and the words after them that count the hit. As the code of a return, to which `kretprobe_lean`
//! leads, a snippet lies in a cell of its return probe:
//!
//! ```text
//! +-----------+----------+----------+-------+-------------------+----------------------+-- ... --+----------+
//! | counts,   | numbers  | what the | hit   | to                | to                   |         | where it |
//! | operand   |          | probe    | is    | kretprobe_lean_   | kretprobe_lean_      |         | leaves   |
//! |           |          | does     | counted | leave           | unusual              |         | all      |
//! +-----------+----------+----------+-------+-------------------+----------------------+-- ... --+----------+
//! ```
//!
//! A step names the targets of its branches and the values of its numbers, because distances are known only when the
//! snippet is placed.

use alloc::boxed::Box;
use core::fmt;
use core::ptr::NonNull;

use super::arena::Used;
use super::check::Site;
use super::hit::counters::Counters;
use super::hit::instance::Instance;
use super::hit::origin::Cell;
use super::hit::{machine, stub, trampoline};
use crate::insn::encode::compute::{self, Binary, Branch};
use crate::insn::encode::{self, MASK_INTERRUPTS};
use crate::insn::{
    self, Access, Guard, Literal, Live, MAX_WORDS, NotRelocatable, OutOfRange, Place, Registers, StackPointer, Verdict,
};
use crate::platform;

/// A step of a snippet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// An instruction that does the same at any address, and goes on to the next one.
    Instruction(u32),
    /// An instruction that does the same at any address, but loads, and may take a data abort. After an abort the
    /// snippet goes on at the handler, as for [`Call`](Self::Call). It is allowed where interrupts are masked, or in a
    /// snippet that does not mask them anywhere.
    Load(u32),
    /// Loads into this register the operand that the probe was given together with the snippet.
    Operand(u8),
    /// Loads a number into this register.
    Number(u8, u64),
    /// Loads into the first register the virtual address that the function has returned to, in a snippet [of
    /// returns](Snippet::of_returns). If that is the address of a trampoline, the snippet goes on at the handler. Also
    /// changes the second register.
    ReturnAddress(u8, u8),
    /// Goes on at the step of this number, which is a later one, if the condition of the branch holds. The number of
    /// steps stands for the end of the snippet.
    Branch(Branch, usize),
    /// Goes on at the handler, if the condition of the branch holds. The steps before it have changed nothing that
    /// other code looks at.
    Call(Branch),
    /// Masks interrupts, up to [`Unmask`](Self::Unmask). From here on, [`Snippet::CPU`] is the state of this CPU.
    Mask,
    /// Restores the interrupt masks that [`Mask`](Self::Mask) has found.
    Unmask,
    /// Takes the lock word whose virtual address is in the first register: if it is 0, stores another number, with
    /// acquire order. If it is not 0, or if the store fails, the snippet goes on at the handler. Changes the second
    /// register.
    ///
    /// It is allowed where interrupts are masked. The lock is released, by `stlr xzr`, before interrupts are unmasked
    /// or the handler is called.
    Hold(u8, u8),
    /// Shifts this register right by one bit and, if it is not 0 then, goes on at the step of this number, which is an
    /// earlier one. No step in between changes the register, so the loop has at most 64 turns.
    Turn(u8, usize),
}

/// Why steps cannot be made into a snippet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnippetError {
    /// The step of this number breaks a rule.
    Step {
        /// The number of the step.
        step: usize,
        /// What is wrong, as the rest of a sentence about the step.
        what: &'static str,
    },
    /// The steps do not fit into a cell.
    Long,
    /// There is no memory for a copy of the steps.
    OutOfMemory,
}

impl fmt::Display for SnippetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step { step, what } => write!(f, "step {step} of the snippet {what}"),
            Self::Long => f.write_str("the snippet does not fit into a stub"),
            Self::OutOfMemory => f.write_str("there is no memory for the snippet"),
        }
    }
}

impl core::error::Error for SnippetError {}

/// What a probe does, as code in its stub.
///
/// A snippet finds all registers as the probed code has them, except the registers below. A stub contains it only if
/// the probed code does not need the old value of any register that the snippet changes, nor the flags if it changes
/// them.
///
/// | register | |
/// |---|---|
/// | [`CPU`](Self::CPU) | the virtual address of the state of a CPU: of this one, if interrupts are masked |
/// | [`ONE`](Self::ONE) | 1, where [`has_atomics`](Self::has_atomics) |
/// | [`MASKS`](Self::MASKS) | PSTATE.DAIF of the probed code, as MRS reads it, while interrupts are masked |
/// | x11 to x16 | free for the steps, and so are the flags |
#[derive(Debug)]
pub struct Snippet {
    steps: Box<[Step]>,
    /// Whether interrupts are masked while it runs. [`Step::Mask`] and [`Step::Unmask`] then produce no instructions.
    is_masked: bool,
    atomics: bool,
    /// Whether it is only for returns.
    is_of_returns: bool,
    /// The registers that it changes.
    used: Registers,
    cell: Cell,
}

/// The snippet of a registered probe.
#[derive(Debug)]
pub(crate) struct Inserted {
    /// The insertion, which outlives the probe.
    pub(super) insertion: InsertionRef,
    /// Counts the hits that the snippet handles. Only the snippet counts there, so it may do so with interrupts
    /// unmasked.
    pub(super) counters: Counters,
    /// Why the snippet cannot be used at the probe's stub or return; `None` if it can.
    pub(super) live: Option<Live>,
    /// The cell of the snippet as the code of a return, if it has one.
    pub(super) code: Option<Used>,
}

/// A snippet together with the operand for one probe.
#[derive(Debug)]
pub struct Insertion {
    snippet: NonNull<Snippet>,
    operand: u64,
}

// SAFETY: the snippet does not change. The caller who registers a probe with it guarantees that it stays in place.
unsafe impl Send for Insertion {}
// SAFETY: the snippet does not change. The caller who registers a probe with it guarantees that it stays in place.
unsafe impl Sync for Insertion {}

impl Insertion {
    /// Makes the insertion of `snippet`, in which [`Step::Operand`] loads `operand`.
    #[must_use]
    pub const fn new(snippet: &Snippet, operand: u64) -> Self {
        Self { snippet: NonNull::from_ref(snippet), operand }
    }
}

/// Reference to the insertion of a registered probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InsertionRef(NonNull<Insertion>);

// SAFETY: the insertion does not change. The caller who registered the probe guarantees that it stays in place.
unsafe impl Send for InsertionRef {}
// SAFETY: the insertion does not change. The caller who registered the probe guarantees that it stays in place.
unsafe impl Sync for InsertionRef {}

impl InsertionRef {
    pub(super) const fn new(insertion: &Insertion) -> Self {
        Self(NonNull::from_ref(insertion))
    }

    fn operand(&self) -> u64 {
        // SAFETY: the caller who registered the probe guarantees that the insertion stays in place as long as the probe
        // is registered.
        unsafe { self.0.as_ref() }.operand
    }

    pub(super) fn snippet(&self) -> &Snippet {
        // SAFETY: the caller who registered the probe guarantees that both stay in place as long as the probe is
        // registered.
        unsafe { self.0.as_ref().snippet.as_ref() }
    }
}

/// The registers that a step may write.
const SCRATCH: Registers = Registers::from_to(11, 16).with(Registers::FLAGS);
/// Short for [`Snippet::MASKS`].
const MASKS: u8 = Snippet::MASKS;

/// The registers for counting the hit.
const COUNTS: u8 = 11;
const COUNT: u8 = 12;

/// The words before the numbers: the distance to the counts, and the operand.
const HEAD: usize = 4;
/// The largest number of words after the steps, besides the copy: those that count, and those that lead to the stub.
const COUNT_MAX: usize = 5;
const CALL_MAX: usize = 2;
const PROLOGUE_MAX: usize = 5;
/// The number of words of [`Step::ReturnAddress`].
const RETURN_ADDRESS: usize = 8;

impl Snippet {
    /// The register with the address of the state of a CPU.
    pub const CPU: u8 = 9;
    /// The register that holds 1.
    pub const ONE: u8 = 10;
    /// The register that holds PSTATE.DAIF of the probed code.
    pub const MASKS: u8 = 17;

    /// Returns whether the CPUs can add to a word in memory by one instruction (FEAT_LSE).
    ///
    /// If they can, words that a snippet changes with interrupts unmasked must only be changed by such instructions, by
    /// all code. If they cannot, interrupts are masked in all snippets.
    #[must_use]
    pub fn has_atomics() -> bool {
        machine::has_atomics()
    }

    /// Makes a snippet of `steps`. Interrupts are masked in all of it if `is_masked` is set, or if there are no
    /// [atomics](Self::has_atomics).
    ///
    /// # Errors
    ///
    /// A [`SnippetError`] if the steps break a rule that can be checked: every run of the snippet ends, no step changes
    /// a register that it may not change, and interrupts that are masked are unmasked on every path.
    ///
    /// # Safety
    ///
    /// As long as a probe with the snippet is registered, what the steps load can be loaded whenever the snippet runs,
    /// except by [`Step::Load`], whose loads change no device. The words that they store to and add to belong to the
    /// snippet, and they change no system registers.
    pub unsafe fn new(steps: &[Step], is_masked: bool) -> Result<Self, SnippetError> {
        Self::with(steps, is_masked, Self::has_atomics(), false)
    }

    /// Makes a snippet of `steps` that is only for the returns of functions, where interrupts are masked. A stub does
    /// not contain it.
    ///
    /// # Errors
    ///
    /// A [`SnippetError`] in the same cases as for [`new`](Self::new).
    ///
    /// # Safety
    ///
    /// The contract of [`new`](Self::new).
    pub unsafe fn of_returns(steps: &[Step]) -> Result<Self, SnippetError> {
        Self::with(steps, true, Self::has_atomics(), true)
    }

    pub(super) fn with(
        steps: &[Step],
        is_masked: bool,
        atomics: bool,
        is_of_returns: bool,
    ) -> Result<Self, SnippetError> {
        let is_masked = is_masked || !atomics;
        let mut used = Registers::x(Self::CPU).with(Registers::x(COUNTS));
        used = used.with(if atomics { Registers::x(Self::ONE) } else { Registers::x(COUNT) });
        let mut words = 0;
        for (number, &step) in steps.iter().enumerate() {
            let is_alone = is_masked || masks(steps, number);
            let checked = step.check(number, steps, is_of_returns, is_alone);
            checked.map_err(|what| SnippetError::Step { step: number, what })?;
            words += step.words(is_masked, atomics) + if step.has_number() { 2 } else { 0 };
            used = used | step.writes();
        }
        if masks(steps, steps.len()) {
            return Err(SnippetError::Step { step: steps.len(), what: "is reached with interrupts masked" });
        }
        if is_masked {
            used = used.with(Registers::x(MASKS));
        }
        let length = HEAD + PROLOGUE_MAX + words + COUNT_MAX + MAX_WORDS + CALL_MAX;
        // One more word says where the copy is.
        let room = |cell: Cell| cell.size() / 4 - stub::WORDS - 1;
        let cell = [Cell::Snippet, Cell::LongSnippet].into_iter().find(|&cell| length <= room(cell));
        let cell = cell.ok_or(SnippetError::Long)?;
        let steps = fallible::collect(steps.iter().copied()).and_then(fallible::boxed_slice);
        let steps = steps.map_err(|_| SnippetError::OutOfMemory)?;
        Ok(Self { steps, is_masked, atomics, is_of_returns, used, cell })
    }

    /// Returns whether it is only for returns.
    pub(super) fn is_of_returns(&self) -> bool {
        self.is_of_returns
    }

    /// Returns the registers that it changes, including the flags if it changes them.
    pub(super) fn used(&self) -> Registers {
        self.used
    }

    fn prologue(&self, out: &mut Writer<'_>) {
        if self.is_masked {
            out.mask();
        }
        out.find_cpu();
        self.load_one(out);
    }

    fn load_one(&self, out: &mut Writer<'_>) {
        if self.atomics {
            encode::constant(Self::ONE, 1, |word| out.push(word));
        }
    }

    /// Writes a [`Step::Hold`], whose exit to the handler is the word `call`.
    fn hold(&self, base: u8, was: u8, out: &mut Writer<'_>, call: usize) {
        if self.atomics {
            // Storing 1 to a lock word that is held does not release it.
            out.push(compute::swap_acquire(Self::ONE, was, base));
            out.push_to(Branch::NotZero(was), call);
        } else {
            out.push(compute::load_exclusive(was, base));
            out.push_to(Branch::NotZero(was), call);
            // The address serves as the number, because it is not 0.
            out.push(compute::store_exclusive(was, base, base));
            out.push_to(Branch::NotZeroWord(was), call);
        }
    }

    /// Returns the number of words of the first `steps` steps, in code that is masked as a whole or not.
    fn words_of(&self, steps: usize, is_masked: bool) -> usize {
        self.steps.iter().take(steps).map(|step| step.words(is_masked, self.atomics)).sum()
    }

    /// Writes the words that count the hit. The distance to the counts is the first number of the cell.
    fn count(&self, out: &mut Writer<'_>) {
        let distance = -4 * out.length as i64;
        out.push(Branch::Literal(COUNTS).word(distance).unwrap_or(UNDEFINED));
        if self.atomics {
            out.push(compute::compute(Binary::Add, COUNTS, Self::CPU, COUNTS));
            out.push(encode::add_to(Self::ONE, COUNTS));
        } else {
            out.push(encode::load_at(COUNT, Self::CPU, COUNTS));
            out.push(encode::add(COUNT, COUNT, 1));
            out.push(encode::store_at(COUNT, Self::CPU, COUNTS));
        }
    }

    /// Returns the number of words that count the hit.
    const fn count_words(&self) -> usize {
        if self.atomics { 3 } else { 4 }
    }
}

impl Inserted {
    fn snippet(&self) -> &Snippet {
        self.insertion.snippet()
    }

    /// Returns the kind of the cell for the snippet and the stub after it.
    pub(super) fn cell(&self) -> Cell {
        self.snippet().cell
    }

    /// Returns whether the snippet can be used at the probe's stub or return.
    pub(crate) fn is_possible(&self) -> bool {
        self.live.is_none()
    }

    /// Fills in the words, up to the stub, of a cell at the virtual address `cell`: the snippet for the instruction of
    /// `site` at the virtual address `address`. `guard` applies to both places. Returns how many bytes before the stub
    /// the snippet begins.
    pub(super) fn build(
        &self,
        cell: usize,
        address: usize,
        site: &Site,
        guard: Guard,
        words: &mut [u32],
    ) -> Result<u16, NotRelocatable> {
        let snippet = self.snippet();
        let (from, text) = (address as u64, platform::text());
        let stub = words.len();
        let at = |word: usize| (cell + 4 * word) as u64;
        let mut out = Writer { words, length: 0 };
        self.numbers(&mut out);
        let start = out.length;
        snippet.prologue(&mut out);
        let is_masked = snippet.is_masked;
        let copy = out.length
            + snippet.words_of(snippet.steps.len(), is_masked)
            + snippet.count_words()
            + usize::from(is_masked);
        // The word that restores the masks, for exits with interrupts masked, and the branch to the stub.
        let call = copy + MAX_WORDS;
        let has_masks = is_masked || snippet.steps.contains(&Step::Mask);
        self.steps(&mut out, is_masked, call, call + usize::from(has_masks));
        snippet.count(&mut out);
        if is_masked {
            out.push(encode::write_daif(MASKS));
        }
        let place = Place { from, to: at(copy), guard, text: text.start as u64..text.end as u64 };
        for &word in insn::relocate(site.word, site.verdict, &place)?.padded() {
            out.push(word);
        }
        if has_masks {
            out.push(encode::write_daif(MASKS));
        }
        let here = out.length;
        out.push(encode::branch(at(here), at(stub))?);
        if let Some(last) = out.words.last_mut() {
            *last = copy as u32;
        }
        insn::branch(from, at(start))?;
        Ok((4 * (stub - start)) as u16)
    }

    /// Returns the kind of the cell for the snippet as the code of a return, which needs no more words than in a stub.
    pub(super) fn return_cell(&self) -> Cell {
        match self.cell() {
            Cell::Snippet => Cell::Return,
            _ => Cell::LongReturn,
        }
    }

    /// Fills in the words of a cell at the virtual address `cell`: the snippet as the code of a return, to which
    /// `kretprobe_lean` leads with interrupts masked and the state of the CPU known. Returns the virtual address at
    /// which it begins.
    pub(super) fn build_return(&self, cell: usize, words: &mut [u32]) -> Result<usize, OutOfRange> {
        let snippet = self.snippet();
        let at = |word: usize| (cell + 4 * word) as u64;
        let mut out = Writer { words, length: 0 };
        self.numbers(&mut out);
        let start = out.length;
        let end = start + self.masked_words();
        let call = end + 1;
        self.masked(&mut out, call);
        let keeps = (snippet.used() & Registers::from_to(14, 16)).is_empty();
        let leave = if keeps { trampoline::lean_leave_kept_address() } else { trampoline::lean_leave_address() };
        out.push(encode::branch(at(end), leave)?);
        out.push(encode::branch(at(call), trampoline::lean_unusual_address())?);
        if let Some(last) = out.words.last_mut() {
            *last = call as u32;
        }
        Ok(cell + 4 * start)
    }

    /// Returns the number of words at the beginning of the cell that hold numbers.
    pub(super) fn number_words(&self) -> usize {
        HEAD + 2 * self.snippet().steps.iter().filter(|step| step.has_number()).count()
    }

    /// Returns the number of words of the steps and of the count of the hit, in code with interrupts masked.
    pub(super) fn masked_words(&self) -> usize {
        let snippet = self.snippet();
        let one = usize::from(snippet.atomics);
        one + snippet.words_of(snippet.steps.len(), true) + snippet.count_words()
    }

    /// Writes the steps and the count of the hit, in code that has masked interrupts and found the state of the CPU.
    /// The exit to the handler is the word `call`. [`numbers`](Self::numbers) has been called before.
    pub(super) fn masked(&self, out: &mut Writer<'_>, call: usize) {
        self.snippet().load_one(out);
        self.steps(out, true, call, call);
        self.snippet().count(out);
    }

    /// Writes the numbers that are loaded: the distance to the counts, the operand, and the numbers of the steps.
    pub(super) fn numbers(&self, out: &mut Writer<'_>) {
        out.number(self.counters.distance());
        out.number(self.insertion.operand());
        for step in &self.snippet().steps {
            match *step {
                Step::Number(_, number) if step.has_number() => out.number(number),
                Step::ReturnAddress(..) => out.number(trampoline::kretprobe_address()),
                _ => {}
            }
        }
    }

    /// Writes the steps, in code that is masked as a whole or not (`is_masked`). The exit to the handler is the word
    /// `call`, which restores the masks, where interrupts are masked by steps; otherwise the word `call_unmasked`.
    fn steps(&self, out: &mut Writer<'_>, is_masked: bool, call: usize, call_unmasked: usize) {
        let snippet = self.snippet();
        let steps = &snippet.steps;
        let first = out.length;
        let mut numbers = HEAD;
        let mut has_masked = is_masked;
        for step in steps {
            let here = out.length;
            let to = |word: usize| 4 * (word as i64 - here as i64);
            let word = match *step {
                Step::Mask | Step::Unmask if is_masked => continue,
                Step::Mask => {
                    has_masked = true;
                    out.mask();
                    out.find_cpu();
                    continue;
                }
                Step::Unmask => {
                    has_masked = false;
                    Some(encode::write_daif(MASKS))
                }
                Step::Instruction(word) | Step::Load(word) => Some(word),
                Step::ReturnAddress(rd, other) => {
                    numbers += 2;
                    out.return_address(rd, other, numbers - 2, call);
                    continue;
                }
                Step::Operand(rd) => Branch::Literal(rd).word(to(2)),
                Step::Number(rd, _) if step.has_number() => {
                    numbers += 2;
                    Branch::Literal(rd).word(to(numbers - 2))
                }
                Step::Number(rd, number) => one_word(rd, number),
                Step::Branch(branch, step) => branch.word(to(first + snippet.words_of(step, is_masked))),
                Step::Hold(base, was) => {
                    snippet.hold(base, was, out, call);
                    continue;
                }
                Step::Turn(left, step) => {
                    out.push(compute::shift_right(left, left, 1));
                    out.push_to(Branch::NotZero(left), first + snippet.words_of(step, is_masked));
                    continue;
                }
                Step::Call(branch) => branch.word(to(if has_masked { call } else { call_unmasked })),
            };
            // All distances are a few hundred bytes, and `check` has verified the steps, so every word can be encoded.
            out.push(word.unwrap_or(UNDEFINED));
        }
    }
}

impl Step {
    /// Checks the rules for the step, as step `number` of `steps`.
    fn check(self, number: usize, steps: &[Self], is_of_returns: bool, is_alone: bool) -> Result<(), &'static str> {
        let is_scratch = |register: u8| (Registers::x(register) - SCRATCH).is_empty() && register < 31;
        match self {
            Self::ReturnAddress(..) if !is_of_returns => Err("uses the return address, which only a return probe has"),
            Self::ReturnAddress(rd, other) if is_scratch(rd) && is_scratch(other) && rd != other => Ok(()),
            Self::ReturnAddress(..) => Err("writes a register that a snippet must preserve"),
            Self::Load(_) if steps.contains(&Self::Mask) && !masks(steps, number) => {
                Err("may fault with interrupts unmasked")
            }
            Self::Load(_) if steps.iter().any(|step| matches!(step, Self::Hold(..))) => {
                Err("may fault while a lock is held")
            }
            Self::Instruction(word) | Self::Load(word) => {
                let verdict = insn::classify(word);
                if verdict != Verdict::Slot {
                    return Err("is not an instruction that runs unchanged anywhere");
                }
                if !(Access::of(word).writes - SCRATCH).is_empty() {
                    return Err("writes a register that a snippet must preserve");
                }
                if StackPointer::after(word) != StackPointer::Moved(0) {
                    return Err("moves the stack pointer");
                }
                Ok(())
            }
            Self::Hold(..) if !is_alone => Err("takes a lock with interrupts unmasked"),
            Self::Hold(base, was) if is_scratch(base) && is_scratch(was) && base != was => Ok(()),
            Self::Hold(..) => Err("writes a register that a snippet must preserve"),
            Self::Turn(left, _) if !is_scratch(left) => Err("writes a register that a snippet must preserve"),
            Self::Turn(_, to) if to >= number => Err("does not branch backwards"),
            Self::Turn(_, to) if masks(steps, to) != masks(steps, number) => {
                Err("branches to a step with other interrupt masks")
            }
            Self::Turn(left, to) => {
                let turned = steps.get(to..number).unwrap_or_default();
                let is_counted = |step: &Self| {
                    (step.writes() & Registers::x(left)).is_empty()
                        && !matches!(step, Self::Turn(..) | Self::Mask | Self::Unmask)
                };
                if turned.iter().all(is_counted) { Ok(()) } else { Err("may loop forever") }
            }
            Self::Operand(rd) | Self::Number(rd, _) if is_scratch(rd) => Ok(()),
            Self::Operand(_) | Self::Number(..) => Err("writes a register that a snippet must preserve"),
            Self::Branch(Branch::Literal(_), _) | Self::Call(Branch::Literal(_)) => Err("is not a branch"),
            Self::Branch(
                Branch::Zero(rt) | Branch::NotZero(rt) | Branch::NotZeroWord(rt) | Branch::BitClear(rt, _),
                _,
            )
            | Self::Call(Branch::Zero(rt) | Branch::NotZero(rt) | Branch::NotZeroWord(rt) | Branch::BitClear(rt, _))
                if rt > 31 =>
            {
                Err("names a register that does not exist")
            }
            Self::Branch(Branch::BitClear(_, bit), _) | Self::Call(Branch::BitClear(_, bit)) if bit > 31 => {
                Err("names a bit that does not exist")
            }
            Self::Branch(_, to) if to <= number || to > steps.len() => Err("does not branch forwards"),
            Self::Branch(_, to) if masks(steps, to) != masks(steps, number) => {
                Err("branches to a step with other interrupt masks")
            }
            Self::Mask if masks(steps, number) => Err("masks interrupts that are masked"),
            Self::Unmask if !masks(steps, number) => Err("unmasks interrupts that are not masked"),
            Self::Branch(..) | Self::Call(_) | Self::Mask | Self::Unmask => Ok(()),
        }
    }

    /// Returns the registers that the step changes.
    fn writes(self) -> Registers {
        match self {
            Self::Instruction(word) | Self::Load(word) => Access::of(word).writes,
            Self::Operand(rd) | Self::Number(rd, _) => Registers::x(rd),
            Self::ReturnAddress(rd, other) => Registers::x(rd).with(Registers::x(other)),
            Self::Hold(_, was) => Registers::x(was),
            Self::Turn(left, _) => Registers::x(left),
            Self::Mask => Registers::x(MASKS),
            Self::Branch(..) | Self::Call(_) | Self::Unmask => Registers::NONE,
        }
    }

    /// Returns the number of words of the step, in a snippet that is masked as a whole or not, with or without atomics.
    fn words(self, is_masked: bool, atomics: bool) -> usize {
        match self {
            Self::Turn(..) => 2,
            Self::Hold(..) if atomics => 2,
            Self::Hold(..) => 4,
            Self::Mask | Self::Unmask if is_masked => 0,
            Self::Mask => 4,
            Self::ReturnAddress(..) => RETURN_ADDRESS,
            _ => 1,
        }
    }

    /// Returns whether the step has a number at the beginning of the cell.
    fn has_number(self) -> bool {
        match self {
            Self::Number(rd, number) => one_word(rd, number).is_none(),
            Self::ReturnAddress(..) => true,
            _ => false,
        }
    }
}

/// Returns whether `steps` have masked interrupts before the step with this number.
fn masks(steps: &[Step], number: usize) -> bool {
    let last = steps.iter().take(number).rfind(|step| matches!(step, Step::Mask | Step::Unmask));
    last == Some(&Step::Mask)
}

/// Returns the only instruction that loads `number` into `rd`; `None` if it takes several.
fn one_word(rd: u8, number: u64) -> Option<u32> {
    let (mut only, mut count) = (None, 0);
    encode::constant(rd, number, |word| {
        only = Some(word);
        count += 1;
    });
    only.filter(|_| count == 1)
}

/// `udf #0` (C6.2, UDF).
const UNDEFINED: u32 = 0;

/// A cell's words, filled in from the first on.
pub(super) struct Writer<'a> {
    pub(super) words: &'a mut [u32],
    pub(super) length: usize,
}

impl Writer<'_> {
    fn mask(&mut self) {
        self.push(encode::read_daif(MASKS));
        self.push(MASK_INTERRUPTS);
    }

    fn find_cpu(&mut self) {
        self.push(compute::read_thread(Snippet::CPU));
        self.push(encode::load(Literal::Doubleword, Snippet::CPU, Snippet::CPU, platform::cpu_offset()));
    }

    /// Loads into `rd` the return address in the instance of the newest call. The exit, if it is the address of one of
    /// the two trampolines, is the word `call`. The word `number` holds the address of one of them.
    fn return_address(&mut self, rd: u8, other: u8, number: usize, call: usize) {
        const OFFSET: u16 = Instance::RETURN_ADDRESS as u16;
        self.push(compute::read_thread(rd));
        self.push(encode::load(Literal::Doubleword, rd, rd, platform::calls_offset()));
        self.push(encode::load(Literal::Doubleword, rd, rd, OFFSET));
        self.push_to(Branch::Literal(other), number);
        self.push(compute::compute(Binary::Subtract, other, other, rd));
        self.push_to(Branch::Zero(other), call);
        self.push(encode::subtract(other, other, trampoline::LEAN_DISTANCE as u16));
        self.push_to(Branch::Zero(other), call);
    }

    pub(super) fn push_to(&mut self, branch: Branch, word: usize) {
        let distance = 4 * (word as i64 - self.length as i64);
        self.push(branch.word(distance).unwrap_or(UNDEFINED));
    }

    pub(super) fn push(&mut self, word: u32) {
        if let Some(place) = self.words.get_mut(self.length) {
            *place = word;
        }
        self.length += 1;
    }

    pub(super) fn number(&mut self, number: u64) {
        self.push(number as u32);
        self.push((number >> 32) as u32);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
