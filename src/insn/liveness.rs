//! Determines which registers hold a value that is still needed at an instruction.
//!
//! A register is dead if it is written before it is read on every path that execution can take. The paths are followed
//! one after the other, by [`RegisterAccess`], through branches and into called functions. A walk looks at a bounded
//! number of instructions, uses a bounded amount of memory, and allocates nothing. When it reaches a bound, the
//! registers for which it has not found a writer count as needed.
//!
//! Paths leave the function by calls and returns, which cannot all be followed. There the procedure call standard says
//! that x9 to x17 and the flags hold nothing (AAPCS64, section 6.1). Two kinds of functions that do not follow the
//! standard are found:
//!
//! - A called function that reads one of these registers: by following the call.
//! - A function across whose calls the registers keep their values ([`ScratchPreservers`]): it does not change them,
//!   and has a caller that shows it, by an instruction after the call that reads them. The functions that such a function
//!   calls, or goes on in, are of the same kind.
//!
//! LLVM's machine outliner makes functions of both kinds. Calls in inline assembly with clobbers of their own are of
//! the second kind.

mod callers;
mod flow;
mod stack;
mod walk;

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use callers::Callers;
pub use stack::{changes_task, stack_at_return};
pub(super) use walk::Shared;
use walk::{Begin, PATHS_MAX, Walk, is_trap};

use super::classify;
use super::control::Control;
use super::encode::branch_target;
use super::op::Indirect;
use super::registers::{RegisterAccess, Registers};
use super::survey::row::{Row, offset};

/// Why a register is not known to be dead. Addresses are virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// An instruction reads the register.
    Read {
        /// One of the registers.
        register: Registers,
        /// The address of the instruction.
        reader: u64,
    },
    /// After a call of the function, an instruction reads the value that the register had before the call.
    Kept {
        /// One of the registers.
        register: Registers,
        /// The address of the call.
        call: u64,
    },
    /// The paths could not be followed beyond an instruction.
    Lost {
        /// One of the registers.
        register: Registers,
        /// The address of that instruction.
        end: u64,
    },
}

impl fmt::Display for Live {
    /// Writes the rest of a sentence that begins with "because".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { register, reader } => write!(f, "{register} is live there: it is read at {reader:#x}"),
            Self::Kept { register, call } => write!(f, "the call at {call:#x} relies on {register} being preserved"),
            Self::Lost { register, end } => {
                write!(f, "{register} may be live: the search for its next use ended at {end:#x}")
            }
        }
    }
}

/// Functions whose callers keep values in x9 to x17 or the flags across the call.
#[derive(Debug, Default)]
pub struct ScratchPreservers(Vec<Preserving>);

/// A function, and a call of it.
#[derive(Clone, Copy, Debug)]
struct Preserving {
    function: u64,
    /// A call whose caller reads the lowest of the `kept` registers after it.
    call: u64,
    /// The registers that the function preserves.
    preserved: Registers,
    /// The preserved registers that are read after calls.
    kept: Registers,
}

/// The registers that a called function may change under the procedure call standard, and that hold no argument: x9 to
/// x17 and the flags.
pub const SCRATCH: Registers = Registers::from_to(9, 17).with(Registers::FLAGS);

/// Returns the instruction at an address, as it is without probes; `None` outside the text and the code that it calls.
pub(super) type Read<'a> = &'a dyn Fn(u64) -> Option<u32>;
/// Returns the bounds of the function around an address; `None` if none is known.
pub(super) type Bounds<'a> = &'a dyn Fn(u64) -> Option<Range<u64>>;

/// Returns the bounds of the function around `at`, if it consists of whole words of the text. Kernels look functions up
/// in tables that may be damaged.
pub(super) fn function_around(at: u64, text: &Range<u64>, bounds: Bounds<'_>) -> Option<Range<u64>> {
    bounds(at).filter(|function| {
        let is_aligned = function.start.is_multiple_of(4) && function.end.is_multiple_of(4);
        let is_inside = text.start <= function.start && function.end <= text.end;
        is_aligned && is_inside && function.contains(&at)
    })
}

impl ScratchPreservers {
    /// Finds these functions among those that are called in the text at these virtual addresses; `None` if there is no
    /// memory for the list. `bounds` returns the bounds of the function around an address.
    pub fn in_text(text: Range<u64>, read: Read<'_>, bounds: Bounds<'_>) -> Option<Self> {
        Callers::new(text, read, bounds).preserving().map(Self)
    }

