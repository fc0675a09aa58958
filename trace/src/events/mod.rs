//! Events: their definitions, probes and settings, and what the probes have counted.
//!
//! As in Linux, an event does nothing until it is enabled, and it cannot be removed while it is enabled. Several
//! definitions under one name, with the same arguments at several places, are several probes of one event. Each of them
//! is listed and counted on its own.
//!
//! The user enables and disables an event. The event is *armed* while its probes are enabled: also while it is
//! disabled, if it has triggers.
//!
//! The name and the format of a removed event are kept as long as the rings hold records of it, so that the records can
//! still be printed.
//!
//! The probes are behind the trait [`RegisteredProbe`], and the symbols behind [`Symbols`]. Therefore everything here
//! except the probing itself is tested on the host.

mod arguments;
mod base_event;
mod commands;
mod controls;
mod event;
mod instance;
mod list;
mod named;
mod registered_probe;
mod resolve;
mod statics;
mod synthetic;
mod trace;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::sync::atomic::Ordering::Relaxed;

use fallible::{Arc, OutOfMemory};
use spin::Mutex;

pub use controls::Services;
pub use event::Event;
pub(crate) use event::OtherProbe;
pub use instance::DefineError;
pub(crate) use list::Listed;
pub use registered_probe::{Form, RegisteredProbe};
pub use resolve::{ResolveError, resolve};

use crate::definition::{self, Argument, BYTES_MAX, Base, Command, Definition, EventKind, Family, Problem, Removal};
use crate::errno::Errno;
use crate::filter::{self, Filter, FindFunction};
use crate::format::{self, Format, Shape, Type};
use crate::functions::Functions;
use crate::options::Options;
use crate::recorder::{GRAPH_ENTRY_EVENT, GRAPH_RETURN_EVENT, PRINT_EVENT, RAW_EVENT, Recorder};
use crate::ring::{RECORD_HEADER, RECORD_MAX, Rings};
use crate::snippet::EventSnippet;
use crate::symbols::Symbols;
use crate::trigger::Plan;
use base_event::BaseEvent;
use controls::Controls;
use event::code;
use trace::{Pipe, SnapshotFile};

/// The numbers of defined events are above this one.
const FIXED: u16 = PRINT_EVENT;

/// The number of plans that are dropped after waiting once for all hits to be over.
const PLANS: usize = 32;

/// All events, and the rings that hold their records.
#[derive(Debug)]
pub struct Events<P: RegisteredProbe> {
    events: Vec<Event<P>>,
    /// Events that were removed while there are records of them: number, name, format.
    removed: Vec<(u16, String, Format)>,
    last: u16,
    /// The number of the last definition.
    serial: u64,
    /// How often a definition was added or removed.
    changes: u64,
    rings: &'static Rings,
    /// The records that readers of `trace_pipe` (first) and of each `per_cpu/cpuN/trace_pipe` have taken out of the
    /// rings.
    pipes: Box<[Mutex<Pipe>]>,
    /// The contents of the file `snapshot`.
    snapshot_file: Mutex<SnapshotFile>,
    /// How records are printed. [`Flag::Overwrite`](crate::options::Flag::Overwrite) is kept by the rings instead.
    options: Options,
    /// The index of function names, made for the first event that records names.
    functions: Option<Arc<Functions>>,
    controls: Controls,
}

impl<P: RegisteredProbe> Drop for Events<P> {
    /// Also drops the plans: that of a synthetic event and that of an event on it may own each other.
    fn drop(&mut self) {
        self.events.iter_mut().for_each(|event| drop(event.probe.take()));
        // No probe of this list is left, but a probe of another list may trigger a synthetic event of this list.
        for events in self.events.chunks(PLANS) {
            let mut plans = [const { None }; PLANS];
            plans.iter_mut().zip(events).for_each(|(plan, event)| *plan = event.recorder.plan.replace(None));
            if plans.iter().any(Option::is_some) {
                P::synchronize();
            }
            // SAFETY: hits alone get references to plans, and `synchronize` has waited for the hits that may have found
            // these (# Safety of `RegisteredProbe`).
            plans.into_iter().flatten().for_each(|plan| unsafe { plan.free() });
        }
    }
}

