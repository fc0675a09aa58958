//! New settings of events, and how they take effect on the handlers and stubs of all probes, or not at all.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use fallible::{Arc, OutOfMemory, TryClone};

use super::{Name, name};
use crate::definition::{Base, Definition, Family};
use crate::errno::Errno;
use crate::events::{Event, Events, OtherProbe, RegisteredProbe};
use crate::recorder::Recorder;
use crate::trigger::settings::Settings;
use crate::trigger::{Plan, RetiredPlan};

/// The settings of one event.
#[derive(Debug)]
pub(super) struct EventSettings {
    /// The group and the name of the event.
    pub name: Arc<(String, String)>,
    pub settings: Settings,
    /// In a draft: whether the settings differ from those in effect.
    pub is_changed: bool,
}

impl EventSettings {
    pub fn is(&self, (group, event): Name<'_>) -> bool {
        self.name.0 == group && self.name.1 == event
    }
}

/// New settings of all events, before they take effect.
pub(in crate::events) struct Draft(pub(super) Vec<EventSettings>);

impl Draft {
    /// Returns the new settings of an event, which are created if it has none.
    pub fn get_mut(&mut self, name: Name<'_>) -> Result<&mut Settings, OutOfMemory> {
        let place = match self.0.iter().position(|of_event| of_event.is(name)) {
            Some(place) => place,
            None => {
                let name = Arc::try_new((fallible::copy(name.0)?, fallible::copy(name.1)?))?;
                let of_event = EventSettings { name, settings: Settings::new(false)?, is_changed: true };
                fallible::push(&mut self.0, of_event)?;
                self.0.len() - 1
            }
        };
        let EventSettings { settings, is_changed, .. } = &mut self.0[place];
        *is_changed = true;
        Ok(settings)
    }

    /// Recounts the triggers that act on each event.
    pub fn retarget(&mut self) {
        retarget(&mut self.0);
    }
}

/// Recounts the triggers that act on each event, and marks the events whose count changes.
fn retarget(all: &mut [EventSettings]) {
    for place in 0..all.len() {
        let count = all.iter().map(|of_event| of_event.settings.count_of(&all[place].settings)).sum();
        let EventSettings { settings, is_changed, .. } = &mut all[place];
        *is_changed |= settings.set_targeted(count);
    }
}

impl<P: RegisteredProbe> Events<P> {
    /// Returns a copy of the settings, as a draft.
    pub(in crate::events) fn draft(&self) -> Result<Draft, OutOfMemory> {
        let copy = |EventSettings { name, settings, .. }: &EventSettings| -> Result<_, OutOfMemory> {
            Ok(EventSettings { name: name.clone(), settings: settings.try_clone()?, is_changed: false })
        };
        // Room for one more event, so that adding one needs no second allocation.
        let mut all = Vec::new();
        all.try_reserve_exact(self.controls.of_events.len() + 1)?;
        self.controls.of_events.iter().try_for_each(|of_event| fallible::push(&mut all, copy(of_event)?))?;
        Ok(Draft(all))
    }

