//! The controls of all events: what is written to their files, and how it changes what their handlers do.
//!
//! An event may have several probes. They share one [`Settings`], and each has its own plan. A change makes a new plan
//! for each probe, arms or disarms the probes, waits until no hit can be using the old plans, and drops those.
//!
//! A change is first made to a copy, a `Draft`. It takes effect only if there is memory for all of it and all probes
//! to be armed are armed. Otherwise nothing has changed.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt::Write;
use core::{fmt, mem};

use fallible::{Arc, OutOfMemory, TryClone};

use super::restriction::Restriction;
use super::settings::{Room, SetError, Settings};
use super::{Error, Kind, Plan, Request, Trigger};
use crate::definition::synthetic::GROUP;
use crate::definition::{self, Definition};
use crate::errno::Errno;
use crate::error_log::ErrorLog;
use crate::events::{Armed, Event, Events, OtherProbe};
use crate::filter::{self, Filter};
use crate::format::Field;
use crate::histogram::{self, Command, Histogram, Known, Needed, OtherEvents, Scope};
use crate::host::{Clock, Symbols};
use crate::recorder::Recorder;

/// The services of the kernel that changing plans needs.
#[derive(Clone, Copy, Debug)]
pub struct Services {
    /// Waits until all hits that are being handled are over.
    pub synchronize: fn(),
    /// Returns whether, when a function is interrupted at this virtual address, its caller is in x30.
    pub in_link: fn(u64) -> bool,
    /// Returns the time, in microseconds.
    pub now: fn() -> u64,
    /// Returns the number of bytes of memory that histograms may take.
    pub free: fn() -> usize,
    /// Returns the conversion of counter ticks to times.
    pub clock: fn() -> Clock,
}

impl Services {
    /// Makes the plan of the probe at the virtual address `address`; `None` means record every hit. A return event is
    /// hit in the caller after the return; x30 is then not the return address of the probed code.
    fn plan(
        &self,
        settings: &Settings,
        restricted: Option<&Filter>,
        recorder: &Recorder,
        address: u64,
    ) -> Result<Option<Box<Plan>>, OutOfMemory> {
        let in_link = !recorder.is_of_returns() && (self.in_link)(address);
        settings.plan(restricted, in_link, &|number| recorder.source(number))
    }
}

/// The settings of all events that were ever enabled or got a filter or triggers.
#[derive(Debug)]
pub struct Controls {
    controls: Vec<Entry>,
    services: Services,
    /// Whether all events are disarmed, whatever their settings are.
    disarmed: bool,
    /// The restriction that applies to all events.
    restriction: Restriction,
    /// The problems of what was written.
    pub errors: ErrorLog,
}

/// The settings of one event.
#[derive(Debug)]
struct Entry {
    /// The group and the name of the event.
    name: Arc<(String, String)>,
    settings: Settings,
    /// In a draft: whether the settings differ from those in effect.
    is_changed: bool,
}

impl Entry {
    fn is(&self, (group, event): Name<'_>) -> bool {
        self.name.0 == group && self.name.1 == event
    }
}

/// New settings of all events, before they take effect.
struct Draft(Vec<Entry>);

impl Draft {
    /// Returns the new settings of an event, which are created if it has none.
    fn get_mut(&mut self, name: Name<'_>) -> Result<&mut Settings, OutOfMemory> {
        let place = match self.0.iter().position(|entry| entry.is(name)) {
            Some(place) => place,
            None => {
                let name = Arc::try_new((fallible::copy(name.0)?, fallible::copy(name.1)?))?;
                let entry = Entry { name, settings: Settings::new(false)?, is_changed: true };
                fallible::push(&mut self.0, entry)?;
                self.0.len() - 1
            }
        };
        let Entry { settings, is_changed, .. } = &mut self.0[place];
        *is_changed = true;
        Ok(settings)
    }

    /// Recounts the triggers that can enable or disable each event.
    fn retarget(&mut self) {
        retarget(&mut self.0);
    }
}

