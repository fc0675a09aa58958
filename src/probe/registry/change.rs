//! Making changes take effect: what a hit does, and whether there is one.
//!
//! The steps come in the order in which a CPU that runs into a probe meanwhile must see them: cells are filled before
//! points lead to them, points are published before the text leads to those, and what was replaced is freed after every
//! CPU has been held outside the hit path. Where probes are disarmed, the point stays in the table until then.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::{mem, ptr};

use super::{Entry, Registry, shortcut};
use crate::insn::{self, Guard, NotRelocatable, Verdict};
use crate::platform;
use crate::probe::arena::{Arena, Cell, Used};
use crate::probe::hit::machine::guard;
use crate::probe::hit::point::{Execution, Kind, Point, Probe, Watcher};
use crate::probe::hit::{PreHandler, call_all, call_nobody, returns, stub};
use crate::probe::{Mode, publish, stub as builder};
use crate::text::{self, Word};

/// A cell that no point has a use for any more.
#[derive(Debug)]
pub(super) struct Unused {
    cell: Used,
    /// Somebody has been interrupted in it.
    occupied: bool,
}

/// What is to be done at an address from now on.
struct Staged {
    address: usize,
    /// Nothing where the probes are to be disarmed.
    point: Option<Box<Point>>,
    /// The mode that was asked for, and why it is not to be had.
    wanted: Mode,
    fallback: Option<NotRelocatable>,
    /// The cell of the point is a new one.
    is_new: bool,
}

/// What is freed when every CPU has been held.
#[derive(Default)]
struct Replaced {
    points: Vec<*mut Point>,
    /// Sorted by address when the CPUs are held.
    cells: Vec<Unused>,
    /// The cells of points that could not be armed.
    never_used: Vec<Used>,
}

/// Makes the changes to the probes at `addresses`, sorted and each once, take effect. Returns those, sorted, at which there
/// was no memory to do so, and nothing has changed.
pub(super) fn apply(registry: &mut Registry, addresses: &[usize]) -> Vec<usize> {
    let (staged, mut failed) = stage(registry, addresses);
    let filled = registry.arena.take_words();
    if text::write(&filled) < filled.len() {
        for Staged { address, point, is_new, .. } in staged {
            let point = point.filter(|_| is_new);
            if let (Some(entry), Some(point)) = (registry.points.get(&address), point)
                && let Some(cell) = entry.cell_of(point.execution)
            {
                registry.arena.free(cell);
            }
        }
        return addresses.to_vec();
    }
    let mut replaced = Replaced { cells: mem::take(&mut registry.occupied), ..Replaced::default() };
    let words: Vec<Word> = staged
        .into_iter()
        .filter_map(|staged| registry.points.get_mut(&staged.address)?.publish(staged, &mut replaced))
        .collect();
    replaced.cells.sort_unstable_by_key(|unused| unused.cell.address);
    let written = text::patch(&words, &mut || replaced.find_occupied());
    let (written, unwritten) = words.split_at(written);
    for &Word { address, word } in written {
        if let Some(entry) = registry.points.get_mut(&address) {
            entry.in_text = word;
        }
    }
    for &Word { address, .. } in unwritten {
        failed.push(address);
        // What could not be taken away still leads to the cell.
        let cell = registry.points.get(&address).filter(|entry| entry.is_armed()).and_then(Entry::cell);
        replaced.cells.retain(|unused| Some(unused.cell) != cell);
    }
    failed.sort_unstable();
    for address in addresses {
        if let Some(entry) = registry.points.get_mut(address).filter(|entry| !entry.is_armed()) {
            entry.withdraw(&mut replaced);
        }
    }
    registry.occupied = replaced.free(&mut registry.arena);
    failed
}

/// Builds the points, and has their cells filled. Returns also the addresses for which there is no cell.
fn stage(registry: &mut Registry, addresses: &[usize]) -> (Vec<Staged>, Vec<usize>) {
    let mut staged = Vec::with_capacity(addresses.len());
    let mut failed = Vec::new();
    for &address in addresses {
        let Some(entry) = registry.points.get(&address) else { continue };
        let Some(wanted) = entry.wanted_mode() else {
            staged.push(Staged { address, point: None, wanted: entry.wanted, fallback: entry.fallback, is_new: false });
            continue;
        };
        let kept = entry.execution.filter(|_| entry.wanted == wanted).map(|execution| (execution, entry.fallback));
        let Some((execution, fallback)) = kept.or_else(|| entry.new_execution(wanted, &mut registry.arena)) else {
            failed.push(address);
            continue;
        };
        let point = Some(Box::new(entry.point(execution)));
        staged.push(Staged { address, point, wanted, fallback, is_new: kept.is_none() });
    }
    (staged, failed)
}

impl Entry {
    /// The probes that are enabled: return probes last, so that the other handlers see the true x30.
    fn watchers(&self) -> Box<[Watcher]> {
        let of_kind = |returns: bool| {
            self.probes
                .iter()
                .filter(move |probe| probe.enabled.load(Relaxed) && matches!(probe.kind, Kind::Return(_)) == returns)
        };
        of_kind(false).chain(of_kind(true)).map(|probe| self.watcher(probe)).collect()
    }

