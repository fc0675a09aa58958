//! The places where the clauses of a program run: instructions, watched memory, and samples.

use core::ops::Range;

use kprobes_program::syntax::Period;

use super::exits::Exit;

/// How to probe an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// At the entry of a function, with the registers that a call passes.
    Entry,
    /// With all registers.
    Instruction,
    /// With all registers, if the instruction leaves its function.
    Exit(Exit),
    /// At the returns of the function that begins with the instruction.
    Kretprobe,
}

/// An instruction to be probed.
#[derive(Clone, Debug)]
pub(super) struct ResolvedPlace {
    pub way: Way,
    /// The virtual address of the instruction.
    pub address: usize,
    /// The number of the clause.
    pub clause: usize,
    /// The number of the probe in the text of the program.
    pub probe: usize,
    /// The number of the probe's name, from 1.
    pub name: usize,
    /// The virtual address range of the function that contains the instruction.
    pub function: Range<usize>,
    /// Whether the return address of the function is in x30 there, and not in a frame record. False if the clause does
    /// not ask for the caller.
    pub is_caller_in_x30: bool,
    /// The copied function and its caller, if the probe is on a copy.
    pub inlined: Option<Inlined>,
}

/// The values (see [`inlined`](super::inlined)) of a function whose copy is probed, and of the function that contains
/// the copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inlined {
    pub function: u64,
    pub caller: u64,
    /// The hash of the name of the copied function in the table of types.
    pub hash: u16,
    /// The virtual address of the first instruction of the copy.
    pub first: u64,
}

impl ResolvedPlace {
    /// Returns the value of the probed function: its virtual address, or the value of the copied function.
    pub fn meant(&self) -> u64 {
        self.inlined.map_or(self.function.start as u64, |inlined| inlined.function)
    }

    /// Returns the virtual address of the instruction that control passes to when the probe is reported.
    pub fn reported(&self) -> usize {
        match self.way {
            Way::Exit(Exit::Conditional(op)) => {
                self.address.wrapping_add_signed(op.control().branch_offset().unwrap_or(4) as isize)
            }
            Way::Exit(Exit::Unless(_)) => self.address + 4,
            _ => self.address,
        }
    }

    /// Returns an estimate of the most memory that the probe takes, in bytes.
    pub fn memory(&self) -> usize {
        // A return probe also needs an instance for each call in progress.
        if matches!(self.way, Way::Kretprobe) { 5120 } else { 512 }
    }
}

/// Memory to be watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watched {
    /// The virtual address of the first byte.
    pub address: u64,
    /// The number of bytes.
    pub length: u64,
    pub loads: bool,
    pub stores: bool,
    /// The number of the clause.
    pub clause: usize,
    /// The number of the probe in the text of the program.
    pub probe: usize,
    /// The number of the probe's name, from 1.
    pub name: usize,
    /// Whether the clause asks for the caller.
    pub wants_caller: bool,
}

/// A clause that runs for samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampledClause {
    /// The number of the clause.
    pub clause: usize,
    /// The number of the probe's name, from 1.
    pub name: usize,
    /// The number of the probe in the text of the program.
    pub probe: usize,
    pub period: Period,
    /// Whether the clause asks for the function that was interrupted.
    pub wants_function: bool,
    /// Whether the clause asks for the caller of that function.
    pub wants_caller: bool,
}