    /// Puts the draft into effect: the handlers and stubs of the events that it changes follow the new settings.
    pub(in crate::events) fn commit(&mut self, mut draft: Draft) -> Result<(), Errno> {
        // A synthetic event's plan has the recorders of the armed events that are on it.
        for event in self.all().filter(|event| event.is_synthetic()) {
            let is_changed = |on: &Event<P>| draft.0.iter().any(|of_event| of_event.is_changed && is(on, of_event));
            if self.dependents_of(event).any(is_changed) {
                let count = self.dependents_of(event).filter(|on| is_armed(on, &draft.0)).count();
                draft.get_mut(name(event))?.set_dependents(count);
            }
        }
        let Draft(mut all) = draft;
        let mut staged = Vec::new();
        for (number, event) in self.all().enumerate() {
            let Some(of_event) = all.iter().find(|of_event| of_event.is_changed && is(event, of_event)) else {
                continue;
            };
            let dependents = self.armed_dependents(event, &all)?;
            let (recorder, address) = (event.recorder(), event.address());
            let (settings, other_task) = (&of_event.settings, event.other_task());
            let plan = self.controls.plan(settings, recorder, address, event.gate(), &dependents, other_task)?;
            let is_to_be_armed = of_event.settings.is_armed() && !(self.controls.disarmed && self.is_at_kprobe(event));
            // The snippet of a disarmed event is made when the event is armed.
            let other = if is_to_be_armed { event.other_probe(plan.as_deref())? } else { None };
            let (is_exchanged, was_armed) = (false, event.is_armed());
            let one = Staged { number, plan, old: None, other, is_to_be_armed, is_exchanged, was_armed };
            fallible::push(&mut staged, one)?;
        }
        staged.iter_mut().for_each(|one| one.replace_plan(self));
        let failed = staged.iter_mut().position(|one| one.exchange_probe(self).is_err());
        if let Some(failed) = failed {
            // In reverse, so that memory that was freed last is taken first.
            for one in staged.iter_mut().take(failed + 1).rev() {
                one.put_back(self);
            }
            staged.iter_mut().for_each(|one| one.restore_plan(self));
        } else {
            for Staged { number, other, .. } in staged.iter_mut().filter(|one| !one.is_to_be_armed) {
                let Some(event) = self.get_mut(*number) else { continue };
                // Disarming needs no memory.
                let _ = event.set_armed(false);
                *other = event.drop_code();
            }
        }
        if staged.iter().any(|one| one.old.is_some()) {
            P::synchronize();
        }
        for Staged { number, other, .. } in &mut staged {
            if let (Some(event), Some(other)) = (self.get_mut(*number), other.take()) {
                event.retire(other);
            }
        }
        // A probe is dropped before the tables that its code counts in.
        //
        // SAFETY: hits alone get references to plans, and `synchronize` has waited for the hits that may have found
        // these, if there are any (# Safety of `RegisteredProbe`).
        staged.into_iter().filter_map(|one| one.old).for_each(|old| unsafe { old.free() });
        if failed.is_some() {
            return Err(Errno::NoMemory);
        }
        for of_event in &mut all {
            of_event.settings.settle();
            of_event.is_changed = false;
        }
        self.controls.of_events = all;
        Ok(())
    }

    /// Whether the event is a kprobe, or is on one. As in Linux, `kprobes/enabled` disarms no others.
    fn is_at_kprobe(&self, event: &Event<P>) -> bool {
        let is_kprobe = |event: &Event<P>| event.is_of_probe() && event.definition().family == Family::Kprobe;
        match &event.definition().place.base {
            Base::Event(Some(group), base) => self.find((group, base)).is_ok_and(is_kprobe),
            _ => is_kprobe(event),
        }
    }

    /// Resets the settings of all events whose probes are all `meant`: they are disabled, and have no filter and no
    /// triggers. This never fails. If there is no memory for a new plan, a call that has begun is still handled by the
    /// old one.
    pub fn reset_settings(&mut self, meant: impl Fn(&Definition) -> bool) {
        let Self { events, controls, .. } = self;
        for of_event in &mut controls.of_events {
            let mut probes = events.iter().filter(|event| !event.is_static() && is(event, of_event)).peekable();
            if probes.peek().is_some() && probes.all(|event| !event.is_of_commands() && meant(&event.definition)) {
                of_event.settings.reset();
                of_event.is_changed = true;
            }
        }
        self.settle();
    }

    /// Drops the settings of events that no longer exist.
    pub(in crate::events) fn drop_settings(&mut self) {
        let Self { events, controls, .. } = self;
        controls.of_events.retain(|of_event| events.iter().any(|event| is(event, of_event)));
        controls.refused.retain(|refused| events.iter().any(|event| name(event) == refused.name()));
        self.settle();
    }

