//! The tracer that is set and its settings: which functions it has probes on, and the profile of functions.
//!
//! A change of the settings makes new probes, which are armed after the old ones were disarmed. If there is no memory for
//! them, the old probes and settings stay. As in Linux, a write to a file takes effect at its end: a file that is emptied
//! first and then written changes the probes once.

use alloc::vec::Vec;
use core::mem;

use aarch64_kprobes::ProbeError;
use aarch64_kprobes::event;
use aarch64_kprobes::probe::{self, AliasableBox};
use fallible::{OutOfMemory, TryClone};
use kprobes_symbols::Symbol;
use kprobes_trace::errno::Errno;
use kprobes_trace::options::Flag;
use kprobes_trace::tracer::profile::Counts;
use kprobes_trace::tracer::{Graph, Refused, Traced, Tracer};

use crate::files::patterns::{self, Pattern};
use crate::session::Session;
use crate::{symbol, tracing};

/// The state of tracers.
#[derive(Debug, Default)]
pub(crate) struct Tracing {
    /// The probes of the tracer, if it is not `nop`.
    traced: Option<Traced>,
    /// What [`Traced::unregister`] has counted since the tracer was set.
    pub(crate) lost: u64,
    pub(crate) settings: Settings,
    /// The settings that the probes were made by, if these have changed since.
    before: Option<Settings>,
    profile: Option<Profile>,
}

/// The settings of tracers.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// `set_ftrace_filter`: these; all, if there are none.
    pub(crate) filter: Functions,
    /// `set_ftrace_notrace`: not these.
    pub(crate) notrace: Functions,
    /// `set_graph_function`: the graph has what is called in these.
    pub(crate) graph: Functions,
    /// `set_graph_notrace`: the graph has nothing that is called in these.
    pub(crate) graph_notrace: Functions,
    /// `max_graph_depth`: how many calls one is within at most, itself included; 0 for any number.
    pub(crate) max_depth: u32,
    /// `tracing_cpumask`: the CPUs on which calls are recorded; `None` means all.
    pub(crate) cpus: Option<u64>,
}

/// Functions, by their virtual addresses, in ascending order.
#[derive(Debug, Default)]
pub(crate) struct Functions(Vec<u64>);

/// The counts of functions, with the probes that count.
#[derive(Debug)]
struct Profile {
    /// Dropped before the counts, which its handlers add to.
    traced: Option<Traced>,
    counts: AliasableBox<[Counts]>,
}

/// Returns the functions that match `glob` and can be traced.
fn traceable(glob: &str) -> impl Iterator<Item = Symbol<'static>> {
    let untraceable = probe::blacklist();
    symbol::functions(glob).filter(move |function| {
        let address = function.address as usize;
        // A probe at the function of a static event listens to the event.
        !untraceable.contains(&address) && event::of_function(address).is_none()
    })
}

/// Returns the functions that match `glob` and can be traced, by their virtual addresses in ascending order.
///
/// # Errors
///
/// There are none, or there is no memory.
fn meant(glob: &str) -> Result<Vec<u64>, Errno> {
    let meant = fallible::collect(traceable(glob).map(|function| function.address))?;
    if !meant.is_empty() {
        return Ok(meant);
    }
    match symbol::nearest(glob) {
        Some(near) => println!("no function that can be traced matches `{glob}`; did you mean `{near}`?"),
        None => println!("no function that can be traced matches `{glob}`; see available_filter_functions"),
    }
    Err(Errno::Invalid)
}

/// Carries out the commands in `text`: gives them to functions, or takes them away. If one is refused, those before it
/// have been carried out.
///
/// # Errors
///
/// A pattern matches no function, a command is refused, or there is no memory.
pub(crate) fn command(session: &mut Session, text: &str) -> Result<(), Errno> {
    let Session { controls, events, .. } = session;
    for Pattern { glob, command, is_removed } in patterns::of(text) {
        let Some(command) = command else { continue };
        let functions = meant(glob)?;
        if is_removed {
            controls.remove_command(events, &functions, command).inspect_err(|errno| {
                if *errno == Errno::Invalid {
                    println!("no function that matches `{glob}` has the command `{command}`");
                }
            })?;
            continue;
        }
        let mut refused = Refused::default();
        let mut refuse = |error: ProbeError| {
            refused.count += 1;
            refused.first.get_or_insert(error);
        };
        let added = controls.add_command(events, &functions, command, &tracing::Names, &mut refuse);
        if let Refused { count, first: Some(error) } = &refused {
            println!("{count} of the functions cannot have the command; the first: {error}");
        }
        added.inspect_err(|errno| match errno {
            Errno::Invalid if refused.count < functions.len() => println!("`{command}` is no command; {COMMANDS}"),
            Errno::Exists => println!("a function that matches `{glob}` has the opposite command"),
            _ => {}
        })?;
    }
    Ok(())
}

