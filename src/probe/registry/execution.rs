//! How an instruction is executed: the fastest mode that its probes allow, and the slot or the stub for it.

use core::ptr;

use super::{HAS_STUBS, RegistryEntry};
use crate::insn::{self, Guard, NotRelocatable, Verdict};
use crate::probe::aliasable::AliasableBox;
use crate::probe::arena::{Arena, Cell, Used};
use crate::probe::follower::Followed;
use crate::probe::hit::point::{Execution, Handlers, Probe, ProbeRef};
use crate::probe::hit::returns::ReturnProbe;
use crate::probe::hit::stub::Form;
use crate::probe::hit::this_cpu::guard;
use crate::probe::snippet::Inserted;
use crate::probe::{Fallback, Mode, follower, stub_builder};

impl RegistryEntry {
    pub(super) fn guard(&self) -> Guard {
        guard(self.guarded)
    }

    /// Returns how the returns of `probe`, which is at the instruction, are handled after a usual entry; `None` if all
    /// registers are saved.
    pub(super) fn mode_at_return(&self, probe: &Probe) -> Option<Mode> {
        let mode = probe.lean_return()?;
        let follows = matches!(self.execution, Some(Execution::Optimized { form, before: 1.., .. })
            if form == Form::Follow || self.front.iter().flatten().any(|other| ptr::eq(&**other, probe)));
        follows.then_some(mode)
    }

    /// Returns what a stub has to save for the enabled probes, if the instruction is executed in this mode.
    #[inline(always)]
    pub(super) fn form(&self, mode: Mode) -> Form {
        match mode {
            Mode::Lean | Mode::Compiled if self.lean_obstacle.is_none() && self.is_entered_alone() => Form::Lean,
            _ if self.only_follows().is_some() => Form::Follow,
            _ => Form::Full,
        }
    }

    /// Returns the fastest mode that every enabled probe allows; `None` if no probe is enabled. `front` are the first
    /// two.
    #[inline(always)]
    pub(super) fn fastest_mode(&self, front: [Option<ProbeRef>; 2]) -> Option<Mode> {
        let [first, second] = front;
        let first = first?.allows;
        let allowed = match second {
            None => first,
            Some(_) if self.pair().is_some() => Mode::Compiled,
            // A lean stub can call only one handler.
            Some(_) => self.enabled().map(|probe| probe.allows.min(Mode::Optimized)).fold(first, Ord::min),
        };
        Some(match self.checked.verdict {
            _ if HAS_STUBS && allowed >= Mode::Optimized => allowed,
            Verdict::Simulate(_) => Mode::Simulated,
            // This instruction cannot be simulated, and is boosted only if the probe allows that.
            _ if allowed < Mode::Boosted => Mode::Stepped,
            _ => Mode::Boosted,
        })
    }

    /// Makes a way to execute the instruction in `mode`, or in the fastest mode that is possible, and allocates the
    /// cell that it needs. Returns the reason as well if it is not `mode`; `None` if there is no memory.
    pub(super) fn new_execution(&self, mode: Mode, arena: &mut Arena) -> Option<(Execution, Option<Fallback>)> {
        let mut fallback = None;
        if HAS_STUBS && mode >= Mode::Optimized {
            let form = self.form(mode);
            fallback = self.lean_obstacle.filter(|_| mode == Mode::Lean);
            match self.new_stub(form, mode, arena)? {
                Ok(execution) => return Some((execution, fallback)),
                Err(reason) => fallback = Some(Fallback::NoStub(reason)),
            }
        }
        if let Verdict::Simulate(operation) = self.checked.verdict {
            return Some((Execution::Simulated(operation), fallback));
        }
        let slot = arena.allocate(Cell::Slot, self.guarded)?;
        let (execution, words) = match insn::boost(self.checked.word, self.address as u64, slot as u64) {
            Ok(words) if mode != Mode::Stepped => (Execution::Boosted { slot }, words),
            boosted => {
                let too_far = boosted.err().filter(|_| mode != Mode::Stepped);
                fallback = fallback.or(too_far.map(Fallback::FarSlot));
                (Execution::Stepped { slot }, [self.checked.word, insn::BRK_STEP])
            }
        };
        arena.fill_slot(slot, words);
        Some((execution, fallback))
    }

