//! Walks along stacks: the return addresses in the frame records of the probed code (AAPCS64, section 6.4.6).
//!
//! A walk trusts nothing. Every word is read by a load that may fault. A record must be aligned and lie above the one
//! before it, and the caller limits the number of addresses. A function with a return probe returns to the engine,
//! which supplies the original return address. A function that is hit at its entry has no record yet: its caller is in
//! x30.

use super::unwind::{self, read_here};
use crate::interrupts;

/// The size of a frame record, in bytes.
const RECORD_SIZE: u64 = 16;

/// The addresses on the stack of the task that runs on this CPU, from the innermost outwards. Handlers may use it.
#[derive(Clone, Copy, Debug)]
pub struct StackWalk {
    address: u64,
    /// The values of x30 and sp, while the next return address is the one in x30.
    link: Option<(u64, u64)>,
    /// The virtual address of the next frame record; 0 at the end.
    record: u64,
}

impl StackWalk {
    /// Starts a walk at the virtual address `address`. There, x29 has the value `frame_pointer`. If the function has
    /// made no frame record yet, `link` has the values of x30 and sp.
    ///
    /// # Safety
    ///
    /// The task that runs on this CPU does not leave the functions on its stack before the walk ends. The values are
    /// those of its registers, and no device register lies where x29 points.
    #[inline]
    #[must_use]
    pub const unsafe fn new(address: u64, frame_pointer: u64, link: Option<(u64, u64)>) -> Self {
        Self { address, link, record: frame_pointer }
    }

    /// Returns the first address: the one at which the walk was started.
    #[inline]
    #[must_use]
    pub const fn first(&self) -> u64 {
        self.address
    }

    /// Returns the virtual address after the frame record that [`step`](Self::step) will read; `None` if it will read
    /// none.
    #[inline]
    #[must_use]
    pub fn floor(&self) -> Option<u64> {
        (self.link.is_none() && self.record != 0).then_some(self.record.wrapping_add(RECORD_SIZE))
    }

    /// Returns the next return address; `None` at the end of the stack.
    #[inline]
    #[must_use = "each address is returned once"]
    pub fn step(&mut self) -> Option<u64> {
        if let Some((link, stack_pointer)) = self.link {
            self.link = None;
            // SAFETY: the address was in x30, with this stack pointer (# Safety of `new`).
            return Some(unsafe { without_probes(link, stack_pointer) });
        }
        let record = self.record;
        if record == 0 || !record.is_multiple_of(RECORD_SIZE) {
            return None;
        }
        // SAFETY: frame records lie on stacks, and no device register lies where x29 points (# Safety of `new`).
        let (next, address) = unsafe { (read_here(record)?, read_here(record.wrapping_add(8))?) };
        // The last record of a task has no next one, and its address is not a return address.
        if next == 0 {
            return None;
        }
        self.record = if next > record { next } else { 0 };
        // SAFETY: the address comes from a frame record of the task on this CPU, and the record ends there.
        Some(unsafe { without_probes(address, record.wrapping_add(RECORD_SIZE)) })
    }
}

/// Returns the return address that a record, or x30, would hold without probes instead of `address`.
///
/// # Safety
///
/// The contract of [`address_here`](crate::probe::address_here).
#[inline(always)]
unsafe fn without_probes(address: u64, floor: u64) -> u64 {
    // SAFETY: the caller keeps the contract; `with_masked` masks interrupts.
    interrupts::with_masked(|| unsafe { unwind::address_here(address as usize, floor) }) as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::vec::Vec;
    use core::cell::Cell;

    use super::*;

    fn walk(record: u64, link: Option<(u64, u64)>) -> Vec<u64> {
        // SAFETY: the stack belongs to the test, and no function that is on it returns.
        let mut walk = unsafe { StackWalk::new(0x1000, record, link) };
        let mut addresses = Vec::from([walk.first()]);
        addresses.extend(core::iter::from_fn(|| walk.step()).take(9));
        addresses
    }

    #[repr(align(16))]
    struct Stack<const WORDS: usize>([Cell<u64>; WORDS]);

    impl<const WORDS: usize> Stack<WORDS> {
        /// Returns the address of a word. Exposes all words, because a walk reads others, too.
        fn address(&self, word: usize) -> u64 {
            (self.0.as_ptr().expose_provenance() + 8 * word) as u64
        }
    }

    /// A stack begins with the probed address, then x30 if that holds the caller, then the frame records.
    #[test]
    fn a_stack_is_followed_along_its_records() {
        let stack = Stack([0, 0x2004, 0, 0x3004, 0, 0, 0, 0x4004].map(Cell::new));
        let [first, second, last] = [0, 2, 6].map(|word| stack.address(word));
        stack.0[0].set(second);
        stack.0[2].set(last);
        assert_eq!(walk(first, Some((0x1804, first))), [0x1000, 0x1804, 0x2004, 0x3004]);
        assert_eq!(walk(first, None), [0x1000, 0x2004, 0x3004]);
    }

    /// A record that points to a lower address ends the stack, and so does an address at which no record can be.
    #[test]
    fn a_stack_that_runs_in_a_circle_ends() {
        let stack = Stack([0, 0x2004, 0, 0x3004].map(Cell::new));
        let first = stack.address(0);
        stack.0[0].set(first + 16);
        stack.0[2].set(first);
        assert_eq!(walk(first, None), [0x1000, 0x2004, 0x3004]);
        assert_eq!(walk(first + 8, None), [0x1000]);
    }

    /// `floor` is the end of the record that the next step reads.
    #[test]
    fn a_walk_tells_where_the_next_record_ends() {
        let stack = Stack([0, 0x2004].map(Cell::new));
        let first = stack.address(0);
        // SAFETY: the stack belongs to the test, and no function that is on it returns.
        let mut walk = unsafe { StackWalk::new(0x1000, first, Some((0x1804, first))) };
        assert_eq!(walk.floor(), None, "the return address is in x30");
        assert_eq!((walk.step(), walk.floor()), (Some(0x1804), Some(first + 16)));
        assert_eq!(walk.step(), None);
    }
}
