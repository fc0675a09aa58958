//! Where instructions are executed out of line.
//!
//! A slot is two words: the instruction, and what leads on: `brk #0x6`, or a branch to the next instruction. Slots are
//! carved out of executable memory that the kernel maps a piece at a time, and that is written only through aliases. A
//! slot is written once, before any CPU can come to it, and never changed: a probe that is to be executed otherwise gets
//! another. One that is given back is used again, so it must be given back only when nobody can be in it.

use alloc::vec::Vec;

use super::hit::origin::{self, SLOT};
use crate::platform;
use crate::text::Word;

/// Bytes that the kernel is asked for at a time.
const PIECE: usize = 4096;

/// The slots of one kind of memory.
#[derive(Debug)]
struct Slots {
    /// Branch targets are checked in the memory: a landing pad then makes the same check in its slot as in its place.
    guarded: bool,
    free: Vec<usize>,
    total: usize,
}

/// All slots.
#[derive(Debug)]
pub(super) struct Arena {
    plain: Slots,
    guarded: Slots,
    /// What is to be written to slots that have been allocated since [`take_words`](Self::take_words).
    words: Vec<Word>,
}

impl Arena {
    pub(super) const fn new() -> Self {
        Self { plain: Slots::new(false), guarded: Slots::new(true), words: Vec::new() }
    }

    fn slots(&mut self, guarded: bool) -> &mut Slots {
        if guarded { &mut self.guarded } else { &mut self.plain }
    }

    /// The virtual address of a slot that nobody uses, if there is memory for one.
    pub(super) fn allocate(&mut self, guarded: bool) -> Option<usize> {
        self.words.try_reserve(SLOT / 4).ok()?;
        self.slots(guarded).allocate()
    }

    /// Has the slot at `slot` filled with these words, before any CPU comes to it.
    pub(super) fn fill(&mut self, slot: usize, words: [u32; SLOT / 4]) {
        let words = words.into_iter().zip((slot..).step_by(4));
        self.words.extend(words.map(|(word, address)| Word { address, word }));
    }

    /// What is to be written to the slots.
    pub(super) fn take_words(&mut self) -> Vec<Word> {
        core::mem::take(&mut self.words)
    }

    /// Takes back a slot that nobody can be in.
    pub(super) fn free(&mut self, slot: usize, guarded: bool) {
        self.slots(guarded).free.push(slot);
    }

    /// How many slots are in use.
    pub(super) fn in_use(&self) -> usize {
        [&self.plain, &self.guarded].map(|slots| slots.total - slots.free.len()).iter().sum()
    }

    /// Bytes of executable memory that the slots take, those that nobody uses included.
    pub(super) fn memory(&self) -> usize {
        SLOT * (self.plain.total + self.guarded.total)
    }
}

impl Slots {
    const fn new(guarded: bool) -> Self {
        Self { guarded, free: Vec::new(), total: 0 }
    }

    fn allocate(&mut self) -> Option<usize> {
        if self.free.is_empty() {
            // Room for all that there are, so that giving back needs no memory.
            self.free.try_reserve(self.total + PIECE / SLOT).ok()?;
            let piece = platform::allocate_executable(PIECE, self.guarded)?;
            origin::add(piece..piece + PIECE);
            self.free.extend((piece..piece + PIECE).step_by(SLOT).rev());
            self.total += PIECE / SLOT;
        }
        self.free.pop()
    }
}
