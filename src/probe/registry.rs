//! All registered probes, and the code that enables and disables them.
//!
//! One lock is held for every change, whether of one probe or of many. A task may be preempted while it holds the lock;
//! other tasks that want it then yield. The hit path never takes it.
//!
//! A change has three steps: it is made in the registry; the new behavior of each point is published; and the text is
//! patched with the other CPUs held (both in `change`). After that, no CPU uses what was replaced, because a hit is
//! handled with interrupts masked from beginning to end. So what was replaced is freed. Only a slot or stub may still
//! be in use, by a task that was interrupted in it: it is then freed by a later change. But if a task is in a snippet,
//! the change itself waits for that task, because the snippet would still collect for the probe.

mod change;
mod enabled;
mod entries;
mod execution;
#[cfg(all(test, loom))]
mod models;
mod registers;
mod shortcut;
mod shown;
mod sites;
mod stage;
#[cfg(all(test, not(loom)))]
mod tests;

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use fallible::OutOfMemory;
use spin::mutex::{SpinMutex, SpinMutexGuard};
use spin::relax::RelaxStrategy;

use super::arena::{Arena, Used};
use super::check::{CheckedInstruction, Checker};
use super::counter_pool::FreeCounters;
use super::hit::counters::Counters;
use super::hit::point::{Execution, Handlers, Point, Pre, Probe, ProbeRef};
use super::hit::returns::ReturnProbe;
use super::hit::stub::Form;
use super::hit::table::Page;
use super::registration::State;
use super::slab::Slab;
use super::snippet::InsertionRef;
use super::{Fallback, Mode, ProbeError, Registration, origin};
use crate::insn::{ScratchPreservers, ScratchResults};
use crate::{embedding, interrupts, kernel};
use entries::{Entries, Probes};
pub use registers::analyze_text;
pub use shown::{list, memory};

/// Whether instructions may be executed from stubs. Where this is false, the linker leaves out what only stubs need.
const HAS_STUBS: bool = cfg!(feature = "stubs");

/// All points at which a probe is registered, and the memory for them.
struct Registry {
    entries: Entries,
    arena: Arena,
    counters: FreeCounters,
    probes: Slab<Probe>,
    points: Slab<Point>,
    /// Return probes that were unregistered while calls were in progress.
    lingering: Vec<ProbeRef>,
    /// The number of registered return probes. `lingering` always has room for all of them.
    returns: usize,
    /// Functions whose callers keep values in registers that a lean stub does not save. Found when a probe first needs
    /// this.
    preservers: Option<ScratchPreservers>,
    /// Functions with results in the registers that code at a return changes. Found when a return probe first needs
    /// this.
    results: Option<ScratchResults>,
    /// Cells that no point uses any more, but in which a task was interrupted. Each registration reserves room for one
    /// more.
    occupied: Vec<Used>,
    /// Whether [`embedding::check`] has passed.
    is_embedded: bool,
}

/// An instruction at which a probe is registered.
pub(super) struct RegistryEntry {
    /// The virtual address of the instruction.
    address: usize,
    /// The page of the table in which hits find the point.
    page: &'static Page,
    /// Whether branch targets are checked in the instruction's page.
    guarded: bool,
    checked: CheckedInstruction,
    probes: Probes,
    /// How the instruction is executed; `None` while no probe is enabled.
    execution: Option<Execution>,
    /// The mode that the probes wanted when `execution` was decided.
    wanted: Mode,
    /// The probes, one or two, whose code lies in front of the stub, if there is such code.
    front: [Option<ProbeRef>; 2],
    /// Why `execution` has a slower mode than `wanted`.
    fallback: Option<Fallback>,
    /// Why a lean stub is not possible at the instruction. Determined when a probe first needs this.
    lean_obstacle: Option<Fallback>,
    /// Whether a change has not taken effect, because there was no memory.
    is_pending: bool,
}

/// A request to register a probe.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) address: usize,
    /// The beginning and the end of the function, if the kernel is not to be asked.
    pub(super) bounds: Option<(usize, usize)>,
    pub(super) handlers: Handlers,
    pub(super) data: usize,
    /// The snippet that the stub may run instead of calling the handler.
    pub(super) insertion: Option<InsertionRef>,
    pub(super) enabled: bool,
    /// The fastest mode that the probe allows.
    pub(super) fastest: Mode,
}

