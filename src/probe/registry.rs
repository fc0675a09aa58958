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
    probes: Vec<Registered>,
    /// The breakpoint is in place.
    armed: bool,
}

struct Registered {
    probe: Arc<Probe>,
    enabled: bool,
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

/// A probe that is registered for as long as this exists.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) address: usize,
    pub(super) probe: Arc<Probe>,
}

impl Registration {
    /// Registers `probe` at the virtual address `address`, and arms it unless it is to be disabled.
    pub(super) fn new(address: usize, probe: Probe, enabled: bool) -> Result<Self, ProbeError> {
        let mut registry = lock(address)?;
        let probe = Arc::new(probe);
        let site = match &probe.kind {
            Kind::Kprobe { .. } => check::check(address)?,
            Kind::Return(_) => check::check_entry(address)?,
        };
        registry.ensure_point(address, site)?;
        let registered = Registered { probe: Arc::clone(&probe), enabled };
        registry.change(address, |probes| probes.push(registered)).inspect_err(|_| registry.remove(address, &probe))?;
        Ok(Self { address, probe })
    }

    /// Arms or disarms the probe.
    pub(super) fn set_enabled(&self, enabled: bool) -> Result<(), ProbeError> {
        lock(self.address)?.change(self.address, |probes| {
            for registered in probes {
                if Arc::ptr_eq(&registered.probe, &self.probe) {
                    registered.enabled = enabled;
                }
            }
        })
    }

    /// Whether the probe is armed.
    pub(super) fn is_enabled(&self) -> bool {
        let registry = REGISTRY.lock();
        let probes = registry.points.get(&self.address).into_iter().flat_map(|entry| &entry.probes);
        probes.clone().any(|registered| Arc::ptr_eq(&registered.probe, &self.probe) && registered.enabled)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        match lock(self.address) {
            Ok(mut registry) => registry.remove(self.address, &self.probe),
            Err(error) => panic!("a probe must not be unregistered in a handler: {error}"),
        }
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
        table::publish(point);
        self.points.insert(address, Entry { point, probes: Vec::new(), armed: false });
        Ok(())
    }

    /// Changes the probes at `address`, and makes the change take effect: publishes the list of those that are
    /// enabled, and puts the breakpoint in place, or the instruction back. Returns when no CPU uses the old list.
    fn change(&mut self, address: usize, change: impl FnOnce(&mut Vec<Registered>)) -> Result<(), ProbeError> {
        let Some(entry) = self.points.get_mut(&address) else { return Ok(()) };
        change(&mut entry.probes);
        let replaced = entry.publish();
        let arm = entry.probes.iter().any(|registered| registered.enabled);
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
        let _ = self.change(address, |probes| probes.retain(|registered| !Arc::ptr_eq(&registered.probe, probe)));
        if self.points.get(&address).is_some_and(|entry| entry.probes.is_empty() && !entry.armed) {
            self.remove_point(address);
        }
        self.lingering.retain(|probe| calls_in_progress(probe) != 0);
    }

    /// Frees a point that is not armed. No CPU is handling a hit of it, since `change` has waited for them all.
    fn remove_point(&mut self, address: usize) {
        let Some(entry) = self.points.remove(&address) else { return };
        table::withdraw(address);
        if let Some(slot) = entry.point.slot() {
            self.slots(entry.point.guarded).free(slot);
        }
        // SAFETY: it was leaked in `ensure_point`, and is in no table any more; the breakpoint was gone before
        // every CPU was seen outside the hit path, so none can have found it since.
        drop(unsafe { Box::from_raw(core::ptr::from_ref(entry.point).cast_mut()) });
    }
}

impl Entry {
    /// Publishes the enabled probes: return probes last, so that the other handlers see the true x30.
    fn publish(&self) -> Option<Retired> {
        let of_kind = |returns: bool| {
            self.probes.iter().filter(move |registered| {
                registered.enabled && matches!(registered.probe.kind, Kind::Return(_)) == returns
            })
        };
        let list: ProbeList =
            of_kind(false).chain(of_kind(true)).map(|registered| Arc::clone(&registered.probe)).collect();
        self.point.replace_probes(list)
    }
}

/// How many calls of a return-probed function are being followed.
pub(super) fn calls_in_progress(probe: &Probe) -> u32 {
    match &probe.kind {
        Kind::Return(return_probe) => return_probe.pool.taken(),
        Kind::Kprobe { .. } => 0,
    }
}

/// All registered probes, by address, and in the order of registration at each.
#[must_use]
pub fn list() -> Vec<ProbeInfo> {
    let registry = REGISTRY.lock();
    let info = |entry: &Entry, registered: &Registered| ProbeInfo {
        address: entry.point.address,
        kind: match registered.probe.kind {
            Kind::Kprobe { .. } => ProbeKind::Kprobe,
            Kind::Return(_) => ProbeKind::Kretprobe,
        },
        mode: match entry.point.execution {
            Execution::Simulated(_) => Mode::Simulated,
            Execution::Stepped { .. } => Mode::Stepped,
        },
        enabled: registered.enabled,
        hits: registered.probe.hits.load(Relaxed),
        missed: registered.probe.missed.load(Relaxed),
        data: registered.probe.data,
    };
    let entries = registry.points.values();
    entries.flat_map(|entry| entry.probes.iter().map(move |registered| info(entry, registered))).collect()
}

/// How many slots hold an instruction.
#[must_use]
pub fn slots_in_use() -> usize {
    let registry = REGISTRY.lock();
    registry.slots.in_use() + registry.guarded_slots.in_use()
}
