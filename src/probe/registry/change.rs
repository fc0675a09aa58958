//! Makes changes take effect: what a hit does, and whether there is a hit at all.
//!
//! The steps are in the order in which a CPU that hits a probe meanwhile must see them: cells are filled before points
//! lead to them, points are published before the text leads to them, and what was replaced is freed after every CPU has
//! been held outside the hit path. When an instruction is disarmed, the point stays in the table until every CPU has
//! been held, and every CPU is held once more before the point is freed.

use alloc::vec::Vec;
use core::mem::{self, ManuallyDrop};
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::Relaxed;

use super::{HAS_STUBS, Probes, Registry, RegistryEntry, shortcut};
use crate::insn::{self, Guard, NotRelocatable, Verdict};
use crate::probe::aliasable::AliasableBox;
use crate::probe::arena::{Arena, Cell, Used};
use crate::probe::follower::Followed;
use crate::probe::hit::counters::Counters;
use crate::probe::hit::disarm;
use crate::probe::hit::point::{ArmedProbe, Execution, Handlers, Point, Pre, Probe, ProbeRef};
use crate::probe::hit::returns::ReturnProbe;
use crate::probe::hit::stub::Form;
use crate::probe::hit::table::Page;
use crate::probe::hit::this_cpu::guard;
use crate::probe::hit::{PreHandler, arguments, call_all, call_earlier, noop_handler, returns};
use crate::probe::slab::Slab;
use crate::probe::snippet::Inserted;
use crate::probe::{Fallback, Mode, Registration, follower, stub_builder};
use crate::text::{self, Word};
use crate::{interrupts, kernel};

/// A point that is to be published or withdrawn.
struct Staged {
    address: usize,
    /// The page of the table for the address.
    page: &'static Page,
    /// The new point; `None` if the instruction is to be disarmed.
    point: Option<NonNull<Point>>,
    /// The previous point. It is freed after every CPU has been held.
    replaced: Option<NonNull<Point>>,
}

/// The smallest size of a group. If there is no memory for a group of changes, half of them are tried at once, down to
/// this number. In a group of this size or less, the changes without memory are left out.
const LEAST: usize = 64;

/// Lists for the changes of one group: the points, and the words of the text.
type Lists = (Vec<Staged>, Vec<Word>);

/// Makes the changes to the probes at `addresses`, which are sorted and distinct, take effect: together, or in smaller
/// groups if there is no memory for lists of all, or for points beside these lists. Every CPU has been held since the
/// call, unless there was no memory. Returns the first address without memory for its change: nothing has changed
/// there, and the change is pending.
pub(super) fn apply(registry: &mut Registry, addresses: &[usize]) -> Option<usize> {
    let mut failed = None;
    let (mut rest, mut size) = (addresses, addresses.len());
    loop {
        size = size.min(rest.len());
        let lists = lists(&mut registry.occupied, size);
        let is_least = size <= LEAST;
        if lists.is_some() || is_least {
            let done = apply_group(registry, &rest[..size], lists, is_least, &mut failed);
            rest = &rest[done..];
            if rest.is_empty() {
                return failed;
            }
            if done == size {
                continue;
            }
        }
        size = size.div_ceil(2);
    }
}

/// Returns lists for a group of `size` changes, each of which may free one more cell; `None` if there is no memory.
fn lists(occupied: &mut Vec<Used>, size: usize) -> Option<Lists> {
    let (mut staged, mut words) = (Vec::new(), Vec::new());
    staged.try_reserve_exact(size).and_then(|()| words.try_reserve_exact(size)).ok()?;
    fallible::reserve(occupied, size).ok()?;
    Some((staged, words))
}

