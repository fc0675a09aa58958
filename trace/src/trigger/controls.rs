//! The controls of all events: what is written to their files, and how it changes what their handlers do.
//!
//! An event may have several probes. They share one [`Settings`], and each has its own plan. A change makes a new plan
//! for each probe, arms or disarms the probes, waits until no hit can be using the old plans, and drops those.
//!
//! A change is first made to a copy, a `Draft`. It takes effect only if there is memory for all of it and all probes
//! to be armed are armed. Otherwise nothing has changed.

mod commands;
mod draft;
mod instance;
mod triggers;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::{fmt, mem};

use draft::{Draft, EventSettings};
use fallible::{Arc, OutOfMemory, TryClone};
pub use instance::DefineError;

use super::inherited_tasks::InheritedTasks;
use super::restriction::Restriction;
use super::settings::Settings;
use super::{Plan, ProbeContext, Trigger};
use crate::definition::synthetic::GROUP;
use crate::definition::{self, Definition};
use crate::errno::Errno;
use crate::error_log::ErrorLog;
use crate::events::{Armed, Event, Events};
use crate::filter::{self, Filter, FindFunction};
use crate::format::Field;
use crate::histogram::OtherEvents;
use crate::host::{Clock, Symbols};
use crate::recorder::Recorder;

/// The services of the kernel that changing plans needs.
#[derive(Clone, Copy, Debug)]
pub struct Services {
    /// Returns whether, when a function is interrupted at this virtual address, its caller is in x30.
    pub is_caller_in_x30: fn(u64) -> bool,
    /// Returns the time, in microseconds.
    pub now: fn() -> u64,
    /// Returns the number of bytes of memory that histograms may take.
    pub free: fn() -> usize,
    /// Returns the conversion of counter ticks to times.
    pub clock: fn() -> Clock,
    /// Finds the functions that filters name.
    pub functions: FindFunction,
}

/// The settings of all events that were ever enabled or got a filter or triggers.
#[derive(Debug)]
pub struct Controls {
    controls: Vec<EventSettings>,
    services: Services,
    /// Whether all events are disarmed, whatever their settings are.
    disarmed: bool,
    /// The restriction that applies to all events.
    restriction: Restriction,
    /// The tasks of the restriction, if children inherit it.
    inherited: Option<Arc<InheritedTasks>>,
    /// Whether a record of the stack follows each record of an event.
    stacks: bool,
    /// The problems of what was written.
    pub errors: ErrorLog,
    /// The last refused histogram of each event, if none was set since.
    refused: Vec<RefusedHistogram>,
}

/// A histogram that was refused, as the file `hist` of its event shows it.
#[derive(Debug)]
struct RefusedHistogram {
    group: String,
    event: String,
    problem: String,
    command: String,
}

impl RefusedHistogram {
    /// Returns the event that was to get it.
    fn name(&self) -> Name<'_> {
        (&self.group, &self.event)
    }
}

/// The group and the name of an event.
type Name<'a> = (&'a str, &'a str);

impl Controls {
    /// Makes controls without any settings.
    #[must_use]
    pub fn new(services: Services) -> Self {
        Self {
            controls: Vec::new(),
            services,
            disarmed: false,
            restriction: Restriction::default(),
            inherited: None,
            stacks: false,
            errors: ErrorLog::default(),
            refused: Vec::new(),
        }
    }

    /// Logs the problem of `command`, which was written to `place`.
    pub fn refuse(&mut self, place: &str, problem: &dyn core::fmt::Display, command: &str, column: usize) {
        self.errors.add((self.services.now)(), place, problem, command, column);
    }

