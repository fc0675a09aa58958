//! The tracer that is set and its settings: which functions it has probes on, and the profile of functions.
//!
//! A change of the settings makes new probes, which are enabled after the old probes were disabled. If there is no
//! memory for the new probes, the old probes and settings stay. As in Linux, a write to a file takes effect at its end:
//! a file that is emptied first and then written changes the probes once.

use alloc::vec::Vec;
use core::{mem, ptr};

use aarch64_kprobes::ProbeError;
use aarch64_kprobes::probe::{self, AliasableBox};
use aarch64_kprobes::{event, platform};
use fallible::{Arc, OutOfMemory, TryClone};
use kprobes_symbols::Symbol;
use kprobes_trace::engine::Probe;
use kprobes_trace::errno::Errno;
use kprobes_trace::events::Events;
use kprobes_trace::options::Flag;
use kprobes_trace::ring::Rings;
use kprobes_trace::tracer::profile::Counts;
use kprobes_trace::tracer::usage::Usage;
use kprobes_trace::tracer::{Graph, InheritanceError, InheritanceProbes, Recording, Refused, Traced, Tracer};
use kprobes_trace::trigger::inherited_tasks::InheritedTasks;
use kprobes_trace::trigger::restriction::Restriction;

use crate::host::cpus;
use crate::{symbol, tracing};

/// The state of tracers.
#[derive(Debug, Default)]
pub(crate) struct Tracing {
    /// The probes of the tracer, if it is not `nop`.
    traced: Option<Traced>,
    /// The sum of the results of [`Traced::unregister`] since the tracer was set.
    pub(crate) lost: u64,
    pub(crate) settings: Settings,
    /// The tasks of the restriction of calls and their children, if children inherit it.
    inheritance: Option<Inheritance>,
    /// The settings with which the probes were made, if the settings have changed since.
    before: Option<Before>,
    profile: Option<Profile>,
    pub(crate) stacks: Stacks,
    /// The probes that add the children of the tasks in `set_event_pid`, if children inherit the restriction.
    event_inheritance: Option<InheritanceProbes>,
}

/// The settings of tracers.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// `set_ftrace_filter`: the traced functions; if empty, all functions.
    pub(crate) filter: Functions,
    /// `set_ftrace_notrace`: the functions that are not traced.
    pub(crate) notrace: Functions,
    /// `set_graph_function`: only calls of these functions are recorded, with the calls in them; if empty, all calls.
    pub(crate) graph: Functions,
    /// `set_graph_notrace`: neither calls of these functions nor the calls in them are recorded.
    pub(crate) graph_notrace: Functions,
    /// `max_graph_depth`: the maximum depth of a call, where a call within no other has depth 1; 0 for no limit.
    pub(crate) max_depth: u32,
    /// The tasks and CPUs whose calls are recorded: `set_ftrace_pid`, `set_ftrace_notrace_pid`, `tracing_cpumask`,
    /// and the option `function-fork`.
    pub(crate) restriction: Restriction,
    /// Whether returns are recorded with the results of functions: the option `funcgraph-retval`.
    results: bool,
    /// Whether stacks are recorded with calls: the option `func_stack_trace`.
    stacks: bool,
}

/// Tasks whose children inherit the restriction, and the probes that add the children.
#[derive(Debug)]
struct Inheritance {
    tasks: Arc<InheritedTasks>,
    _probes: InheritanceProbes,
}

/// The settings with which the probes of the tracer were made.
#[derive(Debug)]
struct Before {
    settings: Settings,
    /// The tasks of the restriction and their children, if the restriction has other tasks since.
    inheritance: Option<Inheritance>,
    has_other_tasks: bool,
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

/// The stack tracer: the deepest stack, with the probes that look for it.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    /// Dropped before the stacks, which its handlers write.
    traced: Option<Traced>,
    /// The stacks; `None` until [`usage_mut`](Self::usage_mut) makes them.
    usage: Option<AliasableBox<Usage>>,
    /// `stack_trace_filter`: the functions whose calls are looked at; if empty, all functions.
    filter: Functions,
}

/// Returns the functions that match `glob` and can be traced.
pub(crate) fn traceable(glob: &str) -> impl Iterator<Item = Symbol<'static>> {
    let (text, blacklist) = (platform::text(), probe::blacklist());
    symbol::functions_by_classes(glob).filter(move |function| {
        let address = function.address as usize;
        // A probe at the function of a static event listens to the event.
        text.contains(&address) && !blacklist.contains(&address) && event::of_function(address).is_none()
    })
}

/// Returns the functions that match `glob` and can be traced, by their virtual addresses in ascending order.
///
/// # Errors
///
/// No function matches, or there is no memory.
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