/// Does the work of [`apply`] for one group. `lists` is `None` if there is no memory for them. At a change without
/// memory it stops; or, if `is_least` is set, it stores the address in `failed`, unless that holds one, and goes on
/// with the other changes. Returns the number of changes that are done or left out.
fn apply_group(
    registry: &mut Registry,
    group: &[usize],
    lists: Option<Lists>,
    is_least: bool,
    failed: &mut Option<usize>,
) -> usize {
    let has_lists = lists.is_some();
    let (mut staged, mut words) = lists.unwrap_or_default();
    let mut cells = mem::take(&mut registry.occupied);
    let (mut done, mut lacks_memory) = (0, false);
    for &address in group {
        done += 1;
        let Some(entry) = registry.entries.get_mut(address) else { continue };
        let point = if has_lists { entry.stage(&mut registry.arena, &mut registry.points, &mut cells) } else { None };
        entry.is_pending = point.is_none();
        let Some(point) = point else {
            lacks_memory = true;
            if !is_least {
                done -= 1;
                break;
            }
            *failed = failed.or(Some(address));
            continue;
        };
        if let Some(word) = entry.change_of_text() {
            words.push(word);
        }
        staged.push(entry.staged(point));
    }
    // Every CPU is held even if there is nothing to change: callers rely on this.
    if !lacks_memory || !staged.is_empty() || !cells.is_empty() {
        carry_out(registry, &mut staged, &words, &mut cells);
    }
    registry.keep(cells);
    done
}

/// Disables `probes`, and restores the instructions at which no other probe is enabled. This comes first, because the
/// code that removes probes may itself hit them. If there is no memory for a list, the steps that follow restore the
/// instructions.
pub(super) fn disarm<'a>(_: &mut Registry, probes: impl ExactSizeIterator<Item = &'a Registration> + Clone) {
    let mut words = Vec::new();
    let _ = words.try_reserve_exact(probes.len());
    // SAFETY: the caller has a mutable reference to the registry, which only the holder of the lock can get.
    unsafe { disarm::disable(probes, &mut words) };
    if !words.is_empty() {
        text::patch::<Used>(&words, &mut []);
    }
}

/// Makes a change at `address` take effect that only disables or removes probes. Needs no memory: if some probes are
/// left, the point is replaced in place. Returns whether every CPU has been held meanwhile: false if nothing was armed.
pub(super) fn reduce(registry: &mut Registry, address: usize) -> bool {
    let Some(entry) = registry.entries.get_mut(address) else { return false };
    entry.is_pending = false;
    let Some(place) = entry.page.locked_point(address) else { return false };
    // SAFETY: `stage` made the point, and only the holder of the registry's lock frees it, or changes it below.
    let has_several = !unsafe { place.as_ref() }.several.is_empty();
    entry.leave_front();
    if let Some((execution, first)) = entry.in_effect(entry.first_two(), has_several) {
        let mut point = ManuallyDrop::new(entry.point(execution, first, Vec::new(), has_several));
        // SAFETY: the other CPUs are held outside the hit path, this CPU is outside it as well, and nothing interrupts
        // it. `point` has no armed probes in `several`, and is not dropped.
        let mut install = || unsafe { point.install_at(place) };
        kernel::hold_cpus(&mut || interrupts::with_masked(&mut install));
        return true;
    }
    let cell = entry.cell();
    entry.execution = None;
    let (word, staged) = (entry.change_of_text(), entry.staged(None));
    // The registration of each probe has reserved room for one more cell than those that are occupied.
    while cell.is_some() && registry.occupied.len() == registry.occupied.capacity() {
        kernel::yield_now();
        apply(registry, &[]);
    }
    let mut cells = mem::take(&mut registry.occupied);
    cells.extend(cell);
    carry_out(registry, &mut [staged], word.as_slice(), &mut cells);
    registry.keep(cells);
    true
}

/// Holds every CPU once outside the hit path.
pub(super) fn wait_for_cpus() {
    text::patch::<Used>(&[], &mut []);
}