/// Yields to other tasks while one of them holds a lock.
pub(super) struct Yield;

impl RelaxStrategy for Yield {
    fn relax() {
        kernel::yield_now();
    }
}

static REGISTRY: SpinMutex<Registry, Yield> = SpinMutex::new(Registry::new());

/// Takes the lock for a change to the probes at `address`.
fn lock(address: usize) -> Result<SpinMutexGuard<'static, Registry, Yield>, ProbeError> {
    if interrupts::are_masked() {
        return Err(ProbeError::InterruptsMasked { address });
    }
    let mut registry = REGISTRY.lock();
    // An earlier change may have found a mistake and done without the memory. It is no reason for this change to fail.
    registry.arena.take_mistake();
    Ok(registry)
}

/// Takes the lock without changing a probe.
fn lock_to_read() -> SpinMutexGuard<'static, Registry, Yield> {
    assert!(!interrupts::are_masked(), "probes cannot be read with interrupts masked");
    REGISTRY.lock()
}

/// Registers probes, and arms the instructions of those that are enabled, all at once. At each address they run in the
/// order of the requests. The results are in the order of the requests; a request that is an error gives that error.
///
/// # Errors
///
/// [`ProbeError::OutOfMemory`] if there is no memory for the lists of probes; nothing has changed then.
pub(super) fn register(
    requests: Vec<Result<Request, ProbeError>>,
) -> Result<Vec<Result<Registration, ProbeError>>, ProbeError> {
    let (mut addresses, mut results) = (Vec::new(), Vec::new());
    let address = requests.iter().flatten().map(|request| request.address).next().unwrap_or(0);
    let room = addresses.try_reserve_exact(requests.len()).and_then(|()| results.try_reserve_exact(requests.len()));
    room.map_err(|_| ProbeError::OutOfMemory { address })?;
    let mut registry = match lock(address).and_then(|mut registry| registry.check_embedding(address).map(|()| registry))
    {
        Ok(registry) => registry,
        Err(error) => {
            let refuse = |request: Result<Request, _>| request.and_then(|request| Err(error.about(request.address)));
            results.extend(requests.into_iter().map(refuse));
            return Ok(results);
        }
    };
    let mut checker = Checker::new();
    for request in requests {
        let result = request.and_then(|request| registry.add(request, &mut checker));
        if let Ok(registration) = &result {
            addresses.push(registration.address);
        }
        results.push(result);
    }
    if registry.change(&mut addresses).is_some() {
        let error = registry.lacks_memory(address);
        for registration in results.iter_mut().flatten() {
            if registry.is_pending(registration.address) {
                registration.state = State::Unregistered;
            }
        }
        let _ =
            registry.remove(results.iter().flatten().filter(|registration| registration.state == State::Unregistered));
        for result in &mut results {
            if let Ok(Registration { address, state: State::Unregistered, .. }) = *result {
                *result = Err(error.about(address));
            }
        }
    }
    registry.sweep();
    Ok(results)
}

/// Enables or disables registered probes. If there is no memory to arm one of the instructions, all probes keep their
/// previous state. Disabling needs no memory.
pub(super) fn set_enabled(probes: &[&Registration], enabled: bool) -> Result<(), ProbeError> {
    let Some(&&Registration { address: first, .. }) = probes.first() else { return Ok(()) };
    let mut registry = lock(first)?;
    let addresses = probes.iter().map(|each| each.address);
    if !enabled {
        change::disarm(&mut registry, probes.iter().copied());
        registry.reduce(addresses.clone());
        registry.leave_snippets(addresses);
        return Ok(());
    }
    let (mut before, mut changed) = (Vec::new(), Vec::new());
    let room = before.try_reserve_exact(probes.len()).and_then(|()| changed.try_reserve_exact(probes.len()));
    room.map_err(|_| ProbeError::OutOfMemory { address: first })?;
    before.extend(probes.iter().map(|each| each.probe.enabled.swap(true, Relaxed)));
    changed.extend(addresses.clone());
    let Some(address) = registry.change(&mut changed) else { return Ok(()) };
    let error = registry.lacks_memory(address);
    // In reverse, so that a probe that is listed twice gets back the state from before its first change.
    for (each, before) in probes.iter().zip(before).rev() {
        each.probe.enabled.store(before, Relaxed);
    }
    registry.reduce(addresses.clone());
    registry.leave_snippets(addresses);
    Err(error)
}

