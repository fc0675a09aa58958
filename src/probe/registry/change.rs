//! Makes changes take effect: what a hit does, and whether there is a hit at all.
//!
//! The steps are in the order in which a CPU that hits a probe meanwhile must see them: cells are filled before points
//! lead to them, points are published before the text leads to them, and what was replaced is freed after every CPU has
//! been held outside the hit path. When an instruction is disarmed, the point stays in the table until every CPU has
//! been held, and every CPU is held once more before the point is freed.

use alloc::vec::Vec;
use core::mem::{self, ManuallyDrop};
use core::ptr::NonNull;

use super::enabled::is_enabled;
use super::{Registry, RegistryEntry};
use crate::insn;
use crate::probe::Registration;
use crate::probe::arena::Used;
use crate::probe::hit::disarm;
use crate::probe::hit::point::{Execution, Point};
use crate::probe::hit::table::Page;
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
}