/// Publishes the staged points, writes `words` to the text, and frees the points that were replaced. Marks the `cells`
/// in which a task was interrupted.
fn carry_out(registry: &mut Registry, staged: &mut [Staged], words: &[Word], cells: &mut [Used]) {
    registry.arena.write();
    let (mut replaces, mut withdraws) = (false, false);
    for Staged { address, page, point, replaced } in &mut *staged {
        if let Some(point) = *point {
            // SAFETY: the caller's reference to the registry shows that it holds the lock, and `stage` has made the
            // point.
            *replaced = unsafe { page.publish(*address, point) };
            replaces |= replaced.is_some();
        } else {
            withdraws |= page.locked_point(*address).is_some();
        }
    }
    cells.sort_unstable_by_key(Used::address);
    if !words.is_empty() || !withdraws {
        text::patch(words, cells);
    }
    // From here on the instructions are armed, and this function may hit them itself.
    if withdraws {
        for Staged { address, page, replaced, .. } in staged.iter_mut().filter(|staged| staged.point.is_none()) {
            // SAFETY: the caller's reference to the registry shows that it holds the lock.
            *replaced = unsafe { page.withdraw(*address) };
        }
        // A CPU that was in a stub may have loaded the point just before it was withdrawn.
        text::patch(&[], cells);
    }
    if replaces || withdraws {
        for point in staged.iter().filter_map(|staged| staged.replaced) {
            // SAFETY: `stage` allocated the point in this slab. Every CPU has been held outside the hit path since the
            // point was replaced or withdrawn.
            unsafe { registry.points.remove(point) };
        }
    }
}

impl Registry {
    /// Frees the `cells` in which no task was interrupted, and keeps the others, in a list that is not much larger than
    /// needed.
    fn keep(&mut self, mut cells: Vec<Used>) {
        cells.retain_mut(|cell| {
            let is_occupied = mem::take(&mut cell.is_occupied);
            if !is_occupied {
                self.arena.free(*cell);
            }
            is_occupied
        });
        let mut few = Vec::new();
        // Room for one more cell is kept, because it may have to be added without memory.
        if cells.capacity() > 8 * (cells.len() + 1) && few.try_reserve_exact(cells.len() + 1).is_ok() {
            few.append(&mut cells);
            cells = few;
        }
        self.occupied = cells;
    }
}

impl RegistryEntry {
    /// Decides how the instruction is executed from now on, and makes the new point, or `Some(None)` if no probe is
    /// enabled. A new cell, if one is needed, is written at the end of the change. A cell that is no longer needed is
    /// added to `replaced`. Returns `None`, with nothing changed, if there is no memory.
    #[inline]
    fn stage(
        &mut self,
        arena: &mut Arena,
        points: &mut Slab<Point>,
        replaced: &mut Vec<Used>,
    ) -> Option<Option<NonNull<Point>>> {
        let front = self.first_two();
        let Some(wanted) = self.fastest_mode(front) else {
            replaced.extend(self.cell());
            self.execution = None;
            return Some(None);
        };
        self.stage_armed(wanted, front, arena, points, replaced).map(Some)
    }

    /// Does what [`stage`](Self::stage) does if probes are enabled, which want the mode `wanted`, and the first two of
    /// which are `front`.
    #[inline(never)]
    fn stage_armed(
        &mut self,
        wanted: Mode,
        front: [Option<ProbeRef>; 2],
        arena: &mut Arena,
        points: &mut Slab<Point>,
        replaced: &mut Vec<Used>,
    ) -> Option<NonNull<Point>> {
        points.reserve()?;
        let several = self.several()?;
        // Code in front of a stub belongs to one probe, or to two.
        if self.execution.as_ref().is_none_or(|execution| !self.is_as_wanted(execution, wanted, front)) {
            let before = self.cell();
            match self.new_execution(wanted, arena) {
                Some((execution, fallback)) => {
                    (self.execution, self.wanted, self.fallback) = (Some(execution), wanted, fallback);
                    self.front = front;
                    if let Some(cell) = before {
                        replaced.push(cell);
                    }
                }
                None if self.execution.as_ref().is_some_and(|execution| self.can_serve(execution, wanted, front)) => {}
                None => return None,
            }
        }
        let has_several = !several.is_empty();
        let (execution, first) = self.in_effect(front, has_several)?;
        let place = points.allocate()?;
        // SAFETY: the slab has returned a place for a point.
        unsafe { place.write(self.point(execution, first, several, has_several)) };
        Some(place)
    }