/// Disables `before` and enables `after`: in one step if both are on the same instruction, so that no hit falls in
/// between. If there is no memory, both keep their previous state.
pub(super) fn exchange(before: &Registration, after: &Registration) -> Result<(), ProbeError> {
    if before.address != after.address {
        set_enabled(&[after], true)?;
        return set_enabled(&[before], false);
    }
    let address = before.address;
    let mut registry = lock(address)?;
    let changed = fallible::collect([address]);
    let mut changed = changed.map_err(|OutOfMemory| ProbeError::OutOfMemory { address })?;
    let was = [(before, false), (after, true)].map(|(each, enabled)| (each, each.probe.enabled.swap(enabled, Relaxed)));
    if let Some(address) = registry.change(&mut changed) {
        let error = registry.lacks_memory(address);
        // In reverse, because the two may be the same probe.
        was.into_iter().rev().for_each(|(each, enabled)| each.probe.enabled.store(enabled, Relaxed));
        registry.reduce([address].into_iter());
        return Err(error);
    }
    registry.leave_snippets([address].into_iter());
    Ok(())
}

/// Unregisters probes. When this returns, none of their handlers is running, and none will run. Returns the total of
/// the hits that they have missed.
///
/// # Panics
///
/// If interrupts are masked. The panic does not unwind.
pub(super) fn unregister(probes: &[Registration]) -> u64 {
    let Some(first) = probes.first() else { return 0 };
    match lock(first.address) {
        Ok(mut registry) => {
            change::disarm(&mut registry, probes.iter());
            let missed = registry.remove(probes.iter());
            registry.sweep();
            missed
        }
        Err(error) => interrupts::refuse_drop(&format_args!("a probe must not be unregistered in a handler: {error}")),
    }
}

impl RegistryEntry {
    /// Makes the entry of the instruction at `address`, with its first probe, which is not in effect yet.
    #[inline(always)]
    fn new(
        address: usize,
        page: &'static Page,
        checked: CheckedInstruction,
        guarded: bool,
        probe: ProbeRef,
        lean_obstacle: Option<Fallback>,
    ) -> Self {
        let (probes, wanted) = (Probes::One(probe), Mode::FASTEST);
        let (execution, front, fallback, is_pending) = (None, [None; 2], None, false);
        Self { address, page, guarded, checked, probes, execution, wanted, front, fallback, lean_obstacle, is_pending }
    }

    /// Returns why the instruction is not executed in the fastest mode that `probe` allows; `None` if it is.
    fn fallback(&self, probe: &Probe) -> Option<Fallback> {
        let mode = self.mode()?;
        let is_shared = mode == Mode::Optimized && probe.allows >= Mode::Lean && probe.enabled.load(Relaxed);
        let live = probe.inserted.as_ref().and_then(|inserted| inserted.live);
        let has_no_code = matches!(&probe.inserted, Some(inserted) if inserted.code.is_none());
        let obstacle = match &probe.handlers {
            Handlers::Return(_) if has_no_code => self.lean_obstacle,
            Handlers::Return(return_probe) if self.mode_at_return(probe).is_none() => return_probe.obstacle(),
            _ => None,
        };
        let without_memory = self.mode_without_memory(probe).map(Fallback::NoMemory);
        let reason = self.fallback.or(without_memory).or(is_shared.then_some(Fallback::Shared));
        reason.or(live.map(Fallback::Snippet)).or(obstacle)
    }