/// Recounts the triggers that can enable or disable each event, and marks the events whose count changes.
fn retarget(entries: &mut [Entry]) {
    for place in 0..entries.len() {
        let switches = entries.iter().flat_map(|entry| entry.settings.switches());
        let count = switches.filter(|switch| Arc::ptr_eq(switch, entries[place].settings.recording())).count();
        let Entry { settings, is_changed, .. } = &mut entries[place];
        *is_changed |= settings.set_targeted(count);
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
            errors: ErrorLog::default(),
        }
    }

    /// Logs the problem of `command`, which was written to `place`.
    pub fn refuse(&mut self, place: &str, problem: &dyn core::fmt::Display, command: &str, column: usize) {
        self.errors.add((self.services.now)(), place, problem, command, column);
    }

    /// Returns the settings of an event; `None` if it never had any.
    #[must_use]
    pub fn get(&self, name: Name<'_>) -> Option<&Settings> {
        self.controls.iter().find(|entry| entry.is(name)).map(|entry| &entry.settings)
    }

    /// Returns a copy of the settings, as a draft.
    fn draft(&self) -> Result<Draft, OutOfMemory> {
        let copy = |Entry { name, settings, .. }: &Entry| -> Result<_, OutOfMemory> {
            Ok(Entry { name: name.clone(), settings: settings.try_clone()?, is_changed: false })
        };
        // Room for one more event, so that adding one needs no second allocation.
        let mut entries = Vec::new();
        entries.try_reserve_exact(self.controls.len() + 1)?;
        self.controls.iter().try_for_each(|entry| fallible::push(&mut entries, copy(entry)?))?;
        Ok(Draft(entries))
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
        let mut draft = self.draft()?;
        for name in names(events, None, None) {
            draft.get_mut(name)?;
        }
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
        let result = draft.get_mut(name)?.set_filter(text, fields);
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
            match draft.get_mut(name)?.set_filter_of(text, fields, true) {
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

    /// Returns the restriction that applies to all events.
    #[must_use]
    pub fn restriction(&self) -> &Restriction {
        &self.restriction
    }

    /// Sets the restriction that applies to all events.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the filters that implement it. Then nothing has changed.
    pub fn restrict<P: Armed>(&mut self, events: &mut Events<P>, restriction: Restriction) -> Result<(), Errno> {
        let mut draft = self.draft()?;
        for name in names(events, None, None) {
            draft.get_mut(name)?;
        }
        let before = mem::replace(&mut self.restriction, restriction);
        let changed = self.commit(events, draft, self.disarmed);
        changed.inspect_err(|_| self.restriction = before)
    }

    fn refuse_filter(&mut self, text: &str, error: &filter::Error) -> Errno {
        self.refuse("event filter parse error", &error.problem, text, error.column.min(text.len()));
        Errno::Invalid
    }

    /// Sets a trigger of an event, or removes one.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a trigger, if the event already has it, or if it refers to an event that does not
    /// exist. The error log says why, in the cases in which Linux's does.
    pub fn set_trigger<P: Armed>(&mut self, events: &mut Events<P>, name: Name<'_>, text: &str) -> Result<(), Errno> {
        let needed = RefCell::new(None);
        loop {
            let outcome = self.try_set_trigger(events, name, text, Some(&needed));
            match (outcome, needed.take()) {
                (Err(Errno::Invalid), Some(needed)) => {
                    if let Err(errno) = self.keep_field(events, name, text, &needed) {
                        self.drop_automatic(events);
                        return Err(errno);
                    }
                }
                (outcome @ Err(_), _) => {
                    self.drop_automatic(events);
                    return outcome;
                }
                (Ok(()), _) => return Ok(()),
            }
        }
    }

    /// Sets an automatic trigger that keeps a field of another event, which is `needed` by the trigger `text` of event
    /// `name`. It gets the keys and the filter of a histogram that the other event has.
    fn keep_field<P: Armed>(
        &mut self,
        events: &mut Events<P>,
        name: Name<'_>,
        text: &str,
        needed: &Needed,
    ) -> Result<(), Errno> {
        let Needed { event: (group, event), field, parts } = needed;
        let refuse = |controls: &mut Self, problem| {
            let column = text.trim().trim_start_matches('!').find(field.as_str()).unwrap_or(0);
            controls.refuse_histogram(name, text, &histogram::Error { problem, column, before: None })
        };
        let triggers = self.get((group, event)).map_or(&[][..], Settings::triggers);
        let is_like = |trigger: &&Arc<Trigger>| {
            trigger.histogram().is_some_and(|histogram| histogram.definition().has_parts(parts))
        };
        let Some(trigger) = triggers.iter().find(is_like) else {
            return Err(refuse(self, histogram::Problem::NoMatchingHistogram));
        };
        let mut line = fallible::Text::default();
        let written = write!(line, "hist:keys=").and_then(|()| match trigger.histogram() {
            Some(histogram) => histogram.definition().write_keys(&mut line),
            None => Ok(()),
        });
        let written = written.and_then(|()| write!(line, ":synthetic_{field}={field}"));
        let written = written.and_then(|()| match &trigger.filter {
            Some(filter) => write!(line, " if {filter}"),
            None => Ok(()),
        });
        written.map_err(|_| Errno::NoMemory)?;
        self.try_set_trigger(events, (group, event), &line.0, None)
    }

    /// Removes automatic triggers that no trigger needs any more. If there is no memory for the removal, they stay
    /// until another trigger is removed.
    fn drop_automatic<P: Armed>(&mut self, events: &mut Events<P>) {
        let is_left = |histogram: &Histogram| histogram.definition().is_automatic && !self.is_referred_to(histogram);
        let triggers = self.controls.iter().flat_map(|entry| entry.settings.triggers());
        if !triggers.filter_map(|trigger| trigger.histogram()).any(is_left) {
            return;
        }
        let drop_all = |controls: &Self| -> Result<Draft, OutOfMemory> {
            let mut draft = controls.draft()?;
            for entry in &controls.controls {
                let left = entry.settings.triggers().iter().filter_map(|trigger| trigger.histogram());
                for histogram in left.filter(|histogram| is_left(histogram)) {
                    draft.get_mut((&entry.name.0, &entry.name.1))?.remove_histogram(histogram);
                }
            }
            draft.retarget();
            Ok(draft)
        };
        if let Ok(draft) = drop_all(self) {
            let _ = self.commit(events, draft, self.disarmed);
        }
    }

    /// Sets or removes a trigger as `set_trigger` does. If it needs a field of another event first, reports that in
    /// `needed`. Without `needed`, the trigger is itself an automatic one.
    fn try_set_trigger<P: Armed>(
        &mut self,
        events: &mut Events<P>,
        name: Name<'_>,
        text: &str,
        needed: Option<&RefCell<Option<Needed>>>,
    ) -> Result<(), Errno> {
        let fields = &find(events, name)?.format().fields;
        let known = self.known()?;
        let (clock, others) = ((self.services.clock)(), Some(&*events as &dyn OtherEvents));
        let scope = Scope { event: name, known: &known, clock, others, needed, is_removal: false };
        let request = Request::parse_in(text, fields, scope);
        drop(known);
        let request = request.map_err(|error| match error {
            Error::Invalid => Errno::Invalid,
            Error::OutOfMemory => Errno::NoMemory,
            Error::Filter(filter, error) => self.refuse_filter(&filter, &error),
            Error::Histogram(error) => self.refuse_histogram(name, text, &error),
        })?;
        let mut request = request;
        if let Kind::Histogram(definition) = &mut request.kind {
            definition.is_automatic = needed.is_none();
        }
        let mut draft = self.draft()?;
        // Pausing does not change the plan, but stubs do not count in a paused histogram, so a commit recompiles them.
        let settings = self.get(name).filter(|_| !request.remove);
        if let Some((trigger, paused)) = settings.and_then(|settings| settings.pausing(&request)) {
            draft.get_mut(name)?;
            let was_paused = trigger.is_paused();
            trigger.set_paused(paused);
            let changed = self.commit(events, draft, self.disarmed);
            return changed.inspect_err(|_| trigger.set_paused(was_paused));
        }
        let (cpus, free, rings) = (events.rings().cpus(), (self.services.free)(), Some(events.rings()));
        let room = Room { cpus, free, rings, named: None };
        if let (Kind::Histogram(definition), Some(settings)) = (&request.kind, settings)
            && let (Some(Command::Clear), Some(histogram)) = (definition.command, settings.histogram(&request))
        {
            if histogram.clear(self.services.synchronize) {
                return Ok(());
            }
            // All events that share the histogram get the new one.
            let cleared = room.cleared(histogram).map_err(|_| Errno::NoMemory)?;
            for Entry { settings, is_changed, .. } in &mut draft.0 {
                *is_changed |= settings.replace_histogram(histogram, &cleared)?;
            }
            return self.commit(events, draft, self.disarmed);
        }
        let switch = match &request.kind {
            Kind::Tracing { .. } => Some(events.rings().switch().clone()),
            Kind::Event { group, event, .. } => {
                find(events, (group, event)).map_err(|_| Errno::Invalid)?;
                Some(draft.get_mut((group, event))?.recording().clone())
            }
            Kind::Histogram(_) | Kind::Stacktrace | Kind::Snapshot => None,
        };
        if request.remove {
            let histogram = self.get(name).and_then(|settings| settings.histogram(&request));
            if histogram.is_some_and(|histogram| self.is_referred_to(histogram)) {
                return Err(Errno::Busy);
            }
            draft.get_mut(name)?.remove_trigger(&request);
            draft.retarget();
            self.commit(events, draft, self.disarmed)?;
            self.drop_automatic(events);
            return Ok(());
        }
        let clock = match &request.kind {
            Kind::Histogram(definition) => definition.clock(),
            _ => None,
        };
        let named = match &request.kind {
            Kind::Histogram(definition) => self.find_like(definition),
            _ => Ok(None),
        };
        let named = named.map_err(|error| {
            let histogram = match &request.kind {
                Kind::Histogram(definition) => definition.name.as_deref(),
                _ => None,
            };
            let column = histogram.and_then(|histogram| text.trim().find(histogram)).unwrap_or(0);
            self.refuse_histogram(name, text, &histogram::Error { column, ..error })
        })?;
        let room = Room { named: named.as_ref(), ..room };
        draft.get_mut(name)?.set_trigger(request, room, switch).map_err(|error| match error {
            SetError::Exists => Errno::Exists,
            SetError::Memory => Errno::NoMemory,
            SetError::Histogram(problem) => {
                self.refuse_histogram(name, text, &histogram::Error { problem, column: 0, before: None });
                if problem == histogram::Problem::Exists { Errno::Exists } else { Errno::NotFound }
            }
        })?;
        draft.retarget();
        self.commit(events, draft, self.disarmed)?;
        if let Some(clock) = clock {
            events.set_clock(clock);
        }
        Ok(())
    }

    /// Returns the histograms with variables, each with its event.
    fn known(&self) -> Result<Vec<Known<'_>>, OutOfMemory> {
        let mut known = Vec::new();
        for Entry { name, settings, .. } in &self.controls {
            let histograms = settings.triggers().iter().filter_map(|trigger| trigger.shared_histogram());
            let linked = histograms.filter(|histogram| histogram.link.is_some());
            fallible::extend(&mut known, linked.map(|histogram| Known { event: (&name.0, &name.1), histogram }))?;
        }
        Ok(known)
    }

    /// Whether a trigger refers to a variable of `histogram`.
    fn is_referred_to(&self, histogram: &Histogram) -> bool {
        let triggers = self.controls.iter().flat_map(|entry| entry.settings.triggers());
        let mut histograms = triggers.filter_map(|trigger| trigger.histogram());
        histograms.any(|other| other.definition().refers_to(histogram))
    }

    /// Returns the existing histogram with the name in `definition`; `None` if there is none.
    fn find_like(&self, definition: &histogram::Definition) -> Result<Option<Arc<Histogram>>, histogram::Error> {
        let Some(name) = &definition.name else { return Ok(None) };
        let triggers = self.controls.iter().flat_map(|entry| entry.settings.triggers());
        let mut histograms = triggers.filter_map(|trigger| trigger.shared_histogram());
        let named = histograms.find(|histogram| histogram.definition().name.as_ref() == Some(name));
        match named {
            Some(histogram) if !histogram.definition().is_interchangeable(definition) => {
                Err(histogram::Error { problem: histogram::Problem::NamedMismatch, column: 0, before: None })
            }
            named => Ok(named.cloned()),
        }
    }

    /// Removes the histograms of an event, as writing to `trigger` without appending does. As in Linux, if another
    /// trigger refers to one of them, all stay.
    ///
    /// # Errors
    ///
    /// Fails if the event does not exist.
    pub fn remove_histograms<P: Armed>(&mut self, events: &mut Events<P>, name: Name<'_>) -> Result<(), Errno> {
        find(events, name)?;
        let triggers = self.get(name).map_or(&[][..], Settings::triggers);
        if triggers.iter().filter_map(|trigger| trigger.histogram()).any(|histogram| self.is_referred_to(histogram)) {
            return Ok(());
        }
        let mut draft = self.draft()?;
        draft.get_mut(name)?.remove_histograms();
        draft.retarget();
        self.commit(events, draft, self.disarmed)?;
        self.drop_automatic(events);
        Ok(())
    }

    fn refuse_histogram(&mut self, (group, event): Name<'_>, text: &str, error: &histogram::Error) -> Errno {
        let command = text.trim().trim_start_matches('!');
        let logged = error.before.into_iter().chain([(error.problem, error.column)]);
        if let Ok(place) = fallible::format(format_args!("hist:{group}:{event}")) {
            for (problem, column) in logged.filter(|(problem, _)| problem.is_logged()) {
                self.refuse(&place, &problem, command, column);
            }
        }
        if error.problem == histogram::Problem::NeedsValue { Errno::NotFound } else { Errno::Invalid }
    }

    /// Whether the event is in use, so that its last probe must not be removed: it is enabled, it has triggers, a
    /// trigger can enable it, or a trigger records it. This holds even while all events are disarmed.
    #[must_use]
    pub fn is_busy<P: Armed>(&self, other: &Event<P>) -> bool {
        let Definition { group, event, .. } = other.definition();
        let is_recorded = |trigger: &Arc<Trigger>| {
            trigger.histogram().is_some_and(|histogram| histogram.definition().records_with(other.recorder()))
        };
        let mut triggers = self.controls.iter().flat_map(|entry| entry.settings.triggers());
        self.get((group, event)).is_some_and(Settings::is_armed) || other.is_synthetic() && triggers.any(is_recorded)
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
        let name = (&*definition.group, &*definition.event);
        let settings = self.get(name);
        // Another probe of an event has the same fields as the others.
        let restricted = match (settings, find(events, name)) {
            (Some(settings), Ok(event)) => self.restriction.with(settings, &event.format().fields)?,
            _ => None,
        };
        events.define_with(definition, symbols, &|recorder, address| match settings {
            Some(settings) => self.services.plan(settings, restricted.as_ref(), recorder, address),
            None => Ok(None),
        })
    }

    /// Puts the draft into effect: the handlers and stubs of the events that it changes follow the new settings. If
    /// `disarmed`, no event is armed.
    fn commit<P: Armed>(&mut self, events: &mut Events<P>, draft: Draft, disarmed: bool) -> Result<(), Errno> {
        let Draft(mut entries) = draft;
        let mut staged = Vec::new();
        for (number, event) in events.iter().enumerate() {
            let Some(entry) = entries.iter().find(|entry| entry.is_changed && is(event, entry)) else { continue };
            let restricted = self.restriction.with(&entry.settings, &event.format().fields)?;
            let plan = self.services.plan(&entry.settings, restricted.as_ref(), event.recorder(), event.address())?;
            let is_to_be_armed = entry.settings.is_armed() && (!disarmed || event.is_static());
            // The stub of a disarmed probe is compiled when the probe is armed.
            let other = if is_to_be_armed { event.other_probe(plan.as_deref())? } else { None };
            let (is_exchanged, was_armed) = (false, event.is_enabled());
            let one = Staged { number, plan, other, is_to_be_armed, is_exchanged, was_armed };
            fallible::push(&mut staged, one)?;
        }
        staged.iter_mut().for_each(|one| one.exchange_plan(events));
        let failed = staged.iter_mut().position(|one| one.exchange_probe(events).is_err());
        if let Some(failed) = failed {
            // In reverse, so that memory that was freed last is taken first.
            for one in staged.iter_mut().take(failed + 1).rev() {
                one.put_back(events);
            }
            staged.iter_mut().for_each(|one| one.exchange_plan(events));
        } else {
            for Staged { number, other, .. } in staged.iter_mut().filter(|one| !one.is_to_be_armed) {
                let Some(event) = events.get_mut(*number) else { continue };
                // Disarming needs no memory.
                let _ = event.set_enabled(false);
                *other = event.drop_code();
            }
        }
        if staged.iter().any(|one| one.plan.is_some()) {
            (self.services.synchronize)();
        }
        for Staged { number, other, .. } in &mut staged {
            if let (Some(event), Some(other)) = (events.get_mut(*number), other.take()) {
                event.retire(other);
            }
        }
        // A probe is dropped before the tables that its code counts in.
        drop(staged);
        if failed.is_some() {
            return Err(Errno::NoMemory);
        }
        for entry in &mut entries {
            entry.settings.settle();
            entry.is_changed = false;
        }
        self.controls = entries;
        Ok(())
    }

    /// Resets the settings of all events whose probes are all `meant`: they are disabled, and have no filter and no
    /// triggers. This never fails. If there is no memory for a new plan, a call that has begun is still handled by the
    /// old one.
    pub fn reset<P: Armed>(&mut self, events: &Events<P>, meant: impl Fn(&Definition) -> bool) {
        for entry in &mut self.controls {
            let mut probes = events.iter().filter(|event| !event.is_static() && is(event, entry)).peekable();
            if probes.peek().is_some() && probes.all(|event| meant(event.definition())) {
                entry.settings.reset();
                entry.is_changed = true;
            }
        }
        self.settle(events);
    }

    /// Drops the settings of events that no longer exist.
    pub fn forget<P: Armed>(&mut self, events: &Events<P>) {
        self.controls.retain(|entry| events.iter().any(|event| is(event, entry)));
        self.settle(events);
    }

    /// Puts a reset into effect. It only disarms, so nothing can fail.
    fn settle<P: Armed>(&mut self, events: &Events<P>) {
        retarget(&mut self.controls);
        for entry in &mut self.controls {
            entry.settings.settle();
            if !mem::take(&mut entry.is_changed) {
                continue;
            }
            for event in events.iter().filter(|event| is(event, entry)) {
                if !entry.settings.is_armed() {
                    let _ = event.set_enabled(false);
                }
                let restricted = self.restriction.with(&entry.settings, &event.format().fields);
                let plan = restricted.and_then(|restricted| {
                    self.services.plan(&entry.settings, restricted.as_ref(), event.recorder(), event.address())
                });
                if let Ok(Some(old)) = plan.map(|plan| event.recorder().plan().replace(plan)) {
                    (self.services.synchronize)();
                    drop(old);
                }
            }
        }
    }
}

