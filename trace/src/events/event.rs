//! An event: a definition with its probe, and what the probe has counted.

use alloc::boxed::Box;
use core::mem;
use core::sync::atomic::Ordering::Relaxed;

use aarch64_kprobes::event::Event as Description;
use fallible::{Arc, OutOfMemory};

use super::{Form, RegisteredProbe};
use crate::definition::{Definition, EventKind};
use crate::filter::Filter;
use crate::format::Format;
use crate::recorder::Recorder;
use crate::snippet::{self, Code, EventSnippet};
use crate::trigger::{Plan, RetiredPlan};

/// A probe of an event.
#[derive(Debug)]
pub struct Event<P> {
    /// Dropped first: afterwards nothing uses the fields below. A synthetic event has no probe, nor has a static event
    /// while it is disarmed.
    pub(super) probe: Option<P>,
    /// The code for the stub of the probe, if there is any.
    pub(super) snippet: Option<EventSnippet>,
    /// Shared with the triggers that record a synthetic event.
    pub(super) recorder: Arc<Recorder>,
    pub(super) form: Form,
    /// The hits and missed hits of the probes that this one has replaced.
    pub(super) before: [u64; 2],
    pub(super) number: u16,
    /// The number of the definition, in the order of definition; in an instance, the number that it has in the main
    /// trace.
    pub(super) serial: u64,
    pub(super) address: u64,
    pub(super) definition: Definition,
    pub(super) format: Format,
    /// The description of a static event.
    pub(super) described: Option<&'static Description>,
    /// The filter in the definition: the hits that it rejects do not count.
    pub(super) gate: Option<Filter>,
}

/// A probe to exchange with that of an event; after the exchange, the probe that the event had before.
#[derive(Debug)]
pub(crate) struct OtherProbe<P> {
    /// Dropped first, because it uses the code. A static event that is not armed has none.
    probe: Option<P>,
    snippet: Option<EventSnippet>,
}

/// Makes the code for the stub of `recorder` at the virtual address `address` with this `plan`. `None` if a stub
/// cannot do it, or if there are no stubs.
pub(super) fn code<P: RegisteredProbe>(
    recorder: &Recorder,
    plan: Option<&Plan>,
    address: u64,
) -> Result<Option<Code>, OutOfMemory> {
    match P::offsets() {
        Some(offsets) => snippet::code(recorder, plan, Some(address), offsets),
        None => Ok(None),
    }
}

impl<P> Event<P> {
    /// Makes an event without a probe, at the virtual address `address`, that has counted nothing.
    pub(super) fn new(
        number: u16,
        address: u64,
        definition: Definition,
        format: Format,
        recorder: Arc<Recorder>,
    ) -> Self {
        let (probe, snippet, before, described, gate) = (None, None, [0; 2], None, None);
        let (form, serial) = (Form::Full, 0);
        Self { probe, snippet, recorder, form, before, number, serial, address, definition, format, described, gate }
    }
}

impl<P: RegisteredProbe> Event<P> {
    /// Replaces the plan by `plan`, and returns the old one.
    pub(crate) fn replace_plan(&self, plan: Option<Box<Plan>>) -> Option<RetiredPlan> {
        self.leave_returns(plan.is_some());
        self.recorder.plan.replace(plan)
    }

    /// Replaces the plan by `plan`, which the event had before, and returns the plan that it had meanwhile.
    pub(crate) fn restore_plan(&self, plan: Option<RetiredPlan>) -> Option<RetiredPlan> {
        self.leave_returns(plan.is_some());
        self.recorder.plan.restore(plan)
    }

    /// Leaves returns to the handler if there will be a plan, and to the snippet otherwise.
    fn leave_returns(&self, has_plan: bool) {
        if let Some(probe) = &self.probe {
            probe.set_snippet_enabled(!has_plan);
        }
    }

    /// Registers a probe to exchange with this one, disabled, if this `plan` needs other code in the stub. `None` if
    /// the code stays.
    pub(crate) fn other_probe(&self, plan: Option<&Plan>) -> Result<Option<OtherProbe<P>>, OutOfMemory> {
        if self.is_synthetic() || self.is_on_synthetic() || self.is_only_for_triggers() {
            return Ok(None);
        }
        let kind = self.definition.kind;
        let code = code::<P>(&self.recorder, plan, self.address)?;
        if self.probe.is_some() && code.as_ref() == self.snippet.as_ref().map(EventSnippet::code) {
            return Ok(None);
        }
        let snippet = code.map(EventSnippet::new).transpose()?;
        let insertion = snippet.as_ref().and_then(EventSnippet::insertion);
        // SAFETY: the snippet is boxed, so the insertion does not move. `Events::commit` exchanges or drops the
        // returned probe while this event exists. Both `OtherProbe` and `Event` declare the probe before the snippet,
        // and `Event` declares it before the recorder, so the probe is dropped first.
        let probe = unsafe { P::register(kind, self.form, self.address, &self.recorder, insertion) };
        // The place has a probe already, or is the function of a static event, so lack of memory is the only reason
        // left.
        let probe = probe.map_err(|_| OutOfMemory)?;
        probe.set_snippet_enabled(plan.is_none());
        Ok(Some(OtherProbe { probe: Some(probe), snippet }))
    }

