//! Who called what was hit: return addresses along the frame records of the interrupted code.
//!
//! Nothing is believed: every word is read where it may fault, a record has to be aligned and to lie above the one before
//! it, and there are at most as many as are asked for. A function that has a return probe returns to the engine, which knows
//! where it goes from there. The function that was hit at its entry has no record yet: its caller is in x30.

use aarch64_kprobes::exception::nofault;
use aarch64_kprobes::probe;

use super::Moment;
use crate::fetch::Register;
use crate::hit::Registers;

/// The addresses of a stack, from what was hit outwards.
#[derive(Clone, Copy, Debug)]
pub struct Walk<'a> {
    registers: Registers<'a>,
    /// What was hit.
    address: u64,
    /// The caller of what was hit is in x30, and comes next.
    in_link: bool,
    /// The virtual address of the next record.
    record: usize,
}

impl<'a> Walk<'a> {
    /// `in_link`: what was hit has not made its frame record yet, and its caller is in x30.
    #[must_use]
    pub fn new(moment: &Moment<'a>, in_link: bool) -> Self {
        let Moment { registers, address, .. } = *moment;
        Self { registers, address, in_link, record: registers.get(Register::FRAME) as usize }
    }

    /// The address that comes first, whatever follows.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.address
    }

    /// The next return address behind the first.
    #[inline]
    pub fn step(&mut self) -> Option<u64> {
        if self.in_link {
            self.in_link = false;
            let (link, floor) = (self.registers.get(Register::LINK), self.registers.get(Register::SP));
            // SAFETY: the registers are those of the probed code.
            return Some(unsafe { probe::address_here(link as usize, floor as usize) as u64 });
        }
        let record = self.record;
        if record == 0 || !record.is_multiple_of(16) {
            return None;
        }
        // SAFETY: frame records lie on stacks; what code that uses x29 otherwise has there is read, too (README.md, Limits).
        let (next, address): (u64, u64) = unsafe { (nofault::read(record).ok()?, nofault::read(record + 8).ok()?) };
        // The last record of a task has no next one, and its address leads nowhere.
        if next == 0 {
            return None;
        }
        self.record = if next as usize > record { next as usize } else { 0 };
        // SAFETY: the record ends there.
        Some(unsafe { probe::address_here(address as usize, record + 16) as u64 })
    }
}