    fn watcher(&self, probe: &Arc<Probe>) -> Watcher {
        let (handler, post): (PreHandler, _) = match probe.kind {
            Kind::Kprobe { pre, post } => (pre.unwrap_or(call_nobody), post),
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
        let has_post = watchers.iter().any(|watcher| watcher.post.is_some());
        let resolved = match execution {
            Execution::Simulated(operation) => operation.resolve(self.address as u64, self.guard()),
            _ => None,
        };
        let (shortcut, slot, operands) = match (execution, resolved) {
            (Execution::Boosted { slot }, _) => (Point::BOOSTED, slot, [0; 3]),
            (Execution::Optimized { stub }, _) => (Point::BOOSTED, stub + 4 * stub::COPY, [0; 3]),
            (Execution::Simulated(_), Some(resolved)) if !has_post => shortcut::to(resolved),
            (Execution::Stepped { slot }, _) if watchers.len() == 1 && has_post => (Point::STEPPED, slot, [0; 3]),
            (Execution::Simulated(_) | Execution::Stepped { .. }, _) => (0, 0, [0; 3]),
        };
        Point { first, shortcut, slot, operands, execution, guarded: self.guarded, watchers }
    }

    fn guard(&self) -> Guard {
        guard(self.guarded)
    }

    /// How the instruction is to be executed, so that every enabled probe is served; nothing if there is none.
    fn wanted_mode(&self) -> Option<Mode> {
        let fastest = |probe: &Arc<Probe>| match probe.kind {
            Kind::Kprobe { post: Some(_), .. } => Mode::Stepped,
            _ => probe.fastest,
        };
        let enabled = self.probes.iter().filter(|probe| probe.enabled.load(Relaxed));
        let allowed = enabled.map(fastest).min()?;
        Some(match self.site.verdict {
            _ if allowed == Mode::Optimized => Mode::Optimized,
            Verdict::Simulate(_) => Mode::Simulated,
            _ if allowed == Mode::Stepped => Mode::Stepped,
            _ => Mode::Boosted,
        })
    }

    /// A way to execute the instruction in this mode, or the fastest that is possible, with a cell of its own if it takes
    /// one, and there is one; and why it is not this mode.
    fn new_execution(&self, mode: Mode, arena: &mut Arena) -> Option<(Execution, Option<NotRelocatable>)> {
        let mut fallback = None;
        if mode == Mode::Optimized {
            let stub = arena.allocate(Cell::Stub, self.guarded)?;
            match builder::build(stub, self.address, &self.site, self.guard(), publish::cell(self.address)?) {
                Ok(words) => {
                    arena.fill(stub, &words);
                    return Some((Execution::Optimized { stub }, None));
                }
                Err(reason) => {
                    fallback = Some(reason);
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
        arena.fill(slot, &words);
        Some((execution, fallback))
    }

    /// The cell that `execution` takes.
    fn cell_of(&self, execution: Execution) -> Option<Used> {
        let (address, kind) = match execution {
            Execution::Stepped { slot } | Execution::Boosted { slot } => (slot, Cell::Slot),
            Execution::Optimized { stub } => (stub, Cell::Stub),
            Execution::Simulated(_) => return None,
        };
        Some(Used { address, kind, guarded: self.guarded })
    }

    fn cell(&self) -> Option<Used> {
        self.execution.and_then(|execution| self.cell_of(execution))
    }

    /// Publishes what has been staged. Returns what is then to be written to the text, if anything is.
    fn publish(&mut self, staged: Staged, replaced: &mut Replaced) -> Option<Word> {
        let Staged { address, point, wanted, fallback, .. } = staged;
        let before = self.cell();
        let word = match point {
            Some(point) => {
                self.execution = Some(point.execution);
                (self.wanted, self.fallback) = (wanted, fallback);
                let before = before.filter(|_| before != self.cell());
                replaced.cells.extend(before.map(|cell| Unused { cell, occupied: false }));
                replaced.points.push(publish::set(address, Box::into_raw(point), self.site.word));
                match self.execution {
                    Some(Execution::Optimized { stub }) => insn::branch(address as u64, stub as u64).ok()?,
                    _ => insn::BRK_KPROBE,
                }
            }
            None => {
                replaced.cells.extend(before.map(|cell| Unused { cell, occupied: false }));
                self.site.word
            }
        };
        (self.in_text != word).then_some(Word { address, word })
    }

    /// Whether the text leads to the point.
    pub(super) fn is_armed(&self) -> bool {
        self.in_text != self.site.word
    }

    /// Takes the point out of the table. The text does not lead to it.
    fn withdraw(&mut self, replaced: &mut Replaced) {
        if let Some(cell) = self.cell()
            && replaced.cells.binary_search_by_key(&cell.address, |unused| unused.cell.address).is_err()
        {
            replaced.never_used.push(cell);
        }
        self.execution = None;
        replaced.points.push(publish::set(self.address, ptr::null_mut(), self.site.word));
    }
}

impl Replaced {
    /// Marks the cells in which somebody has been interrupted. Called with the other CPUs held.
    fn find_occupied(&mut self) {
        platform::interrupted(&mut |pc| {
            let behind = self.cells.partition_point(|unused| unused.cell.address <= pc);
            if let Some(unused) = behind.checked_sub(1).and_then(|index| self.cells.get_mut(index))
                && pc - unused.cell.address < unused.cell.kind.size()
            {
                unused.occupied = true;
            }
        });
    }

    /// Frees everything but the cells that are occupied, which are returned.
    fn free(self, arena: &mut Arena) -> Vec<Unused> {
        for point in self.points.into_iter().filter(|point| !point.is_null()) {
            // SAFETY: it came out of `Box::into_raw` in `publish`. Since it was replaced, every CPU has been held outside
            // the hit path, or nothing has led to it.
            drop(unsafe { Box::from_raw(point) });
        }
        let (mut occupied, unused): (Vec<_>, Vec<_>) = self.cells.into_iter().partition(|unused| unused.occupied);
        unused.into_iter().map(|unused| unused.cell).chain(self.never_used).for_each(|cell| arena.free(cell));
        occupied.iter_mut().for_each(|unused| unused.occupied = false);
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
            Self::Optimized { .. } => Mode::Optimized,
        }
    }
}
