//! Stack traces: the return addresses along the frame records of the interrupted code.
//!
//! The walk trusts nothing. Every word is read by a load that may fault. A record must be aligned and lie above the one
//! before it, and the caller limits the number of addresses. A function with a return probe returns to the engine,
//! which supplies the original return address. A function that was hit at its entry has no record yet: its caller is in
//! x30.

use aarch64_kprobes::exception::nofault;
use aarch64_kprobes::probe;

use super::HitState;
use crate::fetch::Register;
use crate::hit::Registers;

/// The addresses on a stack, from the innermost outwards.
#[derive(Clone, Copy, Debug)]
pub struct Walk<'a> {
    registers: Registers<'a>,
    /// The address that was hit.
    address: u64,
    /// Whether the next address is the one in x30.
    is_caller_in_x30: bool,
    /// The virtual address of the next frame record; 0 at the end.
    record: usize,
}

impl<'a> Walk<'a> {
    /// Starts a walk. `is_caller_in_x30` says that the probed function has not made its frame record yet, so its caller
    /// is in x30.
    #[must_use]
    pub fn new(state: &HitState<'a>, is_caller_in_x30: bool) -> Self {
        let HitState { registers, address, .. } = *state;
        Self { registers, address, is_caller_in_x30, record: registers.get(Register::FRAME) as usize }
    }

    /// Returns the first address of the stack: the one that was hit.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.address
    }

    /// Returns the address after the frame record that [`step`](Self::step) will read; `None` if it will read none.
    #[must_use]
    pub fn floor(&self) -> Option<u64> {
        (!self.is_caller_in_x30 && self.record != 0).then_some(self.record as u64 + 16)
    }

    /// Returns the next return address; `None` at the end of the stack.
    #[inline]
    pub fn step(&mut self) -> Option<u64> {
        if self.is_caller_in_x30 {
            self.is_caller_in_x30 = false;
            let (link, floor) = (self.registers.get(Register::LINK), self.registers.get(Register::SP));
            // SAFETY: `is_caller_in_x30` says that the return address is still in x30, and the floor is the stack
            // pointer of the probed code.
            return Some(unsafe { probe::address_here(link as usize, floor as usize) as u64 });
        }
        let record = self.record;
        if record == 0 || !record.is_multiple_of(16) {
            return None;
        }
        // SAFETY: frame records lie on stacks, and loads from a stack have no side effect. Code that uses x29 for
        // something else makes this read whatever x29 points to (README.md, Limits).
        let (next, address): (u64, u64) = unsafe { (nofault::read(record).ok()?, nofault::read(record + 8).ok()?) };
        // The last record of a task has no next one, and its address is not a return address.
        if next == 0 {
            return None;
        }
        self.record = if next as usize > record { next as usize } else { 0 };
        // SAFETY: the address comes from a frame record of the task on this CPU, and the record ends at `record + 16`.
        Some(unsafe { probe::address_here(address as usize, record + 16) as u64 })
    }
}
