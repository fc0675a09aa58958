//! Making changes take effect: what a hit does, and whether there is one.
//!
//! The steps come in the order in which a CPU that runs into a probe meanwhile must see them: cells are filled before
//! points lead to them, points are published before the text leads to those, and what was replaced is freed after every
//! CPU has been held outside the hit path. Where probes are disarmed, the point stays in the table until then, and every CPU
//! is held once more before it is freed.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::{mem, ptr};

use super::{Entry, Registry, shortcut};
use crate::insn::{self, Guard, Verdict, encode};
use crate::probe::arena::{Arena, Cell, Used};
use crate::probe::hit::counters::Counters;
use crate::probe::hit::machine::guard;
use crate::probe::hit::point::{Execution, Kind, Point, Pre, Probe, Watcher};
use crate::probe::hit::stub::Form;
use crate::probe::hit::{PreHandler, call_all, call_nobody, entry, returns};
use crate::probe::{Fallback, Mode, publish, stub as builder};
use crate::text::{self, Vacated, Word};

/// What is to be done at an address from now on.
struct Staged {
    address: usize,
    /// How the instruction is to be executed; nothing where the probes are to be disarmed.
    plan: Option<Plan>,
}

#[derive(Clone, Copy)]
struct Plan {
    execution: Execution,
    /// The mode that was asked for, and why it is not to be had.
    wanted: Mode,
    fallback: Option<Fallback>,
    /// The cell is a new one.
    is_new: bool,
}

/// What is freed when every CPU has been held.
struct Replaced {
    points: Vec<*mut Point>,
    cells: Vec<Used>,
    /// The cells of points that could not be armed.
    never_used: Vec<Used>,
    /// Some of the points have no successor.
    has_withdrawn: bool,
}

/// Makes the changes to the probes at `addresses`, sorted and each once, take effect. Returns those, sorted, at which there
/// was no memory to do so, and nothing has changed.
pub(super) fn apply(registry: &mut Registry, addresses: &[usize]) -> Vec<usize> {
    let (staged, mut failed) = stage(registry, addresses);
    let Registry { entries, arena, .. } = registry;
    if !arena.write() {
        for Staged { address, plan } in staged {
            let new = plan.filter(|plan| plan.is_new);
            let cell = entries.get_mut(address).zip(new).and_then(|(entry, plan)| entry.cell_of(plan.execution));
            cell.into_iter().for_each(|cell| arena.free(cell));
        }
        return addresses.to_vec();
    }
    let points = Vec::with_capacity(staged.len());
    let mut replaced =
        Replaced { points, cells: mem::take(&mut registry.occupied), never_used: Vec::new(), has_withdrawn: false };
    let mut words = Vec::with_capacity(staged.len());
    for Staged { address, plan } in &staged {
        let Some(entry) = entries.get_mut(*address) else { continue };
        words.extend(entry.publish(plan.as_ref(), &mut replaced));
    }
    replaced.cells.sort_unstable();
    let mut places: Vec<Vacated> = replaced.cells.iter().map(Used::vacated).collect();
    let written = text::patch(&words, &mut places);
    for &Word { address, .. } in &words[written..] {
        failed.push(address);
        // What could not be taken away still leads to a cell.
        let stub = encode::branch_target(text::read(address), address as u64);
        let slot = entries.get_mut(address).filter(|entry| entry.is_armed()).and_then(|entry| entry.cell());
        for (cell, place) in replaced.cells.iter().zip(&mut places) {
            place.is_occupied |= Some(cell.address as u64) == stub || Some(*cell) == slot;
        }
    }
    failed.sort_unstable();
    for Staged { address, plan } in &staged {
        if let Some(entry) = entries.get_mut(*address).filter(|entry| !entry.is_armed()) {
            entry.withdraw(plan.is_some(), &mut replaced);
        }
    }
    if replaced.has_withdrawn {
        // Who was in a stub, before it asked for its point, may have been given one that was withdrawn since.
        text::patch(&[], &mut places);
    }
    registry.occupied = replaced.free(&places, arena);
    failed
}

/// Decides what is to be done, and has new cells filled. Returns also the addresses for which there is no cell.
fn stage(registry: &mut Registry, addresses: &[usize]) -> (Vec<Staged>, Vec<usize>) {
    let mut staged = Vec::with_capacity(addresses.len());
    let mut failed = Vec::new();
    for &address in addresses {
        let Some(entry) = registry.entries.get_mut(address) else { continue };
        let Some(wanted) = entry.wanted_mode() else {
            staged.push(Staged { address, plan: None });
            continue;
        };
        let kept = entry.execution.filter(|_| entry.wanted == wanted).map(|execution| (execution, entry.fallback));
        match kept.or_else(|| entry.new_execution(wanted, &mut registry.arena)) {
            Some((execution, fallback)) => {
                let plan = Plan { execution, wanted, fallback, is_new: kept.is_none() };
                staged.push(Staged { address, plan: Some(plan) });
            }
            None => failed.push(address),
        }
    }
    (staged, failed)
}