/// Why an event has no probe.
enum Unplaced<E> {
    /// There is no memory.
    OutOfMemory,
    /// The probe is refused.
    Refused(E),
}

impl<E> From<OutOfMemory> for Unplaced<E> {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// Parses the filter in `definition`, which tests fields that `format` has; `is_on_probe` tells whether the event that
/// `definition` is on is a probe.
fn gate(
    definition: &Definition,
    format: &Format,
    is_on_probe: bool,
    functions: FindFunction,
) -> Result<Option<Filter>, definition::Error> {
    let Some(text) = &definition.filter else { return Ok(None) };
    Filter::parse(text, &format.fields_of_filter(is_on_probe)?, functions).map(Some).map_err(|error| {
        match error.problem {
            filter::Problem::OutOfMemory => OutOfMemory.into(),
            problem => {
                let after = error.column.saturating_sub(text.len());
                let at = text.char_indices().take_while(|(at, _)| *at < error.column).count() + after;
                definition.error_in_filter(at, fallible::format(format_args!("{problem}")).ok())
            }
        }
    })
}

impl<P: RegisteredProbe> Events<P> {
    /// Makes a list without events, whose records will go to `rings`, for a kernel with these `services`.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the state of the readers.
    pub fn new(rings: &'static Rings, services: Services) -> Result<Self, OutOfMemory> {
        Ok(Self {
            events: Vec::new(),
            removed: Vec::new(),
            last: FIXED,
            serial: 0,
            changes: 0,
            rings,
            pipes: fallible::boxed_slice((0..=rings.cpus()).map(|_| Mutex::default()))?,
            snapshot_file: Mutex::default(),
            options: Options::default(),
            functions: None,
            controls: Controls::new(services),
        })
    }

    /// Returns the rings.
    #[must_use]
    pub fn rings(&self) -> &'static Rings {
        self.rings
    }

    /// Parses a line as [`definition::parse`] does. If several parts are wrong, one of them is the place, and it does
    /// not exist, returns that problem, unless Linux finds another one first.
    ///
    /// # Errors
    ///
    /// Returns the problem, with the position of its cause.
    pub fn parse(&self, line: &str, symbols: &dyn Symbols) -> Result<Option<Command>, definition::Error> {
        definition::parse(line).map_err(|error| match definition::beginning(line) {
            Ok(Some(beginning)) => self.missing_place(&beginning, symbols).unwrap_or(error),
            Ok(None) | Err(OutOfMemory) => error,
        })
    }

    /// Returns the problem of a definition whose place does not exist. As in Linux, the function of an fprobe is looked
    /// up last, so this returns `None` for it.
    fn missing_place(&self, definition: &Definition, symbols: &dyn Symbols) -> Option<definition::Error> {
        let found = match definition.family {
            Family::Kprobe => resolve(&definition.place, symbols)
                .map(|_| ())
                .map_err(|ResolveError { problem, reason }| definition.error(1, problem, reason)),
            Family::Tracepoint | Family::Event => self.base_event(definition).map(|_| ()),
            Family::Fprobe => Ok(()),
        };
        let is_missing = |error: &definition::Error| {
            matches!(
                error.problem,
                Problem::NoFunction | Problem::Ambiguous | Problem::NoTracepoint | Problem::AttachedEvent
            )
        };
        found.err().filter(is_missing)
    }

