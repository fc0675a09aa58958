//! Determines which registers a stub need not save, by the code around the instruction.

use alloc::boxed::Box;

use super::Registry;
use crate::insn::{Live, OutOfRange, SCRATCH, Survey};
use crate::probe::Fallback;
use crate::probe::arena::Used;
use crate::probe::check::Checker;
use crate::probe::hit::returns::ReturnProbe;
use crate::probe::hit::trampoline;
use crate::probe::snippet::{Inserted, InsertionRef};

/// Analyzes the whole text for what lean stubs and code at returns depend on, once, unless the image has a
/// [survey](crate::platform::Platform::survey). Without this call, the first probe that needs the result makes the
/// analysis: it takes some hundred instructions for each instruction of the text, and far more if the engine's own code
/// is probed. Tasks that register or remove probes wait meanwhile.
///
/// If there is no memory for the result, the analysis is left to that first probe.
///
/// # Panics
///
/// If interrupts are masked.
pub fn analyze_text() {
    super::lock_to_read().ensure_results(&Checker::new());
}

impl Registry {
    /// Returns why a lean stub is not possible at the instruction at `address`, which has just been checked; `None` if
    /// it is.
    pub(super) fn lean_obstacle(&mut self, address: usize, checker: &Checker) -> Option<Fallback> {
        if let Some(reason) = checker.not_certainly_entry(address) {
            return Some(Fallback::NotEntry(reason));
        }
        self.ensure_preservers(checker);
        checker.scratch_at_entry(address, self.preservers.as_ref()).map(Fallback::Live)
    }

    fn ensure_preservers(&mut self, checker: &Checker) {
        if self.preservers.is_some() {
            return;
        }
        match checker.appended_survey() {
            Some(Survey { preservers, results, .. }) => {
                (self.preservers, self.results) = (Some(preservers), Some(results));
            }
            None => self.preservers = checker.scratch_preservers(),
        }
    }

    fn ensure_results(&mut self, checker: &Checker) {
        self.ensure_preservers(checker);
        if let (None, Some(preservers)) = (&self.results, &self.preservers) {
            self.results = checker.scratch_results(preservers);
        }
    }

    /// Makes the stub's part of `insertion`, for the checked instruction at `address`; `None` if there is no memory. A
    /// lean stub allows the snippet to change all of its registers.
    #[cold]
    pub(super) fn insert(
        &mut self,
        insertion: InsertionRef,
        address: usize,
        is_lean: bool,
        checker: &mut Checker,
    ) -> Option<Box<Inserted>> {
        self.ensure_preservers(checker);
        let live =
            if is_lean { None } else { checker.live_at(address, insertion.snippet().used(), self.preservers.as_ref()) };
        self.inserted(insertion, live)
    }

    /// Makes the part of `insertion` for `return_probe`, on the checked function at `address`; `None` if there is no
    /// memory. If it is possible, the snippet handles the returns from now on, and code in front of the stub follows
    /// the calls.
    #[cold]
    pub(super) fn insert_at_return(
        &mut self,
        insertion: InsertionRef,
        address: usize,
        return_probe: &ReturnProbe,
        lean_obstacle: Option<Fallback>,
        checker: &Checker,
    ) -> Option<Box<Inserted>> {
        let live = self.live_at_return(address, lean_obstacle, checker);
        let mut inserted = self.inserted(insertion, live)?;
        let kind = inserted.return_cell();
        if inserted.is_possible()
            && lean_obstacle.is_none()
            && return_probe.is_plain()
            // Not guarded: it is entered by a return, which needs no landing pad.
            && let Some(cell) = self.arena.allocate(kind, false)
        {
            match self.arena.fill_snippet(kind, cell, |words| inserted.build_return(cell, words)) {
                Ok(code) => {
                    inserted.code = Some(Used::new(cell, kind, false));
                    return_probe.set_code(code as u64);
                }
                Err(OutOfRange { .. }) => self.arena.free(Used::new(cell, kind, false)),
            }
        }
        Some(inserted)
    }

    /// Has `kretprobe_lean` lead to the handler of `return_probe`, on the checked function at `address`, if the handler
    /// sees only results, and no code needs the registers that are not saved for it. Returns why not; `None` also if
    /// the probe needs all registers.
    #[cold]
    pub(super) fn lead_to_result(
        &mut self,
        address: usize,
        return_probe: &ReturnProbe,
        lean_obstacle: Option<Fallback>,
        checker: &Checker,
    ) -> Option<Fallback> {
        if return_probe.is_given() {
            return Some(Fallback::Given);
        }
        if return_probe.result().is_none() || !return_probe.is_plain() {
            return None;
        }
        let live = || self.live_at_return(address, lean_obstacle, checker).map(Fallback::Live);
        let obstacle = lean_obstacle.or_else(live);
        if obstacle.is_none() {
            return_probe.set_code(trampoline::result_address());
        }
        obstacle
    }

    /// Returns why not all registers that a call may change are dead where the checked function at `address` returns
    /// to; `None` if they are.
    fn live_at_return(&mut self, address: usize, lean_obstacle: Option<Fallback>, checker: &Checker) -> Option<Live> {
        self.ensure_results(checker);
        match (&self.results, lean_obstacle) {
            (_, Some(Fallback::Live(live))) => Some(live),
            (Some(results), _) => results.by(address as u64),
            (None, _) => Some(Live::Lost { register: SCRATCH.first(), end: address as u64 }),
        }
    }

    fn inserted(&mut self, insertion: InsertionRef, live: Option<Live>) -> Option<Box<Inserted>> {
        let counters = self.counters.take()?;
        match fallible::boxed(Inserted { insertion, counters, live, code: None }) {
            Ok(inserted) => Some(inserted),
            Err(_) => {
                self.counters.give_back(counters);
                None
            }
        }
    }
}