    /// Returns whether `execution`, the present one, is what the enabled probes want. `front` are their first two.
    #[inline(never)]
    fn is_as_wanted(&self, execution: &Execution, wanted: Mode, front: [Option<ProbeRef>; 2]) -> bool {
        let is_following = matches!(execution, Execution::Optimized { form: Form::Follow, .. });
        let is_bound = wanted == Mode::Compiled || is_following;
        self.wanted == wanted && self.is_of_form(execution, wanted) && (!is_bound || self.front == front)
    }

    /// Returns whether `execution`, the present one, which may be slower than wanted, can serve the enabled probes.
    /// `front` are their first two.
    #[cold]
    fn can_serve(&self, execution: &Execution, wanted: Mode, front: [Option<ProbeRef>; 2]) -> bool {
        let serves_all = !matches!(execution, Execution::Optimized { before: 1.., .. });
        // A full stub can also serve handlers that need fewer registers.
        let is_full = matches!(execution, Execution::Optimized { form: Form::Full, .. });
        let has_registers = self.is_of_form(execution, wanted) || is_full;
        execution.mode() <= wanted && (serves_all || self.front == front) && has_registers
    }

    /// Returns whether `execution` saves what the enabled probes need in the mode `wanted`.
    fn is_of_form(&self, execution: &Execution, wanted: Mode) -> bool {
        match *execution {
            Execution::Optimized { form, .. } => form == self.form(wanted),
            _ => true,
        }
    }

    /// Redirects the branch at the instruction to the stub itself, if the enabled probes are no longer those whose code
    /// lies in front of it, and waits until no task is interrupted in that code. Needs no memory.
    fn leave_front(&mut self) {
        let is_theirs = self.front == self.first_two();
        match &mut self.execution {
            Some(Execution::Optimized { before: before @ 1.., .. })
                if !is_theirs && self.probes.iter().any(is_enabled) =>
            {
                *before = 0
            }
            _ => return,
        }
        self.front = [None; 2];
        let word = self.change_of_text();
        let mut front = self.cell().map(|cell| cell.in_front());
        text::patch(word.as_slice(), front.as_mut_slice());
        while front.as_mut().is_some_and(|front| mem::take(&mut front.is_occupied)) {
            kernel::yield_now();
            text::patch(&[], front.as_mut_slice());
        }
    }

    /// Returns the staged change that publishes `point` at the address, or withdraws the point that is there.
    fn staged(&self, point: Option<NonNull<Point>>) -> Staged {
        Staged { address: self.address, page: self.page, point, replaced: None }
    }

    /// Returns the word that has to be written to the text; `None` if the text already holds it.
    fn change_of_text(&self) -> Option<Word> {
        let word = self.word();
        (text::read(self.address) != word).then_some(Word { address: self.address, words: [word] })
    }

    /// Returns the word that the text has to hold.
    fn word(&self) -> u32 {
        match self.execution {
            Some(Execution::Optimized { stub, before, .. }) => {
                let to = stub as u64 - u64::from(before);
                insn::branch(self.address as u64, to).expect("a stub is built within reach")
            }
            Some(_) => insn::BRK_KPROBE,
            None => self.checked.word,
        }
    }

    fn enabled(&self) -> impl Iterator<Item = ProbeRef> {
        self.probes.iter().copied().filter(is_enabled)
    }

    /// Returns the first two enabled probes.
    #[inline]
    fn first_two(&self) -> [Option<ProbeRef>; 2] {
        if let Probes::One(only) = &self.probes {
            return [Some(*only).filter(is_enabled), None];
        }
        let mut enabled = self.enabled();
        [enabled.next(), enabled.next()]
    }

    /// Returns a probe with a snippet and a return probe that only follows calls, if no other probes are enabled, and
    /// one code in front of the stub can do the work of both.
    fn pair(&self) -> Option<(ProbeRef, &AliasableBox<ReturnProbe>)> {
        if self.probes.len() == 1 || self.lean_obstacle.is_some() || self.enabled().nth(2).is_some() {
            return None;
        }
        let probe = self.enabled().find(|probe| matches!(probe.handlers, Handlers::Kprobe { .. }))?;
        let returning =
            self.probes.iter().filter(|probe| is_enabled(probe)).find_map(|probe| match &probe.handlers {
                Handlers::Return(returning)
                    if returning.is_plain() && !returning.is_given() && probe.allows >= Mode::Optimized =>
                {
                    Some(returning)
                }
                _ => None,
            })?;
        let inserted = probe.inserted.as_ref().filter(|inserted| inserted.is_possible())?;
        follower::cell(Some(inserted)).filter(|_| probe.allows == Mode::Compiled)?;
        Some((probe, returning))
    }

