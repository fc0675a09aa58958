//! The tracer that is set, and the probes that it has by its settings.
//!
//! A change of the settings makes new probes, which are enabled after the old probes were disabled. If there is no
//! memory for the new probes, the old probes and settings stay. As in Linux, a write to a file takes effect at its end:
//! a file that is emptied first and then written changes the probes once.

// | module | what it owns |
// |---|---|
// | `functions` | the functions that files name, and their commands |
// | `settings` | the settings of tracers |
// | `profile` | the profile of functions |
// | `stacks` | the stack tracer |

mod functions;
mod profile;
mod settings;
mod stacks;

use core::mem;

use fallible::{Arc, OutOfMemory, TryClone};
pub(crate) use functions::{Functions, command, traceable};
use kprobes_trace::engine::Probe;
use kprobes_trace::errno::Errno;
use kprobes_trace::events::Events;
use kprobes_trace::options::Flag;
use kprobes_trace::ring::Rings;
use kprobes_trace::tracer::{Graph, InheritanceError, InheritanceProbes, Recording, Refused, Traced, Tracer};
use kprobes_trace::trigger::inherited_tasks::InheritedTasks;
use kprobes_trace::trigger::restriction::Restriction;
use profile::Profile;
pub(crate) use settings::Settings;
use stacks::Stacks;

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
                let graph =
                    Graph { max_depth: *max_depth, only: graph.addresses(), without: graph_notrace.addresses() };
                Traced::graph(&self.settings.functions()?, rings, graph, &recording)?
            }
        };
        // Without a filter, the user has not named the refused functions.
        if let Refused { count, first: Some(error) } = traced.refused()
            && !filter.addresses().is_empty()
        {
            println!("{count} of the functions in set_ftrace_filter cannot be traced; the first: {error}");
        }
        Ok(Some(traced))
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
fn refuse(error: InheritanceError) -> Errno {
    match error {
        InheritanceError::OutOfMemory => Errno::NoMemory,
        error => {
            println!("{error}");
            Errno::Invalid
        }
    }
}
