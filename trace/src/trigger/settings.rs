//! The settings of an event: whether it is enabled, its filter, its triggers.
//!
//! A disabled event is armed all the same if it has triggers, or if a trigger of another event can enable it. Its hits
//! are then not recorded, because its [`Switch`] is off. Linux calls this soft mode, and marks it by a star in
//! `enable`.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::ptr;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use fallible::{Arc, OutOfMemory, TryClone};

use super::{Action, Orders, Pause, Plan, ProbeContext, Request, Target, Trigger, TriggerKind};
use crate::filter::{self, Filter, FindFunction, Number};
use crate::format::Field;
use crate::histogram::{self, Command, Definition, Histogram};
use crate::ring::Rings;
use crate::shown::is_shown_as;
use crate::switch::Switch;

/// The settings of an event.
#[derive(Debug)]
pub struct Settings {
    enabled: bool,
    /// The number of triggers, of any event, that act on this one or on its histograms.
    targeted: usize,
    /// The number of armed events that are on this event, if it is a synthetic one.
    dependents: usize,
    filter: Option<Filter>,
    /// What the file `filter` shows before its last line end, if it shows an error.
    refused_filter: Option<String>,
    triggers: Vec<Arc<Trigger>>,
    recording: Arc<Switch>,
    orders: Arc<Orders>,
    /// The value that `recording` gets when these settings take effect; `None` leaves it as it is.
    recording_next: Option<bool>,
}

/// A copy for a change that takes effect completely or not at all. The copy shares the switch and the triggers.
impl TryClone for Settings {
    fn try_clone(&self) -> Result<Self, OutOfMemory> {
        Ok(Self {
            enabled: self.enabled,
            targeted: self.targeted,
            dependents: self.dependents,
            filter: self.filter.try_clone()?,
            refused_filter: self.refused_filter.try_clone()?,
            triggers: fallible::collect(self.triggers.iter().cloned())?,
            recording: self.recording.clone(),
            orders: self.orders.clone(),
            recording_next: self.recording_next,
        })
    }
}

/// Why a trigger cannot be set.
#[derive(Debug, PartialEq, Eq)]
pub enum SetError {
    /// The event already has such a trigger.
    Exists,
    /// The histogram is wrong.
    Histogram(histogram::Problem),
    /// There is no memory for the trigger or the tables of its histogram, or too little would be left.
    Memory,
}

impl From<OutOfMemory> for SetError {
    fn from(_: OutOfMemory) -> Self {
        Self::Memory
    }
}

/// The resources for a trigger.
#[derive(Clone, Copy, Debug)]
pub struct Resources<'a> {
    /// The number of CPUs; each has a table.
    pub cpus: usize,
    /// The bytes of memory that all tables together may take.
    pub free: usize,
    /// The rings of which a trigger `snapshot` takes a snapshot.
    pub rings: Option<&'static Rings>,
    /// The existing histogram with the same name, which the event is to share.
    pub(crate) named: Option<&'a Arc<Histogram>>,
}

impl Settings {
    /// Makes the settings of an event that is enabled or disabled.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the switch.
    pub fn new(enabled: bool) -> Result<Self, OutOfMemory> {
        Ok(Self {
            enabled,
            targeted: 0,
            dependents: 0,
            filter: None,
            refused_filter: None,
            triggers: Vec::new(),
            recording: Arc::try_new(Switch::new(enabled))?,
            orders: Arc::try_new(Orders::default())?,
            recording_next: None,
        })
    }