    /// Returns a row for each of the functions in the text, in ascending order.
    pub(super) fn rows(&self, text: &Range<u64>) -> impl Iterator<Item = Row> {
        let in_text = self.0.iter().filter(|preserving| text.contains(&preserving.function));
        in_text.map(|&Preserving { function, call, preserved, kept }| {
            [offset(text.start, function), offset(text.start, call), preserved.bits(), kept.bits()]
        })
    }

    /// Makes the list from its rows; `None` if they are not in order, or if there is no memory.
    pub(super) fn from_rows(start: u64, rows: impl Iterator<Item = Row>) -> Option<Self> {
        let preserving = |[function, call, preserved, kept]: Row| Preserving {
            function: start.wrapping_add(function.into()),
            call: start.wrapping_add(call.into()),
            preserved: Registers::from_bits(preserved),
            kept: Registers::from_bits(kept),
        };
        let list = fallible::collect(rows.map(preserving)).ok()?;
        list.is_sorted_by(|one, next| one.function < next.function).then_some(Self(list))
    }

    /// Returns the entry of `function`, if there is one.
    fn by(&self, function: u64) -> Option<&Preserving> {
        let index = self.0.binary_search_by_key(&function, |preserving| preserving.function).ok()?;
        self.0.get(index)
    }
}

/// Returns why not all of [`SCRATCH`] is dead at the first instruction of the function at the virtual address
/// `function`; `None` if all of it is.
#[must_use]
pub fn scratch_at_entry(function: u64, preservers: &ScratchPreservers, read: Read<'_>) -> Option<Live> {
    Walk::new(read, preservers).live(function, SCRATCH, function)
}

/// Returns the registers of [`SCRATCH`] in which the function at these virtual addresses may pass something to its
/// caller, as outlined functions do: those that it writes anywhere, or all if it makes a call, or has an instruction of
/// which nothing is known.
#[must_use]
pub fn handed(function: Range<u64>, read: Read<'_>) -> Registers {
    let mut handed = Registers::NONE;
    for word in function.step_by(4).filter_map(read) {
        let verdict = classify(word);
        if let Control::Call(_) | Control::Register { kind: Indirect::Call, .. } = Control::after(word, verdict) {
            return SCRATCH;
        }
        if !is_trap(word, verdict) {
            handed = handed | RegisterAccess::under(verdict, word).may_leave(word) & SCRATCH;
        }
    }
    handed
}

/// Returns why not all of the `wanted` registers are dead before the instruction at the virtual address `at`; `None` if
/// they are. They are a part of [`SCRATCH`]. The instruction is in the function at the virtual address `function`,
/// which may have [`handed`] these registers to its caller.
///
/// At a return, a register is dead only if the function passes nothing in it to its caller.
#[must_use]
pub fn live_at(
    at: u64,
    wanted: Registers,
    function: u64,
    handed: Registers,
    preservers: &ScratchPreservers,
    read: Read<'_>,
) -> Option<Live> {
    Walk::new(read, preservers).beginning(Begin::Inside(handed)).live(at, wanted, function)
}

/// Returns the virtual address of an instruction that overwrites x30 before it is read, on every path from the first
/// instruction of the function at the virtual address `function`: then the function does not return to that address.
/// Returns `None` if x30 may be read, or if this cannot be determined.
#[must_use]
pub fn overwrites_link(function: u64, read: Read<'_>) -> Option<u64> {
    let preservers = ScratchPreservers::default();
    let mut walk = Walk::new(read, &preservers);
    let returned = walk.follow::<PATHS_MAX>(function, Registers::x(30), 0).ok()?;
    walk.writer.filter(|_| returned.is_empty())
}

/// Returns why not all of [`SCRATCH`] is dead at `at`, where a call has returned to; `None` if all of it is, up to
/// a return. `shared` is for calls in the same text.
pub(super) fn live_after_call(
    at: u64,
    preservers: &ScratchPreservers,
    read: Read<'_>,
    shared: &Shared,
) -> Option<Live> {
    let mut walk = Walk::sharing(read, preservers, shared).beginning(Begin::Caller);
    walk.follow::<PATHS_MAX>(at, SCRATCH, 0).err()
}

/// Returns the address that the instruction `word` at `at` calls, if it is a direct call.
pub(super) fn called_by(word: u32, at: u64) -> Option<u64> {
    // BL (C6.2), which is B with bit 31 set. By a single test, because this is called for every word of a text.
    branch_target(word ^ 1 << 31, at)
}

#[cfg(test)]
mod tests;
