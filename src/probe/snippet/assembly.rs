//! The words of a snippet in its cell: what the engine adds to the steps, and each step.

use super::step::one_word;
use super::{COUNT, COUNTS, HEAD, Inserted, Snippet, Step};
use crate::insn::encode::compute::{self, Binary, Branch};
use crate::insn::encode::{self, MASK_INTERRUPTS};
use crate::insn::{self, Guard, Literal, MAX_WORDS, NotRelocatable, OutOfRange, Relocation};
use crate::kernel;
use crate::probe::check::CheckedInstruction;
use crate::probe::hit::origin::Cell;
use crate::probe::hit::trampoline;

/// Short for [`Snippet::MASKS`].
const MASKS: u8 = Snippet::MASKS;

impl Snippet {
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
}

impl Inserted {
    fn snippet(&self) -> &Snippet {
        self.insertion.snippet()
    }

    /// Returns the kind of the cell for the snippet and the stub after it.
    pub(in crate::probe) fn cell(&self) -> Cell {
        self.snippet().cell
    }

    /// Returns whether the snippet can be used at the probe's stub or return.
    pub(crate) fn is_possible(&self) -> bool {
        self.live.is_none()
    }

    /// Fills in the words, up to the stub, of a cell at the virtual address `cell`: the snippet for the instruction of
    /// `checked` at the virtual address `address`. `guard` applies to both places. Returns how many bytes before the
    /// stub the snippet begins.
    pub(in crate::probe) fn build(
        &self,
        cell: usize,
        address: usize,
        checked: &CheckedInstruction,
        guard: Guard,
        words: &mut [u32],
    ) -> Result<u16, NotRelocatable> {
        let snippet = self.snippet();
        let (from, text) = (address as u64, kernel::text());
        let stub = words.len();
        let at = |word: usize| (cell + 4 * word) as u64;
        let mut out = Writer { words, length: 0 };
        self.numbers(&mut out);
        let start = out.length;
        snippet.prologue(&mut out);
        let is_masked = snippet.is_masked;
        let copy =
            out.length + snippet.words_of(snippet.steps.len(), is_masked) + self.count_words() + usize::from(is_masked);
        // The word that restores the masks, for exits with interrupts masked, and the branch to the stub.
        let call = copy + MAX_WORDS;
        let has_masks = is_masked || snippet.steps.contains(&Step::Mask);
        self.steps(&mut out, is_masked, call, call + usize::from(has_masks));
        self.count(&mut out);
        if is_masked {
            out.push(encode::write_daif(MASKS));
        }
        let relocation = Relocation { from, to: at(copy), guard, text: text.start as u64..text.end as u64 };
        for &word in insn::relocate(checked.word, checked.verdict, &relocation)?.padded() {
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

    /// Writes the words that count the hit: in a part of the state of the CPU, or at the distance from there that is
    /// the first number of the cell.
    fn count(&self, out: &mut Writer<'_>) {
        const CPU: u8 = Snippet::CPU;
        match (self.snippet().atomics, self.counters.offset_in_state()) {
            (true, Some(offset)) => {
                out.push(encode::add(COUNTS, CPU, offset));
                out.push(encode::add_to(Snippet::ONE, COUNTS));
            }
            (true, None) => {
                out.push_to(Branch::Literal(COUNTS), 0);
                out.push(compute::compute(Binary::Add, COUNTS, CPU, COUNTS));
                out.push(encode::add_to(Snippet::ONE, COUNTS));
            }
            (false, Some(offset)) => {
                out.push(encode::load(Literal::Doubleword, COUNT, CPU, offset));
                out.push(encode::add(COUNT, COUNT, 1));
                out.push(encode::store(COUNT, CPU, offset));
            }
            (false, None) => {
                out.push_to(Branch::Literal(COUNTS), 0);
                out.push(encode::load_at(COUNT, CPU, COUNTS));
                out.push(encode::add(COUNT, COUNT, 1));
                out.push(encode::store_at(COUNT, CPU, COUNTS));
            }
        }
    }

    /// Returns the number of words that count the hit.
    fn count_words(&self) -> usize {
        let step = if self.snippet().atomics { 1 } else { 2 };
        step + if self.counters.offset_in_state().is_some() { 1 } else { 2 }
    }

    /// Returns the kind of the cell for the snippet as the code of a return, which needs no more words than in a stub.
    pub(in crate::probe) fn return_cell(&self) -> Cell {
        match self.cell() {
            Cell::Snippet => Cell::Return,
            _ => Cell::LongReturn,
        }
    }

    /// Fills in the words of a cell at the virtual address `cell`: the snippet as the code of a return, to which
    /// `kretprobe_lean` leads with interrupts masked and the state of the CPU known. Returns the virtual address at
    /// which it begins.
    pub(in crate::probe) fn build_return(&self, cell: usize, words: &mut [u32]) -> Result<usize, OutOfRange> {
        let snippet = self.snippet();
        let at = |word: usize| (cell + 4 * word) as u64;
        let mut out = Writer { words, length: 0 };
        self.numbers(&mut out);
        let start = out.length;
        let end = start + self.masked_words();
        let call = end + 1;
        self.masked(&mut out, call);
        out.push(encode::branch(at(end), trampoline::lean_leave_address(snippet.used()))?);
        out.push(encode::branch(at(call), trampoline::lean_unusual_address())?);
        if let Some(last) = out.words.last_mut() {
            *last = call as u32;
        }
        Ok(cell + 4 * start)
    }

    /// Returns the number of words at the beginning of the cell that hold numbers.
    pub(in crate::probe) fn number_words(&self) -> usize {
        HEAD + 2 * self.snippet().steps.iter().filter(|step| step.has_number()).count()
    }

    /// Returns the number of words of the steps and of the count of the hit, in code with interrupts masked.
    pub(in crate::probe) fn masked_words(&self) -> usize {
        let snippet = self.snippet();
        let one = usize::from(snippet.atomics);
        one + snippet.words_of(snippet.steps.len(), true) + self.count_words()
    }

    /// Writes the steps and the count of the hit, in code that has masked interrupts and found the state of the CPU.
    /// The exit to the handler is the word `call`. [`numbers`](Self::numbers) has been called before.
    pub(in crate::probe) fn masked(&self, out: &mut Writer<'_>, call: usize) {
        let snippet = self.snippet();
        if !snippet.is_of_returns {
            snippet.load_one(out);
        }
        self.steps(out, true, call, call);
        if snippet.is_of_returns {
            snippet.load_one(out);
        }
        self.count(out);
    }

    /// Writes the numbers of the cell: the distance to the counts, the operand, and the numbers of the steps.
    pub(in crate::probe) fn numbers(&self, out: &mut Writer<'_>) {
        out.number(self.counters.distance());
        out.number(self.insertion.operand());
        for step in &self.snippet().steps {
            match *step {
                Step::Number(_, number) if step.has_number() => out.number(number),
                Step::ReturnAddress(_) => out.number(trampoline::kretprobe_address() >> trampoline::SHIFT),
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
                Step::ReturnAddress(spare) => {
                    numbers += 2;
                    out.push_to(Branch::Literal(spare), numbers - 2);
                    out.push(compute::xor_shifted(spare, spare, Snippet::RETURN_ADDRESS, trampoline::SHIFT));
                    out.push_to(Branch::Zero(spare), call);
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

/// `udf #0` (C6.2, UDF).
const UNDEFINED: u32 = 0;

/// A cell's words, filled in from the first on.
pub(in crate::probe) struct Writer<'a> {
    pub(in crate::probe) words: &'a mut [u32],
    pub(in crate::probe) length: usize,
}

impl Writer<'_> {
    fn mask(&mut self) {
        self.push(encode::read_daif(MASKS));
        self.push(MASK_INTERRUPTS);
    }

    fn find_cpu(&mut self) {
        self.push(compute::read_thread(Snippet::CPU));
        self.push(encode::load(Literal::Doubleword, Snippet::CPU, Snippet::CPU, kernel::cpu_offset()));
    }

    pub(in crate::probe) fn push_to(&mut self, branch: Branch, word: usize) {
        let distance = 4 * (word as i64 - self.length as i64);
        self.push(branch.word(distance).unwrap_or(UNDEFINED));
    }

    pub(in crate::probe) fn push(&mut self, word: u32) {
        if let Some(place) = self.words.get_mut(self.length) {
            *place = word;
        }
        self.length += 1;
    }

    pub(in crate::probe) fn number(&mut self, number: u64) {
        self.push(number as u32);
        self.push((number >> 32) as u32);
    }
}