    /// Whether a hit of the event has anything to do.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.enabled || self.is_soft()
    }

    fn is_soft(&self) -> bool {
        self.targeted > 0 || self.dependents > 0 || !self.triggers.is_empty()
    }

    /// Makes the plan for the handlers of a probe; `None` means record every hit. A disabled event has a plan, too,
    /// because it may still be hit: while it is being disarmed, and at returns of earlier calls.
    ///
    /// - `restricted` is the filter combined with the restriction, if there is one.
    /// - `context` is what the plan depends on besides the settings.
    /// - `number` maps a number of the record to its source at this probe.
    pub(crate) fn plan(
        &self,
        restricted: Option<&Filter>,
        context: ProbeContext<'_>,
        number: &dyn Fn(Number) -> Number,
    ) -> Result<Option<Box<Plan>>, OutOfMemory> {
        let filter = restricted.or(self.filter.as_ref());
        let is_plain = !context.stacks && context.inherited.is_none() && context.gate.is_none();
        if filter.is_none() && !self.is_soft() && self.enabled && is_plain {
            return Ok(None);
        }
        let recording = self.recording.clone();
        let switch = self.recording_next.unwrap_or_else(|| self.recording.0.load(Relaxed));
        let records = (self.targeted == 0 && switch == self.enabled).then_some(self.enabled);
        let plan = Plan::new(filter, &self.triggers, recording, records, context, number)?;
        fallible::boxed(plan).map(Some)
    }

    /// Returns the switch for recording, which triggers of other events can change.
    #[must_use]
    pub fn recording(&self) -> &Arc<Switch> {
        &self.recording
    }

    /// Returns the orders to all histograms of this event, which triggers of any event can give.
    #[must_use]
    pub fn orders(&self) -> &Arc<Orders> {
        &self.orders
    }

    /// Returns the number of triggers of this event that act on the event with the settings `target`.
    pub(crate) fn count_of(&self, target: &Self) -> usize {
        let acts_on_it = |trigger: &&Arc<Trigger>| match &trigger.action {
            Action::Switch { switch, .. } => Arc::ptr_eq(switch, &target.recording),
            Action::Order { orders, .. } => Arc::ptr_eq(orders, &target.orders),
            Action::Histogram(_) | Action::Stacktrace { .. } | Action::Snapshot(_) => false,
        };
        self.triggers.iter().filter(acts_on_it).count()
    }

    /// Sets the number of triggers that act on this event. Returns whether it differs from the old one.
    pub fn set_targeted(&mut self, count: usize) -> bool {
        let is_change = count != self.targeted;
        self.targeted = count;
        self.end_soft_mode();
        is_change
    }

    /// Sets the number of armed events that are on this one. Returns whether it differs from the old one.
    pub fn set_dependents(&mut self, count: usize) -> bool {
        let is_change = count != self.dependents;
        self.dependents = count;
        self.end_soft_mode();
        is_change
    }

    /// Gives the event the state in which triggers have left it, unless it stays in soft mode. Linux does so too
    /// (`__ftrace_event_enable_disable`).
    fn end_soft_mode(&mut self) {
        if !self.is_soft() {
            self.set_enabled(self.recording_next.unwrap_or_else(|| self.recording.0.load(Relaxed)));
        }
    }

    /// Enables or disables the event, once the settings take effect.
    pub fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
        self.recording_next = Some(enabled);
    }

    /// Puts the settings into effect.
    pub fn settle(&mut self) {
        if let Some(recording) = self.recording_next.take() {
            self.recording.0.store(recording, Relaxed);
        }
    }

    /// Resets all settings.
    pub fn reset(&mut self) {
        self.set_enabled(false);
        (self.filter, self.refused_filter) = (None, None);
        self.triggers.clear();
    }

    /// Returns the contents of the file `enable`, without the line end.
    #[must_use]
    pub fn enabled_text(&self) -> &'static str {
        match (self.recording.0.load(Relaxed), self.is_soft()) {
            (false, false) => "0",
            (false, true) => "0*",
            (true, false) => "1",
            (true, true) => "1*",
        }
    }

    /// Writes the contents of the file `filter`.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_filter(&self, out: &mut dyn Write) -> fmt::Result {
        match (&self.refused_filter, &self.filter) {
            (Some(text), _) => writeln!(out, "{text}"),
            (None, Some(filter)) => writeln!(out, "{filter}"),
            (None, None) => out.write_str("none\n"),
        }
    }

    /// Returns whether the file `filter` shows a filter, which may be a refused one.
    #[must_use]
    pub fn shows_filter(&self) -> bool {
        self.filter.is_some() || self.refused_filter.is_some()
    }

    /// Sets the filter; the text `0` removes it.
    ///
    /// # Errors
    ///
    /// Returns the problem of the filter. Then the event has no filter, and the file shows the error. If there is no
    /// memory, nothing has changed.
    pub fn set_filter(&mut self, text: &str, fields: &[Field], functions: FindFunction) -> Result<(), filter::Error> {
        self.set_filter_of(text, fields, functions, false)
    }

    /// Sets the filter as [`set_filter`](Self::set_filter) does. A filter that is set for all events of a group is
    /// refused with [`OfGroup`](filter::Problem::OfGroup).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`set_filter`](Self::set_filter).
    pub fn set_filter_of(
        &mut self,
        text: &str,
        fields: &[Field],
        functions: FindFunction,
        is_of_group: bool,
    ) -> Result<(), filter::Error> {
        let text = text.trim_matches(|character: char| character.is_ascii_whitespace());
        if text == "0" {
            (self.filter, self.refused_filter) = (None, None);
            return Ok(());
        }
        match Filter::parse(text, fields, functions) {
            Err(error) if is_of_group && error.problem != filter::Problem::OutOfMemory => {
                self.refuse_filter(text, filter::Error { problem: filter::Problem::OfGroup, column: 0 })
            }
            Err(error) => self.refuse_filter(text, error),
            Ok(filter) => {
                (self.filter, self.refused_filter) = (Some(filter), None);
                Ok(())
            }
        }
    }

    /// Removes the filter, and makes the file `filter` show the error.
    fn refuse_filter(&mut self, text: &str, error: filter::Error) -> Result<(), filter::Error> {
        if error.problem != filter::Problem::OutOfMemory {
            let column = error.column.min(text.len());
            // The padded width ends with the caret, so it is one more than the column; column 0 is an exception in
            // Linux.
            let width = if column > 0 { column + 1 } else { 0 };
            let shown = match error.problem.has_text() {
                true => fallible::format(format_args!("{text}\n{:>width$}\nparse_error: {}\n", "^", error.problem)),
                false => fallible::format(format_args!("{text}\nError: (0)\n")),
            };
            (self.filter, self.refused_filter) = (None, Some(shown?));
        }
        Err(error)
    }

    /// Returns the filter; `None` means all hits.
    #[must_use]
    pub fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// Returns the triggers.
    #[must_use]
    pub fn triggers(&self) -> &[Arc<Trigger>] {
        &self.triggers
    }

    /// Writes the contents of the file `trigger`.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write_triggers(&self, out: &mut dyn Write) -> fmt::Result {
        if self.triggers.is_empty() {
            return out.write_str(super::AVAILABLE);
        }
        self.triggers.iter().try_for_each(|trigger| writeln!(out, "{trigger}"))
    }

    /// Returns the index of the trigger that `request` names. As in Linux, a trigger that does the opposite to the same
    /// target is of the same type, and is meant, too.
    fn position(&self, request: &Request) -> Option<usize> {
        let is_same = |one: &Option<Filter>, other: &Option<Filter>| match (one, other) {
            (Some(one), Some(other)) => one.is_same(other),
            (one, other) => one.is_none() && other.is_none(),
        };
        self.triggers.iter().position(|trigger| match (&request.kind, trigger.histogram()) {
            (TriggerKind::Histogram(wanted), Some(histogram)) => {
                wanted.is_same(histogram.definition()) && is_same(&request.filter, &trigger.filter)
            }
            (TriggerKind::Histogram(_), None) | (_, Some(_)) => false,
            (kind, None) => {
                is_shown_as(&kind.name(), &trigger.name)
                    || kind.opposite().is_some_and(|name| is_shown_as(&name, &trigger.name))
            }
        })
    }

    /// Returns the index of the command of a function that `request` names. As in Linux, a command with a count and one
    /// without are different commands.
    fn position_of_command(&self, request: &Request) -> Option<usize> {
        self.triggers.iter().position(|trigger| {
            is_shown_as(&request.kind.name(), &trigger.name) && (trigger.limit == u64::MAX) == request.count.is_none()
        })
    }

    /// Adds the command of a function that `request` names, unless there is one. A snapshot is taken of `rings`.
    /// `target` is what the command acts on, if it acts on anything.
    pub(crate) fn add_command(
        &mut self,
        request: &Request,
        rings: &'static Rings,
        target: Option<Target>,
    ) -> Result<(), OutOfMemory> {
        if self.position_of_command(request).is_some() {
            return Ok(());
        }
        let name = fallible::format(format_args!("{}", request.kind.name()))?;
        // A command is no histogram, and acts on none.
        let Some(action) = Action::of(&request.kind, Some(rings), target) else { return Ok(()) };
        let limit = request.count.unwrap_or(u64::MAX);
        let (taken, pause) = (AtomicU64::new(0), Pause::new(&self.orders, false));
        let trigger = Trigger { action, filter: None, limit, taken, pause, name };
        fallible::push(&mut self.triggers, Arc::try_new(trigger)?)
    }

    /// Removes the command of a function that `request` names. Returns whether there was one.
    pub(crate) fn remove_command(&mut self, request: &Request) -> bool {
        let place = self.position_of_command(request);
        place.map(|place| self.triggers.remove(place)).is_some()
    }

    /// Removes the trigger that `request` names, and returns it; `None` if it does not exist.
    pub fn remove_trigger(&mut self, request: &Request) -> Option<Arc<Trigger>> {
        self.position(request).map(|at| self.triggers.remove(at))
    }

    pub(crate) fn remove_histogram(&mut self, histogram: &Histogram) {
        self.triggers.retain(|trigger| trigger.histogram().is_none_or(|other| !ptr::eq(other, histogram)));
    }

    /// Removes all triggers that pause histograms or let them continue, and, unless they `are_needed`, all histograms.
    pub fn remove_histograms(&mut self, are_needed: bool) {
        self.triggers.retain(|trigger| match trigger.action {
            Action::Histogram(_) => are_needed,
            Action::Order { .. } => false,
            Action::Stacktrace { .. } | Action::Snapshot(_) | Action::Switch { .. } => true,
        });
    }

    /// Sets the trigger that `request` names. `resources` limit a new histogram. `target` is what the trigger acts on,
    /// if it acts on anything else.
    ///
    /// # Errors
    ///
    /// Fails if the trigger exists already, if it has nothing to act on, or if there is no memory. Then nothing has
    /// changed.
    pub fn set_trigger(
        &mut self,
        request: Request,
        resources: Resources<'_>,
        target: Option<Target>,
    ) -> Result<(), SetError> {
        let is_there = self.position(&request).is_some();
        let name = fallible::format(format_args!("{}", request.kind.name()))?;
        let is_paused =
            matches!(request.kind, TriggerKind::Histogram(Definition { command: Some(Command::Pause), .. }));
        let action = match request.kind {
            TriggerKind::Histogram(_) if is_there => return Err(SetError::Histogram(histogram::Problem::Exists)),
            _ if is_there => return Err(SetError::Exists),
            TriggerKind::Histogram(Definition { must_exist: true, .. }) => {
                return Err(SetError::Histogram(histogram::Problem::NotThere));
            }
            TriggerKind::Histogram(definition) => Action::Histogram(match resources.named {
                Some(named) => named.clone(),
                None => Arc::try_new(resources.histogram(definition)?)?,
            }),
            kind => match Action::of(&kind, resources.rings, target) {
                Some(action) => action,
                None => return Ok(()),
            },
        };
        let limit = request.count.unwrap_or(u64::MAX);
        let (taken, pause) = (AtomicU64::new(0), Pause::new(&self.orders, is_paused));
        let trigger = Arc::try_new(Trigger { action, filter: request.filter, limit, taken, pause, name })?;
        fallible::reserve(&mut self.triggers, 1)?;
        // The order of Linux: histograms last, in the order in which they were set; all others first, the newest first.
        let place = if trigger.histogram().is_some() { self.triggers.len() } else { 0 };
        self.triggers.insert(place, trigger);
        Ok(())
    }

    /// Returns the histogram that `request` names.
    pub(crate) fn histogram(&self, request: &Request) -> Option<&Arc<Histogram>> {
        self.triggers.get(self.position(request)?)?.shared_histogram()
    }

    /// Returns the histogram that `request` wants to pause or continue, and whether to pause it.
    pub(crate) fn pausing(&self, request: &Request) -> Option<(Arc<Trigger>, bool)> {
        let TriggerKind::Histogram(Definition {
            command: Some(command @ (Command::Pause | Command::Continue)), ..
        }) = &request.kind
        else {
            return None;
        };
        Some((self.triggers.get(self.position(request)?)?.clone(), *command == Command::Pause))
    }

    /// Replaces a histogram by `other`. Returns whether the event has that histogram. Several triggers of an event may
    /// share it, with different filters.
    pub(crate) fn replace_histogram(
        &mut self,
        histogram: &Arc<Histogram>,
        other: &Arc<Histogram>,
    ) -> Result<bool, OutOfMemory> {
        let mut is_any = false;
        for trigger in &mut self.triggers {
            if trigger.shared_histogram().is_none_or(|own| !Arc::ptr_eq(own, histogram)) {
                continue;
            }
            // Hits may still count in the old histogram until the plan with the new one is in effect. So the trigger is
            // replaced, too.
            let (action, filter) = (Action::Histogram(other.clone()), trigger.filter.try_clone()?);
            let (limit, name) = (trigger.limit, trigger.name.try_clone()?);
            let (taken, pause) = (AtomicU64::new(0), Pause::new(&self.orders, trigger.is_paused()));
            *trigger = Arc::try_new(Trigger { action, filter, limit, taken, pause, name })?;
            is_any = true;
        }
        Ok(is_any)
    }
}

