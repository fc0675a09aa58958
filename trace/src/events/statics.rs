//! Adding the static events of the kernel to [`Events`].
//!
//! A static event exists from the start, with a recorder and without a probe. When the event is armed, a probe is
//! placed at its function, and the engine replaces the NOPs at its sites by branches. When the event is disarmed, the
//! probe is removed. So a disarmed static event costs no more than its NOPs, and no list of probes shows it.

use aarch64_kprobes::event;
use fallible::{Arc, OutOfMemory};

use super::{Event, Events, Form, RegisteredProbe};
use crate::definition::{Definition, EventKind};
use crate::filter::{Number, parse};
use crate::format::Format;
use crate::recorder::Recorder;
#[cfg(not(all(test, loom)))]
use crate::ring::{RECORD_HEADER, RECORD_MAX};

/// The number of the first static event. Defined events have lower numbers, as long as there are free ones.
const FIRST: u16 = 256;

// The pages of models are small.
#[cfg(not(all(test, loom)))]
const _: () = assert!(RECORD_HEADER + 8 + event::Event::SIZE_MAX <= RECORD_MAX);

impl<P> Event<P> {
    /// Whether the event is a static event of the kernel, which is neither defined nor removed.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.definition.kind == EventKind::Static
    }

    /// Whether the event only fires triggers. It cannot be enabled and has no probe, because other records stand for
    /// it. These are the events of the group `ftrace`, as in Linux (`TRACE_EVENT_FL_IGNORE_ENABLE`).
    #[must_use]
    pub fn is_only_for_triggers(&self) -> bool {
        self.is_static() && self.definition.group == "ftrace"
    }

    /// Returns the field with the task that a static event is about besides the one that is hit: the next task of a
    /// CPU, and one that is woken. As in Linux, a restriction to tasks records such an event for either of the two.
    pub(super) fn other_task(&self) -> Option<Number> {
        let field = match (self.definition.group.as_str(), self.definition.event.as_str()) {
            ("sched", "sched_switch") => "next_pid",
            ("sched", "sched_waking" | "sched_wakeup" | "sched_wakeup_new") => "pid",
            _ => return None,
        };
        self.format.field(field).filter(|_| self.is_static()).and_then(parse::number)
    }

    /// Whether the event was defined, as a probe or as a synthetic event.
    pub(super) fn is_defined(&self) -> bool {
        self.is_of_probe() || self.definition.kind == EventKind::Synthetic
    }

    /// Whether the event was defined as a probe. An event on a synthetic event is one, too.
    #[must_use]
    pub fn is_of_probe(&self) -> bool {
        matches!(self.definition.kind, EventKind::Probe | EventKind::Return { .. } | EventKind::OnSynthetic)
    }
}

impl<P: RegisteredProbe> Events<P> {
    /// Adds the static events of the image, sorted by group and name: the order of the linker may change.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the events.
    pub fn add_all_static(&mut self) -> Result<(), OutOfMemory> {
        let all = event::all().chain([&crate::mark::PRINT]);
        let mut all = fallible::collect(all)?;
        fallible::sort_by_key(&mut all, |event| (event.group(), event.name()));
        all.into_iter().try_for_each(|event| self.add_static(event))
    }

    /// Adds a static event, unless there is one of this group and name. The engine refuses to place probes in an image
    /// that has two ([`embedding`](aarch64_kprobes::embedding)).
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the event.
    pub fn add_static(&mut self, event: &'static event::Event) -> Result<(), OutOfMemory> {
        let address = event.address() as u64;
        let definition = Definition::of_static(event.group(), event.name(), address)?;
        if self.events.iter().any(|other| other.is_sibling(&definition)) {
            return Ok(());
        }
        let format = Format::of_static(event)?;
        let numbers = self.events.iter().filter(|event| event.is_static()).map(|event| event.number);
        let number = numbers.max().map_or(Some(FIRST), |last| last.checked_add(1)).ok_or(OutOfMemory)?;
        let recorder = Recorder::of_static(number, &format, &format.parts(event)?, self.rings)?;
        let recorder = Arc::try_new(recorder)?;
        self.events.try_reserve(1).map_err(OutOfMemory::from)?;
        let described = Some(event);
        let event = Event::new(number, address, definition, format, recorder);
        self.events.push(Event { form: Form::Call, described, ..event });
        Ok(())
    }
}
