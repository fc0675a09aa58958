//! Registers the probes of a program. All are registered before the first is enabled, so that impossible probes are
//! known before the program has any effect.

use alloc::vec::Vec;
use core::mem;
use core::ops::Deref;

use aarch64_kprobes::probe::{AliasableBox, Registration};
use aarch64_kprobes::{Kprobe, Kretprobe, ProbeError};
use fallible::OutOfMemory;
use kprobes_vm::ir::{Builtin, Code, Op};

use super::exits::Exit;
use super::hit::{ArmedClause, INTERPRETER};
use super::machine_code::Clauses;
use super::places::{ResolvedPlace, Way};
use super::refused::{ProbedInstruction, Refused};
use super::shared::Shared;
use super::snippets::Snippets;

/// The number of probes that are registered between checks for an interruption.
const BATCH: usize = 256;

/// The registered probes of a program, with everything that they use.
#[derive(Debug)]
pub(super) struct AttachedProbes {
    // The probes are dropped before the fields below, which their handlers use.
    kprobes: Vec<Kprobe>,
    kretprobes: Vec<Kretprobe>,
    /// The armed clauses, whose addresses the probes have as data. They never move.
    armed: AliasableBox<[ArmedClause]>,
    /// The compiled handlers of the probes.
    pub clauses: Clauses,
    _snippets: Snippets,
    /// The functions and instructions that cannot be probed.
    pub refused: Refused,
}

/// The numbers of hits and returns that no handler has seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unseen {
    /// The number of missed hits.
    pub hits: u64,
    /// The number of calls that had not returned when their probes were unregistered.
    pub returns: u64,
}

/// The reason why no probes are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttachError {
    /// The program was interrupted.
    Stopped,
    /// There is no memory for the lists of probes.
    OutOfMemory,
}

impl From<OutOfMemory> for AttachError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

// SAFETY: an armed clause does not change after it is made, and its pointer leads to a `Shared`, which is `Sync` and
// outlives the clause: see `attach`.
unsafe impl Send for ArmedClause {}
// SAFETY: an armed clause does not change after it is made, and its pointer leads to a `Shared`, which is `Sync` and
// outlives the clause: see `attach`.
unsafe impl Sync for ArmedClause {}

/// Registers disabled probes that run the clauses of `shared` at all `places` that can be probed. Clauses are compiled,
/// unless `is_interpreted`. If a clause has a snippet in `snippets`, the stub of the probe runs the snippet and usually
/// needs no call. At an instruction that leaves its function or an inlined copy only under a condition, the clause is
/// always interpreted.
///
/// # Errors
///
/// `is_stopped` became true, or there is no memory. Nothing is registered then.
///
/// # Safety
///
/// `shared` must point to a valid `Shared` that outlives the result and does not move.
pub(super) unsafe fn attach(
    shared: *const Shared,
    places: Vec<ResolvedPlace>,
    snippets: Snippets,
    is_interpreted: bool,
    is_stopped: &dyn Fn() -> bool,
) -> Result<AttachedProbes, AttachError> {
    let armed = |place: &ResolvedPlace| ArmedClause {
        shared,
        clause: place.clause,
        name: place.name as u64,
        function: place.meant(),
        function_end: place.function.end as u64,
        is_caller_in_x30: place.is_caller_in_x30,
        exit: if let Way::Exit(exit) = place.way { exit } else { Exit::Always },
        caller: place.inlined.map(|inlined| inlined.caller),
    };
    let armed = AliasableBox::<[ArmedClause]>::new(fallible::boxed_slice(places.iter().map(armed))?);
    let is_wanted = |clause, view| places.iter().any(|place| place.clause == clause && place.way.view() == Some(view));
    let clauses = match is_interpreted {
        true => Clauses::default(),
        // SAFETY: the caller guarantees that `shared` is valid and outlives the result (see # Safety). `AttachedProbes`
        // drops the probes before the clauses.
        false => unsafe { Clauses::of(&*shared, is_wanted)? },
    };
    let (mut at, mut returning) = (Vec::new(), Vec::new());
    for ((number, place), armed) in places.into_iter().enumerate().zip(armed.iter()) {
        let data = core::ptr::from_ref(armed).expose_provenance();
        let kprobe = Kprobe::at(place.address).data(data).disabled();
        let kprobe = match place.way {
            Way::Kretprobe => {
                let handler = clauses.returned(place.clause).unwrap_or(INTERPRETER.returned);
                let kretprobe = Kretprobe::at(place.address).handler(handler).data(data).disabled();
                // SAFETY: the caller guarantees that `shared` points to a valid `Shared` (see # Safety).
                let kretprobe = match wants_result(unsafe { &(*shared).program.code }, place.clause) {
                    true => kretprobe.entry(INTERPRETER.called).data_words(1),
                    false => kretprobe,
                };
                let kretprobe = match snippets.get(number) {
                    // SAFETY: `AttachedProbes` drops the snippets after the probes. The snippet's operand leads to
                    // memory of `shared`, which outlives the probes (see # Safety).
                    Some(insertion) => unsafe { kretprobe.snippet(insertion) },
                    None => kretprobe,
                };
                fallible::push(&mut returning, (place.instruction(), kretprobe))?;
                continue;
            }
            Way::Entry => kprobe.arguments(clauses.entered(place.clause).unwrap_or(INTERPRETER.entered)),
            Way::Instruction | Way::Exit(Exit::Always) => {
                kprobe.pre(clauses.reached(place.clause).unwrap_or(INTERPRETER.reached))
            }
            Way::Exit(_) => kprobe.pre(INTERPRETER.left),
        };
        let kprobe = match snippets.get(number) {
            // SAFETY: `AttachedProbes` drops the snippets after the probes. The snippet's operand leads to memory of
            // `shared`, which outlives the probes (see # Safety).
            Some(insertion) => unsafe { kprobe.snippet(insertion) },
            None => kprobe,
        };
        fallible::push(&mut at, (place.instruction(), kprobe))?;
    }
    let mut outcomes = Vec::new();
    let kprobes = registered(&at, Kprobe::register_all, &mut outcomes, is_stopped)?;
    let kretprobes = registered(&returning, Kretprobe::register_all, &mut outcomes, is_stopped)?;
    let refused = Refused::of(outcomes)?;
    Ok(AttachedProbes { kprobes, kretprobes, armed, clauses, _snippets: snippets, refused })
}

