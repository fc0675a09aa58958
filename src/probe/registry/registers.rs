//! Which registers a stub need not save, as the code around the instruction shows.

use alloc::boxed::Box;

use super::Registry;
use crate::insn::{Live, OutOfRange, SCRATCH};
use crate::probe::Fallback;
use crate::probe::arena::Used;
use crate::probe::check::Checker;
use crate::probe::hit::returns::ReturnProbe;
use crate::probe::snippet::{Inserted, InsertionRef};

/// Looks over the whole text for what lean stubs, and code at returns, depend on, once. Otherwise the first probe that asks for one
/// does so: some hundred instructions for each of the text, and far more where the engine's own are probed. Without memory it is
/// left to that probe. Others that register or remove probes wait for it.
///
/// # Panics
///
/// If interrupts are masked.
pub fn survey() {
    super::lock_to_read().find_results(&Checker::locked());
}

impl Registry {
    /// Why a lean stub will not do for the instruction at `address`, which has just been checked.
    pub(super) fn not_lean(&mut self, address: usize, checker: &Checker) -> Option<Fallback> {
        if let Some(reason) = checker.not_certainly_entry(address) {
            return Some(Fallback::NotEntry(reason));
        }
        self.find_kept(checker);
        checker.scratch_at_entry(address, self.kept.as_ref()).map(Fallback::Live)
    }

    fn find_kept(&mut self, checker: &Checker) {
        if self.kept.is_none() {
            self.kept = checker.kept();
        }
    }

    fn find_results(&mut self, checker: &Checker) {
        self.find_kept(checker);
        if let (None, Some(kept)) = (&self.results, &self.kept) {
            self.results = checker.scratch_results(kept);
        }
    }

    /// What a stub at the checked instruction at `address` has of `insertion`, if there is memory for it; a lean stub leaves it all
    /// that it changes.
    #[cold]
    pub(super) fn insert(
        &mut self,
        insertion: InsertionRef,
        address: usize,
        is_lean: bool,
        checker: &mut Checker,
    ) -> Option<Box<Inserted>> {
        self.find_kept(checker);
        let live =
            if is_lean { None } else { checker.live_at(address, insertion.snippet().used(), self.kept.as_ref()) };
        self.inserted(insertion, live)
    }

    /// What `return_probe`, on the checked function at `address`, has of `insertion`, if there is memory for it: its returns are
    /// dealt with by that from now on, where that can be, and its calls are followed in front of the stub.
    #[cold]
    pub(super) fn insert_at_return(
        &mut self,
        insertion: InsertionRef,
        address: usize,
        return_probe: &ReturnProbe,
        not_lean: Option<Fallback>,
        checker: &Checker,
    ) -> Option<Box<Inserted>> {
        self.find_results(checker);
        let live = match (&self.results, not_lean) {
            (_, Some(Fallback::Live(live))) => Some(live),
            (Some(results), _) => results.by(address as u64),
            (None, _) => Some(Live::Lost { register: SCRATCH.first(), end: address as u64 }),
        };
        let mut inserted = self.inserted(insertion, live)?;
        let kind = inserted.return_cell();
        if inserted.is_possible()
            && not_lean.is_none()
            && return_probe.is_plain()
            // It is entered by a return, for which there need be no landing pad.
            && let Some(cell) = self.arena.allocate(kind, false)
        {
            match self.arena.fill_snippet(kind, cell, |words| inserted.build_return(cell, words)) {
                Ok(code) => {
                    inserted.code = Some(Used::new(cell, kind, false));
                    return_probe.set_code(code);
                }
                Err(OutOfRange { .. }) => self.arena.free(Used::new(cell, kind, false)),
            }
        }
        Some(inserted)
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