    /// Defines an event, which is then disabled. If the event exists, adds another probe to it, which is enabled if
    /// the other probes are, and follows the settings of the event from the first hit on.
    ///
    /// # Errors
    ///
    /// Returns the problem, with its position in the definition's line. Then nothing has changed.
    pub fn define(&mut self, mut definition: Definition, symbols: &dyn Symbols) -> Result<(), definition::Error> {
        if let Some(error) = self.missing_place(&definition, symbols) {
            return Err(error);
        }
        let (mut tested, mut is_on_probe) = (Vec::new(), false);
        match self.base_event(&definition)? {
            Some(base_event) => {
                definition.kind = base_event.kind();
                base_event.settle(&mut definition)?;
                (tested, is_on_probe) = (base_event.tested(&definition)?, base_event.is_probe());
            }
            None => named::settle(&mut definition, symbols)?,
        }
        let mut bytes = 0;
        for (number, argument) in definition.arguments.iter().enumerate() {
            bytes += argument.bytes();
            if bytes > BYTES_MAX {
                return Err(definition.error_in(number, argument.inside(), Problem::TooBig, None));
            }
        }
        let siblings = self.events.iter().filter(|event| event.is_sibling(&definition));
        let sibling = siblings.clone().next().map(|event| (event.number, event.is_armed(), &event.definition));
        if let Some((_, _, other)) = sibling {
            // As in Linux, an event probe is alone.
            if definition.family == Family::Event || !other.may_share_name(&definition) {
                return Err(definition.error(0, Problem::Exists, None));
            }
            let is_of_other_kind = mem::discriminant(&other.kind) != mem::discriminant(&definition.kind);
            if other.family != definition.family || is_of_other_kind {
                return Err(definition.error(0, Problem::OtherKind, None));
            }
            // An event that is on this one would miss the hits of another probe.
            if self.has_dependent(other, &|_| true) {
                return Err(definition.error(0, Problem::Exists, None));
            }
            if definition.family == Family::Tracepoint && definition.place.base != other.place.base {
                let reason = fallible::format(format_args!("the event of this name is on {}", other.place))?;
                return Err(definition.error(1, Problem::Exists, Some(reason)));
            }
            if let Some(part) = definition.differs(other) {
                return Err(definition.error(part, Problem::OtherArguments, None));
            }
        }
        let sibling = sibling.map(|(number, is_armed, _)| (number, is_armed));
        let shape = if matches!(definition.kind, EventKind::Return { .. }) { Shape::Return } else { Shape::Probe };
        fn named(argument: &Argument) -> (&str, Type) {
            (&argument.name, argument.kind)
        }
        let mut format = Format::with_tested(shape, definition.arguments.iter().map(named), tested.iter().map(named))?;
        if definition.family.is_on_event() {
            format.base_event = Some(fallible::format(format_args!("{}", definition.place))?);
        }
        if RECORD_HEADER + format.size() > RECORD_MAX {
            return Err(definition.error(2, Problem::TooBig, None));
        }
        let (address, arguments) = self.resolved(&definition, symbols)?;
        // Two definitions may spell one function or static differently, so compare what they resolve to.
        for event in siblings.filter(|event| event.address == address && event.format == format) {
            if self.resolved(&event.definition, symbols)?.1 == arguments {
                return Err(definition.error(0, Problem::Same, None));
            }
        }
        let (fetches, entry) = arguments;
        let number = match sibling {
            Some((number, _)) => number,
            None => self.free_number().ok_or_else(|| definition.error(0, Problem::OutOfMemory, None))?,
        };
        let records_names =
            definition.arguments.iter().any(|argument| argument.kind.base == format::Base::SymbolString);
        let functions_of_names = match (records_names, &self.functions) {
            (false, _) => None,
            (true, Some(functions)) => Some(functions.clone()),
            (true, None) => Some(Functions::new(symbols)?),
        };
        let entry = fallible::boxed_slice(entry)?;
        let recorder = Recorder::new(number, &format, &fetches, entry, functions_of_names.clone(), self.rings)?;
        let recorder = Arc::try_new(recorder)?;
        let gate = gate(&definition, &format, is_on_probe, self.controls.services.functions)?;
        let plan = self.controls.plan_of((&definition.group, &definition.event), &recorder, address, gate.as_ref())?;
        let mut event = Event { gate, ..Event::new(number, address, definition, format, recorder) };
        if event.is_on_synthetic() {
            self.reserve()?;
            event.recorder.plan.set_first(plan);
            self.push(event);
            self.functions = functions_of_names.or(self.functions.take());
            return Ok(());
        }
        let is_armed = sibling.is_some_and(|(_, is_armed)| is_armed);
        let probe = self.register(&mut event, plan, symbols, is_armed).map_err(|unplaced| match unplaced {
            Unplaced::OutOfMemory => OutOfMemory.into(),
            Unplaced::Refused(reason) => {
                let ResolveError { problem, reason } = ResolveError::new(Problem::Refused, reason);
                event.definition.error(1, problem, reason)
            }
        })?;
        self.push(Event { probe: Some(probe), ..event });
        self.functions = functions_of_names.or(self.functions.take());
        Ok(())
    }