    /// Exchanges the probe with `other`, and enables `other` if the probe was enabled.
    pub(crate) fn exchange(&mut self, other: &mut OtherProbe<P>) -> Result<(), P::Error> {
        match (&self.probe, &other.probe) {
            (Some(probe), Some(other)) if probe.is_enabled() => probe.exchange(other)?,
            _ => {}
        }
        mem::swap(&mut self.probe, &mut other.probe);
        mem::swap(&mut self.snippet, &mut other.snippet);
        Ok(())
    }

    /// Replaces the probe, which is disabled, by one without code, if its code refers to memory of a trigger. The probe
    /// of a static event is removed. Returns the old probe; `None` if there was nothing to replace or no memory.
    pub(crate) fn drop_code(&mut self) -> Option<OtherProbe<P>> {
        if self.is_static() {
            let probe = self.probe.take()?;
            return Some(OtherProbe { probe: Some(probe), snippet: self.snippet.take() });
        }
        self.snippet.as_ref().filter(|snippet| snippet.counts())?;
        // SAFETY: `Event` declares the recorder after the probe, so the probe is dropped first. There is no insertion.
        let probe = unsafe { P::register(self.definition.kind, self.form, self.address, &self.recorder, None) };
        let mut other = OtherProbe { probe: Some(probe.ok()?), snippet: None };
        self.exchange(&mut other).ok().map(|()| other)
    }

    /// Drops `other`, which this event used until now, and keeps its counts of hits and misses.
    pub(crate) fn retire(&mut self, other: OtherProbe<P>) {
        let Some(probe) = &other.probe else { return };
        let counts = [probe.hits(), probe.missed()];
        self.before.iter_mut().zip(counts).for_each(|(before, more)| *before += more);
    }

    /// Returns the number of hits that were reported to the probe, whether its filter accepted them or not.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.before[0] + self.probe.as_ref().map_or(0, P::hits)
    }

    /// Returns the number of hits that the probe missed.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.before[1] + self.probe.as_ref().map_or(0, P::missed)
    }

    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns the definition.
    #[must_use]
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Returns the layout of the records.
    #[must_use]
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// Returns the number of the event, as its file `id` and its records show it.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Returns the virtual address of the probe; 0 for a synthetic event, and for one that is on it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the probe; `None` for a synthetic event, and for one that is on it.
    #[must_use]
    pub fn probe(&self) -> Option<&P> {
        self.probe.as_ref()
    }

    /// Whether the event is recorded by triggers of other events, and has no probe.
    #[must_use]
    pub fn is_synthetic(&self) -> bool {
        self.definition.kind == EventKind::Synthetic
    }

    /// Whether the event is on a synthetic one, each record of which is a hit of it, and has no probe.
    #[must_use]
    pub fn is_on_synthetic(&self) -> bool {
        self.definition.kind == EventKind::OnSynthetic
    }

    /// Returns the filter in the definition: the hits that it rejects do not count.
    pub(crate) fn gate(&self) -> Option<&Filter> {
        self.gate.as_ref()
    }

    /// Whether the event can be hit, because its probe is enabled; for a synthetic event, whether triggers may record
    /// it.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.probe.as_ref().map_or_else(|| self.recorder.armed.load(Relaxed), P::is_enabled)
    }

    /// Arms the event, by enabling its probe, or disarms it. Does nothing for a static event without a probe:
    /// [`Events`](super::Events) places one.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`RegisteredProbe::set_enabled`].
    pub(crate) fn set_armed(&self, armed: bool) -> Result<(), P::Error> {
        match &self.probe {
            Some(probe) => probe.set_enabled(armed),
            None if self.is_static() => Ok(()),
            None => {
                self.recorder.armed.store(armed, Relaxed);
                Ok(())
            }
        }
    }

    /// Returns the recorder, the form of the event that the hit path uses.
    #[must_use]
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// Returns the recorder to share with a trigger that records the event.
    pub(crate) fn shared_recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    /// Returns the word that the probe was registered with. A listing of all probes identifies the event by it.
    #[must_use]
    pub fn data(&self) -> usize {
        (&raw const *self.recorder).addr()
    }

    pub(super) fn is(&self, group: Option<&str>, event: Option<&str>) -> bool {
        let Definition { group: own_group, event: own_event, .. } = &self.definition;
        group.is_none_or(|group| group == own_group) && event.is_none_or(|event| event == own_event)
    }

    pub(super) fn is_sibling(&self, definition: &Definition) -> bool {
        self.is(Some(&definition.group), Some(&definition.event))
    }
}