    /// Returns the faster mode that `probe` would have with its code, if there was no executable memory for that.
    fn mode_without_memory(&self, probe: &Probe) -> Option<Mode> {
        let Some(Execution::Optimized { form, before, .. }) = self.execution else { return None };
        let lacks_code = before == 0 && self.wanted == Mode::Compiled;
        match &probe.handlers {
            _ if !probe.enabled.load(Relaxed) => None,
            Handlers::Kprobe { .. } => lacks_code.then_some(Mode::Compiled),
            Handlers::Return(_) if self.lean_obstacle.is_some() => None,
            Handlers::Return(return_probe) => match &probe.inserted {
                Some(inserted) if inserted.code.is_none() => {
                    (inserted.is_possible() && return_probe.is_plain()).then_some(Mode::Compiled)
                }
                // The code of a pair is that of its return probe, too.
                _ if lacks_code || before == 0 && form == Form::Follow => probe.lean_return(),
                _ => None,
            },
        }
    }

    /// Returns how the instruction is executed, while a probe is enabled.
    fn mode(&self) -> Option<Mode> {
        self.execution.map(Execution::mode)
    }
}

impl Registry {
    const fn new() -> Self {
        Self {
            entries: Entries::new(),
            arena: Arena::new(),
            counters: FreeCounters::new(),
            probes: Slab::new(),
            points: Slab::new(),
            lingering: Vec::new(),
            returns: 0,
            preservers: None,
            results: None,
            occupied: Vec::new(),
            is_embedded: false,
        }
    }

    /// Checks how the kernel embeds the engine, before the first probe is registered, which is to be at `address`.
    fn check_embedding(&mut self, address: usize) -> Result<(), ProbeError> {
        if !self.is_embedded {
            embedding::check().map_err(|error| ProbeError::Embedding { address, error })?;
            // A kernel may have guarded memory only.
            #[cfg(target_os = "none")]
            self.arena.check_memory().map_err(|error| ProbeError::Embedding { address, error })?;
            self.is_embedded = true;
        }
        Ok(())
    }

    /// Adds a probe, which is not in effect yet, to the entry at its address, or to a new entry.
    fn add(&mut self, request: Request, checker: &mut Checker) -> Result<Registration, ProbeError> {
        let address = request.address;
        let is_return = matches!(request.handlers, Handlers::Return(_));
        let checked = match request.bounds {
            None => checker.check_probe(address, is_return)?,
            Some((start, end)) => checker.check_within(address, start..end, is_return)?,
        };
        self.add_checked(request, checked, checker).ok_or_else(|| self.lacks_memory(address))
    }

    /// Returns why there was no memory for a change at `address`: there is none left, or the kernel's executable memory
    /// was refused.
    fn lacks_memory(&mut self, address: usize) -> ProbeError {
        match self.arena.take_mistake() {
            Some(error) => ProbeError::Embedding { address, error },
            None => ProbeError::OutOfMemory { address },
        }
    }