/// The commands of functions.
const COMMANDS: &str = "they are traceon, traceoff, snapshot, stacktrace, enable_event:GROUP:EVENT, disable_event:GROUP:EVENT; with :COUNT";

impl TryClone for Settings {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let copy = |Functions(all): &Functions| fallible::collect(all.iter().copied()).map(Functions);
        Ok(Self {
            filter: copy(&self.filter)?,
            notrace: copy(&self.notrace)?,
            graph: copy(&self.graph)?,
            graph_notrace: copy(&self.graph_notrace)?,
            max_depth: self.max_depth,
            cpus: self.cpus,
        })
    }
}

impl Functions {
    /// Adds and removes the functions that `text`, which was written to a file, names. Passes over commands.
    ///
    /// # Errors
    ///
    /// A pattern matches no function, or there is no memory.
    pub(crate) fn change(&mut self, text: &str) -> Result<(), Errno> {
        for Pattern { glob, is_removed, .. } in patterns::of(text).filter(|pattern| pattern.command.is_none()) {
            let meant = meant(glob)?;
            if is_removed {
                self.0.retain(|function| meant.binary_search(function).is_err());
            } else {
                fallible::extend(&mut self.0, meant)?;
                self.0.sort_unstable();
                self.0.dedup();
            }
        }
        Ok(())
    }

    /// Returns their virtual addresses.
    pub(crate) fn addresses(&self) -> &[u64] {
        &self.0
    }
}

impl Settings {
    /// Returns the functions to probe.
    fn functions(&self) -> Result<Vec<u64>, OutOfMemory> {
        let (Functions(filter), Functions(notrace)) = (&self.filter, &self.notrace);
        let is_traced = |function: &u64| {
            (filter.is_empty() || filter.binary_search(function).is_ok()) && notrace.binary_search(function).is_err()
        };
        fallible::collect(traceable("*").map(|function| function.address).filter(is_traced))
    }

    /// Creates the probes of `tracer`, disarmed.
    fn probes(&self, tracer: Tracer, stacks: bool) -> Result<Option<Traced>, OutOfMemory> {
        let rings = tracing::rings();
        let traced = match tracer {
            Tracer::Nop => return Ok(None),
            Tracer::Function => Traced::functions(&self.functions()?, rings, self.cpus, stacks)?,
            Tracer::FunctionGraph => {
                let Self { graph, graph_notrace, max_depth, cpus, .. } = self;
                let graph = Graph { max_depth: *max_depth, only: &graph.0, without: &graph_notrace.0, cpus: *cpus };
                Traced::graph(&self.functions()?, rings, graph)?
            }
        };
        // Without a filter, the user has named none of them.
        if let Refused { count, first: Some(error) } = traced.refused()
            && !self.filter.0.is_empty()
        {
            println!("{count} of the functions in set_ftrace_filter cannot be traced; the first: {error}");
        }
        Ok(Some(traced))
    }
}

impl Tracing {
    /// Returns the functions that the tracer has probes on, each with the number of calls and returns that were missed.
    pub(crate) fn enabled(&self) -> impl Iterator<Item = (usize, u64)> {
        let missed = |address: usize| {
            let probes = self.traced.iter().flat_map(Traced::probes);
            probes.filter(|probe| probe.address() == address).map(|probe| probe.missed()).sum()
        };
        self.traced.iter().flat_map(Traced::functions_traced).map(move |address| (address, missed(address)))
    }

    /// Returns the counts of functions. There are none before the first profile.
    pub(crate) fn counts(&self) -> &[Counts] {
        self.profile.as_ref().map_or(&[], |profile| &profile.counts)
    }

    /// Returns whether functions are counted.
    pub(crate) fn is_profiling(&self) -> bool {
        self.profile.as_ref().is_some_and(|profile| profile.traced.is_some())
    }

