//! The assembler: it collects words, branches to labels that are placed later, and literals after the words.
//!
//! The words refer to each other only by distances. So they run at any address that is a multiple of 8.

use alloc::vec::Vec;

use aarch64_kprobes::insn::encode;
use aarch64_kprobes::insn::encode::compute::Branch;
use fallible::OutOfMemory;

use super::Refused;

/// A position among the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// Returns the words that load `value` into `rd`, which is not 31, without literals. They are built in `room`.
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

/// The words assembled so far.
#[derive(Default)]
pub(super) struct Assembler {
    words: Vec<u32>,
    /// The number of the word that each label stands before.
    labels: Vec<Option<usize>>,
    /// The branches to be written: the number of the word, the kind, and the target.
    branches: Vec<(usize, Branch, Label)>,
    literals: Vec<(u64, Label)>,
    /// Whether memory ran out, so that the words are incomplete.
    is_out_of_memory: bool,
}

impl Assembler {
    /// Returns the number of words.
    pub fn length(&self) -> usize {
        self.words.len()
    }

    pub fn push(&mut self, word: u32) {
        let outcome = fallible::push(&mut self.words, word);
        self.need(outcome);
    }

    /// Notes a failed allocation, so that [`finish`](Self::finish) returns an error.
    pub fn need(&mut self, outcome: Result<(), OutOfMemory>) {
        self.is_out_of_memory |= outcome.is_err();
    }

    /// Returns `items` as a list. The list is incomplete if [`finish`](Self::finish) is going to return an error.
    pub fn list<T>(&mut self, items: impl Iterator<Item = T>) -> Vec<T> {
        let mut list = Vec::new();
        let outcome = fallible::extend(&mut list, items);
        self.need(outcome);
        list
    }

    /// Makes a label that is placed later.
    pub fn label(&mut self) -> Label {
        let label = Label(self.labels.len());
        let outcome = fallible::push(&mut self.labels, None);
        self.need(outcome);
        label
    }

    /// Places a label here.
    pub fn bind(&mut self, label: Label) {
        if let Some(place) = self.labels.get_mut(label.0) {
            *place = Some(self.words.len());
        }
    }

    /// Appends a branch to a label.
    pub fn branch(&mut self, branch: Branch, to: Label) {
        let outcome = fallible::push(&mut self.branches, (self.words.len(), branch, to));
        self.need(outcome);
        self.push(0);
    }

    /// Loads `value` into `rd`, which is not 31, by one or two words or from a literal. Changes no other register and
    /// no flags.
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

    /// Returns all words, and the number of instructions among them, which literals follow.
    ///
    /// # Errors
    ///
    /// [`Refused::OutOfMemory`] if memory ran out since the assembler was made; [`Refused::Long`] if a branch
    /// cannot reach its target.
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
