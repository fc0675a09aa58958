//! Where instructions are executed out of line.
//!
//! A slot is two words: the instruction, and the `brk #0x6` that ends it. Slots are carved out of executable
//! memory that the kernel maps a piece at a time, and that is written only through aliases. A slot that is
//! given back is used again, so it must be given back only when no CPU can be in it.

use alloc::vec::Vec;

use crate::{insn, platform, text};

/// Bytes of a slot.
const SLOT: usize = 8;
/// Bytes that the kernel is asked for at a time.
const PIECE: usize = 4096;

/// The slots that are free, in one kind of memory.
#[derive(Debug)]
pub(super) struct Slots {
    /// Branch targets are checked in the memory: a landing pad then makes the same check in its slot as in its place.
    guarded: bool,
    free: Vec<usize>,
    total: usize,
}

impl Slots {
    pub(super) const fn new(guarded: bool) -> Self {
        Self { guarded, free: Vec::new(), total: 0 }
    }

    /// A slot that holds `word`, ready to be executed. Returns its virtual address, or nothing if there is no
    /// memory for it.
    pub(super) fn allocate(&mut self, word: u32) -> Option<usize> {
        if self.free.is_empty() {
            let piece = platform::allocate_executable(PIECE, self.guarded)?;
            self.free.extend((piece..piece + PIECE).step_by(SLOT).rev());
            self.total += PIECE / SLOT;
        }
        let slot = self.free.pop()?;
        if text::write(slot, &[word, insn::BRK_STEP]).is_err() {
            self.free.push(slot);
            return None;
        }
        Some(slot)
    }

    /// Takes back a slot that no CPU can be in.
    pub(super) fn free(&mut self, slot: usize) {
        self.free.push(slot);
    }

    /// How many slots hold an instruction.
    pub(super) fn in_use(&self) -> usize {
        self.total - self.free.len()
    }
}
