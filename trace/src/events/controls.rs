//! The settings of events: which are enabled, their filters and triggers, and the restriction of all.
//!
//! An event may have several probes. They share one [`Settings`], and each has its own plan. A change makes a new plan
//! for each probe, enables or disables the probes, waits until no hit can be using the old plans, and drops them.
//!
//! A change is first made to a copy, a `Draft`. It takes effect only if there is memory for all of it and all events
//! to be armed are armed. Otherwise nothing has changed.

mod draft;
mod triggers;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::{fmt, mem};

use draft::{Draft, EventSettings};
use fallible::{Arc, OutOfMemory, TryClone};

use super::{Event, Events, RegisteredProbe};
use crate::clock::Clock;
use crate::definition::Definition;
use crate::definition::synthetic::GROUP;
use crate::errno::Errno;
use crate::error_log::ErrorLog;
use crate::filter::{self, Filter, FindFunction, Number};
use crate::format::Field;
use crate::histogram::OtherEvents;
use crate::recorder::Recorder;
use crate::trigger::inherited_tasks::InheritedTasks;
use crate::trigger::restriction::Restriction;
use crate::trigger::settings::Settings;
use crate::trigger::{Plan, ProbeContext};

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

/// The settings of each event, and those of all events together.
#[derive(Debug)]
pub(super) struct Controls {
    /// The settings of all events that were ever enabled or got a filter or triggers.
    of_events: Vec<EventSettings>,
    pub(super) services: Services,
    /// Whether all kprobes, and the events that are on them, are disarmed, whatever their settings are.
    disarmed: bool,
    /// The restriction that applies to all events.
    restriction: Restriction,
    /// The tasks of the restriction, if children inherit it.
    inherited: Option<Arc<InheritedTasks>>,
    /// Whether a record of the stack follows each record of an event.
    stacks: bool,
    /// The log of refused writes, for the file `error_log`.
    errors: ErrorLog,
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
    /// Returns the event that was to get the histogram.
    fn name(&self) -> Name<'_> {
        (&self.group, &self.event)
    }
}

/// The group and the name of an event.
type Name<'a> = (&'a str, &'a str);

impl Controls {
    /// Makes controls without any settings.
    pub(super) fn new(services: Services) -> Self {
        Self {
            of_events: Vec::new(),
            services,
            disarmed: false,
            restriction: Restriction::default(),
            inherited: None,
            stacks: false,
            errors: ErrorLog::default(),
            refused: Vec::new(),
        }
    }

    /// Returns the settings of an event; `None` if it never had any.
    pub(super) fn get(&self, name: Name<'_>) -> Option<&Settings> {
        self.of_events.iter().find(|of_event| of_event.is(name)).map(|of_event| &of_event.settings)
    }

    /// Makes the plan of the probe of `recorder` at the virtual address `address`; `None` means record every hit. A
    /// return event is hit in the caller after the return; x30 is then not the return address of the probed code.
    /// `gate` is the filter in the definition. `dependents` are the recorders of the armed events on a synthetic one.
    /// `other_task` is the task that the event is about besides the one that is hit.
    pub(super) fn plan(
        &self,
        settings: &Settings,
        recorder: &Recorder,
        address: u64,
        gate: Option<&Filter>,
        dependents: &[Arc<Recorder>],
        other_task: Option<Number>,
    ) -> Result<Option<Box<Plan>>, OutOfMemory> {
        let is_caller_in_x30 = !recorder.is_of_returns() && (self.services.is_caller_in_x30)(address);
        let context = ProbeContext {
            is_caller_in_x30,
            stacks: self.stacks,
            inherited: self.inherited.as_ref(),
            other_task,
            gate,
            dependents,
        };
        let restricted = self.restriction.filter(settings.filter(), other_task)?;
        settings.plan(restricted.as_ref(), context, &|number| recorder.source(number))
    }

    /// Makes the plan of a new probe of the event `name`. An event without settings is disabled: its plan is the one
    /// that it has when it is enabled, so that its snippet need not be made again.
    pub(super) fn plan_of(
        &self,
        name: Name<'_>,
        recorder: &Recorder,
        address: u64,
        gate: Option<&Filter>,
    ) -> Result<Option<Box<Plan>>, OutOfMemory> {
        match (self.get(name), gate) {
            (Some(settings), _) => self.plan(settings, recorder, address, gate, &[], None),
            (None, None) => Ok(None),
            (None, Some(_)) => {
                let context = ProbeContext { gate, ..ProbeContext::INSIDE };
                Settings::new(true)?.plan(None, context, &|number| recorder.source(number))
            }
        }
    }
}