    /// Adds a probe as [`add`](Self::add) does, at an instruction that was `checked`. Returns `None`, with nothing
    /// changed, if there is no memory.
    fn add_checked(
        &mut self,
        request: Request,
        checked: CheckedInstruction,
        checker: &mut Checker,
    ) -> Option<Registration> {
        let Request { address, bounds, mut handlers, data, insertion, enabled, fastest } = request;
        let insertion = insertion.filter(|_| HAS_STUBS);
        let lean_obstacle = match handlers {
            // The probe is not to be lean. What it says of its function holds for no other probe.
            _ if bounds.is_some() || !HAS_STUBS => None,
            Handlers::Kprobe { pre: Pre::Arguments(_), .. } | Handlers::Return(_) => {
                self.lean_obstacle(address, checker)
            }
            Handlers::Kprobe { .. } => None,
        };
        let page = self.entries.reserve(address)?;
        self.probes.reserve()?;
        let is_return = matches!(handlers, Handlers::Return(_));
        // The counts of the probe and of its snippet, and the places for spares.
        self.counters.reserve(1 + usize::from(insertion.is_some()) + usize::from(is_return))?;
        fallible::reserve(&mut self.occupied, 1).ok()?;
        if is_return {
            fallible::reserve(&mut self.lingering, self.returns + 1).ok()?;
        }
        let inserted = match (insertion, &handlers) {
            (Some(insertion), Handlers::Return(return_probe)) => {
                Some(self.insert_at_return(insertion, address, return_probe, lean_obstacle, checker)?)
            }
            (Some(insertion), Handlers::Kprobe { pre, .. }) => {
                let is_lean = lean_obstacle.is_none() && matches!(pre, Pre::Arguments(_));
                Some(self.insert(insertion, address, is_lean, checker)?)
            }
            (None, _) => None,
        };
        let counters = self.counters.take()?;
        let entered = match &mut handlers {
            Handlers::Kprobe { .. } => counters,
            Handlers::Return(return_probe) => {
                let may_be_led = HAS_STUBS && inserted.is_none() && fastest >= Mode::Optimized;
                let lead = || self.lead_to_result(address, return_probe, lean_obstacle, checker);
                let obstacle = may_be_led.then(lead).flatten();
                let spares = self.counters.take()?;
                // SAFETY: `take` has returned free counts, and `free_with_spares` gives them back when no CPU knows the
                // probe any more.
                unsafe { ReturnProbe::register(return_probe, counters, spares, data, obstacle) };
                Counters::SINK
            }
        };
        let place = self.probes.allocate()?;
        let allows = handlers.allows(fastest, inserted.as_ref().is_some_and(|inserted| inserted.is_possible()));
        // SAFETY: `allocate` has returned a place for a `Probe`.
        unsafe { place.write(Probe { handlers, data, enabled: enabled.into(), allows, counters, entered, inserted }) };
        // SAFETY: only `free` frees a probe: below, before its reference has left this function, in `remove`, and in
        // `sweep`.
        let probe = unsafe { ProbeRef::new(place) };
        let new = || RegistryEntry::new(address, page, checked, checker.is_guarded(address), probe, lean_obstacle);
        if let Some(entry) = self.entries.get_or_add(address, page, new)? {
            if entry.probes.push(probe).is_none() {
                // SAFETY: the reference has not left this function, so no point and no CPU knows the probe.
                unsafe { self.free_with_spares(probe) };
                return None;
            }
            entry.lean_obstacle = entry.lean_obstacle.or(lean_obstacle);
        }
        self.returns += usize::from(matches!(probe.handlers, Handlers::Return(_)));
        Some(Registration { address, probe, state: State::Registered })
    }

    /// Makes the changes to the probes at these addresses take effect. Sorts and deduplicates the addresses. Returns
    /// the first address for which there was no memory: there, nothing has changed, and the change is pending.
    fn change(&mut self, addresses: &mut Vec<usize>) -> Option<usize> {
        // Requests are mostly in order.
        if !addresses.is_sorted_by(|one, next| one < next) {
            addresses.sort_unstable();
            addresses.dedup();
        }
        let failed = change::apply(self, addresses);
        self.lead_sites(addresses);
        failed
    }

    fn is_pending(&mut self, address: usize) -> bool {
        self.entries.get_mut(address).is_some_and(|entry| entry.is_pending)
    }

    /// Makes changes take effect at addresses that have lost probes, as [`change`](Self::change) does: all at once, or
    /// one by one if there is no memory. It cannot fail.
    fn reduce(&mut self, addresses: impl Iterator<Item = usize> + Clone) {
        let mut all = Vec::new();
        if all.try_reserve_exact(addresses.clone().count()).is_ok() {
            all.extend(addresses.clone());
            if self.change(&mut all).is_none() {
                return;
            }
        } else {
            for address in addresses.clone() {
                if let Some(entry) = self.entries.get_mut(address) {
                    entry.is_pending = true;
                }
            }
        }
        let mut has_waited = true;
        for address in addresses {
            if self.is_pending(address) {
                has_waited &= change::reduce(self, address);
                self.lead_sites(&[address]);
            }
        }
        if !has_waited {
            // A call may have been followed before: its handler must not be running any more when this returns.
            change::wait_for_cpus();
        }
    }

