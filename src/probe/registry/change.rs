//! Making changes take effect: what a hit does, and whether there is one.
//!
//! The steps come in the order in which a CPU that runs into a probe meanwhile must see them: slots are filled before
//! plans lead to them, plans are published before breakpoints lead to those, and what was replaced is freed after every
//! CPU has been held outside the hit path. A point that is disarmed keeps its plan until then.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::{mem, ptr};

use super::{Entry, Registry};
use crate::insn::{self, Verdict};
use crate::platform;
use crate::probe::arena::Arena;
use crate::probe::hit::origin::SLOT;
use crate::probe::hit::point::{Execution, Kind, Plan, Probe};
use crate::probe::{Mode, publish};
use crate::text::{self, Word};

/// A slot that no point has a use for any more.
#[derive(Debug)]
pub(super) struct Unused {
    slot: usize,
    guarded: bool,
    /// Somebody has been interrupted in it.
    occupied: bool,
}

/// What a point is to do from now on.
struct Staged {
    address: usize,
    /// Nothing where it is to be disarmed.
    plan: Option<Box<Plan>>,
    /// The mode that was asked for.
    wanted: Mode,
    /// The slot in the plan is a new one.
    is_new: bool,
}

/// What is freed when every CPU has been held.
#[derive(Default)]
struct Replaced {
    plans: Vec<*mut Plan>,
    /// Sorted when the CPUs are held.
    slots: Vec<Unused>,
    /// The slots of points that could not be armed.
    never_used: Vec<Unused>,
}

/// Makes the changes to the probes at `addresses`, sorted and each once, take effect. Returns those, sorted, at which there
/// was no memory to do so, and nothing has changed.
pub(super) fn apply(registry: &mut Registry, addresses: &[usize]) -> Vec<usize> {
    let (staged, mut failed) = stage(registry, addresses);
    let filled = registry.arena.take_words();
    if text::write(&filled) < filled.len() {
        for Staged { address, plan, is_new, .. } in staged {
            let slot = plan.filter(|_| is_new).and_then(|plan| plan.execution.slot());
            if let (Some(entry), Some(slot)) = (registry.points.get(&address), slot) {
                registry.arena.free(slot, entry.point.guarded);
            }
        }
        return addresses.to_vec();
    }
    let mut replaced = Replaced { slots: mem::take(&mut registry.occupied), ..Replaced::default() };
    let words: Vec<Word> = staged
        .into_iter()
        .filter_map(|staged| registry.points.get_mut(&staged.address)?.publish(staged, &mut replaced))
        .collect();
    replaced.slots.sort_unstable_by_key(|unused| unused.slot);
    let written = text::patch(&words, &mut || replaced.find_occupied());
    let (written, unwritten) = words.split_at(written);
    for &Word { address, word } in written {
        if let Some(entry) = registry.points.get_mut(&address) {
            entry.armed = word == insn::BRK_KPROBE;
        }
    }
    for &Word { address, .. } in unwritten {
        failed.push(address);
        // A breakpoint that could not be taken away still leads to the slot.
        let slot = registry.points.get(&address).filter(|entry| entry.armed).and_then(Entry::slot);
        replaced.slots.retain(|unused| Some(unused.slot) != slot);
    }
    failed.sort_unstable();
    for address in addresses {
        if let Some(entry) = registry.points.get_mut(address).filter(|entry| !entry.armed) {
            entry.withdraw(&mut replaced);
        }
    }
    registry.occupied = replaced.free(&mut registry.arena);
    failed
}

/// Builds the plans, and has their slots filled. Returns also the addresses for which there is no slot.
fn stage(registry: &mut Registry, addresses: &[usize]) -> (Vec<Staged>, Vec<usize>) {
    let mut staged = Vec::with_capacity(addresses.len());
    let mut failed = Vec::new();
    for &address in addresses {
        let Some(entry) = registry.points.get(&address) else { continue };
        let Some(mode) = entry.wanted_mode() else {
            staged.push(Staged { address, plan: None, wanted: entry.wanted, is_new: false });
            continue;
        };
        let kept = entry.execution.filter(|_| entry.wanted == mode);
        let Some(execution) = kept.or_else(|| entry.new_execution(mode, &mut registry.arena)) else {
            failed.push(address);
            continue;
        };
        let plan = Some(Box::new(Plan { execution, probes: entry.enabled() }));
        staged.push(Staged { address, plan, wanted: mode, is_new: kept.is_none() });
    }
    (staged, failed)
}

