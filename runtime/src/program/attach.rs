//! The probes of a program, made by the engine: all are armed at a time, and go at a time.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Deref;

use aarch64_kprobes::probe::Registration;
use aarch64_kprobes::{Kprobe, Kretprobe, ProbeError};

use super::Shared;
use super::compiled::{Clauses, View};
use super::exits::Exit;
use super::hit::{INTERPRETER, Site};
use super::places::{Place, Way};

/// Probes that are registered.
#[derive(Debug, Default)]
pub(super) struct Attached {
    // Before what their handlers use.
    kprobes: Vec<Kprobe>,
    kretprobes: Vec<Kretprobe>,
    /// What the handlers of each are given. They stay where they are.
    _sites: Box<[Site]>,
    /// The handlers that were made for them.
    pub clauses: Clauses,
    /// Those that are not, with the place that was refused.
    pub refused: Vec<(Place, ProbeError)>,
}

// SAFETY: sites point to what is shared by all CPUs, and are not changed.
unsafe impl Send for Site {}
// SAFETY: as above.
unsafe impl Sync for Site {}

/// Registers and arms probes that run clauses of `shared` at all `places` where one can be: as instructions, or by the interpreter
/// alone. What runs where functions have returned to, and where it depends on the registers whether a function is left, is
/// interpreted.
///
/// # Errors
///
/// They cannot be armed: nothing is probed then.
///
/// # Safety
///
/// `shared` outlives what is returned, and stays where it is.
pub(super) unsafe fn attach(
    shared: *const Shared,
    places: Vec<Place>,
    is_interpreted: bool,
) -> Result<Attached, ProbeError> {
    let site = |place: &Place| Site {
        shared,
        clause: place.clause,
        name: place.name as u64,
        function: place.inlined.map_or(place.function.start as u64, |inlined| inlined.function),
        function_end: place.function.end as u64,
        is_caller_in_link: place.is_caller_in_link,
        exit: if let Way::Exit(exit) = place.way { exit } else { Exit::Always },
        caller: place.inlined.map(|inlined| inlined.caller),
    };
    let sites: Box<[Site]> = places.iter().map(site).collect();
    let is_wanted = |clause, view| places.iter().any(|place| place.clause == clause && place.way.view() == Some(view));
    let clauses = match is_interpreted {
        true => Clauses::default(),
        // SAFETY: by the caller; and the probes go before these.
        false => unsafe { Clauses::of(&*shared, is_wanted) },
    };
    let mut kprobes = Vec::new();
    let mut kretprobes = Vec::new();
    let (mut at, mut returning) = (Vec::new(), Vec::new());
    for (place, site) in places.into_iter().zip(&sites) {
        let data = core::ptr::from_ref(site) as usize;
        let kprobe = Kprobe::at(place.address).data(data).disabled();
        match place.way {
            Way::Return => {
                kretprobes.push(Kretprobe::at(place.address).handler(INTERPRETER.returned).data(data).disabled());
                returning.push(place);
                continue;
            }
            Way::Entry => kprobes.push(kprobe.entry(clauses.entered(place.clause).unwrap_or(INTERPRETER.entered))),
            Way::Instruction | Way::Exit(Exit::Always) => {
                kprobes.push(kprobe.pre(clauses.reached(place.clause).unwrap_or(INTERPRETER.reached)));
            }
            Way::Exit(_) => kprobes.push(kprobe.pre(INTERPRETER.left)),
        }
        at.push(place);
    }
    let mut refused = Vec::new();
    let kprobes = registered(at, Kprobe::register_all(kprobes), &mut refused);
    let kretprobes = registered(returning, Kretprobe::register_all(kretprobes), &mut refused);
    let attached = Attached { kprobes, kretprobes, _sites: sites, clauses, refused };
    Registration::set_all_enabled(attached.probes(), true)?;
    Ok(attached)
}

/// The probes that could be registered; the others are added to `refused`.
fn registered<P>(
    places: Vec<Place>,
    outcomes: Vec<Result<P, ProbeError>>,
    refused: &mut Vec<(Place, ProbeError)>,
) -> Vec<P> {
    let mut probes = Vec::with_capacity(outcomes.len());
    for (place, outcome) in places.into_iter().zip(outcomes) {
        match outcome {
            Ok(probe) => probes.push(probe),
            Err(error) => refused.push((place, error)),
        }
    }
    probes
}

impl Way {
    /// What a handler is told that is made for the clause.
    fn view(self) -> Option<View> {
        match self {
            Self::Entry => Some(View::Entry),
            Self::Instruction | Self::Exit(Exit::Always) => Some(View::Frame),
            Self::Exit(_) | Self::Return => None,
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

    /// Unregisters them: when this returns, no clause runs at a hit, and none will. Returns how many hits they have missed.
    ///
    /// The instructions of clauses go behind that. Nobody is in them then: to be unregistered, a probe waits until every CPU was
    /// held outside of handlers, and no task is preempted in one, as interrupts are masked.
    pub fn detach(self) -> u64 {
        // Where there is no memory for that, they go armed.
        let _ = Registration::set_all_enabled(self.probes(), false);
        let missed = self.probes().map(Registration::missed).sum();
        Kprobe::unregister_all(self.kprobes);
        Kretprobe::unregister_all(self.kretprobes);
        missed
    }
}
