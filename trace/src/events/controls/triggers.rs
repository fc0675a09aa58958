//! Setting and removing triggers, with what they refer to in other events and keep there.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt::Write;

use fallible::{Arc, OutOfMemory};

use super::draft::{Draft, EventSettings};
use super::{Name, RefusedHistogram};
use crate::errno::Errno;
use crate::events::{Events, RegisteredProbe};
use crate::histogram::{self, Command, Histogram, Needed, OtherEvents, Scope, VariableSource};
use crate::trigger::settings::{Resources, SetError, Settings};
use crate::trigger::{self, Line, Request, Target, Trigger, TriggerKind};

/// Returns the histogram `text` as the log shows it.
fn logged(text: &str) -> Result<String, OutOfMemory> {
    fallible::format(format_args!("hist:{}", Line::split(text).parameters.unwrap_or_default()))
}

impl<P: RegisteredProbe> Events<P> {
    /// Sets a trigger of an event, or removes one.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a trigger, if the event already has it, or if it refers to an event that does not
    /// exist. The error log says why, in the cases in which Linux's does.
    pub fn set_trigger(&mut self, name: Name<'_>, text: &str) -> Result<(), Errno> {
        if let Line { name: "hist", parameters: Some(_), .. } = Line::split(text) {
            self.controls.refused.retain(|refused| refused.name() != name);
        }
        let needed = RefCell::new(None);
        loop {
            let outcome = self.try_set_trigger(name, text, Some(&needed));
            match (outcome, needed.take()) {
                (Err(Errno::Invalid), Some(needed)) => {
                    if let Err(errno) = self.keep_field(name, text, &needed) {
                        self.drop_automatic();
                        return Err(errno);
                    }
                }
                (outcome @ Err(_), _) => {
                    self.drop_automatic();
                    return outcome;
                }
                (Ok(()), _) => return Ok(()),
            }
        }
    }

    /// Sets an automatic trigger that keeps a field of another event, which is `needed` by the trigger `text` of event
    /// `name`. It gets the keys and the filter of a histogram that the other event has: one whose keys have the same
    /// types, or, if there is none, the same sizes.
    fn keep_field(&mut self, name: Name<'_>, text: &str, needed: &Needed) -> Result<(), Errno> {
        let Needed { event: (group, event), field, keys } = needed;
        let refuse = |events: &mut Self, before, problem| {
            let column = logged(text).map_or(0, |command| command.find(field.as_str()).unwrap_or(0));
            let before = Option::map(before, |problem| (problem, column));
            events.refuse_histogram(name, text, &histogram::Error { problem, column, before })
        };
        let triggers = self.settings((group, event)).map_or(&[][..], Settings::triggers);
        let is_like = |trigger: &&Arc<Trigger>| {
            trigger.histogram().is_some_and(|histogram| histogram.definition().has_parts(keys))
        };
        let has_same_types = |trigger: &&Arc<Trigger>| {
            let own = keys.iter().map(|key| self.type_of_key(name, &key.name));
            let names = trigger.histogram().into_iter().flat_map(|histogram| histogram.definition().key_names());
            own.eq(names.map(|key| self.type_of_key((group, event), key)))
        };
        let mut alike = triggers.iter().filter(is_like);
        let Some(trigger) = alike.clone().find(has_same_types).or_else(|| alike.next()) else {
            return Err(refuse(self, None, histogram::Problem::NoMatchingHistogram));
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
        self.try_set_trigger((group, event), &line.0, None).map_err(|errno| match errno {
            Errno::Invalid => {
                let is_there = self
                    .find((group, event))
                    .is_ok_and(|event| event.format().fields.iter().any(|of| of.name == *field));
                let before = if is_there { None } else { Some(histogram::Problem::FieldNotFound) };
                refuse(self, before, histogram::Problem::CreateHistogram)
            }
            errno => errno,
        })
    }

    /// Returns the type, the size and the sign of the field that a key of a histogram of the event `event` is taken
    /// from. A key without a field has its name for a type.
    fn type_of_key<'a>(&'a self, event: Name<'_>, key: &'a str) -> (&'a str, usize, bool) {
        let name = key.split_once('.').map_or(key, |(name, _modifier)| name);
        let fields = self.find(event).map_or(&[][..], |event| &event.format().fields);
        let field = fields.iter().find(|field| field.name == name);
        field.map_or((name, 0, false), |field| (&field.text, field.size, field.signed))
    }