    /// Enables the event that was defined last: that of a probe, or a synthetic one.
    ///
    /// # Errors
    ///
    /// There is no memory to enable it. Then it is removed again.
    pub fn enable_newest(&mut self) -> Result<(), Errno> {
        let Some(newest) = self.events.last() else { return Ok(()) };
        let number = newest.number;
        let (group, event) = (fallible::copy(&newest.definition.group), fallible::copy(&newest.definition.event));
        let enabled = match (group, event) {
            (Ok(group), Ok(event)) => self.set_enabled(Some(&group), Some(&event), true),
            _ => Err(Errno::NoMemory),
        };
        enabled.inspect_err(|_| {
            self.take(self.events.len() - 1);
            // An event that was never enabled has no records.
            self.removed.retain(|(removed, ..)| *removed != number);
            self.drop_settings();
        })
    }

    /// Adds an event that was defined, for which there is room.
    fn push(&mut self, event: Event<P>) {
        self.last = event.number.max(self.last);
        self.serial += 1;
        self.changes += 1;
        self.events.push(Event { serial: self.serial, ..event });
    }

    /// Reserves room for a further event, and for the format of each event, so that removing one needs no memory.
    fn reserve(&mut self) -> Result<(), OutOfMemory> {
        self.events.try_reserve(1)?;
        self.removed.try_reserve(self.events.len() + 1)?;
        Ok(())
    }

    /// Registers a probe for `event`, which has none and is in no list, and reserves room for the event. Enables the
    /// probe if the event `is_armed`. `plan` applies from the first hit on.
    ///
    /// # Errors
    ///
    /// Returns why there is no probe. Then nothing has changed.
    fn register(
        &mut self,
        event: &mut Event<P>,
        plan: Option<Box<Plan>>,
        symbols: &dyn Symbols,
        is_armed: bool,
    ) -> Result<P, Unplaced<P::Error>> {
        let recorder = &event.recorder;
        let code = code::<P>(recorder, plan.as_deref(), event.address)?;
        event.snippet = code.map(EventSnippet::new).transpose()?;
        recorder.plan.set_first(plan);
        self.reserve()?;
        let is_call = recorder.is_of_a_call() && symbols.is_call(event.address);
        event.form = if is_call { Form::Call } else { Form::Full };
        let insertion = event.snippet.as_ref().and_then(EventSnippet::insertion);
        // SAFETY: the recorder is in an `Arc`, and the snippet is boxed, so neither moves. Both are dropped after the
        // probe: `Event` declares them after it, and `take`, which takes all three out, keeps the order.
        let probe = unsafe { P::register(event.definition.kind, event.form, event.address, recorder, insertion) };
        let probe = probe.map_err(Unplaced::Refused)?;
        probe.set_snippet_enabled(!recorder.plan.has_plan());
        if is_armed {
            probe.set_enabled(true).map_err(Unplaced::Refused)?;
        }
        Ok(probe)
    }

