//! Words that are being written: places in them that branches lead to before they are known, and numbers behind them.
//!
//! The words lead to each other by distances alone, so they run wherever they are put, at a multiple of 8.

use alloc::vec::Vec;

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::Branch;

/// A place in the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A branch does not reach its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Far;

/// The words, as far as they are written.
#[derive(Default)]
pub(super) struct Assembler {
    words: Vec<u32>,
    /// For each label, the number of the word that it is before.
    labels: Vec<Option<usize>>,
    /// The numbers of the words that are yet to be written, what they are, and where they lead.
    branches: Vec<(usize, Branch, Label)>,
    literals: Vec<(u64, Label)>,
}

impl Assembler {
    /// How many words there are.
    pub fn length(&self) -> usize {
        self.words.len()
    }

    /// Adds a word.
    pub fn push(&mut self, word: u32) {
        self.words.push(word);
    }

    /// A place that is yet to be.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// The place is here.
    pub fn bind(&mut self, label: Label) {
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(self.words.len());
        }
    }

    /// Adds a branch to a place.
    pub fn branch(&mut self, branch: Branch, to: Label) {
        self.branches.push((self.words.len(), branch, to));
        self.words.push(0);
    }

    /// Has `rd`, which is not 31, hold `value`: by a word or two, or from behind the words. Changes nothing else.
    pub fn constant(&mut self, rd: u8, value: u64) {
        let mut moves = Vec::new();
        encode::constant(rd, value, |word| moves.push(word));
        if moves.len() <= 2 {
            self.words.append(&mut moves);
            return;
        }
        let label = match self.literals.iter().find(|(of, _)| *of == value) {
            Some(&(_, label)) => label,
            None => {
                let label = self.label();
                self.literals.push((value, label));
                label
            }
        };
        self.branch(Branch::Literal(rd), label);
    }

    /// All the words, and how many of them are instructions; behind those are numbers.
    pub fn finish(mut self) -> Result<(Vec<u32>, usize), Far> {
        let instructions = self.words.len();
        let literals = core::mem::take(&mut self.literals);
        if !literals.is_empty() && !instructions.is_multiple_of(2) {
            self.words.push(0);
        }
        for (value, label) in literals {
            self.bind(label);
            self.words.extend([value as u32, (value >> 32) as u32]);
        }
        for (at, branch, Label(to)) in self.branches {
            let to = self.labels.get(to).copied().flatten().ok_or(Far)?;
            let word = branch.word((to as i64 - at as i64) * 4).ok_or(Far)?;
            *self.words.get_mut(at).ok_or(Far)? = word;
        }
        Ok((self.words, instructions))
    }
}
