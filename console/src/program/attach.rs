//! The probes of a program, made by the engine: all are registered before the first is armed, so that what cannot be probed is
//! known before the program does anything.

use alloc::vec::Vec;
use core::mem;
use core::ops::Deref;

use aarch64_kprobes::probe::{AliasableBox, Registration};
use aarch64_kprobes::{Kprobe, Kretprobe, ProbeError};
use fallible::OutOfMemory;
use kprobes_vm::code::{Builtin, Code, Op};

use super::Shared;
use super::compiled::{Clauses, View};
use super::exits::Exit;
use super::hit::{INTERPRETER, Site};
use super::places::{Place, Way};
use super::refused::{Refused, Wanted};
use super::snippets::Snippets;

/// How many probes are registered between one look and the next whether to go on.
const AT_ONCE: usize = 256;

/// Probes that are registered.
#[derive(Debug)]
pub(super) struct Attached {
    // Before what their handlers use.
    kprobes: Vec<Kprobe>,
    kretprobes: Vec<Kretprobe>,
    /// What the handlers of each are given. They stay where they are.
    _sites: AliasableBox<[Site]>,
    /// The handlers that were made for them.
    pub clauses: Clauses,
    _snippets: Snippets,
    /// What cannot be probed.
    pub refused: Refused,
}

/// What probes were not told of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unseen {
    /// Hits that they have missed.
    pub hits: u64,
    /// Calls that had not returned when they were unregistered.
    pub returns: u64,
}

/// Why probes are not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unattached {
    /// The program is to be stopped.
    Stopped,
    /// There is no memory for lists of the probes.
    OutOfMemory,
}

