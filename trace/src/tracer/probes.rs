//! The probes of a tracer, made by the engine. They are on many functions and are enabled and disabled together,
//! because an enabled probe could be hit by the code that enables the others.
//!
//! Where it is possible, a call is recorded in the stub of its probe, and a return in the code that the function
//! returns to. The handlers of [`hit::tracer`](crate::hit::tracer) decide at a hit whether a call is followed, and
//! count for a profile.

use alloc::vec::Vec;
use core::mem;
use core::ops::Deref;

use aarch64_kprobes::probe::{AliasableBox, Insertion, Registration};
use aarch64_kprobes::{Kprobe, Kretprobe, ProbeError};
use fallible::{Arc, OutOfMemory};

use super::profile::Counts;
use super::usage::Usage;
use super::{RecordKind, Recording};
use crate::context::Offsets;
use crate::hit::handler;
use crate::hit::tracer::{self, Limits, Role, TracedRole};
use crate::recorder::Recorder;
use crate::ring::Rings;
use crate::snippet::{self, EventSnippet};

/// The number of probes that are registered at once. It bounds the lists of requests.
const BATCH: usize = 256;

/// The probes of a tracer.
#[derive(Debug)]
pub struct Traced {
    // Dropped before the fields that they use.
    calls: Vec<Kprobe>,
    returns: Vec<Kretprobe>,
    // An array, not a `Vec`: without memory for a `Vec`, these would be dropped before the probes.
    _made: [Option<Made>; 2],
    _roles: Option<TracedRoles>,
    refused: Refused,
}

/// Functions that cannot be probed.
#[derive(Debug, Default)]
pub struct Refused {
    /// The number of these functions.
    pub count: usize,
    /// Why the first of these functions cannot be probed.
    pub first: Option<ProbeError>,
}

/// Registered probes.
struct Registered<P> {
    /// The numbers of their functions.
    numbers: Vec<usize>,
    probes: Vec<P>,
    refused: Refused,
}

/// A recorder of one kind of record, with the insertions of its probes.
#[derive(Debug)]
struct Made {
    insertions: AliasableBox<[Insertion]>,
    _snippet: Option<EventSnippet>,
    recorder: Arc<Recorder>,
}

/// The data of handlers that decide whether calls are followed.
#[derive(Debug)]
struct TracedRoles {
    _roles: AliasableBox<[TracedRole]>,
    _limits: AliasableBox<Limits>,
}

/// The limits of the graph.
#[derive(Clone, Copy, Debug, Default)]
pub struct Graph<'a> {
    /// The maximum depth of recorded calls; 0 for any depth.
    pub max_depth: u32,
    /// The functions whose calls are recorded, with the calls in them, in ascending order. If it is empty, all calls
    /// are recorded.
    pub only: &'a [u64],
    /// The functions whose calls are not recorded, nor the calls in them, in ascending order.
    pub without: &'a [u64],
}

impl Graph<'_> {
    fn is_plain(&self) -> bool {
        self.max_depth == 0 && self.only.is_empty() && self.without.is_empty()
    }

    fn role(&self, function: u64) -> Role {
        match (self.without.binary_search(&function), self.only.binary_search(&function)) {
            (Ok(_), _) => Role::Silent,
            (_, Ok(_)) => Role::Outermost,
            _ => Role::Inner,
        }
    }
}

impl Made {
    /// Creates a recorder for `functions`, as [`RecordKind::recorder`] does.
    fn new(
        kind: RecordKind,
        functions: &[u64],
        rings: &'static Rings,
        recording: &Recording<'_>,
    ) -> Result<Self, OutOfMemory> {
        let recorder = kind.recorder(rings, recording)?;
        // The code must not record what the plan leaves out.
        let code = match recorder.plan.has_plan() {
            true => None,
            false => snippet::code(&recorder, None, None, Offsets::of_image())?,
        };
        let snippet = code.map(EventSnippet::new).transpose()?;
        let insertion = |function: &u64| snippet.as_ref().and_then(|snippet| snippet.insertion_at(*function));
        let insertions =
            AliasableBox::<[Insertion]>::new(fallible::boxed_slice(functions.iter().filter_map(insertion))?);
        Ok(Self { insertions, _snippet: snippet, recorder })
    }

    /// Returns the word that probes are registered with.
    fn data(&self) -> usize {
        core::ptr::from_ref(&*self.recorder).expose_provenance()
    }

    /// Returns the insertion of the probe of function `number`.
    fn insertion(&self, number: usize) -> Option<&Insertion> {
        self.insertions.get(number)
    }
}

