//! What a probe does, as code in its stub: steps ([`Step`]), and how they are assembled.
//! `hit::snippet_cell` describes where the code lies, and what is done there.
//!
//! The steps of a kernel compute and store. The engine adds words of its own: a prologue before them, which finds the
//! state of the CPU, and the words after them that count the hit. As the code of a return, to which `kretprobe_lean`
//! leads, a snippet lies in a cell of its return probe:
//!
//! ```text
//! +-----------+----------+----------+-------+-------------------+----------------------+-- ... --+----------+
//! | counts,   | numbers  | what the | hit   | to                | to                   |         | where it |
//! | operand   |          | probe    | is    | kretprobe_lean_   | kretprobe_lean_      |         | leaves   |
//! |           |          | does     | counted | leave           | unusual              |         | all      |
//! +-----------+----------+----------+-------+-------------------+----------------------+-- ... --+----------+
//! ```
//!
//! A step names the targets of its branches and the values of its numbers, because distances are known only when the
//! snippet is placed.

mod assembly;
mod list;
mod step;

use alloc::boxed::Box;
use core::fmt;
use core::ptr::NonNull;

pub(super) use assembly::Writer;
pub use list::{StepLabel, StepList};
pub use step::Step;
use step::masks;

use super::arena::Used;
use super::atomics;
use super::hit::counters::Counters;
use super::hit::origin::Cell;
use super::hit::stub;
use crate::insn::{Live, MAX_WORDS, Registers};

/// Why steps cannot be made into a snippet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnippetError {
    /// The step of this number breaks a rule.
    Step {
        /// The number of the step.
        step: usize,
        /// What is wrong, as the rest of a sentence about the step.
        what: &'static str,
    },
    /// The steps do not fit into a cell.
    Long,
    /// There is no memory for a copy of the steps.
    OutOfMemory,
}

impl fmt::Display for SnippetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step { step, what } => write!(f, "step {step} of the snippet {what}"),
            Self::Long => f.write_str("the snippet does not fit into a stub"),
            Self::OutOfMemory => f.write_str("there is no memory for the snippet"),
        }
    }
}

impl core::error::Error for SnippetError {}

/// What a probe does, as code in its stub.
///
/// A snippet finds all registers as the probed code has them, except the registers below. A stub contains it only if
/// the probed code does not need the old value of any register that the snippet changes, nor the flags if it changes
/// them.
///
/// | register | |
/// |---|---|
/// | [`CPU`](Self::CPU) | the virtual address of the state of a CPU: of this one, if interrupts are masked |
/// | [`ONE`](Self::ONE) | 1, where [`has_atomics`](Self::has_atomics) |
/// | [`MASKS`](Self::MASKS) | PSTATE.DAIF of the probed code, as MRS reads it, while interrupts are masked |
/// | x11 to x16 | free for the steps, and so are the flags |
///
/// In a snippet [of returns](Self::of_returns), these stand in the place of `ONE` and of the registers that are free:
///
/// | register | |
/// |---|---|
/// | [`RETURN_ADDRESS`](Self::RETURN_ADDRESS) | at first, the virtual address that the function has returned to |
/// | [`THREAD`](Self::THREAD) | the value of TPIDR_EL1 |
/// | x10 to x14, x30 | free for the steps, and so are the flags |
/// | x15 | not to be read or written |
#[derive(Debug)]
pub struct Snippet {
    steps: Box<[Step]>,
    /// Whether interrupts are masked while it runs. [`Step::Mask`] and [`Step::Unmask`] then produce no instructions.
    is_masked: bool,
    atomics: bool,
    /// Whether it is only for returns.
    is_of_returns: bool,
    /// The registers that it changes.
    used: Registers,
    cell: Cell,
}

/// The snippet of a registered probe.
#[derive(Debug)]
pub(crate) struct Inserted {
    /// The insertion, which outlives the probe.
    pub(super) insertion: InsertionRef,
    /// Counts the hits that the snippet handles. Only the snippet counts there, so it may do so with interrupts
    /// unmasked.
    pub(super) counters: Counters,
    /// Why the snippet cannot be used at the probe's stub or return; `None` if it can.
    pub(super) live: Option<Live>,
    /// The cell of the snippet as the code of a return, if it has one.
    pub(super) code: Option<Used>,
}

/// A snippet together with the operand for one probe.
#[derive(Debug)]
pub struct Insertion {
    snippet: NonNull<Snippet>,
    operand: u64,
}

// SAFETY: the snippet does not change. The caller who registers a probe with it guarantees that it stays in place.
unsafe impl Send for Insertion {}
// SAFETY: the snippet does not change. The caller who registers a probe with it guarantees that it stays in place.
unsafe impl Sync for Insertion {}

impl Insertion {
    /// Makes the insertion of `snippet`, in which [`Step::Operand`] loads `operand`.
    #[must_use]
    pub const fn new(snippet: &Snippet, operand: u64) -> Self {
        Self { snippet: NonNull::from_ref(snippet), operand }
    }
}

/// Reference to the insertion of a registered probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InsertionRef(NonNull<Insertion>);

// SAFETY: the insertion does not change. The caller who registered the probe guarantees that it stays in place.
unsafe impl Send for InsertionRef {}
// SAFETY: the insertion does not change. The caller who registered the probe guarantees that it stays in place.
unsafe impl Sync for InsertionRef {}

impl InsertionRef {
    pub(super) const fn new(insertion: &Insertion) -> Self {
        Self(NonNull::from_ref(insertion))
    }