/// Returns whether a clause asks for the address at which a function writes its result.
fn wants_result(code: &Code, clause: usize) -> bool {
    let ops = code.routines.get(clause).into_iter().flat_map(|routine| &routine.ops);
    ops.into_iter().any(|op| matches!(op, Op::Load { what: Builtin::Result, .. }))
}

/// Registers `requests`, and returns the probes that could be registered. Adds the outcome of each request to
/// `outcomes`.
fn registered<B: Clone, P>(
    requests: &[(ProbedInstruction, B)],
    register: impl Fn(Vec<B>) -> Result<Vec<Result<P, ProbeError>>, ProbeError>,
    outcomes: &mut Vec<(ProbedInstruction, Result<(), ProbeError>)>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Vec<P>, AttachError> {
    let mut probes = Vec::new();
    let room = probes.try_reserve_exact(requests.len()).and_then(|()| outcomes.try_reserve(requests.len()));
    room.map_err(OutOfMemory::from)?;
    for some in requests.chunks(BATCH) {
        if is_stopped() {
            return Err(AttachError::Stopped);
        }
        match register(fallible::collect(some.iter().map(|(_, request)| request.clone()))?) {
            // Both lists have room for all requests.
            Ok(found) => {
                for ((instruction, _), found) in some.iter().zip(found) {
                    outcomes.push((*instruction, found.map(|probe| probes.push(probe))));
                }
            }
            Err(error) => outcomes.extend(some.iter().map(|(instruction, _)| (*instruction, Err(error.clone())))),
        }
    }
    Ok(probes)
}

impl ResolvedPlace {
    fn instruction(&self) -> ProbedInstruction {
        ProbedInstruction { probe: self.probe, function: self.function.start, address: self.address }
    }
}

impl AttachedProbes {
    /// Returns all probes.
    pub fn probes(&self) -> impl Iterator<Item = &Registration> {
        self.kprobes.iter().map(Deref::deref).chain(self.kretprobes.iter().map(Deref::deref))
    }

    /// Returns the number of probes.
    pub fn count(&self) -> usize {
        self.kprobes.len() + self.kretprobes.len()
    }

    /// Returns the number of instructions that the probes of clause `clause` mean, including those that cannot be
    /// probed.
    pub fn places_of(&self, clause: usize) -> usize {
        self.armed.iter().filter(|armed| armed.clause == clause).count()
    }

    /// Enables all probes. They are enabled together: otherwise the code that enables a probe would hit the probes that
    /// are already enabled.
    ///
    /// # Errors
    ///
    /// There is no memory for this. No probe is enabled then.
    pub fn enable(&self) -> Result<(), ProbeError> {
        Registration::set_all_enabled(self.probes(), true)
    }

    /// Unregisters the probes, and returns what they have missed. When this returns, no clause runs at a hit, and none
    /// will.
    ///
    /// The instructions of the clauses are freed after that. No CPU executes them then: unregistering a probe waits
    /// until every CPU has been held outside of handlers, and no task is preempted in a handler, because interrupts are
    /// masked there.
    pub fn detach(mut self) -> Unseen {
        // If there is no memory to disable them together, the probes are unregistered while they are enabled.
        let _ = Registration::set_all_enabled(self.probes(), false);
        let returns = self.probes().map(|probe| u64::from(probe.active())).sum();
        Unseen { hits: self.unregister(), returns }
    }

    fn unregister(&mut self) -> u64 {
        Kprobe::unregister_all(mem::take(&mut self.kprobes))
            + Kretprobe::unregister_all(mem::take(&mut self.kretprobes))
    }
}

impl Drop for AttachedProbes {
    /// Unregisters all probes together. One by one, each removal would hold all CPUs.
    fn drop(&mut self) {
        self.unregister();
    }
}