/// Registers the request `probe(number)` for each number by `register`. Returns the probes that were registered.
fn registered<B, P>(
    numbers: impl Iterator<Item = usize>,
    probe: impl Fn(usize) -> B,
    register: impl Fn(Vec<B>) -> Result<Vec<Result<P, ProbeError>>, ProbeError>,
) -> Result<Registered<P>, OutOfMemory> {
    let numbers = fallible::collect(numbers)?;
    let (mut found, mut probes, mut refused) = (Vec::new(), Vec::new(), Refused::default());
    found.try_reserve_exact(numbers.len()).map_err(OutOfMemory::from)?;
    probes.try_reserve_exact(numbers.len()).map_err(OutOfMemory::from)?;
    for some in numbers.chunks(BATCH) {
        let outcomes =
            register(fallible::collect(some.iter().map(|&number| probe(number)))?).map_err(|_| OutOfMemory)?;
        for (&number, outcome) in some.iter().zip(outcomes) {
            match outcome {
                Ok(probe) => {
                    found.push(number);
                    probes.push(probe);
                }
                Err(ProbeError::OutOfMemory { .. }) => return Err(OutOfMemory),
                Err(error) => {
                    refused.count += 1;
                    refused.first.get_or_insert(error);
                }
            }
        }
    }
    Ok(Registered { numbers: found, probes, refused })
}

