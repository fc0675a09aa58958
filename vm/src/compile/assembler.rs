//! Words that are being written: places in them that branches lead to before they are known, and numbers behind them.
//!
//! The words lead to each other by distances alone, so they run wherever they are put, at a multiple of 8.

use alloc::vec::Vec;

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::Branch;
use fallible::OutOfMemory;

use super::Refused;

/// A place in the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// The words that have `rd`, which is not 31, hold `value`, in `room`.
pub(super) fn moves(rd: u8, value: u64, room: &mut [u32; 4]) -> &[u32] {
    let mut count = 0;
    encode::constant(rd, value, |word| {
        if let Some(place) = room.get_mut(count) {
            *place = word;
            count += 1;
        }
    });
    room.get(..count).unwrap_or(&[])
}

/// The words, as far as they are written.
#[derive(Default)]
pub(super) struct Assembler {
    words: Vec<u32>,
    /// For each label, the number of the word that it is before.
    labels: Vec<Option<usize>>,
    /// The numbers of the words that are yet to be written, what they are, and where they lead.
    branches: Vec<(usize, Branch, Label)>,
    literals: Vec<(u64, Label)>,
    /// There was no memory for something: what is written is not whole.
    is_out_of_memory: bool,
}

impl Assembler {
    /// How many words there are.
    pub fn length(&self) -> usize {
        self.words.len()
    }

    /// Adds a word.
    pub fn push(&mut self, word: u32) {
        let outcome = fallible::push(&mut self.words, word);
        self.need(outcome);
    }

    /// Has [`finish`](Self::finish) give an error if there was no memory.
    pub fn need(&mut self, outcome: Result<(), OutOfMemory>) {
        self.is_out_of_memory |= outcome.is_err();
    }

    /// The `items` in a list, which is not whole if [`finish`](Self::finish) gives an error.
    pub fn list<T>(&mut self, items: impl Iterator<Item = T>) -> Vec<T> {
        let mut list = Vec::new();
        let outcome = fallible::extend(&mut list, items);
        self.need(outcome);
        list
    }

    /// A place that is yet to be.
    pub fn label(&mut self) -> Label {
        let label = Label(self.labels.len());
        let outcome = fallible::push(&mut self.labels, None);
        self.need(outcome);
        label
    }

    /// The place is here.
    pub fn bind(&mut self, label: Label) {
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(self.words.len());
        }
    }

    /// Adds a branch to a place.
    pub fn branch(&mut self, branch: Branch, to: Label) {
        let outcome = fallible::push(&mut self.branches, (self.words.len(), branch, to));
        self.need(outcome);
        self.push(0);
    }

    /// Has `rd`, which is not 31, hold `value`: by a word or two, or from behind the words. Changes nothing else.
    pub fn constant(&mut self, rd: u8, value: u64) {
        let mut room = [0; 4];
        let moves = moves(rd, value, &mut room);
        if moves.len() <= 2 {
            moves.iter().for_each(|&word| self.push(word));
            return;
        }
        let label = match self.literals.iter().find(|(of, _)| *of == value) {
            Some(&(_, label)) => label,
            None => {
                let label = self.label();
                let outcome = fallible::push(&mut self.literals, (value, label));
                self.need(outcome);
                label
            }
        };
        self.branch(Branch::Literal(rd), label);
    }

    /// All the words, and how many of them are instructions; behind those are numbers.
    ///
    /// # Errors
    ///
    /// There was no memory, or a branch does not reach its target.
    pub fn finish(mut self) -> Result<(Vec<u32>, usize), Refused> {
        let instructions = self.words.len();
        let literals = core::mem::take(&mut self.literals);
        if !literals.is_empty() && !instructions.is_multiple_of(2) {
            self.push(0);
        }
        for (value, label) in literals {
            self.bind(label);
            self.push(value as u32);
            self.push((value >> 32) as u32);
        }
        if self.is_out_of_memory {
            return Err(Refused::OutOfMemory);
        }
        for (at, branch, Label(to)) in self.branches {
            let to = self.labels.get(to).copied().flatten().ok_or(Refused::Long)?;
            let word = branch.word((to as i64 - at as i64) * 4).ok_or(Refused::Long)?;
            *self.words.get_mut(at).ok_or(Refused::Long)? = word;
        }
        Ok((self.words, instructions))
    }
}