    fn operand(&self) -> u64 {
        // SAFETY: the caller who registered the probe guarantees that the insertion stays in place as long as the probe
        // is registered.
        unsafe { self.0.as_ref() }.operand
    }

    pub(super) fn snippet(&self) -> &Snippet {
        // SAFETY: the caller who registered the probe guarantees that both stay in place as long as the probe is
        // registered.
        unsafe { self.0.as_ref().snippet.as_ref() }
    }
}

/// The registers for counting the hit.
const COUNTS: u8 = 11;
const COUNT: u8 = 12;

/// The words before the numbers: the distance to the counts, and the operand.
const HEAD: usize = 4;
/// The largest number of words after the steps, besides the copy: those that count, and those that lead to the stub.
const COUNT_MAX: usize = 5;
const CALL_MAX: usize = 2;
const PROLOGUE_MAX: usize = 5;

impl Snippet {
    /// The register with the address of the state of a CPU.
    pub const CPU: u8 = 9;
    /// The register that holds 1.
    pub const ONE: u8 = 10;
    /// The register that holds PSTATE.DAIF of the probed code.
    pub const MASKS: u8 = 17;
    /// The register that holds the return address when a snippet of returns begins.
    pub const RETURN_ADDRESS: u8 = 11;
    /// The register that holds the value of TPIDR_EL1 in a snippet of returns.
    pub const THREAD: u8 = 16;

    /// Returns whether the CPUs can add to a word in memory by one instruction (FEAT_LSE).
    ///
    /// If they can, words that a snippet changes with interrupts unmasked must only be changed by such instructions, by
    /// all code. If they cannot, interrupts are masked in all snippets. The answer is the same from the first call on:
    /// a CPU that starts later and cannot is refused by [`embedding::check`](crate::embedding::check).
    #[must_use]
    pub fn has_atomics() -> bool {
        atomics::are_used()
    }

    /// Returns what [`has_atomics`](Self::has_atomics) would return now, for a user who asks. It may change until the
    /// first snippet is made.
    #[must_use]
    pub fn would_have_atomics() -> bool {
        atomics::would_be_used()
    }

    /// Makes a snippet of `steps`. Interrupts are masked in all of it if `is_masked` is set, or if there are no
    /// [atomics](Self::has_atomics).
    ///
    /// # Errors
    ///
    /// A [`SnippetError`] if the steps break a rule that can be checked: every run of the snippet ends, no step changes
    /// a register that it may not change, and interrupts that are masked are unmasked on every path.
    ///
    /// # Safety
    ///
    /// As long as a probe with the snippet is registered, what the steps load can be loaded whenever the snippet runs,
    /// except by [`Step::Load`], whose loads change no device. The words that they store to and add to belong to the
    /// snippet, and they change no system registers.
    pub unsafe fn new(steps: &[Step], is_masked: bool) -> Result<Self, SnippetError> {
        Self::with(steps, is_masked, Self::has_atomics(), false)
    }

    /// Makes a snippet of `steps` that is only for the returns of functions, where interrupts are masked. A stub does
    /// not contain it.
    ///
    /// # Errors
    ///
    /// A [`SnippetError`] in the same cases as for [`new`](Self::new).
    ///
    /// # Safety
    ///
    /// The contract of [`new`](Self::new).
    pub unsafe fn of_returns(steps: &[Step]) -> Result<Self, SnippetError> {
        Self::with(steps, true, Self::has_atomics(), true)
    }

    pub(super) fn with(
        steps: &[Step],
        is_masked: bool,
        atomics: bool,
        is_of_returns: bool,
    ) -> Result<Self, SnippetError> {
        let is_masked = is_masked || !atomics;
        let mut used = Registers::x(Self::CPU).with(Registers::x(COUNTS));
        used = used.with(if atomics { Registers::x(Self::ONE) } else { Registers::x(COUNT) });
        let mut words = 0;
        for (number, &step) in steps.iter().enumerate() {
            let is_alone = is_masked || masks(steps, number);
            let checked = step.check(number, steps, is_of_returns, is_alone);
            checked.map_err(|what| SnippetError::Step { step: number, what })?;
            words += step.words(is_masked, atomics) + if step.has_number() { 2 } else { 0 };
            used = used | step.writes();
        }
        if masks(steps, steps.len()) {
            return Err(SnippetError::Step { step: steps.len(), what: "is reached with interrupts masked" });
        }
        if is_masked {
            used = used.with(Registers::x(Self::MASKS));
        }
        let length = HEAD + PROLOGUE_MAX + words + COUNT_MAX + MAX_WORDS + CALL_MAX;
        // One more word says where the copy is.
        let room = |cell: Cell| cell.size() / 4 - stub::WORDS - 1;
        let cell = [Cell::Snippet, Cell::LongSnippet].into_iter().find(|&cell| length <= room(cell));
        let cell = cell.ok_or(SnippetError::Long)?;
        let steps = fallible::collect(steps.iter().copied()).and_then(fallible::boxed_slice);
        let steps = steps.map_err(|_| SnippetError::OutOfMemory)?;
        Ok(Self { steps, is_masked, atomics, is_of_returns, used, cell })
    }

    /// Returns whether it is only for returns.
    pub(super) fn is_of_returns(&self) -> bool {
        self.is_of_returns
    }

    /// Returns the registers that it changes, including the flags if it changes them.
    pub(super) fn used(&self) -> Registers {
        self.used
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