impl<P: RegisteredProbe> Events<P> {
    /// Returns the log of refused writes.
    #[must_use]
    pub fn problems(&self) -> &ErrorLog {
        &self.controls.errors
    }

    /// Empties the log of refused writes.
    pub fn clear_problems(&mut self) {
        self.controls.errors.clear();
    }

    /// Logs the problem of `command`, which was written to `place`.
    pub fn log_problem(&mut self, place: &str, problem: &dyn core::fmt::Display, command: &str, column: usize) {
        self.controls.errors.add((self.controls.services.now)(), place, problem, command, column);
    }

    /// Writes why the last histogram of an event was refused, at the end of its file `hist`; nothing if it was not.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_refused(&self, name: Name<'_>, out: &mut dyn fmt::Write) -> fmt::Result {
        match self.controls.refused.iter().find(|refused| refused.name() == name) {
            Some(refused) => write!(out, "\nERROR: {}\n  Last command: {}\n", refused.problem, refused.command),
            None => Ok(()),
        }
    }

    /// Returns the settings of an event; `None` if it never had any.
    #[must_use]
    pub fn settings(&self, name: Name<'_>) -> Option<&Settings> {
        self.controls.get(name)
    }

    /// Enables or disables the events of this group and name; `None` matches any.
    ///
    /// # Errors
    ///
    /// Fails if no event matches, or if there is no memory to arm one.
    pub fn set_enabled(&mut self, group: Option<&str>, event: Option<&str>, enabled: bool) -> Result<(), Errno> {
        if self.names(group, event).next().is_none() && (group.is_some() || event.is_some()) {
            return Err(Errno::NotFound);
        }
        let mut draft = self.draft()?;
        for name in self.names(group, event) {
            draft.get_mut(name)?.set_enabled(enabled);
        }
        self.commit(draft)
    }

    /// Returns the text of the file `enable` of a group, or of all events: whether all events are enabled, none, or
    /// some; `?` if there are none. As in Linux, an event also counts as enabled while triggers keep it armed.
    #[must_use]
    pub fn enabled_text(&self, group: Option<&str>) -> &'static str {
        let is_enabled = |name: &Name<'_>| self.controls.get(*name).is_some_and(Settings::is_armed);
        match (self.names(group, None).filter(is_enabled).count(), self.names(group, None).count()) {
            (_, 0) => "?",
            (0, _) => "0",
            (enabled, all) if enabled == all => "1",
            _ => "X",
        }
    }

    /// Whether kprobes, and the events that are on them, may be armed at all: `kprobes/enabled`.
    #[must_use]
    pub fn may_be_armed(&self) -> bool {
        !self.controls.disarmed
    }

    /// Disarms all kprobes and the events that are on them, or arms again all that should be.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory to arm one.
    pub fn set_may_be_armed(&mut self, armed: bool) -> Result<(), Errno> {
        let draft = self.draft_of_all()?;
        let before = mem::replace(&mut self.controls.disarmed, !armed);
        self.commit(draft).inspect_err(|_| self.controls.disarmed = before)
    }

    /// Sets the filter of an event; the text `0` removes it.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a filter; the error log says why.
    pub fn set_filter(&mut self, name: Name<'_>, text: &str) -> Result<(), Errno> {
        let fields = &self.find(name)?.format().fields;
        let mut draft = self.draft()?;
        let result = draft.get_mut(name)?.set_filter(text, fields, self.controls.services.functions);
        if let Err(filter::Error { problem: filter::Problem::OutOfMemory, .. }) = result {
            return Err(Errno::NoMemory);
        }
        self.commit(draft)?;
        result.map_err(|error| self.refuse_filter(text.trim(), &error))
    }

    /// Sets the filter of all events of a group, as writing to `events/GROUP/filter` does; the text `0` removes it. An
    /// event that cannot have the filter then has none, and its file `filter` says so; this is not an error. The log
    /// has an error for each such event.
    ///
    /// # Errors
    ///
    /// Fails if the group does not exist, or if there is no memory.
    pub fn set_group_filter(&mut self, group: &str, text: &str) -> Result<(), Errno> {
        let mut draft = self.draft()?;
        let mut refused = Vec::new();
        for name in self.names(Some(group), None) {
            let fields = &self.find(name)?.format().fields;
            match draft.get_mut(name)?.set_filter_of(text, fields, self.controls.services.functions, true) {
                Ok(()) => {}
                Err(filter::Error { problem: filter::Problem::OutOfMemory, .. }) => return Err(Errno::NoMemory),
                Err(error) => fallible::push(&mut refused, error)?,
            }
        }
        self.commit(draft)?;
        for error in refused {
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
    pub fn set_events(&mut self, text: &str) -> Result<(), Errno> {
        for word in text.split_ascii_whitespace() {
            let (pattern, enabled) = word.strip_prefix('!').map_or((word, true), |pattern| (pattern, false));
            let is = |part: &str, name: &str| part.is_empty() || part == "*" || part == name;
            let is_meant = |(group, event): &Name<'_>| match pattern.split_once(':') {
                Some((of_group, of_event)) => is(of_group, group) && is(of_event, event),
                None => pattern == *group || pattern == *event,
            };
            let mut meant = self.names(None, None).filter(is_meant).peekable();
            meant.peek().ok_or(Errno::Invalid)?;
            let mut draft = self.draft()?;
            for name in meant {
                draft.get_mut(name)?.set_enabled(enabled);
            }
            self.commit(draft)?;
        }
        Ok(())
    }

    /// Writes the file `available_events`, or `set_event`, which lists only enabled events.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_events(&self, only_enabled: bool, out: &mut dyn fmt::Write) -> fmt::Result {
        let is_shown = |name: &Name<'_>| !only_enabled || self.controls.get(*name).is_some_and(Settings::is_armed);
        self.names(None, None).filter(is_shown).try_for_each(|(group, event)| writeln!(out, "{group}:{event}"))
    }

    /// Writes the file `show_event_filters`: the filter of each event that has one, as the event's file `filter` shows
    /// it. So a refused filter is followed by its error.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_filters(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for (name, settings) in self.configured().filter(|(_, settings)| settings.shows_filter()) {
            write_column(out, name)?;
            settings.write_filter(out)?;
        }
        Ok(())
    }

    /// Writes the file `show_event_triggers`: the triggers of all events that can be enabled, as the events' files
    /// `trigger` show them.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_all_triggers(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        for (name, settings) in self.configured() {
            for trigger in settings.triggers() {
                write_column(out, name)?;
                writeln!(out, "{trigger}")?;
            }
        }
        Ok(())
    }

    /// Returns the events that can be enabled and have settings.
    fn configured(&self) -> impl Iterator<Item = (Name<'_>, &Settings)> {
        self.names(None, None).filter_map(move |name| Some((name, self.controls.get(name)?)))
    }

    /// Returns the restriction that applies to all events, with the children that have inherited it.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for a copy.
    pub fn restriction(&self) -> Result<Restriction, OutOfMemory> {
        match &self.controls.inherited {
            Some(inherited) => inherited.in_place_of(&self.controls.restriction),
            None => self.controls.restriction.try_clone(),
        }
    }

    /// Returns the mask of the CPUs whose hits are recorded; `None` means all.
    #[must_use]
    pub fn recorded_cpus(&self) -> Option<u64> {
        self.controls.restriction.cpus
    }

    /// Returns how many children have not inherited the restriction, because there was no place for them.
    #[must_use]
    pub fn lost_children(&self) -> u64 {
        self.controls.inherited.as_ref().map_or(0, |inherited| inherited.lost())
    }

    /// Sets the restriction that applies to all events. `inherited` is made of `restriction` ([`InheritedTasks::of`]).
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the filters that implement it. Then nothing has changed.
    pub fn restrict(&mut self, restriction: Restriction, inherited: Option<Arc<InheritedTasks>>) -> Result<(), Errno> {
        let draft = self.draft_of_all()?;
        let before = mem::replace(&mut self.controls.restriction, restriction);
        let inherited_before = mem::replace(&mut self.controls.inherited, inherited);
        let changed = self.commit(draft);
        changed.inspect_err(|_| (self.controls.restriction, self.controls.inherited) = (before, inherited_before))?;
        self.rings().set_cpus(self.recorded_cpus());
        Ok(())
    }

    /// Returns a draft that changes every event.
    fn draft_of_all(&self) -> Result<Draft, OutOfMemory> {
        let mut draft = self.draft()?;
        for name in self.names(None, None) {
            draft.get_mut(name)?;
        }
        Ok(draft)
    }

    /// Sets whether a record of the stack follows each record of an event: the option `stacktrace`.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the plans. Then nothing has changed.
    pub fn set_stacks(&mut self, stacks: bool) -> Result<(), Errno> {
        let draft = self.draft_of_all()?;
        let before = mem::replace(&mut self.controls.stacks, stacks);
        let changed = self.commit(draft);
        changed.inspect_err(|_| self.controls.stacks = before)
    }

    fn refuse_filter(&mut self, text: &str, error: &filter::Error) -> Errno {
        self.log_problem(filter::FILTER_LOG, &error.problem, text, error.column);
        error.problem.errno()
    }

    /// Whether the event is in use, so that its last probe must not be removed: it is enabled, it has triggers, a
    /// trigger can enable it, or a trigger records it. This holds even while all events are disarmed.
    #[must_use]
    pub fn is_busy(&self, other: &Event<P>) -> bool {
        let Definition { group, event, .. } = other.definition();
        self.controls.get((group, event)).is_some_and(Settings::is_armed) || self.is_recorded(other)
    }

    /// Whether a trigger of another event can enable the event, or change its histograms.
    #[must_use]
    pub fn is_targeted(&self, other: &Event<P>) -> bool {
        let name = name(other);
        let others = self.controls.of_events.iter().filter(|of_event| !of_event.is(name));
        self.settings(name).is_some_and(|target| others.clone().any(|of_event| of_event.settings.count_of(target) > 0))
    }

    /// Whether a trigger records the event, which is a synthetic one.
    #[must_use]
    pub fn is_recorded(&self, other: &Event<P>) -> bool {
        other.is_synthetic() && self.histograms().any(|histogram| histogram.definition().records_with(other.recorder()))
    }

    /// Returns a probe of the event with this name.
    pub(super) fn find(&self, wanted: Name<'_>) -> Result<&Event<P>, Errno> {
        self.iter().find(|event| name(event) == wanted).ok_or(Errno::NotFound)
    }

    /// Returns the names of the matching events that can be enabled, each once.
    fn names(&self, group: Option<&str>, event: Option<&str>) -> impl Iterator<Item = Name<'_>> {
        let is_wanted = move |wanted: Name<'_>| {
            group.is_none_or(|group| group == wanted.0) && event.is_none_or(|event| event == wanted.1)
        };
        let is_first = |number: usize, wanted| self.iter().position(|event| name(event) == wanted) == Some(number);
        let all = self.iter().enumerate().filter(|(_, event)| !event.is_only_for_triggers());
        let all = all.map(|(number, event)| (number, name(event)));
        all.filter(move |&(number, wanted)| is_wanted(wanted) && is_first(number, wanted)).map(|(_, wanted)| wanted)
    }
}

impl<P: RegisteredProbe> OtherEvents for Events<P> {
    fn is_event(&self, event: (&str, &str)) -> bool {
        self.find(event).is_ok()
    }

    fn synthetic(&self, name: &str) -> Option<(&Arc<Recorder>, &[Field])> {
        let event = self.find((GROUP, name)).ok().filter(|event| event.is_synthetic())?;
        Some((event.shared_recorder(), event.format().arguments()))
    }
}

/// Writes the name of an event in front of one of its settings: the setting begins in column 32, from 0, or after a
/// blank if the name is longer.
fn write_column(out: &mut dyn fmt::Write, (group, event): Name<'_>) -> fmt::Result {
    let width = 31_usize.saturating_sub(group.len() + 1);
    write!(out, "{group}:{event:<width$} ")
}

/// Returns the group and the name of an event.
pub(super) fn name<P>(event: &Event<P>) -> Name<'_> {
    (&event.definition.group, &event.definition.event)
}