impl Entry {
    /// The probes that are enabled: return probes last, so that the other handlers see the true x30.
    fn watchers(&self) -> Box<[Watcher]> {
        let mut watchers = Vec::with_capacity(self.probes.len());
        for returns in [false, true] {
            for probe in &*self.probes {
                if matches!(probe.kind, Kind::Return(_)) == returns && probe.enabled.load(Relaxed) {
                    watchers.push(self.watcher(probe));
                }
            }
        }
        watchers.into_boxed_slice()
    }

    fn watcher(&self, probe: &Arc<Probe>) -> Watcher {
        let (handler, post): (PreHandler, _) = match probe.kind {
            Kind::Kprobe { pre: Pre::Nothing, post } => (call_nobody, post),
            Kind::Kprobe { pre: Pre::Hit(handler), post } => (handler, post),
            Kind::Kprobe { pre: Pre::Entry(_), post } => (entry::call, post),
            Kind::Return(_) => (returns::function_entered, None),
        };
        Watcher { handler, counters: probe.entered, address: self.address, post, probe: Arc::clone(probe) }
    }

    /// The point for the probes that are enabled, of which there is one at least.
    fn point(&self, execution: Execution) -> Point {
        let watchers = self.watchers();
        let mut first = watchers[0].clone();
        if watchers.len() > 1 {
            first.handler = call_all;
        }
        let (full, full_counters) = match execution {
            Execution::Boosted { .. } | Execution::Optimized { .. } => (first.handler, first.counters),
            Execution::Simulated(_) | Execution::Stepped { .. } => (Point::miss_hit as _, Counters::NOBODY),
        };
        let (lean, lean_counters) = match (execution, &first.probe.kind) {
            (Execution::Optimized { form: Form::Lean, .. }, &Kind::Kprobe { pre: Pre::Entry(handler), .. }) => {
                (handler, first.counters)
            }
            _ => (Point::miss_entry as _, Counters::NOBODY),
        };
        let has_post = watchers.iter().any(|watcher| watcher.post.is_some());
        let resolved = match execution {
            Execution::Simulated(operation) => operation.resolve(self.address as u64, self.guard()),
            _ => None,
        };
        let (shortcut, slot, operands) = match (execution, resolved) {
            (Execution::Boosted { slot }, _) => (Point::BOOSTED, slot, [0; 3]),
            (Execution::Optimized { stub, form }, _) => (Point::BOOSTED, stub + 4 * form.copy(), [0; 3]),
            (Execution::Simulated(_), Some(resolved)) if !has_post => shortcut::to(resolved),
            (Execution::Stepped { slot }, _) if watchers.len() == 1 && has_post => (Point::STEPPED, slot, [0; 3]),
            (Execution::Simulated(_) | Execution::Stepped { .. }, _) => (0, 0, [0; 3]),
        };
        Point {
            first,
            full,
            full_counters,
            lean,
            lean_counters,
            shortcut,
            slot,
            operands,
            execution,
            guarded: self.guarded,
            watchers,
        }
    }

    fn guard(&self) -> Guard {
        guard(self.guarded)
    }

    /// How the instruction is to be executed, so that every enabled probe is served; nothing if there is none.
    fn wanted_mode(&self) -> Option<Mode> {
        let mut enabled = self.probes.iter().filter(|probe| probe.enabled.load(Relaxed)).map(|probe| probe.allows());
        let first = enabled.next()?;
        // A lean stub calls one handler.
        let allowed = enabled.map(|other| other.min(Mode::Optimized)).fold(first, Ord::min);
        Some(match self.site.verdict {
            _ if allowed >= Mode::Optimized => allowed,
            Verdict::Simulate(_) => Mode::Simulated,
            _ if allowed == Mode::Stepped => Mode::Stepped,
            _ => Mode::Boosted,
        })
    }