    /// Removes probes, and the points that have no other probe. Needs no memory. Returns the total of the hits that
    /// they have missed.
    fn remove<'a>(&mut self, probes: impl Iterator<Item = &'a Registration> + Clone) -> u64 {
        for &Registration { address, probe, .. } in probes.clone() {
            if let Handlers::Return(return_probe) = &probe.handlers {
                return_probe.retire();
            }
            probe.enabled.store(false, Relaxed);
            if let Some(entry) = self.entries.get_mut(address) {
                entry.probes.remove(probe);
            }
        }
        let addresses = probes.clone().map(|registration| registration.address);
        self.reduce(addresses.clone());
        for address in addresses {
            self.entries.remove_empty(address);
        }
        self.leave_snippets(probes.clone().map(|registration| registration.address));
        // No CPU counts hits for the probes any more. Misses of calls that are still in progress are not included in
        // the sum.
        let mut missed = 0;
        for registration in probes {
            let probe = registration.probe;
            missed += match probe.handlers {
                // SAFETY: `reduce` has removed it from its point, and every CPU has been held since then.
                Handlers::Kprobe { .. } => unsafe { self.free(probe) },
                Handlers::Return(_) => {
                    self.returns -= 1;
                    self.lingering.push(probe);
                    registration.missed()
                }
            };
        }
        missed
    }

    /// Waits until no task is interrupted in a snippet of the probes at `addresses`, which are disabled: the task
    /// would go on in the snippet, which collects for the probe.
    fn leave_snippets(&mut self, addresses: impl Iterator<Item = usize> + Clone) {
        let is_theirs = |used: &Used| {
            let instruction = used.snippet().and_then(origin);
            instruction.is_some_and(|instruction| addresses.clone().any(|address| address == instruction))
        };
        while self.occupied.iter().any(is_theirs) {
            kernel::yield_now();
            self.change(&mut Vec::new());
        }
    }

    /// Frees a probe and its counts, but not the places for spares of a return probe. Returns the number of hits that
    /// it has missed.
    ///
    /// # Safety
    ///
    /// The probe has been unregistered, or was never added to a point. No CPU knows it, and none of its calls is in
    /// progress.
    unsafe fn free(&mut self, probe: ProbeRef) -> u64 {
        let missed = self.counters.give_back(probe.counters);
        if let Some(inserted) = &probe.inserted {
            self.counters.give_back(inserted.counters);
            if let Some(code) = inserted.code {
                self.arena.free(code);
            }
        }
        // SAFETY: `add_checked` allocated the place in this slab. The caller guarantees that the probe is not used any
        // more (see # Safety).
        unsafe { self.probes.remove(probe.place()) };
        missed
    }

    /// Frees a probe, its counts and, if it is a return probe, the places for its spares.
    ///
    /// # Safety
    ///
    /// The contract of [`free`](Self::free).
    unsafe fn free_with_spares(&mut self, probe: ProbeRef) {
        if let Handlers::Return(return_probe) = &probe.handlers {
            self.counters.give_back(return_probe.spares());
        }
        // SAFETY: the caller guarantees that no CPU knows the probe, and that it is in no call (see # Safety).
        unsafe { self.free(probe) };
    }

    /// Frees the unregistered return probes that have no more calls in progress, and the cells that tasks have left. If
    /// nothing is probed, frees the memory of both lists as well.
    fn sweep(&mut self) {
        let mut kept = 0;
        for index in 0..self.lingering.len() {
            if self.lingering[index].active() != 0 {
                self.lingering.swap(kept, index);
                kept += 1;
            }
        }
        if kept < self.lingering.len() || !self.occupied.is_empty() {
            // The CPU that gave back the last instance may still be leaving the probe's code: this change waits for it.
            self.change(&mut Vec::new());
            while self.lingering.len() > kept
                && let Some(ended) = self.lingering.pop()
            {
                // SAFETY: the probe was unregistered before it got into `lingering`, none of its calls is in progress,
                // and `change` has held every CPU since the last one ended.
                unsafe { self.free_with_spares(ended) };
            }
        }
        if self.entries.len() == 0 {
            if self.occupied.is_empty() {
                self.occupied = Vec::new();
            }
            if self.lingering.is_empty() {
                self.lingering = Vec::new();
            }
        }
    }
}
