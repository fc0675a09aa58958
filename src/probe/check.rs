//! Decides whether an address can be probed, and how.

use alloc::boxed::Box;
use core::ops::Range;

use fallible::OutOfMemory;
use spin::once::Once;

use super::hit::table;
use super::registry::Yield;
use super::{NotEntry, ProbeError};
use crate::event::site::{self, EventSite};
use crate::insn::{
    self, Control, Data, Indirect, Live, Reason, Registers, ScratchPreservers, ScratchResults, SequenceCallees,
    Sequences, Survey, Verdict, encode,
};
use crate::{interrupts, kernel, text};

/// The smallest translation granule.
const PAGE: usize = 4096;

/// An instruction that can be probed, as [`check`] finds it. It may have probes already.
#[derive(Clone, Copy, Debug)]
pub struct CheckedInstruction {
    /// The original instruction, even if a breakpoint or a branch has replaced it.
    pub word: u32,
    /// How it can be executed: [`Verdict::Slot`] or [`Verdict::Simulate`].
    pub verdict: Verdict,
    /// Whether it lies between a load-exclusive and a WFE or WFET, so that it cannot have a stub
    /// ([`NotRelocatable::BeforeWait`](insn::NotRelocatable::BeforeWait)).
    pub is_before_wait: bool,
}

/// Checks whether the instruction at the virtual address `address` can be probed, and how. Call it from a task: it asks
/// the [`Platform`](crate::platform::Platform) for the function around the address, and allocates. The first of all
/// checks also reads the whole text, if the image has no table with its survey.
///
/// # Errors
///
/// The [`ProbeError`] that registering a kprobe there would give because of its address.
pub fn check(address: usize) -> Result<CheckedInstruction, ProbeError> {
    Checker::new().check(address)
}

/// The load-exclusive sequences with instructions of a function.
#[derive(Debug)]
enum FunctionSequences {
    None,
    /// Those that the function begins or ends.
    Own(Box<Sequences>),
    /// The function as a whole runs inside the sequence of another function's load-exclusive, at this virtual address.
    Whole {
        load: usize,
    },
}

/// Does the work of [`check`] for many addresses. It remembers what it has found out about a function for the next
/// addresses in the same function.
#[derive(Debug)]
pub struct Checker {
    text: Range<usize>,
    blacklist: Range<usize>,
    function: Range<usize>,
    /// The load-exclusive sequences with instructions of the function.
    sequences: FunctionSequences,
    /// The functions of the text that run inside sequences of other functions; `None` until they are needed.
    callees: Option<&'static SequenceCallees>,
    /// The data in the function; `None` if it has none.
    data: Option<Box<Data>>,
    /// A range of virtual addresses for which the kernel says that it contains no data.
    without_data: Range<usize>,
    /// Whether the kernel says that there is data in the function.
    has_marked_data: bool,
    /// Whether there is a PACM in the function, or right before it.
    has_modifier: bool,
    /// The registers, among those that callers do not expect to be preserved, in which the function may pass something
    /// to its callers; `None` until it is needed.
    handed: Option<Registers>,
    /// The number of a page, and whether branch targets are checked in it.
    guarded: Option<(usize, bool)>,
}