impl Traced {
    /// Creates disabled probes that record the calls of `functions` in `rings`.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn functions(functions: &[u64], rings: &'static Rings, recording: &Recording<'_>) -> Result<Self, OutOfMemory> {
        let made = Made::new(RecordKind::Function, functions, rings, recording)?;
        let Registered { probes: calls, refused, .. } = Self::calls(&made, functions, 0..functions.len())?;
        Ok(Self { calls, returns: Vec::new(), _made: [Some(made), None], _roles: None, refused })
    }

    /// Creates disabled probes that record the calls and returns of `functions` in `rings`, within the limits of
    /// `graph`.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn graph(
        functions: &[u64],
        rings: &'static Rings,
        graph: Graph<'_>,
        recording: &Recording<'_>,
    ) -> Result<Self, OutOfMemory> {
        if !graph.is_plain() {
            return Self::limited(functions, rings, graph, recording);
        }
        let entry = Made::new(RecordKind::Entry, functions, rings, recording)?;
        let back = Made::new(RecordKind::Return, functions, rings, recording)?;
        let probe = |number: usize| {
            let probe =
                Kretprobe::at(functions[number] as usize).handler(handler::returned).data(back.data()).disabled();
            match back.insertion(number) {
                // SAFETY: `Traced` drops insertions, snippets and recorders after the probes.
                Some(insertion) => unsafe { probe.snippet(insertion) },
                None => probe,
            }
        };
        let followed = registered(0..functions.len(), probe, Kretprobe::register_all)?;
        let Registered { numbers, probes: returns, mut refused } = followed;
        let called = Self::calls(&entry, functions, numbers.iter().copied())?;
        refused.count += called.refused.count;
        refused.first = refused.first.or(called.refused.first);
        Ok(Self { calls: called.probes, returns, _made: [Some(entry), Some(back)], _roles: None, refused })
    }

    /// Creates the probes of a graph with limits: a handler decides at each call whether it is followed.
    fn limited(
        functions: &[u64],
        rings: &'static Rings,
        graph: Graph<'_>,
        recording: &Recording<'_>,
    ) -> Result<Self, OutOfMemory> {
        let recorder = |kind: RecordKind| kind.recorder(rings, recording);
        let (entry, back) = (recorder(RecordKind::Entry)?, recorder(RecordKind::Return)?);
        let limits = Limits { entry, back, max_depth: graph.max_depth, has_outermost: !graph.only.is_empty() };
        let limits = AliasableBox::new(fallible::boxed(limits)?);
        let roles = Role::ALL.map(|role| TracedRole { limits: core::ptr::from_ref(&*limits), role });
        let roles = AliasableBox::<[TracedRole]>::new(fallible::boxed_slice(roles)?);
        let probe = |number: usize| {
            let function = functions[number];
            let traced = core::ptr::from_ref(&roles[graph.role(function) as usize]).expose_provenance();
            let probe = Kretprobe::at(function as usize).entry(tracer::graph_entered).handler(tracer::graph_returned);
            probe.data(traced).disabled()
        };
        let Registered { probes: returns, refused, .. } =
            registered(0..functions.len(), probe, Kretprobe::register_all)?;
        Ok(Self {
            calls: Vec::new(),
            returns,
            _made: [None, None],
            _roles: Some(TracedRoles { _roles: roles, _limits: limits }),
            refused,
        })
    }

    /// Creates disabled probes that count the calls of functions and their durations.
    ///
    /// # Errors
    ///
    /// There is no memory.
    ///
    /// # Safety
    ///
    /// `counts` must not move, nor be dropped, until the probes have been dropped.
    pub unsafe fn profile(counts: &[Counts]) -> Result<Self, OutOfMemory> {
        let probe = |number: usize| {
            let counts = &counts[number];
            let data = core::ptr::from_ref(counts).expose_provenance();
            let probe = Kretprobe::at(counts.function as usize).entry(tracer::profile_entered).data_words(1);
            probe.handler(tracer::profile_returned).data(data).disabled()
        };
        let Registered { probes: returns, refused, .. } = registered(0..counts.len(), probe, Kretprobe::register_all)?;
        Ok(Self { calls: Vec::new(), returns, _made: [None, None], _roles: None, refused })
    }

    /// Creates disabled probes that keep the deepest stack at which `functions` are called.
    ///
    /// # Errors
    ///
    /// There is no memory.
    ///
    /// # Safety
    ///
    /// `usage` must not move, nor be dropped, until the probes have been dropped.
    pub unsafe fn stacks(functions: &[u64], usage: &Usage) -> Result<Self, OutOfMemory> {
        let data = core::ptr::from_ref(usage).expose_provenance();
        let probe = |number: usize| {
            Kprobe::at(functions[number] as usize).arguments(tracer::stack_entered).data(data).disabled()
        };
        let Registered { probes: calls, refused, .. } = registered(0..functions.len(), probe, Kprobe::register_all)?;
        Ok(Self { calls, returns: Vec::new(), _made: [None, None], _roles: None, refused })
    }

    fn calls(
        made: &Made,
        functions: &[u64],
        numbers: impl Iterator<Item = usize>,
    ) -> Result<Registered<Kprobe>, OutOfMemory> {
        let probe = |number: usize| {
            let probe = Kprobe::at(functions[number] as usize).arguments(handler::called).data(made.data()).disabled();
            match made.insertion(number) {
                // SAFETY: `Traced` drops insertions, snippets and recorders after the probes.
                Some(insertion) => unsafe { probe.snippet(insertion) },
                None => probe,
            }
        };
        registered(numbers, probe, Kprobe::register_all)
    }

    /// Enables or disables all probes, at once.
    ///
    /// # Errors
    ///
    /// There is no memory to enable them: all are disabled.
    pub fn set_enabled(&self, enabled: bool) -> Result<(), OutOfMemory> {
        Registration::set_all_enabled(self.probes(), enabled).map_err(|_| OutOfMemory)
    }

    /// Returns the virtual addresses of the functions that are traced.
    pub fn functions_traced(&self) -> impl Iterator<Item = usize> {
        let (calls, returns) = (self.calls.iter().map(|probe| probe.address()), self.returns.iter());
        let returns = returns.map(|probe| probe.address()).filter(|_| self.calls.is_empty());
        calls.chain(returns)
    }

    /// Returns the functions that cannot be probed.
    pub fn refused(&self) -> &Refused {
        &self.refused
    }

    /// Returns all probes.
    pub fn probes(&self) -> impl Iterator<Item = &Registration> {
        self.calls.iter().map(Deref::deref).chain(self.returns.iter().map(Deref::deref))
    }

    /// Returns the number of calls and returns that the probes have missed. Records that found no room in a ring are
    /// counted there instead.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.probes().map(Registration::missed).sum()
    }

    /// Unregisters the probes. Returns the number of calls and returns that they have missed, and of calls in progress,
    /// whose returns are not recorded any more.
    pub fn unregister(mut self) -> u64 {
        self.end()
    }

    /// Disables and unregisters all probes at once: one by one, each would hold all CPUs.
    fn end(&mut self) -> u64 {
        // Without memory for a list of the probes, they are unregistered while they are enabled.
        let _ = self.set_enabled(false);
        let active: u64 = self.returns.iter().map(|probe| u64::from(probe.active())).sum();
        let missed = Kprobe::unregister_all(mem::take(&mut self.calls));
        active + missed + Kretprobe::unregister_all(mem::take(&mut self.returns))
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        self.end();
    }
}

// SAFETY: the roles point to the limits in the same struct, and neither changes. The limits and the kinds of roles are
// `Send`, as the check below shows.
unsafe impl Send for TracedRoles {}
// SAFETY: the roles point to the limits in the same struct, and neither changes. The limits and the kinds of roles are
// `Sync`, as the check below shows.
unsafe impl Sync for TracedRoles {}
const _: fn() = || {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Limits>();
    is_shared::<Role>();
};