/// Gives the functions that match `glob` a command, or takes it from them.
///
/// # Errors
///
/// No function matches, the command is refused, or there is no memory.
pub(crate) fn command(events: &mut Events<Probe>, glob: &str, command: &str, is_removed: bool) -> Result<(), Errno> {
    let functions = meant(glob)?;
    if is_removed {
        return events.remove_command(&functions, command).inspect_err(|errno| {
            if *errno == Errno::Invalid {
                println!("no function that matches `{glob}` has the command `{command}`");
            }
        });
    }
    let mut refused = Refused::default();
    let mut refuse = |error: ProbeError| {
        refused.count += 1;
        refused.first.get_or_insert(error);
    };
    let added = events.add_command(&functions, command, &tracing::Names, &mut refuse);
    if let Refused { count, first: Some(error) } = &refused {
        println!("{count} of the functions cannot have the command; the first: {error}");
    }
    added.inspect_err(|errno| {
        if *errno == Errno::Invalid && refused.count < functions.len() {
            println!("`{command}` is no command, or its event does not exist; {COMMANDS}");
        }
    })
}

/// The help about commands of functions.
const COMMANDS: &str = "the commands are traceon, traceoff, snapshot, stacktrace, enable_event:GROUP:EVENT, disable_event:GROUP:EVENT; with :COUNT";

impl TryClone for Settings {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let copy = |Functions(all): &Functions| fallible::collect(all.iter().copied()).map(Functions);
        Ok(Self {
            filter: copy(&self.filter)?,
            notrace: copy(&self.notrace)?,
            graph: copy(&self.graph)?,
            graph_notrace: copy(&self.graph_notrace)?,
            max_depth: self.max_depth,
            restriction: self.restriction.try_clone()?,
            results: self.results,
            stacks: self.stacks,
        })
    }
}

impl Functions {
    /// Adds the functions that match `glob`, or removes them.
    ///
    /// # Errors
    ///
    /// The pattern matches no function, or there is no memory.
    pub(crate) fn change(&mut self, glob: &str, is_removed: bool) -> Result<(), Errno> {
        let meant = meant(glob)?;
        if is_removed {
            self.0.retain(|function| meant.binary_search(function).is_err());
        } else {
            fallible::extend(&mut self.0, meant)?;
            self.0.sort_unstable();
            self.0.dedup();
        }
        Ok(())
    }

    /// Returns the virtual addresses of the functions.
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
}

impl Inheritance {
    /// Begins to add the children of the tasks of `restriction`. Returns `None` if there are no tasks, or if their
    /// children do not inherit it.
    fn of(restriction: &Restriction) -> Result<Option<Self>, Errno> {
        let Some(tasks) = InheritedTasks::of(restriction)? else { return Ok(None) };
        let probes = InheritanceProbes::new(&tasks).map_err(refuse)?;
        Ok(Some(Self { tasks, _probes: probes }))
    }
}

impl Tracing {
    /// Returns the functions with probes of tracers, once for each tracer, with the number of calls and returns that
    /// the tracer has missed.
    pub(crate) fn enabled(&self) -> impl Iterator<Item = (usize, u64)> {
        let profile = self.profile.iter().filter_map(|profile| profile.traced.as_ref());
        let all = self.traced.iter().chain(profile).chain(&self.stacks.traced);
        all.flat_map(|traced| {
            let missed = |address: usize| {
                let probes = traced.probes().filter(|probe| probe.address() == address);
                probes.map(|probe| probe.missed()).sum()
            };
            traced.functions_traced().map(move |address| (address, missed(address)))
        })
    }

    /// Returns the tasks whose calls are recorded, with the children that have inherited the restriction.
    ///
    /// # Errors
    ///
    /// There is no memory for a copy.
    pub(crate) fn restriction(&self) -> Result<Restriction, OutOfMemory> {
        match &self.inheritance {
            Some(Inheritance { tasks, .. }) => tasks.in_place_of(&self.settings.restriction),
            None => self.settings.restriction.try_clone(),
        }
    }

    /// Returns the number of children that have not inherited the restriction, because there was no room for them.
    pub(crate) fn lost_children(&self) -> u64 {
        self.inheritance.as_ref().map_or(0, |inheritance| inheritance.tasks.lost())
    }