impl Checker {
    /// Makes a checker that knows no function yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            text: kernel::text(),
            blacklist: blacklist(),
            function: 0..0,
            sequences: FunctionSequences::None,
            callees: None,
            data: None,
            without_data: 0..0,
            has_marked_data: false,
            has_modifier: false,
            handed: None,
            guarded: None,
        }
    }

    /// Checks how the instruction at the virtual address `address` would be probed.
    ///
    /// # Errors
    ///
    /// The [`ProbeError`] that registering a kprobe there would give.
    #[inline]
    pub fn check(&mut self, address: usize) -> Result<CheckedInstruction, ProbeError> {
        if !address.is_multiple_of(4) {
            return Err(ProbeError::Misaligned { address });
        }
        if !self.text.contains(&address) {
            return Err(ProbeError::NotText { address });
        }
        if self.blacklist.contains(&address) {
            return Err(ProbeError::Blacklisted { address });
        }
        if !self.function.contains(&address) {
            let function = kernel::function(address).filter(|function| self.is_in_text(function, address));
            let Some(function) = function else { return Err(ProbeError::NoFunction { address }) };
            // If looking over the new function fails, the fields must not be taken for those of the old one.
            self.function = 0..0;
            self.look_over(function).map_err(|OutOfMemory| ProbeError::OutOfMemory { address })?;
        }
        if let Some(reader) = self.data.as_ref().and_then(|data| data.reader(address as u64)) {
            return Err(ProbeError::Data { address, reader: Some(reader as usize) });
        }
        if self.has_marked_data && kernel::has_data(address..address + 4) {
            return Err(ProbeError::Data { address, reader: None });
        }
        let word = match self.original(address) {
            Original::Instruction(word) => word,
            Original::EventSite(_) => {
                return Err(ProbeError::Instruction { address, word: encode::NOP, reason: Reason::EventSite });
            }
        };
        let verdict = insn::classify(word);
        if let Verdict::Reject(reason) = verdict {
            return Err(ProbeError::Instruction { address, word, reason });
        }
        if self.has_modifier && self.follows_modifier(address) {
            return Err(ProbeError::Instruction { address, word, reason: Reason::AfterModifier });
        }
        let sequences = match &self.sequences {
            FunctionSequences::None => return Ok(CheckedInstruction { word, verdict, is_before_wait: false }),
            FunctionSequences::Own(sequences) => sequences,
            &FunctionSequences::Whole { load } => return Err(ProbeError::Exclusive { address, load }),
        };
        match sequences.containing(address as u64) {
            Ok(None) => {
                let is_before_wait = sequences.is_before_wait(address as u64);
                Ok(CheckedInstruction { word, verdict, is_before_wait })
            }
            Ok(Some(load)) => Err(ProbeError::Exclusive { address, load: load as usize }),
            Err(OutOfMemory) => Err(ProbeError::OutOfMemory { address }),
        }
    }

    /// Checks how the instruction at the virtual address `address` would be probed, by a return probe if `is_return`.
    #[inline(always)]
    pub(super) fn check_probe(&mut self, address: usize, is_return: bool) -> Result<CheckedInstruction, ProbeError> {
        let checked = self.check(address)?;
        if is_return {
            self.check_entry(address)?;
        }
        Ok(checked)
    }

    /// Checks an instruction like [`check_probe`](Self::check_probe), and takes `function` for the function that
    /// contains it. The checker then knows no function: what the caller says holds for this probe only.
    #[cold]
    pub(super) fn check_within(
        &mut self,
        address: usize,
        function: Range<usize>,
        is_return: bool,
    ) -> Result<CheckedInstruction, ProbeError> {
        if !self.is_in_text(&function, address) {
            return Err(ProbeError::NoFunction { address });
        }
        self.look_over(function).map_err(|OutOfMemory| ProbeError::OutOfMemory { address })?;
        let checked = self.check_probe(address, is_return);
        self.function = 0..0;
        checked
    }

    /// Returns whether `function`, which the kernel takes to contain `address`, does so, in whole words of the text.
    /// The words of the function are read, and kernels look functions up in tables that may be damaged.
    fn is_in_text(&self, function: &Range<usize>, address: usize) -> bool {
        let Range { start, end } = *function;
        let is_aligned = start.is_multiple_of(4) && end.is_multiple_of(4);
        is_aligned && function.contains(&address) && self.text.start <= start && end <= self.text.end
    }

    /// Finds out, in one pass over the function, which of the checks that look at more than one word are needed, and
    /// makes them.
    fn look_over(&mut self, function: Range<usize>) -> Result<(), OutOfMemory> {
        let Range { start, end } = function;
        let outer_load = match self.callees {
            Some(callees) if callees.is_empty() => None,
            _ => self.find_outer_load(&function)?,
        };
        let (mut has_exclusive, mut has_reader, mut has_modifier) = (false, false, self.follows_modifier(start));
        for at in (start..end).step_by(4) {
            let word = self.flowing(at);
            has_exclusive |= insn::may_be_load(word);
            has_reader |= insn::may_read_data(word);
            has_modifier |= insn::modifies_next(word);
        }
        if has_exclusive || has_reader || !matches!(self.sequences, FunctionSequences::None) || self.data.is_some() {
            self.find_sequences_and_data(&function, has_exclusive, has_reader)?;
        }
        if let Some(load) = outer_load {
            self.sequences = FunctionSequences::Whole { load };
        }
        let is_without_data = self.without_data.start <= start && end <= self.without_data.end;
        self.has_marked_data = !is_without_data && self.find_marked_data(&function);
        self.has_modifier = has_modifier;
        self.handed = None;
        self.function = function;
        Ok(())
    }

    /// Returns the virtual address of the load-exclusive of another function, if `function` runs inside its sequence.
    #[cold]
    #[inline(never)]
    fn find_outer_load(&mut self, function: &Range<usize>) -> Result<Option<usize>, OutOfMemory> {
        let callees = self.callees.map_or_else(|| self.find_callees(), Ok)?;
        self.callees = Some(callees);
        Ok(callees.around(function.start as u64..function.end as u64).map(|load| load as usize))
    }

    /// Returns the functions of the text that run inside sequences of other functions. The first call looks through the
    /// whole text, if the host has not.
    fn find_callees(&self) -> Result<&'static SequenceCallees, OutOfMemory> {
        #[cfg(not(test))]
        static CALLEES: Once<SequenceCallees, Yield> = Once::new();
        // The tests share a text that changes. A test of such functions gives the checker a list of its own.
        #[cfg(test)]
        static CALLEES: Once<SequenceCallees, Yield> = Once::initialized(SequenceCallees::NONE);
        CALLEES.try_call_once(|| self.sequence_callees())
    }

    /// Finds the functions of the text that run inside sequences of other functions.
    pub(super) fn sequence_callees(&self) -> Result<SequenceCallees, OutOfMemory> {
        let text = self.text.start as u64..self.text.end as u64;
        match Survey::sequence_callees(text.clone(), self.blacklist.start as u64, kernel::survey()) {
            Some(callees) => Ok(callees),
            None => SequenceCallees::in_text(text, &|at| self.word(at), &function_around),
        }
    }

    /// Makes a checker that takes `callees` for the functions that run inside sequences of other functions.
    #[cfg(test)]
    pub(super) fn with_callees(callees: &'static SequenceCallees) -> Self {
        Self { callees: Some(callees), ..Self::new() }
    }

    /// Finds the exclusive sequences of the function, if it may have any, and the data in it, if it may read any.
    #[cold]
    #[inline(never)]
    fn find_sequences_and_data(
        &mut self,
        function: &Range<usize>,
        has_exclusive: bool,
        has_reader: bool,
    ) -> Result<(), OutOfMemory> {
        let (words, read) = (function.start as u64..function.end as u64, |at| self.flowing(at as usize));
        let outside = |at| self.word(at);
        let sequences = || Sequences::with_callees(words.clone(), read, outside).and_then(fallible::boxed);
        let sequences = has_exclusive.then(sequences).transpose()?;
        self.data = has_reader.then(|| Data::of(words, read).and_then(fallible::boxed)).transpose()?;
        self.sequences = sequences.map_or(FunctionSequences::None, FunctionSequences::Own);
        Ok(())
    }

    /// Returns whether the kernel says that there is data in the function. It also asks about the addresses that
    /// follow, because the next function to be checked is usually there.
    #[cold]
    #[inline(never)]
    fn find_marked_data(&mut self, function: &Range<usize>) -> bool {
        const AHEAD: usize = 64 << 10;
        let Range { start, end } = *function;
        let ahead = start..end.max(start.saturating_add(AHEAD));
        if kernel::has_data(ahead.clone()) {
            return kernel::has_data(function.clone());
        }
        self.without_data = ahead;
        false
    }

    /// Returns the virtual addresses of the function's words.
    fn words(&self) -> Range<u64> {
        self.function.start as u64..self.function.end as u64
    }

    /// Returns whether the word before the virtual address `address`, which is in the text, is PACM, which is never
    /// probed.
    fn follows_modifier(&self, address: usize) -> bool {
        let before = address.wrapping_sub(4);
        self.text.contains(&before) && insn::modifies_next(text::read(before))
    }

    /// Returns whether branch targets are checked in the page of the virtual address `address`.
    pub(super) fn is_guarded(&mut self, address: usize) -> bool {
        let page = address / PAGE;
        match self.guarded {
            Some((known, guarded)) if known == page => guarded,
            _ => {
                let guarded = kernel::is_guarded(address);
                self.guarded = Some((page, guarded));
                guarded
            }
        }
    }

    /// Checks whether a return probe can be placed at the virtual address `address`, which has just been checked for a
    /// kprobe.
    pub(super) fn check_entry(&self, address: usize) -> Result<(), ProbeError> {
        match self.not_certainly_entry(address) {
            None | Some(NotEntry::Jump { .. }) => self.check_return(address),
            Some(NotEntry::Inside { .. }) => Err(ProbeError::NotEntry { address, function: self.function.clone() }),
            Some(NotEntry::Loop { branch }) => Err(ProbeError::EntryIsLoop { address, branch }),
        }
    }

    /// Checks whether the returns of the function at the virtual address `address` can be recognized by x30 and the
    /// stack pointer.
    fn check_return(&self, address: usize) -> Result<(), ProbeError> {
        let read = |at| self.word(at);
        if let Some(writer) = insn::overwrites_link(address as u64, &read) {
            return Err(ProbeError::NotReturnAddress { address, writer: writer as usize });
        }
        if let Some(writer) = insn::changes_task(self.words(), &read) {
            return Err(ProbeError::ChangesTask { address, writer: writer as usize });
        }
        match insn::stack_at_return(self.words(), &read) {
            None | Some(0) => Ok(()),
            Some(moved) => Err(ProbeError::MovesStack { address, moved }),
        }
    }

    /// Returns why the instruction at the virtual address `address`, which has just been checked, may be reached in
    /// another way than by calls; `None` if it cannot. An indirect branch may lead anywhere in its function, and is
    /// returned only if no direct branch leads here.
    pub(super) fn not_certainly_entry(&self, address: usize) -> Option<NotEntry> {
        let function = self.function.clone();
        if function.start != address {
            return Some(NotEntry::Inside { function: function.start });
        }
        let mut jump = None;
        for branch in function.step_by(4) {
            let word = self.flowing(branch);
            if !insn::may_branch(word) {
                continue;
            }
            let control = Control::after(word, insn::classify(word));
            if control.branch_offset().is_some_and(|offset| branch.wrapping_add_signed(offset as isize) == address) {
                return Some(NotEntry::Loop { branch });
            }
            if let Control::Register { kind: Indirect::Jump, .. } = control {
                jump = jump.or(Some(NotEntry::Jump { branch }));
            }
        }
        jump
    }

    /// Returns the survey of the text that the host has made; `None` if there is none, or no memory for it.
    #[doc(hidden)]
    #[must_use]
    pub fn appended_survey(&self) -> Option<Survey> {
        let Range { start, end } = self.text;
        Survey::from_bytes(start as u64..end as u64, self.blacklist.start as u64, kernel::survey())
    }

    /// Makes the survey of the text here, even if the host has made one; `None` if there is no memory for it.
    #[doc(hidden)]
    #[must_use]
    pub fn survey(&self) -> Option<Survey> {
        let Range { start, end } = self.text;
        Survey::of_text(start as u64..end as u64, &|at| self.word(at), &function_around)
    }

    /// Returns the functions whose callers rely on them to preserve registers that a call may change; `None` if there
    /// is no memory for the list.
    pub(super) fn scratch_preservers(&self) -> Option<ScratchPreservers> {
        let Range { start, end } = self.text;
        ScratchPreservers::in_text(start as u64..end as u64, &|at| self.word(at), &function_around)
    }

    /// Returns the functions that have results in registers that a call may change; `None` if there is no memory for
    /// the list.
    pub(super) fn scratch_results(&self, preservers: &ScratchPreservers) -> Option<ScratchResults> {
        let Range { start, end } = self.text;
        ScratchResults::in_text(start as u64..end as u64, preservers, &|at| self.word(at), &function_around)
    }

    /// Returns why not all registers that a call may change are dead at the virtual address `address`, where a function
    /// begins; `None` if they are.
    pub(super) fn scratch_at_entry(&self, address: usize, preservers: Option<&ScratchPreservers>) -> Option<Live> {
        let at = address as u64;
        match preservers {
            Some(preservers) => insn::scratch_at_entry(at, preservers, &|at| self.word(at)),
            None => Some(Live::Lost { register: insn::SCRATCH.first(), end: at }),
        }
    }

    /// Returns why not all of the `wanted` registers are dead before the instruction at the virtual address `address`,
    /// which was checked last; `None` if they are.
    pub(super) fn live_at(
        &mut self,
        address: usize,
        wanted: Registers,
        preservers: Option<&ScratchPreservers>,
    ) -> Option<Live> {
        let at = address as u64;
        let Some(preservers) = preservers else { return Some(Live::Lost { register: wanted.first(), end: at }) };
        let handed = self.handed.unwrap_or_else(|| insn::handed(self.words(), &|at| self.word(at)));
        self.handed = Some(handed);
        insn::live_at(at, wanted, self.words().start, handed, preservers, &|at| self.word(at))
    }

    /// Returns the instruction at the virtual address `address`; `None` if it is neither in the text nor in the region
    /// in which nothing is probed, which text calls.
    fn word(&self, address: u64) -> Option<u32> {
        let address = address as usize;
        (self.text.contains(&address) || self.blacklist.contains(&address)).then(|| self.flowing(address))
    }

    /// Returns the instruction at the virtual address `address`, which is in the text or in the region, as control may
    /// flow from it.
    #[inline]
    fn flowing(&self, address: usize) -> u32 {
        self.original(address).flowing()
    }

    /// Returns what the image has at the virtual address `address`, which is in the text or in the region.
    #[inline]
    fn original(&self, address: usize) -> Original {
        match text::read(address) {
            word if needs_look_up(word) => original(address),
            word => Original::Instruction(word),
        }
    }
}