    /// Removes automatic triggers that no trigger needs any more. If there is no memory for the removal, they stay
    /// until another trigger is removed.
    fn drop_automatic(&mut self) {
        let is_left = |histogram: &Histogram| histogram.definition().is_automatic && !self.is_referred_to(histogram);
        if !self.histograms().any(|histogram| is_left(histogram)) {
            return;
        }
        let drop_all = || -> Result<Draft, OutOfMemory> {
            let mut draft = self.draft()?;
            for of_event in &self.controls.of_events {
                let left = of_event.settings.triggers().iter().filter_map(|trigger| trigger.histogram());
                for histogram in left.filter(|histogram| is_left(histogram)) {
                    draft.get_mut((&of_event.name.0, &of_event.name.1))?.remove_histogram(histogram);
                }
            }
            draft.retarget();
            Ok(draft)
        };
        if let Ok(draft) = drop_all() {
            let _ = self.commit(draft);
        }
    }

    /// Sets or removes a trigger as `set_trigger` does. If it needs a field of another event first, reports that in
    /// `needed`. Without `needed`, the trigger is itself an automatic one, and what is wrong with its text is
    /// not logged: nobody has written it.
    fn try_set_trigger(
        &mut self,
        name: Name<'_>,
        text: &str,
        needed: Option<&RefCell<Option<Needed>>>,
    ) -> Result<(), Errno> {
        let request = self.request(name, text, needed)?;
        if request.remove {
            return self.remove_trigger(name, &request);
        }
        let settings = self.settings(name);
        if let Some((trigger, paused)) = settings.and_then(|settings| settings.pausing(&request)) {
            return self.set_paused(name, &trigger, paused);
        }
        if let (TriggerKind::Histogram(definition), Some(settings)) = (&request.kind, settings)
            && let (Some(Command::Clear), Some(histogram)) = (definition.command, settings.histogram(&request))
        {
            if histogram.clear(P::synchronize) {
                return Ok(());
            }
            // All events that share the histogram get the new one.
            let cleared = self.resources().cleared(histogram).map_err(|_| Errno::NoMemory)?;
            let mut draft = self.draft()?;
            for EventSettings { settings, is_changed, .. } in &mut draft.0 {
                *is_changed |= settings.replace_histogram(histogram, &cleared)?;
            }
            return self.commit(draft);
        }
        self.add_trigger(name, text, request)
    }

    /// Reads the text of a trigger.
    fn request(
        &mut self,
        name: Name<'_>,
        text: &str,
        needed: Option<&RefCell<Option<Needed>>>,
    ) -> Result<Request, Errno> {
        let fields = &self.find(name)?.format().fields;
        let sources = self.variable_sources()?;
        let (clock, others) = ((self.controls.services.clock)(), Some(&*self as &dyn OtherEvents));
        let functions = self.controls.services.functions;
        let scope = Scope { event: name, sources: &sources, clock, others, needed, functions, is_removal: false };
        let request = Request::parse_in(text, fields, scope);
        drop(sources);
        let mut request = request.map_err(|error| match error {
            trigger::Error::Invalid => Errno::Invalid,
            trigger::Error::OutOfMemory => Errno::NoMemory,
            trigger::Error::Filter(filter, error) => self.refuse_filter(&filter, &error),
            trigger::Error::Histogram(error) if needed.is_none() => error.problem.errno(),
            trigger::Error::Histogram(error) => self.refuse_histogram(name, text, &error),
        })?;
        if let TriggerKind::Histogram(definition) = &mut request.kind {
            definition.is_automatic = needed.is_none();
        }
        Ok(request)
    }