impl From<OutOfMemory> for Unattached {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

// SAFETY: sites point to what is shared by all CPUs, and are not changed.
unsafe impl Send for Site {}
// SAFETY: as above.
unsafe impl Sync for Site {}

/// Registers probes, which are not armed yet, that run clauses of `shared` at all `places` where one can be: as instructions, or by
/// the interpreter alone. What usually takes no call stands in the stubs of the probes, as `snippets` have it for their places.
/// What runs where it depends on the registers whether a function is left is interpreted.
///
/// # Errors
///
/// `is_stopped` has become true, or there is no memory: nothing is registered then.
///
/// # Safety
///
/// `shared` outlives what is returned, and stays where it is.
pub(super) unsafe fn attach(
    shared: *const Shared,
    places: Vec<Place>,
    snippets: Snippets,
    is_interpreted: bool,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Attached, Unattached> {
    let site = |place: &Place| Site {
        shared,
        clause: place.clause,
        name: place.name as u64,
        function: place.meant(),
        function_end: place.function.end as u64,
        is_caller_in_link: place.is_caller_in_link,
        exit: if let Way::Exit(exit) = place.way { exit } else { Exit::Always },
        caller: place.inlined.map(|inlined| inlined.caller),
    };
    let sites = AliasableBox::<[Site]>::new(fallible::boxed_slice(places.iter().map(site))?);
    let is_wanted = |clause, view| places.iter().any(|place| place.clause == clause && place.way.view() == Some(view));
    let clauses = match is_interpreted {
        true => Clauses::default(),
        // SAFETY: by the caller; and the probes go before these.
        false => unsafe { Clauses::of(&*shared, is_wanted)? },
    };
    let (mut at, mut returning) = (Vec::new(), Vec::new());
    for ((number, place), site) in places.into_iter().enumerate().zip(sites.iter()) {
        let data = core::ptr::from_ref(site).expose_provenance();
        let kprobe = Kprobe::at(place.address).data(data).disabled();
        let kprobe = match place.way {
            Way::Return => {
                let handler = clauses.returned(place.clause).unwrap_or(INTERPRETER.returned);
                let kretprobe = Kretprobe::at(place.address).handler(handler).data(data).disabled();
                // SAFETY: by the caller.
                let kretprobe = match wants_result(unsafe { &(*shared).program.code }, place.clause) {
                    true => kretprobe.entry(INTERPRETER.called).data_words(1),
                    false => kretprobe,
                };
                let kretprobe = match snippets.get(number) {
                    // SAFETY: as below.
                    Some(insertion) => unsafe { kretprobe.snippet(insertion) },
                    None => kretprobe,
                };
                fallible::push(&mut returning, (place.wanted(), kretprobe))?;
                continue;
            }
            Way::Entry => kprobe.entry(clauses.entered(place.clause).unwrap_or(INTERPRETER.entered)),
            Way::Instruction | Way::Exit(Exit::Always) => {
                kprobe.pre(clauses.reached(place.clause).unwrap_or(INTERPRETER.reached))
            }
            Way::Exit(_) => kprobe.pre(INTERPRETER.left),
        };
        let kprobe = match snippets.get(number) {
            // SAFETY: snippets go behind the probes, and what the operand leads to with `shared`.
            Some(insertion) => unsafe { kprobe.snippet(insertion) },
            None => kprobe,
        };
        fallible::push(&mut at, (place.wanted(), kprobe))?;
    }
    let mut outcomes = Vec::new();
    let kprobes = registered(&at, Kprobe::register_all, &mut outcomes, is_stopped)?;
    let kretprobes = registered(&returning, Kretprobe::register_all, &mut outcomes, is_stopped)?;
    let refused = Refused::of(outcomes)?;
    Ok(Attached { kprobes, kretprobes, _sites: sites, clauses, _snippets: snippets, refused })
}

/// Whether a clause asks where a function writes what it returns.
fn wants_result(code: &Code, clause: usize) -> bool {
    let ops = code.routines.get(clause).into_iter().flat_map(|routine| &routine.ops);
    ops.into_iter().any(|op| matches!(op, Op::Load { what: Builtin::Result, .. }))
}

/// The probes of `requests` that can be registered; what became of each is added to `outcomes`.
fn registered<B: Clone, P>(
    requests: &[(Wanted, B)],
    register: impl Fn(Vec<B>) -> Result<Vec<Result<P, ProbeError>>, ProbeError>,
    outcomes: &mut Vec<(Wanted, Result<(), ProbeError>)>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Vec<P>, Unattached> {
    let mut probes = Vec::new();
    let room = probes.try_reserve_exact(requests.len()).and_then(|()| outcomes.try_reserve(requests.len()));
    room.map_err(OutOfMemory::from)?;
    for some in requests.chunks(AT_ONCE) {
        if is_stopped() {
            return Err(Unattached::Stopped);
        }
        match register(fallible::collect(some.iter().map(|(_, request)| request.clone()))?) {
            // There is room for all of them.
            Ok(found) => {
                for ((wanted, _), found) in some.iter().zip(found) {
                    outcomes.push((*wanted, found.map(|probe| probes.push(probe))));
                }
            }
            Err(error) => outcomes.extend(some.iter().map(|(wanted, _)| (*wanted, Err(error.clone())))),
        }
    }
    Ok(probes)
}

impl Place {
    fn wanted(&self) -> Wanted {
        Wanted { probe: self.probe, function: self.function.start, address: self.address }
    }
}

impl Way {
    /// What a handler is told that is made for the clause.
    pub(super) fn view(self) -> Option<View> {
        match self {
            Self::Entry => Some(View::Entry),
            Self::Instruction | Self::Exit(Exit::Always) => Some(View::Frame),
            Self::Return => Some(View::Return),
            Self::Exit(_) => None,
        }
    }
}

impl Attached {
    /// All of them.
    pub fn probes(&self) -> impl Iterator<Item = &Registration> {
        self.kprobes.iter().map(Deref::deref).chain(self.kretprobes.iter().map(Deref::deref))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.kprobes.len() + self.kretprobes.len()
    }

    /// Arms them, unless `is_stopped` is true: all at once, as otherwise those that are armed would be hit by what arms others.
    ///
    /// # Errors
    ///
    /// There is no memory for that: none is armed then.
    pub fn arm(&self, is_stopped: &dyn Fn() -> bool) -> Result<(), ProbeError> {
        if is_stopped() { Ok(()) } else { Registration::set_all_enabled(self.probes(), true) }
    }

    /// Unregisters them: when this returns, no clause runs at a hit, and none will. Returns what they were not told of.
    ///
    /// The instructions of clauses go behind that. No CPU is in them then: unregistering a probe waits until every CPU was
    /// held outside of handlers, and no task is preempted in one, as interrupts are masked.
    pub fn detach(mut self) -> Unseen {
        // Where there is no memory for that, they go armed.
        let _ = Registration::set_all_enabled(self.probes(), false);
        let returns = self.probes().map(|probe| u64::from(probe.active())).sum();
        Unseen { hits: self.unregister(), returns }
    }

    fn unregister(&mut self) -> u64 {
        Kprobe::unregister_all(mem::take(&mut self.kprobes))
            + Kretprobe::unregister_all(mem::take(&mut self.kretprobes))
    }
}

impl Drop for Attached {
    /// All at once: one by one, each would have all CPUs held.
    fn drop(&mut self) {
        self.unregister();
    }
}
