//! Kernel stacks, mapped so that an overflow faults.
//!
//! A stack is the upper half of a window, which is twice as large and aligned to its own size. The lower half is never
//! mapped. A stack that overflows runs into that gap and faults, and one bit of the stack pointer shows it
//! (trampoline/vectors.S).
//!
//! One CPU may map a stack, others may run on it, and the CPU of the reaper may unmap it. The window becomes free only
//! when no TLB contains the stack any more, so accesses to the next stack there never reach the old one.

use core::ops::Range;

use super::descriptor::Attributes;
use super::layout::{PAGE_SIZE, STACK_SIZE, STACKS};
use super::{frame, table};
use crate::sync::PreemptLock;
use fallible::OutOfMemory;

/// The most stacks that can exist at a time.
pub const MAX_STACKS: usize = 4096;
const WINDOW: usize = 2 * STACK_SIZE;

/// One bit for each window, set while it is in use.
static WINDOWS: PreemptLock<[u64; MAX_STACKS / 64]> = PreemptLock::new([0; MAX_STACKS / 64]);

/// A stack of [`STACK_SIZE`] bytes with unknown contents. Dropping it frees its memory.
#[derive(Debug)]
pub struct Stack {
    window: usize,
}

impl Stack {
    /// Maps a new stack. Returns an error if there is no memory or no window for it.
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

    /// Returns the virtual addresses of the stack. The end is the initial stack pointer, a multiple of 16.
    #[must_use]
    pub const fn range(&self) -> Range<usize> {
        let start = STACKS + self.window * WINDOW + STACK_SIZE;
        start..start + STACK_SIZE
    }
}

/// Returns the stack that contains a stack pointer, which may be the stack's end. Does not check that the stack exists.
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
            // SAFETY: the task that owned the stack no longer runs on it.
            if let Some(frame) = unsafe { table::unmap(page) } {
                // SAFETY: the frame comes from `frame::allocate`, and `table::unmap` has removed its only other
                // mapping.
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