    /// Creates the probes of `tracer`, disabled.
    fn probes_of(&self, tracer: Tracer, rings: &'static Rings) -> Result<Option<Traced>, OutOfMemory> {
        let Settings { filter, graph, graph_notrace, max_depth, restriction, results, stacks, .. } = &self.settings;
        let inherited = self.inheritance.as_ref().map(|inheritance| &inheritance.tasks);
        let recording = Recording { restriction, inherited, stacks: *stacks, results: *results };
        let traced = match tracer {
            Tracer::Nop => return Ok(None),
            Tracer::Function => Traced::functions(&self.settings.functions()?, rings, &recording)?,
            Tracer::FunctionGraph => {
                let graph = Graph { max_depth: *max_depth, only: &graph.0, without: &graph_notrace.0 };
                Traced::graph(&self.settings.functions()?, rings, graph, &recording)?
            }
        };
        // Without a filter, the user has not named the refused functions.
        if let Refused { count, first: Some(error) } = traced.refused()
            && !filter.0.is_empty()
        {
            println!("{count} of the functions in set_ftrace_filter cannot be traced; the first: {error}");
        }
        Ok(Some(traced))
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
                let counts = Counts::of(&self.settings.functions()?, cpus())?;
                let counts = AliasableBox::<[Counts]>::new(counts);
                // SAFETY: `Profile` drops the counts after the probes, and they stay in their box.
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

    /// Replaces the probes by `traced`; `None` leaves no probes.
    ///
    /// # Errors
    ///
    /// There is no memory. The old probes stay. If there is no memory to enable them again, no probes are left.
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

    /// Replaces the probes of the tracer. If the old probes are lost, too, the tracer is `nop`.
    fn exchange_or_end(&mut self, events: &mut Events<Probe>, traced: Option<Traced>) -> Result<(), OutOfMemory> {
        let exchanged = self.exchange(traced);
        if exchanged.is_err() && self.traced.is_none() {
            events.set_tracer(Tracer::Nop);
        }
        exchanged
    }

    /// Sets `tracer`.
    ///
    /// # Errors
    ///
    /// There is no memory. If it is lacking to make the probes, nothing has changed. If it is lacking to enable them,
    /// the tracer is `nop` and the trace is empty.
    pub(crate) fn set(&mut self, events: &mut Events<Probe>, tracer: Tracer) -> Result<(), OutOfMemory> {
        if events.options().tracer == tracer {
            return Ok(());
        }
        let probes = self.probes_of(tracer, events.rings())?;
        // The records of the old probes are cleared before the new ones record.
        self.exchange(None)?;
        events.set_tracer(tracer);
        self.lost = 0;
        self.exchange_or_end(events, probes)
    }

    /// Changes the settings. [`settle`](Self::settle) applies them to the tracer that is set.
    ///
    /// # Errors
    ///
    /// Returns the error of `change`, that there is no memory, or that children cannot inherit restrictions. Nothing
    /// has changed then.
    pub(crate) fn change(&mut self, change: impl FnOnce(&mut Settings) -> Result<(), Errno>) -> Result<(), Errno> {
        let restriction = self.restriction()?;
        let mut settings = Settings { restriction: restriction.try_clone()?, ..self.settings.try_clone()? };
        change(&mut settings)?;
        // While the tasks stay, their children stay, and the probes that add children.
        let has_other_tasks = settings.restriction != restriction;
        let inheritance = match has_other_tasks {
            true => mem::replace(&mut self.inheritance, Inheritance::of(&settings.restriction)?),
            false => None,
        };
        let settings = mem::replace(&mut self.settings, settings);
        match &mut self.before {
            Some(before) if before.has_other_tasks => {}
            Some(before) => (before.inheritance, before.has_other_tasks) = (inheritance, has_other_tasks),
            none => *none = Some(Before { settings, inheritance, has_other_tasks }),
        }
        Ok(())
    }

    /// Replaces the probes of the tracer that is set, if the settings have changed.
    ///
    /// # Errors
    ///
    /// There is no memory. The probes stay, with the settings with which they were made. If there is no memory to
    /// enable the probes again, the tracer is `nop`.
    pub(crate) fn settle(&mut self, events: &mut Events<Probe>) -> Result<(), Errno> {
        let Some(before) = self.before.take() else { return Ok(()) };
        let tracer = events.options().tracer;
        if tracer == Tracer::Nop {
            return Ok(());
        }
        let probes = self.probes_of(tracer, events.rings());
        let settled = probes.and_then(|probes| self.exchange_or_end(events, probes));
        if settled.is_err() {
            if before.has_other_tasks {
                self.inheritance = before.inheritance;
            }
            self.settings = before.settings;
        }
        Ok(settled?)
    }

    /// Turns an option on or off.
    ///
    /// # Errors
    ///
    /// There is no memory for the probes or plans that it needs, or children cannot inherit restrictions. Nothing has
    /// changed.
    pub(crate) fn set_option(&mut self, events: &mut Events<Probe>, flag: Flag, on: bool) -> Result<(), Errno> {
        match flag {
            Flag::Stacktrace => events.set_stacks(on)?,
            Flag::EventFork => self.restrict_events(events, |restriction| {
                restriction.children = on;
                Ok(())
            })?,
            Flag::FunctionFork => self.set_and_settle(events, |settings| settings.restriction.children = on)?,
            Flag::FunctionStackTrace => self.set_and_settle(events, |settings| settings.stacks = on)?,
            Flag::GraphResult => self.set_and_settle(events, |settings| settings.results = on)?,
            _ => {}
        }
        events.set_option(flag, on);
        Ok(())
    }

    fn set_and_settle(&mut self, events: &mut Events<Probe>, set: impl FnOnce(&mut Settings)) -> Result<(), Errno> {
        self.change(|settings| {
            set(settings);
            Ok(())
        })?;
        self.settle(events)
    }

    /// Changes the restriction of all events.
    ///
    /// # Errors
    ///
    /// Returns the error of `change`, that there is no memory, or that children cannot inherit restrictions. Nothing
    /// has changed then.
    pub(crate) fn restrict_events(
        &mut self,
        events: &mut Events<Probe>,
        change: impl FnOnce(&mut Restriction) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut restriction = events.restriction()?;
        change(&mut restriction)?;
        let inherited = InheritedTasks::of(&restriction)?;
        let probes = inherited.as_ref().map(InheritanceProbes::new).transpose().map_err(refuse)?;
        events.restrict(restriction, inherited)?;
        self.event_inheritance = probes;
        Ok(())
    }
}

/// Shows why children cannot inherit restrictions, and returns the error number for it.
pub(crate) fn refuse(error: InheritanceError) -> Errno {
    match error {
        InheritanceError::OutOfMemory => Errno::NoMemory,
        error => {
            println!("{error}");
            Errno::Invalid
        }
    }
}

impl Stacks {
    pub(crate) fn is_on(&self) -> bool {
        self.traced.is_some()
    }