    /// Returns the event that `definition` is to be on; `None` if it names a place of its own.
    fn base_event(&self, definition: &Definition) -> Result<Option<BaseEvent<'_, P>>, definition::Error> {
        BaseEvent::of(self, definition).map_err(|ResolveError { problem, reason }| definition.error(1, problem, reason))
    }

    /// Returns the virtual address of a probe, and what its arguments fetch.
    fn resolved(
        &self,
        definition: &Definition,
        symbols: &dyn Symbols,
    ) -> Result<(u64, arguments::Arguments), definition::Error> {
        let refuse = |ResolveError { problem, reason }| definition.error(1, problem, reason);
        match self.base_event(definition)? {
            Some(base_event) => Ok((base_event.address(), base_event.arguments(definition, symbols)?)),
            None => {
                let address = resolve(&definition.place, symbols).map_err(refuse)?;
                Ok((address, arguments::of(definition, symbols).map_err(refuse)?))
            }
        }
    }

    /// Whether an event for which `is_meant` is true is on the event `other`.
    fn has_dependent(&self, other: &Definition, is_meant: &dyn Fn(&Definition) -> bool) -> bool {
        self.events.iter().map(|event| &event.definition).filter(|definition| is_meant(definition)).any(|definition| {
            let Base::Event(group, event) = &definition.place.base else { return false };
            *event == other.event
                && group.as_ref().map_or(other.kind == EventKind::Static, |group| *group == other.group)
        })
    }

    /// Returns the events that are on the synthetic event `other`.
    pub(crate) fn dependents_of<'a>(&'a self, other: &'a Event<P>) -> impl Iterator<Item = &'a Event<P>> {
        let is_on = move |event: &&Event<P>| {
            let Base::Event(Some(group), name) = &event.definition.place.base else { return false };
            event.is_on_synthetic() && other.is_synthetic() && other.is(Some(group), Some(name))
        };
        self.events.iter().filter(is_on)
    }

    /// Whether an event is on the synthetic event `other`, which then cannot be removed.
    pub fn has_dependents(&self, other: &Event<P>) -> bool {
        self.dependents_of(other).next().is_some()
    }

    /// Returns a number that neither an event nor a record has.
    fn free_number(&self) -> Option<u16> {
        let is_free = |number: &u16| {
            !matches!(*number, GRAPH_ENTRY_EVENT | GRAPH_RETURN_EVENT | RAW_EVENT)
                && self.events.iter().all(|event| event.number != *number)
                && self.removed.iter().all(|other| other.0 != *number)
        };
        (self.last.saturating_add(1)..=u16::MAX).chain(FIXED + 1..=self.last).find(is_free)
    }

    /// Removes the probes that `removal` matches, and the settings of events without probes. Returns how many there
    /// were. `is_used` says whether an event is in use in another trace.
    ///
    /// # Errors
    ///
    /// Returns [`Problem::Busy`] if an event that is in use would lose its last probe, or if an event that stays is on
    /// an event that would. Then no probe is removed.
    pub fn remove(&mut self, removal: &Removal, is_used: &dyn Fn(&Event<P>) -> bool) -> Result<usize, Problem> {
        if self.is_in_use(removal, &|event| self.is_busy(event) || is_used(event)) {
            return Err(Problem::Busy);
        }
        let is_meant = |event: &Event<P>| event.is_of_probe() && removal.matches(&event.definition);
        Ok(self.take_all(is_meant))
    }

    /// Removes the events for which `is_meant` is true, with their settings. Returns how many there were.
    fn take_all(&mut self, is_meant: impl Fn(&Event<P>) -> bool) -> usize {
        let mut count = 0;
        while let Some(at) = self.events.iter().position(&is_meant) {
            self.take(at);
            count += 1;
        }
        self.drop_formats();
        self.drop_settings();
        count
    }

    /// Removes the probe at this index, or the synthetic event. Keeps the format of the event if this was its last
    /// probe.
    pub(crate) fn take(&mut self, at: usize) {
        let Event { probe, snippet, recorder, number, definition, format, .. } = self.events.remove(at);
        self.changes += 1;
        // A hit may use the recorder and the code until the probe is unregistered. The plan of a synthetic event that
        // this one is on shares the recorder.
        drop(probe);
        recorder.armed.store(false, Relaxed);
        drop((snippet, recorder));
        if !self.events.iter().any(|other| other.is_sibling(&definition)) {
            // `reserve` has made room for it when the event was defined.
            self.removed.push((number, definition.event, format));
        }
    }

    /// Returns how often a definition was added or removed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the index of a defined event that `main` lacks; `None` if `main` has all.
    pub(crate) fn position_of_foreign(&self, main: &Self) -> Option<usize> {
        self.events.iter().position(|event| event.is_defined() && !main.has_definition(event.serial))
    }

    /// Whether a definition has this serial number.
    pub(crate) fn has_definition(&self, serial: u64) -> bool {
        self.events.iter().any(|event| event.is_defined() && event.serial == serial)
    }

    /// Gives the next definition the serial number of `event`, and its event the number of `event` if that is free.
    pub(crate) fn prefer(&mut self, event: &Event<P>) {
        self.last = event.number.saturating_sub(1).max(FIXED);
        self.serial = event.serial.saturating_sub(1);
    }

    /// Whether `removal` must be refused: an event for which `is_used` is true would lose its last probe, or an event
    /// that stays is on an event that would.
    pub fn is_in_use(&self, removal: &Removal, is_used: &dyn Fn(&Event<P>) -> bool) -> bool {
        let is_meant = |event: &Event<P>| event.is_of_probe() && removal.matches(&event.definition);
        let is_kept = |definition: &Definition| !removal.matches(definition);
        self.events.iter().filter(|event| is_meant(event)).any(|event| {
            let mut siblings = self.events.iter().filter(|other| other.is_sibling(&event.definition));
            siblings.all(is_meant) && (is_used(event) || self.has_dependent(&event.definition, &is_kept))
        })
    }

    /// Drops the formats of removed events without records.
    fn drop_formats(&mut self) {
        // If there is no memory to find the records, the formats stay.
        if self.removed.is_empty() {
            return;
        }
        if let Ok(mut recorded) = self.recorded() {
            recorded.sort_unstable();
            self.removed.retain(|(number, ..)| recorded.binary_search(number).is_ok());
        }
    }

    /// Returns the numbers of the events that have records, one for each record.
    fn recorded(&mut self) -> Result<Vec<u16>, OutOfMemory> {
        // Records that a reader has split off are neither in the rings nor in the file until they are moved to the
        // file.
        self.keep_snapshot(false)?;
        let mut numbers = Vec::new();
        fallible::extend(&mut numbers, self.rings.snapshot()?.records()?.map(|record| record.event()))?;
        let kept = self.snapshot_file.get_mut().snapshot.records()?;
        fallible::extend(&mut numbers, kept.map(|record| record.event()))?;
        for pipe in &mut self.pipes {
            fallible::extend(&mut numbers, pipe.get_mut().taken.records()?.map(|record| record.event()))?;
        }
        Ok(numbers)
    }

    /// Returns the probe at this index, in the order of definition.
    pub(crate) fn get(&self, number: usize) -> Option<&Event<P>> {
        self.events.get(number)
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut Event<P>> {
        self.events.get_mut(number)
    }

    /// Returns the probes of the events of a family, in the order of definition; without one, of all families.
    pub fn probes_of(&self, family: Option<Family>) -> impl Iterator<Item = &Event<P>> + Clone {
        let is_meant = move |event: &&Event<P>| family.is_none_or(|family| family == event.definition.family);
        self.events.iter().filter(|event| event.is_of_probe()).filter(is_meant)
    }

    /// Returns the probes of all events, in the order of definition.
    pub fn iter(&self) -> impl Iterator<Item = &Event<P>> + Clone {
        self.all().filter(|event| !event.is_of_commands())
    }

    /// Returns the probes of all events, and those for the commands of functions. Each is at its index for
    /// [`get`](Self::get).
    pub(crate) fn all(&self) -> impl Iterator<Item = &Event<P>> + Clone {
        self.events.iter()
    }

    /// Returns the name and the format of the event with this number; `None` if it was removed and its format dropped.
    #[must_use]
    pub fn described(&self, number: u16) -> Option<(&str, &Format)> {
        let present = self.events.iter().map(|event| (event.number, &event.definition.event, &event.format));
        let removed = self.removed.iter().map(|(number, name, format)| (*number, name, format));
        let found = present.chain(removed).find(|&(other, ..)| other == number);
        found.map(|(_, name, format)| (name.as_str(), format))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