    /// A way to execute the instruction in this mode, or the fastest that is possible, with a cell of its own if it takes
    /// one, and there is one; and why it is not this mode.
    fn new_execution(&self, mode: Mode, arena: &mut Arena) -> Option<(Execution, Option<Fallback>)> {
        let mut fallback = None;
        if mode >= Mode::Optimized {
            let form = if mode == Mode::Optimized || self.not_entry.is_some() { Form::Full } else { Form::Lean };
            fallback = self.not_entry.map(Fallback::NotEntry).filter(|_| mode == Mode::Lean);
            let stub = arena.allocate(Cell::Stub, self.guarded)?;
            let point = publish::cell(self.address)?;
            let build =
                |words: &mut _| builder::build(form, stub, self.address, &self.site, self.guard(), point, words);
            match arena.fill_stub(stub, build) {
                Ok(()) => return Some((Execution::Optimized { stub, form }, fallback)),
                Err(reason) => {
                    fallback = Some(Fallback::NoStub(reason));
                    arena.free(Used { address: stub, kind: Cell::Stub, guarded: self.guarded });
                }
            }
        }
        if let Verdict::Simulate(operation) = self.site.verdict {
            return Some((Execution::Simulated(operation), fallback));
        }
        let slot = arena.allocate(Cell::Slot, self.guarded)?;
        let (execution, words) = match insn::boost(self.site.word, self.address as u64, slot as u64) {
            Ok(words) if mode != Mode::Stepped => (Execution::Boosted { slot }, words),
            _ => (Execution::Stepped { slot }, [self.site.word, insn::BRK_STEP]),
        };
        arena.fill_slot(slot, words);
        Some((execution, fallback))
    }

    /// The cell that `execution` takes.
    fn cell_of(&self, execution: Execution) -> Option<Used> {
        let (address, kind) = match execution {
            Execution::Stepped { slot } | Execution::Boosted { slot } => (slot, Cell::Slot),
            Execution::Optimized { stub, .. } => (stub, Cell::Stub),
            Execution::Simulated(_) => return None,
        };
        Some(Used { address, kind, guarded: self.guarded })
    }

    fn cell(&self) -> Option<Used> {
        self.execution.and_then(|execution| self.cell_of(execution))
    }

    /// Publishes what is planned. Returns what is then to be written to the text, if anything is.
    fn publish(&mut self, plan: Option<&Plan>, replaced: &mut Replaced) -> Option<Word> {
        let before = self.cell();
        let word = match plan {
            Some(&Plan { execution, wanted, fallback, .. }) => {
                let point = Box::new(self.point(execution));
                replaced.points.push(publish::set(self.address, Box::into_raw(point), self.site.word));
                (self.execution, self.wanted, self.fallback) = (Some(execution), wanted, fallback);
                replaced.cells.extend(before.filter(|_| before != self.cell()));
                match execution {
                    Execution::Optimized { stub, .. } => insn::branch(self.address as u64, stub as u64).ok()?,
                    _ => insn::BRK_KPROBE,
                }
            }
            None => {
                replaced.cells.extend(before);
                self.site.word
            }
        };
        (text::read(self.address) != word).then_some(Word { address: self.address, words: [word] })
    }

    /// Takes the point out of the table, if there is one. The text does not lead to it; nor has it, if the point is new.
    fn withdraw(&mut self, is_new: bool, replaced: &mut Replaced) {
        replaced.never_used.extend(self.cell().filter(|_| is_new));
        if self.execution.take().is_some() {
            replaced.points.push(publish::set(self.address, ptr::null_mut(), self.site.word));
            replaced.has_withdrawn = true;
        }
    }
}

impl Used {
    /// The cell, to be used for something else.
    fn vacated(&self) -> Vacated {
        Vacated { range: self.address..self.address + self.kind.size(), is_occupied: false }
    }
}

impl Replaced {
    /// Frees everything but those cells whose places are occupied, which are returned.
    fn free(self, places: &[Vacated], arena: &mut Arena) -> Vec<Used> {
        for point in self.points.into_iter().filter(|point| !point.is_null()) {
            // SAFETY: it came out of `Box::into_raw` in `publish`. Since it was replaced or withdrawn, every CPU has been
            // held outside the hit path.
            drop(unsafe { Box::from_raw(point) });
        }
        let mut occupied = Vec::new();
        for (cell, place) in self.cells.into_iter().zip(places) {
            if place.is_occupied { occupied.push(cell) } else { arena.free(cell) }
        }
        self.never_used.into_iter().for_each(|cell| arena.free(cell));
        occupied
    }
}

impl Execution {
    /// The mode, as it is shown.
    pub(super) fn mode(self) -> Mode {
        match self {
            Self::Simulated(_) => Mode::Simulated,
            Self::Stepped { .. } => Mode::Stepped,
            Self::Boosted { .. } => Mode::Boosted,
            Self::Optimized { form: Form::Full, .. } => Mode::Optimized,
            Self::Optimized { form: Form::Lean, .. } => Mode::Lean,
        }
    }
}