    fn resources(&self) -> Resources<'static> {
        Resources {
            cpus: self.rings().cpus(),
            free: (self.controls.services.free)(),
            rings: Some(self.rings()),
            named: None,
        }
    }

    /// Pauses a histogram, or lets it continue. That does not change the plan, but no snippet counts in a paused
    /// histogram, so the snippets are made anew.
    fn set_paused(&mut self, name: Name<'_>, trigger: &Trigger, paused: bool) -> Result<(), Errno> {
        let mut draft = self.draft()?;
        draft.get_mut(name)?;
        let was_paused = trigger.is_paused();
        trigger.set_paused(paused);
        let changed = self.commit(draft);
        changed.inspect_err(|_| trigger.set_paused(was_paused))
    }

    fn remove_trigger(&mut self, name: Name<'_>, request: &Request) -> Result<(), Errno> {
        let mut draft = self.draft()?;
        self.target(&mut draft, &request.kind)?;
        let histogram = self.settings(name).and_then(|settings| settings.histogram(request));
        if histogram.is_some_and(|histogram| self.is_referred_to(histogram)) {
            return Err(Errno::Busy);
        }
        draft.get_mut(name)?.remove_trigger(request);
        draft.retarget();
        self.commit(draft)?;
        self.drop_automatic();
        Ok(())
    }

    fn add_trigger(&mut self, name: Name<'_>, text: &str, request: Request) -> Result<(), Errno> {
        let mut draft = self.draft()?;
        let target = self.target(&mut draft, &request.kind)?;
        let takes_snapshots = request.kind.takes_snapshots();
        let (mut clock, mut named) = (Ok(None), None);
        if let TriggerKind::Histogram(definition) = &request.kind {
            // The parser takes a histogram that is to be paused for an existing one.
            if definition.command == Some(Command::Pause)
                && let Some(variable) = definition.variable_names().find(|variable| self.has_variable(name, variable))
            {
                let column = logged(text).map_or(0, |command| command.find(variable).unwrap_or(0));
                let problem = histogram::Problem::DuplicateVariable;
                return Err(self.refuse_histogram(name, text, &histogram::Error { problem, column, before: None }));
            }
            // As in Linux, a histogram that another event shares has its actions created again.
            if definition.snapshots() > 1 || definition.snapshots() > 0 && self.has_conditional_snapshot() {
                return Err(Errno::Busy);
            }
            clock = definition.clock();
            named = self.find_like(definition).map_err(|error| {
                let parameter = |name: &str| fallible::format(format_args!("name={name}")).ok();
                let parameter = definition.name.as_deref().and_then(parameter);
                let column =
                    parameter.zip(logged(text).ok()).and_then(|(parameter, line)| line.find(parameter.as_str()));
                self.refuse_histogram(name, text, &histogram::Error { column: column.unwrap_or(0), ..error })
            })?;
        }
        let resources = Resources { named: named.as_ref(), ..self.resources() };
        draft.get_mut(name)?.set_trigger(request, resources, target).map_err(|error| match error {
            SetError::Exists => Errno::Exists,
            SetError::Memory => Errno::NoMemory,
            SetError::Histogram(problem) => {
                self.refuse_histogram(name, text, &histogram::Error { problem, column: 0, before: None })
            }
        })?;
        let clock = clock.map_err(|error| self.refuse_histogram(name, text, &error))?;
        draft.retarget();
        self.commit(draft)?;
        if let Some(clock) = clock {
            self.set_clock(clock);
        }
        if takes_snapshots {
            self.allocate_snapshot();
        }
        Ok(())
    }

    /// Returns the histograms of all events.
    pub(super) fn histograms(&self) -> impl Iterator<Item = &Arc<Histogram>> {
        let triggers = self.controls.of_events.iter().flat_map(|of_event| of_event.settings.triggers());
        triggers.filter_map(|trigger| trigger.shared_histogram())
    }

    /// Whether a histogram of the event has a variable with this name.
    fn has_variable(&self, name: Name<'_>, variable: &str) -> bool {
        let triggers = self.settings(name).map_or(&[][..], Settings::triggers);
        let mut histograms = triggers.iter().filter_map(|trigger| trigger.histogram());
        histograms.any(|histogram| histogram.definition().variable(variable).is_some())
    }

    /// Returns the histograms with variables, each with its event.
    fn variable_sources(&self) -> Result<Vec<VariableSource<'_>>, OutOfMemory> {
        let mut sources = Vec::new();
        for EventSettings { name, settings, .. } in &self.controls.of_events {
            let histograms = settings.triggers().iter().filter_map(|trigger| trigger.shared_histogram());
            let with_variables = histograms.filter(|histogram| histogram.variable_use.is_some());
            fallible::extend(
                &mut sources,
                with_variables.map(|histogram| VariableSource { event: (&name.0, &name.1), histogram }),
            )?;
        }
        Ok(sources)
    }

    /// Whether an action of a histogram takes snapshots. As in Linux, there can be only one such action, and while it
    /// is there, the file `snapshot` takes none.
    pub(in crate::events) fn has_conditional_snapshot(&self) -> bool {
        self.histograms().any(|histogram| histogram.definition().snapshots() > 0)
    }

    /// Whether a trigger refers to a variable of `histogram`.
    fn is_referred_to(&self, histogram: &Histogram) -> bool {
        self.histograms().any(|other| other.definition().refers_to(histogram))
    }

    /// Returns the existing histogram with the name in `definition`; `None` if there is none.
    fn find_like(&self, definition: &histogram::Definition) -> Result<Option<Arc<Histogram>>, histogram::Error> {
        let Some(name) = &definition.name else { return Ok(None) };
        let named = self.histograms().find(|histogram| histogram.definition().name.as_ref() == Some(name));
        match named {
            Some(histogram) if !histogram.definition().is_interchangeable(definition) => {
                Err(histogram::Error { problem: histogram::Problem::NamedMismatch, column: 0, before: None })
            }
            named => Ok(named.cloned()),
        }
    }

    /// Removes the histograms of an event, and the triggers by which it pauses others, as writing to `trigger` without
    /// appending does. As in Linux, if another trigger refers to one of the histograms, they all stay.
    ///
    /// # Errors
    ///
    /// Fails if the event does not exist.
    pub fn remove_histograms(&mut self, name: Name<'_>) -> Result<(), Errno> {
        self.find(name)?;
        let triggers = self.settings(name).map_or(&[][..], Settings::triggers);
        let mut histograms = triggers.iter().filter_map(|trigger| trigger.histogram());
        let are_needed = histograms.any(|histogram| self.is_referred_to(histogram));
        let mut draft = self.draft()?;
        draft.get_mut(name)?.remove_histograms(are_needed);
        draft.retarget();
        self.commit(draft)?;
        self.drop_automatic();
        Ok(())
    }

    /// Returns what a trigger of this kind acts on: all tracing, or another event, which must exist.
    pub(in crate::events) fn target(&self, draft: &mut Draft, kind: &TriggerKind) -> Result<Option<Target>, Errno> {
        Ok(match kind {
            TriggerKind::Tracing { .. } => Some(Target::Recording(self.rings().switch().clone())),
            TriggerKind::Event { group, event, .. } | TriggerKind::Histograms { group, event, .. } => {
                self.find((group, event)).ok().filter(|event| !event.is_only_for_triggers()).ok_or(Errno::Invalid)?;
                let settings = draft.get_mut((group, event))?;
                Some(match kind {
                    TriggerKind::Histograms { .. } => Target::Histograms(settings.orders().clone()),
                    _ => Target::Recording(settings.recording().clone()),
                })
            }
            TriggerKind::Histogram(_) | TriggerKind::Stacktrace { .. } | TriggerKind::Snapshot => None,
        })
    }

    fn refuse_histogram(&mut self, (group, event): Name<'_>, text: &str, error: &histogram::Error) -> Errno {
        if let (Ok(place), Ok(command)) = (fallible::format(format_args!("hist:{group}:{event}")), logged(text)) {
            for (problem, column) in error.entries() {
                self.log_problem(&place, &problem, &command, column);
                // Without memory, the log is the only report.
                self.controls.refused.retain(|refused| refused.name() != (group, event));
                let refused = RefusedHistogram::new((group, event), &problem, &command);
                let _ = refused.and_then(|refused| fallible::push(&mut self.controls.refused, refused));
            }
        }
        error.problem.errno()
    }
}

impl RefusedHistogram {
    fn new((group, event): Name<'_>, problem: &histogram::Problem, command: &str) -> Result<Self, OutOfMemory> {
        let (group, event, command) = (fallible::copy(group)?, fallible::copy(event)?, fallible::copy(command)?);
        Ok(Self { group, event, problem: fallible::format(format_args!("{problem}"))?, command })
    }
}
