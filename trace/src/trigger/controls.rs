//! What is set about all events: from what is written to their files to what their handlers do.
//!
//! Several probes can be of one event; they have one [`Control`], and a plan each. A change gives all of them new plans, arms or
//! disarms them, waits until no hit can be using the old plans, and drops those.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::control::{Control, Room, SetError};
use super::{Error, Kind, Plan, Request};
use crate::definition::{self, Definition};
use crate::errno::Errno;
use crate::error_log::ErrorLog;
use crate::events::{Armed, Event, Events};
use crate::filter;
use crate::host::Symbols;
use crate::recorder::Recorder;

/// What is needed of the kernel to change plans.
#[derive(Clone, Copy, Debug)]
pub struct Services {
    /// Waits until the hits that are being handled are over.
    pub synchronize: fn(),
    /// Whether the caller of the function that is interrupted at this virtual address is in x30.
    pub in_link: fn(u64) -> bool,
    /// The time, in microseconds.
    pub now: fn() -> u64,
    /// How many bytes of memory there are for histograms.
    pub free: fn() -> usize,
}

impl Services {
    /// The plan of the probe at the virtual address `address`; `None` records every hit. A return event is hit in the caller, after
    /// the return, where x30 is not the return address of what was hit.
    fn plan(&self, control: &Control, recorder: &Recorder, address: u64) -> Option<Box<Plan>> {
        let in_link = !recorder.is_of_returns() && (self.in_link)(address);
        control.plan(in_link, &|number| recorder.source(number))
    }
}

/// The events that have been enabled or given a filter or triggers.
#[derive(Debug)]
pub struct Controls {
    controls: Vec<(String, String, Control)>,
    services: Services,
    /// No event is armed, whatever is set about it.
    disarmed: bool,
    /// What was wrong with what was written.
    pub errors: ErrorLog,
}

/// The group and the name of an event.
type Name<'a> = (&'a str, &'a str);

impl Controls {
    /// Nothing is set.
    #[must_use]
    pub fn new(services: Services) -> Self {
        Self { controls: Vec::new(), services, disarmed: false, errors: ErrorLog::default() }
    }

    /// Notes what was wrong with `command`, which was given to `place`.
    pub fn refuse(&mut self, place: &str, problem: &dyn core::fmt::Display, command: &str, column: usize) {
        self.errors.add((self.services.now)(), place, problem, command, column);
    }

    /// What is set about an event, if anything ever was.
    #[must_use]
    pub fn get(&self, (group, event): Name<'_>) -> Option<&Control> {
        self.controls.iter().find(|(other, name, _)| other == group && name == event).map(|(.., control)| control)
    }

    fn get_mut(&mut self, (group, event): Name<'_>) -> &mut Control {
        let place = self.controls.iter().position(|(other, name, _)| other == group && name == event);
        let place = place.unwrap_or_else(|| {
            self.controls.push((group.into(), event.into(), Control::new(false)));
            self.controls.len() - 1
        });
        &mut self.controls[place].2
    }

    /// Enables or disables the events of this group and name, or all with either where it is not given.
    ///
    /// # Errors
    ///
    /// There is none; or no memory to arm it.
    pub fn set_enabled<P: Armed>(
        &mut self,
        events: &Events<P>,
        group: Option<&str>,
        event: Option<&str>,
        enabled: bool,
    ) -> Result<(), Errno> {
        let names = names(events, group, event);
        if names.is_empty() && (group.is_some() || event.is_some()) {
            return Err(Errno::NotFound);
        }
        for (group, event) in &names {
            self.get_mut((group, event)).set_enabled(enabled);
            self.apply(events, (group, event))?;
        }
        Ok(())
    }