    /// Returns the enabled probes in the order in which they run: return probes last, so that the handlers of the other
    /// probes see the true x30.
    fn in_order(&self) -> impl Iterator<Item = ProbeRef> {
        let is_return = |probe: &ProbeRef| matches!(probe.handlers, Handlers::Return(_));
        self.enabled().filter(move |probe| !is_return(probe)).chain(self.enabled().filter(is_return))
    }

    /// Makes the armed probes of the enabled probes, if there are several; otherwise an empty list. Returns `None` if
    /// there is no memory.
    #[inline(always)]
    fn several(&self) -> Option<Vec<ArmedProbe>> {
        let mut armed_probes = Vec::new();
        if self.probes.len() == 1 {
            return Some(armed_probes);
        }
        let count = self.enabled().count();
        if count > 1 {
            armed_probes.try_reserve_exact(count).ok()?;
            armed_probes.extend(self.in_order().map(|probe| self.armed_probe(probe)));
        }
        Some(armed_probes)
    }

    fn armed_probe(&self, probe: ProbeRef) -> ArmedProbe {
        let (handler, post): (PreHandler, _) = match probe.handlers {
            Handlers::Kprobe { pre: Pre::Nothing, post } => (noop_handler, post),
            Handlers::Kprobe { pre: Pre::Hit(handler), post } => (handler, post),
            Handlers::Kprobe { pre: Pre::Arguments(_), post } => (arguments::call, post),
            Handlers::Return(_) => (returns::function_entered_shared, None),
        };
        ArmedProbe { handler, counters: probe.entered, address: self.address, post, probe }
    }

    /// Returns how the instruction is executed, and the first of the enabled probes, if there is one. `front` are the
    /// first two, in the order of their registration.
    #[inline(always)]
    fn in_effect(&self, front: [Option<ProbeRef>; 2], has_several: bool) -> Option<(&Execution, ProbeRef)> {
        let [first, _] = front;
        let first = if has_several { self.in_order().next() } else { first };
        Some((self.execution.as_ref()?, first?))
    }

    /// Makes the point for the enabled probes: for `first` alone, or, if `has_several`, for the armed probes in
    /// `several`, which [`Point::install_at`] may still have to supply.
    ///
    /// Always inlined, so that the point is made in place.
    #[inline(always)]
    fn point(&self, execution: &Execution, first: ProbeRef, several: Vec<ArmedProbe>, has_several: bool) -> Point {
        let handlers = &first.handlers;
        let mut first = self.armed_probe(first);
        if has_several {
            first.handler = call_all;
        } else if let Handlers::Return(_) = handlers {
            first.handler = returns::function_entered;
        }
        let (full, full_counters) = match *execution {
            Execution::Boosted { .. } | Execution::Optimized { .. } => (first.handler, first.counters),
            Execution::Simulated(_) | Execution::Stepped { .. } => (call_earlier as _, Counters::SINK),
        };
        let (lean, lean_counters) = match (*execution, &first.probe.handlers) {
            (Execution::Optimized { form: Form::Lean, .. }, &Handlers::Kprobe { pre: Pre::Arguments(handler), .. }) => {
                (handler, first.counters)
            }
            _ => (arguments::call_earlier as _, Counters::SINK),
        };
        let is_post = |probe: ProbeRef| matches!(probe.handlers, Handlers::Kprobe { post: Some(_), .. });
        let has_post = first.post.is_some() || has_several && self.enabled().any(is_post);
        let (shortcut, slot, operands) = match *execution {
            Execution::Boosted { slot } => (Point::BOOSTED, slot, [0; 3]),
            Execution::Optimized { stub, form, .. } => (Point::BOOSTED, stub + 4 * form.copy(), [0; 3]),
            Execution::Simulated(operation) if !has_post => {
                operation.resolve(self.address as u64, self.guard()).map_or((0, 0, [0; 3]), shortcut::to)
            }
            Execution::Stepped { slot } if !has_several && has_post => (Point::STEPPED, slot, [slot as u64 + 4, 0, 0]),
            Execution::Simulated(_) | Execution::Stepped { .. } => (0, 0, [0; 3]),
        };
        let returns = if let Handlers::Return(_) = handlers { self.only_follows() } else { None };
        // A stub has code for the entry in front of it or in its routine; a breakpoint at an entry skips the handler.
        let (shortcut, entry) = match (returns, execution) {
            (None, _) | (_, &Execution::Optimized { .. }) => (shortcut, 0),
            (Some(_), _) => (0, shortcut),
        };
        let returns = returns.map_or(0, |probe| probe.spares().distance());
        let guarded = self.guarded;
        Point {
            first,
            full,
            full_counters,
            lean,
            lean_counters,
            shortcut,
            slot,
            entry,
            returns,
            operands,
            execution: *execution,
            guarded,
            word: self.checked.word,
            registered: NonNull::dangling(),
            several,
        }
    }