    /// Makes a stub of this form in a new cell. Returns `None` if there is no memory, or why a stub is not possible.
    #[inline(always)]
    fn new_stub(&self, form: Form, mode: Mode, arena: &mut Arena) -> Option<Result<Execution, NotRelocatable>> {
        if self.checked.is_before_wait {
            return Some(Err(NotRelocatable::BeforeWait));
        }
        // A stub without code in front of it serves as well, and takes less memory.
        let made = match form {
            Form::Follow if self.lean_obstacle.is_none() => {
                let probe = self.only_follows().filter(|probe| !probe.is_given());
                probe.and_then(|probe| self.new_follower(form, probe, None, arena))
            }
            _ if mode == Mode::Compiled => self.new_snippet(form, arena),
            _ => None,
        };
        if made.is_some() {
            return made;
        }
        let stub = arena.allocate(Cell::Stub, self.guarded)?;
        let point = self.page.cell(self.address);
        let build =
            |words: &mut _| stub_builder::build(form, stub, self.address, &self.checked, self.guard(), point, words);
        let built = arena.fill_stub(stub, build);
        if built.is_err() {
            arena.free(Used::new(stub, Cell::Stub, self.guarded));
        }
        Some(built.map(|()| Execution::Optimized { stub, form, cell: Cell::Stub, before: 0 }))
    }

    /// Makes a stub with the snippet of the only probe in front of it, or with the code of a pair. The result is that
    /// of [`new_stub`](Self::new_stub).
    #[inline(never)]
    fn new_snippet(&self, form: Form, arena: &mut Arena) -> Option<Result<Execution, NotRelocatable>> {
        if let Some((probe, returning)) = self.pair() {
            return self.new_follower(form, returning, probe.inserted.as_deref(), arena);
        }
        let only = self.enabled().next()?;
        let inserted = only.inserted.as_ref()?;
        let (address, checked, guard) = (self.address, &self.checked, self.guard());
        self.new_front(form, inserted.cell(), arena, |cell, words| inserted.build(cell, address, checked, guard, words))
    }

    /// Makes a stub with code in front of it that follows calls for `probe` and contains `inserted`. The result is that
    /// of [`new_stub`](Self::new_stub).
    #[inline(never)]
    fn new_follower(
        &self,
        form: Form,
        probe: &AliasableBox<ReturnProbe>,
        inserted: Option<&Inserted>,
        arena: &mut Arena,
    ) -> Option<Result<Execution, NotRelocatable>> {
        let followed = Followed { spare_distance: probe.spares().distance(), to_return: probe.trampoline() };
        let kind = follower::cell(inserted)?;
        let (address, checked, guard) = (self.address, &self.checked, self.guard());
        self.new_front(form, kind, arena, |cell, words| {
            follower::build(followed, inserted, &follower::At { cell, address, checked, guard }, words)
        })
    }

    /// Makes a stub in a cell of this kind, with the words in front of it that `build` fills in. `build` returns how
    /// many bytes before the stub its code begins.
    fn new_front(
        &self,
        form: Form,
        kind: Cell,
        arena: &mut Arena,
        build: impl FnOnce(usize, &mut [u32]) -> Result<u16, NotRelocatable>,
    ) -> Option<Result<Execution, NotRelocatable>> {
        let cell = arena.allocate(kind, self.guarded)?;
        let stub = cell + kind.size() - Cell::Stub.size();
        let built = arena.fill_snippet(kind, cell, |words| {
            let Some((front, words)) = words.split_last_chunk_mut() else { return Ok(0) };
            let point = self.page.cell(self.address);
            stub_builder::build(form, stub, self.address, &self.checked, self.guard(), point, words)?;
            build(cell, front)
        });
        if built.is_err() {
            arena.free(Used::new(cell, kind, self.guarded));
        }
        Some(built.map(|before| Execution::Optimized { stub, form, cell: kind, before }))
    }

    /// Returns the cell in which the instruction is executed, if it needs one.
    pub(super) fn cell(&self) -> Option<Used> {
        let (address, kind) = match self.execution? {
            Execution::Stepped { slot } | Execution::Boosted { slot } => (slot, Cell::Slot),
            Execution::Optimized { stub, cell, .. } => (stub + Cell::Stub.size() - cell.size(), cell),
            Execution::Simulated(_) => return None,
        };
        Some(Used::new(address, kind, self.guarded))
    }
}

impl Probe {
    /// Returns how the returns of the probe are handled where functions return to `kretprobe_lean`; `None` if they
    /// never do, or for a kprobe.
    pub(super) fn lean_return(&self) -> Option<Mode> {
        let Handlers::Return(return_probe) = &self.handlers else { return None };
        match &self.inserted {
            Some(inserted) if inserted.code.is_some() => Some(Mode::Compiled),
            _ => return_probe.leads_to_result().then_some(Mode::Lean),
        }
    }
}

impl Execution {
    /// Returns the mode that listings show.
    pub(super) fn mode(self) -> Mode {
        match self {
            Self::Simulated(_) => Mode::Simulated,
            Self::Stepped { .. } => Mode::Stepped,
            Self::Boosted { .. } => Mode::Boosted,
            Self::Optimized { form: Form::Follow, .. } => Mode::Optimized,
            Self::Optimized { before: 1.., .. } => Mode::Compiled,
            Self::Optimized { form: Form::Full, .. } => Mode::Optimized,
            Self::Optimized { form: Form::Lean, .. } => Mode::Lean,
        }
    }
}