    /// The file `enable` of a group, or of all: whether all events are enabled, none is, or some are; or there are none. As in
    /// Linux, an event counts as enabled while a trigger has it hit.
    #[must_use]
    pub fn enabled_text<P: Armed>(&self, events: &Events<P>, group: Option<&str>) -> &'static str {
        let names = names(events, group, None);
        let is_enabled = |(group, event): &(String, String)| self.get((group, event)).is_some_and(Control::is_armed);
        match names.iter().filter(|name| is_enabled(name)).count() {
            _ if names.is_empty() => "?",
            0 => "0",
            count if count == names.len() => "1",
            _ => "X",
        }
    }

    /// Whether events are armed at all: `kprobes/enabled`.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        !self.disarmed
    }

    /// Has no event be armed, or again all that are to be.
    ///
    /// # Errors
    ///
    /// No memory to arm one.
    pub fn set_armed<P: Armed>(&mut self, events: &Events<P>, armed: bool) -> Result<(), Errno> {
        self.disarmed = !armed;
        names(events, None, None).iter().try_for_each(|(group, event)| self.apply(events, (group, event)))
    }

    /// Sets the filter of an event; `0` removes it.
    ///
    /// # Errors
    ///
    /// It is no filter: the log of errors says why.
    pub fn set_filter<P: Armed>(&mut self, events: &Events<P>, name: Name<'_>, text: &str) -> Result<(), Errno> {
        let fields = &find(events, name)?.format().fields;
        let result = self.get_mut(name).set_filter(text, fields);
        self.apply(events, name)?;
        result.map_err(|error| self.refuse_filter(text.trim(), &error))
    }

    fn refuse_filter(&mut self, text: &str, error: &filter::Error) -> Errno {
        self.refuse("event filter parse error", &error.problem, text, error.column.min(text.len()));
        Errno::Invalid
    }

    /// Sets a trigger of an event, or removes it.
    ///
    /// # Errors
    ///
    /// It is no trigger, is there already, or is about an event that does not exist. The log of errors says why, where Linux's would.
    pub fn set_trigger<P: Armed>(&mut self, events: &Events<P>, name: Name<'_>, text: &str) -> Result<(), Errno> {
        let fields = &find(events, name)?.format().fields;
        let request = Request::parse(text, fields).map_err(|error| match error {
            Error::Invalid => Errno::Invalid,
            Error::Filter(filter, error) => self.refuse_filter(&filter, &error),
            Error::Histogram(error) => self.refuse_histogram(name, text, &error.problem, error.column),
        })?;
        let target = match &request.kind {
            Kind::Event { group, event, .. } => {
                find(events, (group, event)).map_err(|_| Errno::Invalid)?;
                Some((group.clone(), event.clone()))
            }
            _ => None,
        };
        let target = target.as_ref().map(|(group, event)| (group.as_str(), event.as_str()));
        if request.remove {
            self.get_mut(name).remove_trigger(&request);
            self.retarget(events)?;
            return self.apply(events, name);
        }
        let switch = match (&request.kind, target) {
            (Kind::Tracing { .. }, _) => Some(events.rings().switch().clone()),
            (_, Some(target)) => Some(self.get_mut(target).recording().clone()),
            _ => None,
        };
        let room = Room { cpus: events.rings().cpus(), free: (self.services.free)() };
        self.get_mut(name).set_trigger(request, room, switch).map_err(|error| match error {
            SetError::Exists => Errno::Exists,
            SetError::Memory => Errno::NoMemory,
            SetError::Histogram(problem) => {
                self.refuse_histogram(name, text, &problem, 0);
                if problem == crate::histogram::Problem::Exists { Errno::Exists } else { Errno::NotFound }
            }
        })?;
        self.retarget(events)?;
        self.apply(events, name)
    }

    /// Removes the histograms of an event: what writing to `trigger` without appending does.
    ///
    /// # Errors
    ///
    /// There is no such event.
    pub fn remove_histograms<P: Armed>(&mut self, events: &Events<P>, name: Name<'_>) -> Result<(), Errno> {
        find(events, name)?;
        self.get_mut(name).remove_histograms();
        self.apply(events, name)
    }

    fn refuse_histogram(
        &mut self,
        (group, event): Name<'_>,
        text: &str,
        problem: &crate::histogram::Problem,
        column: usize,
    ) -> Errno {
        let command = text.trim().trim_start_matches('!');
        self.refuse(&alloc::format!("hist:{group}:{event}"), problem, command, column);
        Errno::Invalid
    }

    /// Finds out anew which events triggers can enable or disable.
    fn retarget<P: Armed>(&mut self, events: &Events<P>) -> Result<(), Errno> {
        let switches: Vec<_> = self.controls.iter().flat_map(|(.., control)| control.switches()).cloned().collect();
        let mut changed = Vec::new();
        for (group, event, control) in &mut self.controls {
            let count = switches.iter().filter(|switch| Arc::ptr_eq(switch, control.recording())).count();
            if control.set_targeted(count) {
                changed.push((group.clone(), event.clone()));
            }
        }
        changed.iter().try_for_each(|(group, event)| self.apply(events, (group, event)))
    }

    /// Whether the event is in use, so that its last probe is not to be removed: it is enabled, or has triggers, or is the target
    /// of one, though no event may be armed.
    #[must_use]
    pub fn is_busy<P: Armed>(&self, event: &Event<P>) -> bool {
        let Definition { group, event, .. } = event.definition();
        self.get((group, event)).is_some_and(Control::is_armed)
    }

    /// Defines an event, or another probe of one, as [`Events::define`] does: its handlers do what is set about the event.
    ///
    /// # Errors
    ///
    /// Those of [`Events::define`].
    pub fn define<P: Armed>(
        &self,
        events: &mut Events<P>,
        definition: Definition,
        symbols: &dyn Symbols,
    ) -> Result<(), definition::Error> {
        let control = self.get((&definition.group, &definition.event));
        events.define_with(definition, symbols, &|recorder, address| self.services.plan(control?, recorder, address))
    }

    /// Has the handlers of an event do what is set.
    ///
    /// # Errors
    ///
    /// No memory to arm it.
    pub fn apply<P: Armed>(&mut self, events: &Events<P>, name: Name<'_>) -> Result<(), Errno> {
        let services = self.services;
        let disarmed = self.disarmed;
        let control = self.get_mut(name);
        let armed = control.is_armed() && !disarmed;
        let mut old = Vec::new();
        let mut result = Ok(());
        for event in events.iter().filter(|event| is(event, name)) {
            let recorder = event.recorder();
            old.extend(recorder.plan().replace(services.plan(control, recorder, event.address())));
            if event.probe().is_enabled() != armed && event.probe().set_enabled(armed).is_err() {
                result = Err(Errno::NoMemory);
            }
        }
        if !old.is_empty() {
            (services.synchronize)();
        }
        result
    }

    /// Takes back whatever is set about the events all of whose probes are `meant`: they are not enabled, and have no filter and no
    /// triggers.
    ///
    /// # Errors
    ///
    /// None, as it takes no memory to disarm.
    pub fn reset<P: Armed>(&mut self, events: &Events<P>, meant: impl Fn(&Definition) -> bool) -> Result<(), Errno> {
        for (group, event) in &names(events, None, None) {
            let name = (group.as_str(), event.as_str());
            if events.iter().filter(|event| is(event, name)).all(|event| meant(event.definition())) {
                *self.get_mut(name) = Control::new(false);
                self.retarget(events)?;
                self.apply(events, name)?;
            }
        }
        Ok(())
    }

    /// Forgets what was set about events that are gone.
    pub fn forget<P: Armed>(&mut self, events: &Events<P>) {
        self.controls.retain(|(group, event, _)| find(events, (group, event)).is_ok());
        // They need no memory to be disarmed.
        let _ = self.retarget(events);
    }
}

fn is<P: Armed>(event: &Event<P>, (group, name): Name<'_>) -> bool {
    let Definition { group: own_group, event: own_name, .. } = event.definition();
    own_group == group && own_name == name
}

/// A probe of the event with this name.
fn find<'a, P: Armed>(events: &'a Events<P>, name: Name<'_>) -> Result<&'a Event<P>, Errno> {
    events.iter().find(|event| is(event, name)).ok_or(Errno::NotFound)
}

/// The names of events, each once.
fn names<P: Armed>(events: &Events<P>, group: Option<&str>, event: Option<&str>) -> Vec<(String, String)> {
    let mut names: Vec<(String, String)> = Vec::new();
    for Definition { group: own_group, event: own_name, .. } in events.iter().map(Event::definition) {
        let wanted = group.is_none_or(|group| group == own_group) && event.is_none_or(|event| event == own_name);
        if wanted && !names.iter().any(|(group, name)| group == own_group && name == own_name) {
            names.push((own_group.clone(), own_name.clone()));
        }
    }
    names
}
