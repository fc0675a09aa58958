//! All probes that are registered, and the one place that arms and disarms them.
//!
//! One lock is held for every change. Tasks may be preempted while they hold it, and others then yield; the hit
//! path never takes it.
//!
//! What the hit path may be using is freed only after [`platform::synchronize_cpus`]: a hit is handled with
//! interrupts masked from its exception to its end, so a CPU that has since taken an interrupt holds nothing
//! that was withdrawn before.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use core::{mem, ptr};

use spin::mutex::{SpinMutex, SpinMutexGuard};
use spin::relax::RelaxStrategy;

use super::check::{self, Site};
use super::hit::point::{Execution, Kind, Point, Probe, ProbeList, Retired};
use super::hit::table;
use super::slots::Slots;
use super::{Mode, ProbeError, ProbeInfo, ProbeKind};
use crate::insn::{self, Verdict};
use crate::{interrupts, platform, text};

/// Every point at which a probe is registered.
struct Registry {
    points: BTreeMap<usize, Entry>,
    slots: Slots,
    guarded_slots: Slots,
    /// Return probes that have been unregistered while calls were in progress.
    lingering: Vec<Arc<Probe>>,
}

struct Entry {
    /// Leaked while it can be found in the table.
    point: &'static Point,
    probes: Vec<Arc<Probe>>,
    /// The breakpoint is in place.
    armed: bool,
}

/// Yields to other tasks while one of them holds the lock.
struct Yield;

impl RelaxStrategy for Yield {
    fn relax() {
        platform::yield_now();
    }
}

static REGISTRY: SpinMutex<Registry, Yield> = SpinMutex::new(Registry {
    points: BTreeMap::new(),
    slots: Slots::new(false),
    guarded_slots: Slots::new(true),
    lingering: Vec::new(),
});

/// Takes the lock, on behalf of a change to the probes at `address`.
fn lock(address: usize) -> Result<SpinMutexGuard<'static, Registry, Yield>, ProbeError> {
    if interrupts::are_masked() {
        return Err(ProbeError::InterruptsMasked { address });
    }
    Ok(REGISTRY.lock())
}

/// Takes the lock in order to look.
fn lock_to_read() -> SpinMutexGuard<'static, Registry, Yield> {
    assert!(!interrupts::are_masked(), "the list of probes cannot be read with interrupts masked");
    REGISTRY.lock()
}

/// Registers `probe` at the virtual address `address`, and arms it if it is enabled.
pub(super) fn register(address: usize, probe: Probe) -> Result<Arc<Probe>, ProbeError> {
    let mut registry = lock(address)?;
    let site = match &probe.kind {
        Kind::Kprobe { .. } => check::check(address)?,
        Kind::Return(_) => check::check_entry(address)?,
    };
    let probe = Arc::new(probe);
    registry.ensure_point(address, site)?;
    let added = registry.change(address, |probes| probes.push(Arc::clone(&probe)));
    added.inspect_err(|_| registry.remove(address, &probe))?;
    registry.sweep();
    Ok(probe)
}

/// Arms or disarms a probe that is registered at `address`.
pub(super) fn set_enabled(address: usize, probe: &Probe, enabled: bool) -> Result<(), ProbeError> {
    let mut registry = lock(address)?;
    let before = probe.enabled.swap(enabled, Relaxed);
    registry.change(address, |_| {}).inspect_err(|_| {
        probe.enabled.store(before, Relaxed);
        // The text is as it was, so that this only publishes the list as it was.
        let _ = registry.change(address, |_| {});
    })
}

/// Unregisters a probe. When this returns, no handler of it is running, and none will run.
///
/// # Panics
///
/// If interrupts are masked.
pub(super) fn unregister(address: usize, probe: &Arc<Probe>) {
    match lock(address) {
        Ok(mut registry) => {
            registry.remove(address, probe);
            registry.sweep();
        }
        Err(error) => panic!("a probe must not be unregistered in a handler: {error}"),
    }
}

/// Frees what unregistered return probes had kept for calls that have ended since.
pub(super) fn sweep() {
    if let Some(mut registry) = REGISTRY.try_lock() {
        registry.sweep();
    }
}

impl Registry {
    fn slots(&mut self, guarded: bool) -> &mut Slots {
        if guarded { &mut self.guarded_slots } else { &mut self.slots }
    }

    /// Makes a point at `address`, found by the hit path but not armed, unless there is one.
    fn ensure_point(&mut self, address: usize, site: Site) -> Result<(), ProbeError> {
        if self.points.contains_key(&address) {
            return Ok(());
        }
        let guarded = platform::is_guarded(address);
        let execution = match site.verdict {
            Verdict::Simulate(operation) => Execution::Simulated(operation),
            _ => Execution::Stepped {
                slot: self.slots(guarded).allocate(site.word).ok_or(ProbeError::OutOfMemory { address })?,
            },
        };
        table::initialize(&platform::text());
        let point: &'static Point = Box::leak(Box::new(Point::new(address, site.word, execution, guarded)));
        if !table::publish(point) {
            self.free_point(point);
            return Err(ProbeError::OutOfMemory { address });
        }
        self.points.insert(address, Entry { point, probes: Vec::new(), armed: false });
        Ok(())
    }