impl Action {
    /// Returns the action of a trigger or a command of this kind, with the `rings` of which a snapshot is taken. `None`
    /// for a histogram, and if there is nothing to act on.
    fn of(kind: &TriggerKind, rings: Option<&'static Rings>, target: Option<Target>) -> Option<Self> {
        match *kind {
            TriggerKind::Histogram(_) => None,
            TriggerKind::Stacktrace { is_command } => Some(Self::Stacktrace { is_command }),
            TriggerKind::Snapshot => rings.map(Self::Snapshot),
            TriggerKind::Tracing { on } | TriggerKind::Event { on, .. } | TriggerKind::Histograms { on, .. } => {
                Some(match target? {
                    Target::Recording(switch) => Self::Switch { switch, on },
                    Target::Histograms(orders) => Self::Order { orders, on },
                })
            }
        }
    }
}

impl Resources<'_> {
    /// Makes an empty histogram with the same definition.
    pub(crate) fn cleared(self, histogram: &Histogram) -> Result<Arc<Histogram>, SetError> {
        Ok(Arc::try_new(self.histogram(histogram.definition().try_clone()?)?)?)
    }

    /// Makes an empty histogram, if its tables fit into the free memory.
    fn histogram(self, definition: Definition) -> Result<Histogram, SetError> {
        if Histogram::bytes(&definition, self.cpus) > self.free {
            return Err(SetError::Memory);
        }
        Histogram::new(definition, self.cpus, self.rings).map_err(|_| SetError::Memory)
    }
}