/// A change to one probe of an event, in the making.
struct Staged<P> {
    /// The index of the probe.
    number: usize,
    /// The new plan; after the exchange, the old one.
    plan: Option<Box<Plan>>,
    /// A probe with another stub, if the stub changes; after the exchange, the old probe.
    other: Option<OtherProbe<P>>,
    is_to_be_armed: bool,
    /// Whether the other probe has replaced the old one.
    is_exchanged: bool,
    /// Whether the probe was armed before.
    was_armed: bool,
}

impl<P: Armed> Staged<P> {
    fn exchange_plan(&mut self, events: &Events<P>) {
        if let Some(event) = events.get(self.number) {
            self.plan = event.recorder().plan().replace(self.plan.take());
        }
    }

    /// Exchanges the probe if its stub changes, and arms it if it is to be armed.
    fn exchange_probe(&mut self, events: &mut Events<P>) -> Result<(), P::Error> {
        let Some(event) = events.get_mut(self.number) else { return Ok(()) };
        if let Some(other) = &mut self.other {
            event.exchange(other)?;
            self.is_exchanged = true;
        }
        if self.is_to_be_armed && !self.was_armed { event.set_enabled(true) } else { Ok(()) }
    }

    /// Restores the probe. If there is no memory for that, although it was freed just now, the probe is disarmed.
    fn put_back(&mut self, events: &mut Events<P>) {
        let Some(event) = events.get_mut(self.number) else { return };
        if !self.was_armed {
            // Disarming needs no memory.
            let _ = event.set_enabled(false);
        }
        if let Some(other) = self.other.as_mut().filter(|_| self.is_exchanged)
            && event.exchange(other).is_err()
        {
            let _ = event.set_enabled(false);
        }
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

fn is<P: Armed>(event: &Event<P>, entry: &Entry) -> bool {
    entry.is(name(event))
}

fn name<P: Armed>(event: &Event<P>) -> Name<'_> {
    (&event.definition().group, &event.definition().event)
}

/// Returns a probe of the event with this name.
fn find<'a, P: Armed>(events: &'a Events<P>, wanted: Name<'_>) -> Result<&'a Event<P>, Errno> {
    events.iter().find(|event| name(event) == wanted).ok_or(Errno::NotFound)
}

/// Returns the names of the matching events, each once.
fn names<'a, P: Armed>(
    events: &'a Events<P>,
    group: Option<&str>,
    event: Option<&str>,
) -> impl Iterator<Item = Name<'a>> {
    let is_wanted = move |wanted: Name<'_>| {
        group.is_none_or(|group| group == wanted.0) && event.is_none_or(|event| event == wanted.1)
    };
    let is_first = |number: usize, wanted| events.iter().position(|event| name(event) == wanted) == Some(number);
    let all = events.iter().map(name).enumerate();
    all.filter(move |&(number, wanted)| is_wanted(wanted) && is_first(number, wanted)).map(|(_, wanted)| wanted)
}