    /// Changes the probes at `address`, and makes the change take effect: publishes the list of those that are
    /// enabled, and puts the breakpoint in place, or the instruction back. Returns when no CPU uses the old list.
    fn change(&mut self, address: usize, change: impl FnOnce(&mut Vec<Arc<Probe>>)) -> Result<(), ProbeError> {
        let Some(entry) = self.points.get_mut(&address) else { return Ok(()) };
        change(&mut entry.probes);
        let replaced = entry.publish();
        let arm = entry.probes.iter().any(|probe| probe.enabled.load(Relaxed));
        let patched = if arm == entry.armed {
            Ok(())
        } else {
            let word = if arm { insn::BRK_KPROBE } else { entry.point.word };
            text::write(address, &[word])
                .map(|()| entry.armed = arm)
                .map_err(|text::NoAlias { address }| ProbeError::OutOfMemory { address })
        };
        platform::synchronize_cpus();
        drop(replaced);
        patched
    }

    /// Takes the probe out, and its point when it was the last one there.
    fn remove(&mut self, address: usize, probe: &Arc<Probe>) {
        if let Kind::Return(return_probe) = &probe.kind {
            return_probe.retired.store(true, Relaxed);
            self.lingering.push(Arc::clone(probe));
        }
        // Where the instruction cannot be put back, the point stays: a hit executes it and calls nobody.
        let _ = self.change(address, |probes| probes.retain(|other| !Arc::ptr_eq(other, probe)));
        if self.points.get(&address).is_some_and(|entry| entry.probes.is_empty() && !entry.armed) {
            self.remove_point(address);
        }
    }

    /// Frees the unregistered return probes that no call is in any more.
    fn sweep(&mut self) {
        let (kept, ended) = mem::take(&mut self.lingering).into_iter().partition(|probe| probe.active() != 0);
        self.lingering = kept;
        if !Vec::is_empty(&ended) {
            // The CPU that gave back the last instance may still be about to leave the probe.
            platform::synchronize_cpus();
        }
    }

    /// Frees a point that is not armed. No CPU is handling a hit of it, since `change` has waited for them all.
    fn remove_point(&mut self, address: usize) {
        let Some(entry) = self.points.remove(&address) else { return };
        table::withdraw(address);
        platform::synchronize_cpus();
        self.free_point(entry.point);
    }

    /// Frees a point that is in no table, and that no CPU can have found.
    fn free_point(&mut self, point: &'static Point) {
        if let Some(slot) = point.slot() {
            self.slots(point.guarded).free(slot);
        }
        // SAFETY: it was leaked in `ensure_point`. It has never been in the table; or the breakpoint was gone before
        // every CPU was seen outside the hit path, and none can have found it since.
        drop(unsafe { Box::from_raw(ptr::from_ref(point).cast_mut()) });
    }
}

impl Entry {
    /// Publishes the enabled probes: return probes last, so that the other handlers see the true x30.
    fn publish(&self) -> Option<Retired> {
        let of_kind = |returns: bool| {
            self.probes
                .iter()
                .filter(move |probe| probe.enabled.load(Relaxed) && matches!(probe.kind, Kind::Return(_)) == returns)
        };
        let list: ProbeList = of_kind(false).chain(of_kind(true)).cloned().collect();
        self.point.replace_probes(list)
    }
}

/// All registered probes, by address, and in the order of registration at each.
///
/// # Panics
///
/// If interrupts are masked, as they are in a handler.
#[must_use]
pub fn list() -> Vec<ProbeInfo> {
    let registry = lock_to_read();
    let info = |entry: &Entry, probe: &Probe| ProbeInfo {
        address: entry.point.address,
        kind: match probe.kind {
            Kind::Kprobe { .. } => ProbeKind::Kprobe,
            Kind::Return(_) => ProbeKind::Kretprobe,
        },
        mode: match entry.point.execution {
            Execution::Simulated(_) => Mode::Simulated,
            Execution::Stepped { .. } => Mode::Stepped,
        },
        enabled: probe.enabled.load(Relaxed),
        hits: probe.hits.load(Relaxed),
        missed: probe.missed.load(Relaxed),
        data: probe.data,
    };
    let entries = registry.points.values();
    entries.flat_map(|entry| entry.probes.iter().map(move |probe| info(entry, probe))).collect()
}

/// How many slots hold an instruction.
///
/// # Panics
///
/// If interrupts are masked, as they are in a handler.
#[must_use]
pub fn slots_in_use() -> usize {
    let registry = lock_to_read();
    registry.slots.in_use() + registry.guarded_slots.in_use()
}
