//! Kernel stacks.
//!
//! A stack is the upper half of a window twice its size and aligned to it; the lower half is never mapped. A stack
//! that overflows runs into the gap and faults, and one bit of the stack pointer tells that it has (trampoline/vectors.S).
//!
//! A stack may be mapped by one CPU, used by others, and unmapped by yet another, whose reaper frees it. The window is free
//! again only when no TLB has the stack any more, so the next one there cannot be mistaken for it.

use core::ops::Range;

use super::descriptor::Attributes;
use super::layout::{PAGE_SIZE, STACK_SIZE, STACKS};
use super::{frame, table};
use crate::sync::PreemptLock;
use fallible::OutOfMemory;

/// The most stacks that exist at a time.
pub const MAX_STACKS: usize = 4096;
const WINDOW: usize = 2 * STACK_SIZE;

/// One bit for each window that is in use.
static WINDOWS: PreemptLock<[u64; MAX_STACKS / 64]> = PreemptLock::new([0; MAX_STACKS / 64]);

/// A stack of [`STACK_SIZE`] bytes, with unknown contents. Dropping it gives its memory back.
#[derive(Debug)]
pub struct Stack {
    window: usize,
}

impl Stack {
    /// Maps a new stack.
    pub fn allocate() -> Result<Self, OutOfMemory> {
        let stack = Self { window: take_window().ok_or(OutOfMemory)? };
        for page in stack.range().step_by(PAGE_SIZE) {
            let frame = frame::allocate().ok_or(OutOfMemory)?;
            if table::map(page, frame, PAGE_SIZE, Attributes::DATA).is_err() {
                // SAFETY: the frame was allocated above and has not been mapped.
                unsafe { frame::free(frame) };
                return Err(OutOfMemory);
            }
        }
        Ok(stack)
    }

    /// The virtual addresses of the stack; its end is the stack pointer to begin with, a multiple of 16.
    #[must_use]
    pub const fn range(&self) -> Range<usize> {
        let start = STACKS + self.window * WINDOW + STACK_SIZE;
        start..start + STACK_SIZE
    }
}

/// The stack that a stack pointer is in, which may be its end: of a task, whether or not that exists.
#[inline(always)]
pub fn containing(pointer: usize) -> Option<Range<usize>> {
    let last = pointer.wrapping_sub(1);
    let is_stack = last.wrapping_sub(STACKS) < MAX_STACKS * WINDOW && last & STACK_SIZE != 0;
    let start = last & !(STACK_SIZE - 1);
    is_stack.then_some(start..start + STACK_SIZE)
}

impl Drop for Stack {
    fn drop(&mut self) {
        for page in self.range().step_by(PAGE_SIZE) {
            // SAFETY: the task that owns the stack no longer runs on it.
            if let Some(frame) = unsafe { table::unmap(page) } {
                // SAFETY: the frame comes from `allocate`, and nothing else mapped it.
                unsafe { frame::free(frame) };
            }
        }
        WINDOWS.lock()[self.window / 64] &= !(1 << (self.window % 64));
    }
}

fn take_window() -> Option<usize> {
    let mut windows = WINDOWS.lock();
    let word = windows.iter().position(|word| *word != u64::MAX)?;
    let bit = windows[word].trailing_ones() as usize;
    windows[word] |= 1 << bit;
    Some(word * 64 + bit)
}