/// Returns the virtual addresses of the function around `address`, if there is one.
fn function_around(address: u64) -> Option<Range<u64>> {
    kernel::function(address as usize).map(|found| found.start as u64..found.end as u64)
}

impl Default for Checker {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the original instruction at the virtual address `address`, even if a breakpoint or a branch has replaced it.
///
/// Returns `None` if the address is not that of a word in the text of the kernel. It may be called anywhere, also with
/// interrupts masked.
#[must_use]
pub fn instruction(address: usize) -> Option<u32> {
    (address.is_multiple_of(4) && kernel::text().contains(&address)).then(|| original(address).word())
}

/// What the image has at an address, whatever the engine has written there.
#[derive(Clone, Copy, Debug)]
enum Original {
    /// An instruction that is not the site of a static event.
    Instruction(u32),
    /// The site of a static event.
    EventSite(&'static EventSite),
}

impl Original {
    /// Returns the instruction in the image.
    fn word(self) -> u32 {
        match self {
            Self::Instruction(word) => word,
            Self::EventSite(_) => encode::NOP,
        }
    }

    /// Returns the instruction as control may flow from it. From a site it may flow to the next instruction and, while
    /// a probe listens to the event, to the block of the site.
    #[inline]
    fn flowing(self) -> u32 {
        match self {
            Self::Instruction(word) => word,
            Self::EventSite(site) => site.either_way(),
        }
    }
}

/// Returns what the image has at `address`, which has been checked to be a word in the text or in the region.
fn original(address: usize) -> Original {
    // SAFETY: `with_masked` masks interrupts around the call.
    interrupts::with_masked(|| unsafe { masked_original(address) })
}

/// Does what [`original`] does, for a caller that has masked interrupts.
///
/// # Safety
///
/// The caller has masked interrupts.
unsafe fn masked_original(address: usize) -> Original {
    let word = text::read(address);
    let is_branch = encode::branch_target(word, 0).is_some();
    if (word == encode::NOP || is_branch)
        && let Some(site) = site::at(address)
    {
        return Original::EventSite(site);
    }
    let is_armed = word == insn::BRK_KPROBE || is_branch;
    // SAFETY: the caller has masked interrupts (see # Safety).
    let replaced = if is_armed { unsafe { table::original(address) } } else { None };
    Original::Instruction(replaced.unwrap_or(word))
}

/// Returns whether `word` may stand where the image has another, or at the site of a static event: false for most words
/// that do neither. An armed instruction is BRK or B in the text, and a site holds NOP or B.
const fn needs_look_up(word: u32) -> bool {
    encode::branch_target(word, 0).is_some() || insn::is_exception_or_system(word)
}

/// Returns the virtual addresses at which no probe is accepted: the code that runs while a probe is being handled.
#[cfg(target_os = "none")]
#[must_use]
pub fn blacklist() -> Range<usize> {
    unsafe extern "C" {
        safe static __kprobes_text_start: u8;
        safe static __kprobes_text_end: u8;
    }
    &raw const __kprobes_text_start as usize..&raw const __kprobes_text_end as usize
}

/// Returns an empty range: the host's tests probe text that the hit path is not part of.
#[cfg(not(target_os = "none"))]
#[must_use]
pub fn blacklist() -> Range<usize> {
    0..0
}