    /// Writes why the last histogram of an event was refused, at the end of its file `hist`; nothing if it was not.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_refused(&self, name: Name<'_>, out: &mut dyn fmt::Write) -> fmt::Result {
        match self.refused.iter().find(|refused| refused.name() == name) {
            Some(refused) => write!(out, "\nERROR: {}\n  Last command: {}\n", refused.problem, refused.command),
            None => Ok(()),
        }
    }

    /// Returns the settings of an event; `None` if it never had any.
    #[must_use]
    pub fn get(&self, name: Name<'_>) -> Option<&Settings> {
        self.controls.iter().find(|of_event| of_event.is(name)).map(|of_event| &of_event.settings)
    }

    /// Enables or disables the events of this group and name; `None` matches any.
    ///
    /// # Errors
    ///
    /// Fails if no event matches, or if there is no memory to arm one.
    pub fn set_enabled<P: Armed>(
        &mut self,
        events: &mut Events<P>,
        group: Option<&str>,
        event: Option<&str>,
        enabled: bool,
    ) -> Result<(), Errno> {
        if names(events, group, event).next().is_none() && (group.is_some() || event.is_some()) {
            return Err(Errno::NotFound);
        }
        let mut draft = self.draft()?;
        for name in names(events, group, event) {
            draft.get_mut(name)?.set_enabled(enabled);
        }
        self.commit(events, draft, self.disarmed)
    }

    /// Returns the text of the file `enable` of a group, or of all events: whether all events are enabled, none, or
    /// some; `?` if there are none. As in Linux, an event also counts as enabled while triggers keep it armed.
    #[must_use]
    pub fn enabled_text<P: Armed>(&self, events: &Events<P>, group: Option<&str>) -> &'static str {
        let is_enabled = |name: &Name<'_>| self.get(*name).is_some_and(Settings::is_armed);
        match (names(events, group, None).filter(is_enabled).count(), names(events, group, None).count()) {
            (_, 0) => "?",
            (0, _) => "0",
            (enabled, all) if enabled == all => "1",
            _ => "X",
        }
    }

    /// Whether events may be armed at all: `kprobes/enabled`.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        !self.disarmed
    }

    /// Disarms all events, or arms again all that should be.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory to arm one.
    pub fn set_armed<P: Armed>(&mut self, events: &mut Events<P>, armed: bool) -> Result<(), Errno> {
        let draft = self.draft_of_all(events)?;
        self.commit(events, draft, !armed)?;
        self.disarmed = !armed;
        Ok(())
    }

    /// Sets the filter of an event; the text `0` removes it.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a filter; the error log says why.
    pub fn set_filter<P: Armed>(&mut self, events: &mut Events<P>, name: Name<'_>, text: &str) -> Result<(), Errno> {
        let fields = &find(events, name)?.format().fields;
        let mut draft = self.draft()?;
        let result = draft.get_mut(name)?.set_filter(text, fields, self.services.functions);
        if let Err(filter::Error { problem: filter::Problem::OutOfMemory, .. }) = result {
            return Err(Errno::NoMemory);
        }
        self.commit(events, draft, self.disarmed)?;
        result.map_err(|error| self.refuse_filter(text.trim(), &error))
    }

    /// Sets the filter of all events of a group, as writing to `events/GROUP/filter` does; the text `0` removes it. An
    /// event that cannot have the filter then has none, and its file `filter` says so; this is not an error.
    ///
    /// # Errors
    ///
    /// Fails if the group does not exist, or if there is no memory.
    pub fn set_group_filter<P: Armed>(&mut self, events: &mut Events<P>, group: &str, text: &str) -> Result<(), Errno> {
        let mut draft = self.draft()?;
        let mut refused = None;
        for name in names(events, Some(group), None) {
            let fields = &find(events, name)?.format().fields;
            match draft.get_mut(name)?.set_filter_of(text, fields, self.services.functions, true) {
                Ok(()) => {}
                Err(filter::Error { problem: filter::Problem::OutOfMemory, .. }) => return Err(Errno::NoMemory),
                Err(error) => refused = Some(error),
            }
        }
        self.commit(events, draft, self.disarmed)?;
        if let Some(error) = refused {
            self.refuse_filter(text.trim(), &error);
        }
        Ok(())
    }

    /// Acts on text written to `set_event`. Each word names events: `GROUP:EVENT`, `GROUP:`, `:EVENT`, or one name for
    /// both. A word enables the events, or disables them if it begins with `!`. If a word is refused, the words before
    /// it have taken effect.
    ///
    /// # Errors
    ///
    /// Fails if a word matches no event, or if there is no memory to arm one.
    pub fn set_events<P: Armed>(&mut self, events: &mut Events<P>, text: &str) -> Result<(), Errno> {
        for word in text.split_ascii_whitespace() {
            let (pattern, enabled) = word.strip_prefix('!').map_or((word, true), |pattern| (pattern, false));
            let is = |part: &str, name: &str| part.is_empty() || part == "*" || part == name;
            let is_meant = |(group, event): &Name<'_>| match pattern.split_once(':') {
                Some((of_group, of_event)) => is(of_group, group) && is(of_event, event),
                None => pattern == *group || pattern == *event,
            };
            let mut meant = names(events, None, None).filter(is_meant).peekable();
            meant.peek().ok_or(Errno::Invalid)?;
            let mut draft = self.draft()?;
            for name in meant {
                draft.get_mut(name)?.set_enabled(enabled);
            }
            self.commit(events, draft, self.disarmed)?;
        }
        Ok(())
    }

    /// Writes the file `available_events`, or `set_event`, which lists only enabled events.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_events<P: Armed>(
        &self,
        events: &Events<P>,
        only_enabled: bool,
        out: &mut dyn fmt::Write,
    ) -> fmt::Result {
        let is_shown = |name: &Name<'_>| !only_enabled || self.get(*name).is_some_and(Settings::is_armed);
        names(events, None, None).filter(is_shown).try_for_each(|(group, event)| writeln!(out, "{group}:{event}"))
    }

    /// Returns the restriction that applies to all events. It has the children that have inherited it, if they do.
    ///
    /// # Errors
    ///
    /// There is no memory for a copy.
    pub fn restriction(&self) -> Result<Restriction, OutOfMemory> {
        match &self.inherited {
            Some(inherited) => inherited.in_place_of(&self.restriction),
            None => self.restriction.try_clone(),
        }
    }

    /// Returns the mask of the CPUs whose hits are recorded; `None` means all.
    #[must_use]
    pub fn cpus(&self) -> Option<u64> {
        self.restriction.cpus
    }

    /// Returns how many children have not inherited the restriction, because there was no place for them.
    #[must_use]
    pub fn lost_children(&self) -> u64 {
        self.inherited.as_ref().map_or(0, |inherited| inherited.lost())
    }

    /// Sets the restriction that applies to all events. `inherited` is made of it ([`InheritedTasks::of`]).
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the filters that implement it. Then nothing has changed.
    pub fn restrict<P: Armed>(
        &mut self,
        events: &mut Events<P>,
        restriction: Restriction,
        inherited: Option<Arc<InheritedTasks>>,
    ) -> Result<(), Errno> {
        let draft = self.draft_of_all(events)?;
        let before = mem::replace(&mut self.restriction, restriction);
        let inherited_before = mem::replace(&mut self.inherited, inherited);
        let changed = self.commit(events, draft, self.disarmed);
        changed.inspect_err(|_| (self.restriction, self.inherited) = (before, inherited_before))
    }

    /// Returns a draft that changes every event.
    fn draft_of_all<P: Armed>(&self, events: &Events<P>) -> Result<Draft, OutOfMemory> {
        let mut draft = self.draft()?;
        for name in names(events, None, None) {
            draft.get_mut(name)?;
        }
        Ok(draft)
    }

    /// Makes the plan of the probe of `recorder` at the virtual address `address`; `None` means record every hit. A
    /// return event is hit in the caller after the return; x30 is then not the return address of the probed code.
    /// `gate` is the filter in the definition. `dependents` are the recorders of the armed events on a synthetic one.
    fn plan(
        &self,
        settings: &Settings,
        recorder: &Recorder,
        address: u64,
        gate: Option<&Filter>,
        dependents: &[Arc<Recorder>],
    ) -> Result<Option<Box<Plan>>, OutOfMemory> {
        let is_caller_in_x30 = !recorder.is_of_returns() && (self.services.is_caller_in_x30)(address);
        let context = ProbeContext {
            is_caller_in_x30,
            stacks: self.stacks,
            inherited: self.inherited.as_ref(),
            gate,
            dependents,
        };
        let restricted = self.restriction.filter(settings.filter())?;
        settings.plan(restricted.as_ref(), context, &|number| recorder.source(number))
    }

    /// Sets whether a record of the stack follows each record of an event: the option `stacktrace`.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the plans. Then nothing has changed.
    pub fn set_stacks<P: Armed>(&mut self, events: &mut Events<P>, stacks: bool) -> Result<(), Errno> {
        let draft = self.draft_of_all(events)?;
        let before = mem::replace(&mut self.stacks, stacks);
        let changed = self.commit(events, draft, self.disarmed);
        changed.inspect_err(|_| self.stacks = before)
    }

    fn refuse_filter(&mut self, text: &str, error: &filter::Error) -> Errno {
        self.refuse(filter::FILTER_LOG, &error.problem, text, error.column.min(text.len()));
        Errno::Invalid
    }

    /// Whether the event is in use, so that its last probe must not be removed: it is enabled, it has triggers, a
    /// trigger can enable it, or a trigger records it. This holds even while all events are disarmed.
    #[must_use]
    pub fn is_busy<P: Armed>(&self, other: &Event<P>) -> bool {
        let Definition { group, event, .. } = other.definition();
        self.get((group, event)).is_some_and(Settings::is_armed) || self.is_recorded(other)
    }

    /// Whether a trigger records the event, which is a synthetic one.
    #[must_use]
    pub fn is_recorded<P: Armed>(&self, other: &Event<P>) -> bool {
        let is_by = |trigger: &Arc<Trigger>| {
            trigger.histogram().is_some_and(|histogram| histogram.definition().records_with(other.recorder()))
        };
        let mut triggers = self.controls.iter().flat_map(|of_event| of_event.settings.triggers());
        other.is_synthetic() && triggers.any(is_by)
    }

    /// Defines an event, or another probe of one, as [`Events::define`] does. Its handlers follow the event's settings
    /// from the first hit on.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Events::define`].
    pub fn define<P: Armed>(
        &self,
        events: &mut Events<P>,
        definition: Definition,
        symbols: &dyn Symbols,
    ) -> Result<(), definition::Error> {
        let settings = self.get((&*definition.group, &*definition.event));
        let functions = self.services.functions;
        events.define_with(definition, symbols, functions, &|recorder, address, gate| match settings {
            Some(settings) => self.plan(settings, recorder, address, gate, &[]),
            // Disabled until it gets settings.
            None => Ok(None),
        })
    }
}