    /// Puts a reset into effect. It arms nothing, so nothing can fail.
    fn settle(&mut self) {
        retarget(&mut self.controls.of_events);
        // The plan of a synthetic event may have recorders of events that are not armed any more.
        for number in 0..self.events.len() {
            let Some(event) = self.events.get(number).filter(|event| event.is_synthetic()) else { continue };
            let count = self.dependents_of(event).filter(|on| is_armed(on, &self.controls.of_events)).count();
            if let Some(of_event) = self.controls.of_events.iter_mut().find(|of_event| is(event, of_event)) {
                of_event.is_changed |= of_event.settings.set_dependents(count);
            }
        }
        for number in 0..self.controls.of_events.len() {
            let Some(of_event) = self.controls.of_events.get_mut(number) else { break };
            if !mem::take(&mut of_event.is_changed) {
                continue;
            }
            let Some(of_event) = self.controls.of_events.get(number) else { break };
            for event in self.all().filter(|event| is(event, of_event)) {
                if !of_event.settings.is_armed() {
                    let _ = event.set_armed(false);
                }
                // Without memory the old plan stays. Events on this one that are not armed any more record nothing.
                let Ok(dependents) = self.armed_dependents(event, &self.controls.of_events) else { continue };
                let (recorder, address) = (event.recorder(), event.address());
                let (settings, other_task) = (&of_event.settings, event.other_task());
                let plan = self.controls.plan(settings, recorder, address, event.gate(), &dependents, other_task);
                if let Ok(Some(old)) = plan.map(|plan| event.replace_plan(plan)) {
                    P::synchronize();
                    // SAFETY: hits alone get references to plans, and `synchronize` has waited for the hits that may
                    // have found this one (# Safety of `RegisteredProbe`).
                    unsafe { old.free() };
                }
            }
        }
        // After the triggers of the old plans, which may have switched an event until now.
        self.controls.of_events.iter_mut().for_each(|of_event| of_event.settings.settle());
    }

    /// Returns the recorders of the events on the synthetic event `event` that are armed by these settings; none, if it
    /// is another event.
    fn armed_dependents(&self, event: &Event<P>, all: &[EventSettings]) -> Result<Vec<Arc<Recorder>>, OutOfMemory> {
        let armed = self.dependents_of(event).filter(|on| is_armed(on, all));
        fallible::collect(armed.map(|on| on.shared_recorder().clone()))
    }
}

/// A pending change to one probe of an event.
struct Staged<P> {
    /// The index of the probe.
    number: usize,
    /// The new plan, until it replaces the old one.
    plan: Option<Box<Plan>>,
    /// The plan that was taken out of the event: the old one or, if that was put back, the new one.
    old: Option<RetiredPlan>,
    /// A probe with another stub, if the stub changes; after the exchange, the old probe.
    other: Option<OtherProbe<P>>,
    is_to_be_armed: bool,
    /// Whether the other probe has replaced the old one.
    is_exchanged: bool,
    /// Whether the event was armed before.
    was_armed: bool,
}

impl<P: RegisteredProbe> Staged<P> {
    fn replace_plan(&mut self, events: &Events<P>) {
        if let Some(event) = events.get(self.number) {
            self.old = event.replace_plan(self.plan.take());
        }
    }

    /// Puts the old plan back.
    fn restore_plan(&mut self, events: &Events<P>) {
        if let Some(event) = events.get(self.number) {
            self.old = event.restore_plan(self.old.take());
        }
    }

    /// Exchanges the probe if its stub changes, and arms the event if it is to be armed.
    fn exchange_probe(&mut self, events: &mut Events<P>) -> Result<(), P::Error> {
        let Some(event) = events.get_mut(self.number) else { return Ok(()) };
        if let Some(other) = &mut self.other {
            event.exchange(other)?;
            self.is_exchanged = true;
        }
        if self.is_to_be_armed && !self.was_armed { event.set_armed(true) } else { Ok(()) }
    }

    /// Restores the probe. If there is no memory for that, although it was freed just now, the event is disarmed.
    fn put_back(&mut self, events: &mut Events<P>) {
        let Some(event) = events.get_mut(self.number) else { return };
        if !self.was_armed {
            // Disarming needs no memory.
            let _ = event.set_armed(false);
        }
        if let Some(other) = self.other.as_mut().filter(|_| self.is_exchanged)
            && event.exchange(other).is_err()
        {
            let _ = event.set_armed(false);
        }
    }
}

fn is_armed<P: RegisteredProbe>(event: &Event<P>, all: &[EventSettings]) -> bool {
    all.iter().any(|of_event| is(event, of_event) && of_event.settings.is_armed())
}

fn is<P: RegisteredProbe>(event: &Event<P>, of_event: &EventSettings) -> bool {
    of_event.is(name(event))
}