    /// Returns the functions whose calls are looked at; all, if there are none.
    pub(crate) fn filter(&self) -> &Functions {
        &self.filter
    }

    /// Returns the stacks that the tracer has seen; `None` until [`usage_mut`](Self::usage_mut) makes them.
    pub(crate) fn usage(&self) -> Option<&Usage> {
        self.usage.as_deref()
    }

    /// Returns the stacks. The first call makes them.
    ///
    /// # Errors
    ///
    /// There is no memory for them.
    pub(crate) fn usage_mut(&mut self) -> Result<&Usage, OutOfMemory> {
        let usage = match self.usage.take() {
            Some(usage) => usage,
            None => AliasableBox::new(fallible::boxed(Usage::new(cpus())?)?),
        };
        Ok(self.usage.insert(usage))
    }

    /// Turns the tracer on or off. The stacks that it has seen stay.
    ///
    /// # Errors
    ///
    /// The kernel does not know its stacks, or there is no memory: nothing has changed.
    pub(crate) fn set(&mut self, on: bool) -> Result<(), Errno> {
        if on == self.is_on() {
            return Ok(());
        }
        self.traced = if on { Some(self.probes()?) } else { None };
        Ok(())
    }

    /// Creates the probes of the stack tracer, enabled.
    fn probes(&mut self) -> Result<Traced, Errno> {
        let here = 0_u8;
        if probe::stack_around(ptr::from_ref(&here).addr()).is_none() {
            println!("this kernel does not say where its stacks are: its platform has no `stack`");
            return Err(Errno::Invalid);
        }
        let all;
        let functions = match self.filter.addresses() {
            [] => {
                all = Settings::default().functions()?;
                &all
            }
            functions => functions,
        };
        let functions = fallible::collect(functions.iter().copied())?;
        let usage = self.usage_mut()?;
        // SAFETY: `Stacks` drops the probes before `usage`, which stays in its box.
        let traced = unsafe { Traced::stacks(&functions, usage)? };
        traced.set_enabled(true)?;
        Ok(traced)
    }

    /// Sets the functions whose calls are looked at.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Functions::change`], or that there is no memory for other probes. Nothing has changed
    /// then.
    pub(crate) fn change_filter(
        &mut self,
        change: impl FnOnce(&mut Functions) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut filter = Functions(fallible::collect(self.filter.0.iter().copied())?);
        change(&mut filter)?;
        let before = mem::replace(&mut self.filter, filter);
        if self.is_on() {
            match self.probes() {
                Ok(traced) => self.traced = Some(traced),
                Err(errno) => {
                    self.filter = before;
                    return Err(errno);
                }
            }
        }
        Ok(())
    }
}