impl Entry {
    /// The probes that are enabled: return probes last, so that the other handlers see the true x30.
    fn enabled(&self) -> Box<[Arc<Probe>]> {
        let of_kind = |returns: bool| {
            self.probes
                .iter()
                .filter(move |probe| probe.enabled.load(Relaxed) && matches!(probe.kind, Kind::Return(_)) == returns)
        };
        of_kind(false).chain(of_kind(true)).cloned().collect()
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
            Verdict::Simulate(_) => Mode::Simulated,
            _ if allowed == Mode::Stepped => Mode::Stepped,
            _ => Mode::Boosted,
        })
    }

    /// A way to execute the instruction in this mode, or the nearest that is possible, with a slot of its own if it takes
    /// one, and there is one.
    fn new_execution(&self, mode: Mode, arena: &mut Arena) -> Option<Execution> {
        if let Verdict::Simulate(operation) = self.site.verdict {
            return Some(Execution::Simulated(operation));
        }
        let slot = arena.allocate(self.point.guarded)?;
        let next = insn::branch(slot as u64 + 4, self.point.address as u64 + 4);
        let (execution, leads_on) = match (mode, next) {
            (Mode::Boosted, Ok(branch)) => (Execution::Boosted { slot }, branch),
            _ => (Execution::Stepped { slot }, insn::BRK_STEP),
        };
        arena.fill(slot, [self.site.word, leads_on]);
        Some(execution)
    }

    /// The virtual address of the slot that the instruction is executed in, if it is.
    fn slot(&self) -> Option<usize> {
        self.execution.and_then(|execution| execution.slot())
    }

    fn unused(&self, slot: usize) -> Unused {
        Unused { slot, guarded: self.point.guarded, occupied: false }
    }

    /// Publishes what has been staged. Returns what is then to be written to the text, if anything is.
    fn publish(&mut self, staged: Staged, replaced: &mut Replaced) -> Option<Word> {
        let Staged { address, plan, wanted, .. } = staged;
        let Some(plan) = plan else {
            replaced.slots.extend(self.slot().map(|slot| self.unused(slot)));
            return self.armed.then_some(Word { address, word: self.site.word });
        };
        let before = self.slot();
        self.execution = Some(plan.execution);
        self.wanted = wanted;
        replaced.slots.extend(before.filter(|_| before != self.slot()).map(|slot| self.unused(slot)));
        replaced.plans.push(self.point.publish(Box::into_raw(plan)));
        publish::set(address, Arc::as_ptr(&self.point), self.site.word);
        (!self.armed).then_some(Word { address, word: insn::BRK_KPROBE })
    }

    /// Withdraws the plan, and the point from the table. No breakpoint leads to them.
    fn withdraw(&mut self, replaced: &mut Replaced) {
        if let Some(slot) = self.slot()
            && replaced.slots.binary_search_by_key(&slot, |unused| unused.slot).is_err()
        {
            replaced.never_used.push(self.unused(slot));
        }
        self.execution = None;
        replaced.plans.push(self.point.publish(ptr::null_mut()));
        publish::set(self.point.address, ptr::null(), self.site.word);
    }
}

impl Replaced {
    /// Marks the slots in which somebody has been interrupted. Called with the other CPUs held.
    fn find_occupied(&mut self) {
        platform::interrupted(&mut |pc| {
            let slot = pc & !(SLOT - 1);
            if let Ok(index) = self.slots.binary_search_by_key(&slot, |unused| unused.slot) {
                self.slots[index].occupied = true;
            }
        });
    }

    /// Frees everything but the slots that are occupied, which are returned.
    fn free(self, arena: &mut Arena) -> Vec<Unused> {
        for plan in self.plans.into_iter().filter(|plan| !plan.is_null()) {
            // SAFETY: it came out of `Box::into_raw` in `publish`. Since it was replaced, every CPU has been held outside
            // the hit path, or no breakpoint has led to it.
            drop(unsafe { Box::from_raw(plan) });
        }
        let (mut occupied, unused): (Vec<_>, Vec<_>) = self.slots.into_iter().partition(|unused| unused.occupied);
        unused.into_iter().chain(self.never_used).for_each(|unused| arena.free(unused.slot, unused.guarded));
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
        }
    }
}