impl<P: Armed> OtherEvents for Events<P> {
    fn is_event(&self, event: (&str, &str)) -> bool {
        find(self, event).is_ok()
    }

    fn synthetic(&self, name: &str) -> Option<(&Arc<Recorder>, &[Field])> {
        let event = find(self, (GROUP, name)).ok().filter(|event| event.is_synthetic())?;
        Some((event.shared_recorder(), event.format().arguments()))
    }
}

fn name<P: Armed>(event: &Event<P>) -> Name<'_> {
    (&event.definition().group, &event.definition().event)
}

/// Returns a probe of the event with this name.
fn find<'a, P: Armed>(events: &'a Events<P>, wanted: Name<'_>) -> Result<&'a Event<P>, Errno> {
    events.iter().find(|event| name(event) == wanted).ok_or(Errno::NotFound)
}

/// Returns the names of the matching events that can be enabled, each once.
fn names<'a, P: Armed>(
    events: &'a Events<P>,
    group: Option<&str>,
    event: Option<&str>,
) -> impl Iterator<Item = Name<'a>> {
    let is_wanted = move |wanted: Name<'_>| {
        group.is_none_or(|group| group == wanted.0) && event.is_none_or(|event| event == wanted.1)
    };
    let is_first = |number: usize, wanted| events.iter().position(|event| name(event) == wanted) == Some(number);
    let all = events.iter().enumerate().filter(|(_, event)| !event.is_only_for_triggers());
    let all = all.map(|(number, event)| (number, name(event)));
    all.filter(move |&(number, wanted)| is_wanted(wanted) && is_first(number, wanted)).map(|(_, wanted)| wanted)
}