    fn guard(&self) -> Guard {
        guard(self.guarded)
    }

    /// Returns the return probe for which calls are followed, if nothing else is to be done at the entry.
    fn only_follows(&self) -> Option<&AliasableBox<ReturnProbe>> {
        let only = match &self.probes {
            Probes::None => return None,
            Probes::One(only) => Some(only).filter(|only| is_enabled(only))?,
            Probes::Several(probes) => {
                let mut enabled = probes.iter().filter(|probe| is_enabled(probe));
                enabled.next().filter(|_| enabled.next().is_none())?
            }
        };
        match &only.handlers {
            Handlers::Return(return_probe) if return_probe.is_plain() => Some(return_probe),
            _ => None,
        }
    }

    /// Returns how the returns of `probe`, which is at the instruction, are handled after a usual entry; `None` if all
    /// registers are saved.
    pub(super) fn mode_at_return(&self, probe: &Probe) -> Option<Mode> {
        let mode = probe.lean_return()?;
        let follows = matches!(self.execution, Some(Execution::Optimized { form, before: 1.., .. })
            if form == Form::Follow || self.front.iter().flatten().any(|other| ptr::eq(&**other, probe)));
        follows.then_some(mode)
    }

    /// Returns whether only one probe is enabled, and its handler needs only what a call passes.
    fn is_entered_alone(&self) -> bool {
        let [first, second] = self.first_two();
        second.is_none()
            && first.is_some_and(|probe| matches!(probe.handlers, Handlers::Kprobe { pre: Pre::Arguments(_), .. }))
    }

    /// Returns what a stub has to save for the enabled probes, if the instruction is executed in this mode.
    #[inline(always)]
    fn form(&self, mode: Mode) -> Form {
        match mode {
            Mode::Lean | Mode::Compiled if self.lean_obstacle.is_none() && self.is_entered_alone() => Form::Lean,
            _ if self.only_follows().is_some() => Form::Follow,
            _ => Form::Full,
        }
    }

    /// Returns the fastest mode that every enabled probe allows; `None` if no probe is enabled. `front` are the first
    /// two.
    #[inline(always)]
    fn fastest_mode(&self, front: [Option<ProbeRef>; 2]) -> Option<Mode> {
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
    fn cell(&self) -> Option<Used> {
        let (address, kind) = match self.execution? {
            Execution::Stepped { slot } | Execution::Boosted { slot } => (slot, Cell::Slot),
            Execution::Optimized { stub, cell, .. } => (stub + Cell::Stub.size() - cell.size(), cell),
            Execution::Simulated(_) => return None,
        };
        Some(Used::new(address, kind, self.guarded))
    }
}

fn is_enabled(probe: &ProbeRef) -> bool {
    probe.enabled.load(Relaxed)
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