    /// Begins a new profile, or ends it. The counts stay.
    ///
    /// # Errors
    ///
    /// There is no memory: nothing has changed.
    pub(crate) fn set_profiling(&mut self, on: bool) -> Result<(), OutOfMemory> {
        match (on, self.is_profiling()) {
            (true, false) => {
                let counts = Counts::of(&self.settings.functions()?, tracing::rings().cpus())?;
                let counts = AliasableBox::<[Counts]>::new(counts);
                // SAFETY: `Profile` drops the counts after the probes.
                let traced = unsafe { Traced::profile(&counts)? };
                traced.set_enabled(true)?;
                self.profile = Some(Profile { traced: Some(traced), counts });
            }
            (false, true) => {
                if let Some(profile) = &mut self.profile {
                    profile.traced = None;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Replaces the probes by `traced`, which may be none.
    ///
    /// # Errors
    ///
    /// There is no memory. The old probes stay, unless there is no memory to arm them again: then there are none.
    fn exchange(&mut self, traced: Option<Traced>) -> Result<(), OutOfMemory> {
        if let Some(old) = &self.traced {
            old.set_enabled(false)?;
        }
        if let Some(Err(error)) = traced.as_ref().map(|traced| traced.set_enabled(true)) {
            if self.traced.as_ref().is_some_and(|old| old.set_enabled(true).is_err()) {
                self.traced = None;
            }
            return Err(error);
        }
        self.lost += mem::replace(&mut self.traced, traced).map_or(0, Traced::unregister);
        Ok(())
    }
}

/// Returns whether the tracer `function` records stacks.
fn has_stacks(session: &Session) -> bool {
    session.events.options().is(Flag::FunctionStackTrace)
}

/// Replaces the probes of the tracer. If the old probes are lost, too, the tracer is `nop`.
fn exchange(session: &mut Session, traced: Option<Traced>) -> Result<(), OutOfMemory> {
    let exchanged = session.tracing.exchange(traced);
    if exchanged.is_err() && session.tracing.traced.is_none() {
        session.events.set_tracer(Tracer::Nop);
    }
    exchanged
}

/// Sets `tracer`.
///
/// # Errors
///
/// There is no memory. If there is none to make the probes, nothing has changed. If there is none to arm them, the tracer is
/// `nop` and the trace is empty.
pub(crate) fn set(session: &mut Session, tracer: Tracer) -> Result<(), OutOfMemory> {
    if session.events.options().tracer == tracer {
        return Ok(());
    }
    let stacks = has_stacks(session);
    let probes = session.tracing.settings.probes(tracer, stacks)?;
    // The records of the old probes are cleared before the new ones record.
    session.tracing.exchange(None)?;
    session.events.set_tracer(tracer);
    session.tracing.lost = 0;
    exchange(session, probes)
}

/// Changes the settings. [`settle`] applies them to the tracer that is set.
///
/// # Errors
///
/// Returns the error of `change`, or that there is no memory. Nothing has changed then.
pub(crate) fn change(
    session: &mut Session,
    change: impl FnOnce(&mut Settings) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut settings = session.tracing.settings.try_clone()?;
    change(&mut settings)?;
    let before = mem::replace(&mut session.tracing.settings, settings);
    session.tracing.before.get_or_insert(before);
    Ok(())
}

/// Makes the probes of the tracer that is set anew, if the settings have changed.
///
/// # Errors
///
/// There is no memory. The probes stay, and the settings are what they were when these were made. If there is no memory to
/// arm the probes again, the tracer is `nop`.
pub(crate) fn settle(session: &mut Session) -> Result<(), OutOfMemory> {
    let Some(before) = session.tracing.before.take() else { return Ok(()) };
    let tracer = session.events.options().tracer;
    if tracer == Tracer::Nop {
        return Ok(());
    }
    let probes = session.tracing.settings.probes(tracer, has_stacks(session));
    let settled = probes.and_then(|probes| exchange(session, probes));
    if settled.is_err() {
        session.tracing.settings = before;
    }
    settled
}

/// Turns an option on or off.
///
/// # Errors
///
/// There is no memory for the probes or plans that it needs. Nothing has changed, unless there is no memory to arm the old probes
/// again: then the tracer is `nop`.
pub(crate) fn set_option(session: &mut Session, flag: Flag, on: bool) -> Result<(), Errno> {
    if flag == Flag::Stacktrace {
        session.controls.set_stacks(&mut session.events, on)?;
    }
    let tracer = session.events.options().tracer;
    if flag == Flag::FunctionStackTrace && tracer == Tracer::Function && on != has_stacks(session) {
        let probes = session.tracing.settings.probes(tracer, on)?;
        exchange(session, probes)?;
    }
    session.events.set_option(flag, on);
    Ok(())
}
