//! New settings of events, and how they take effect on the handlers and stubs of all probes, or not at all.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;

use fallible::{Arc, OutOfMemory, TryClone};

use super::{Controls, Name, name};
use crate::definition::Definition;
use crate::errno::Errno;
use crate::events::{Armed, Event, Events, OtherProbe};
use crate::recorder::Recorder;
use crate::trigger::Plan;
use crate::trigger::settings::Settings;

/// The settings of one event.
#[derive(Debug)]
pub(super) struct Entry {
    /// The group and the name of the event.
    pub name: Arc<(String, String)>,
    pub settings: Settings,
    /// In a draft: whether the settings differ from those in effect.
    pub is_changed: bool,
}

impl Entry {
    pub fn is(&self, (group, event): Name<'_>) -> bool {
        self.name.0 == group && self.name.1 == event
    }
}

/// New settings of all events, before they take effect.
pub(super) struct Draft(pub Vec<Entry>);

impl Draft {
    /// Returns the new settings of an event, which are created if it has none.
    pub fn get_mut(&mut self, name: Name<'_>) -> Result<&mut Settings, OutOfMemory> {
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

    /// Recounts the triggers that act on each event.
    pub fn retarget(&mut self) {
        retarget(&mut self.0);
    }
}

/// Recounts the triggers that act on each event, and marks the events whose count changes.
fn retarget(entries: &mut [Entry]) {
    for place in 0..entries.len() {
        let count = entries.iter().map(|entry| entry.settings.count_of(&entries[place].settings)).sum();
        let Entry { settings, is_changed, .. } = &mut entries[place];
        *is_changed |= settings.set_targeted(count);
    }
}

impl Controls {
    /// Returns a copy of the settings, as a draft.
    pub(super) fn draft(&self) -> Result<Draft, OutOfMemory> {
        let copy = |Entry { name, settings, .. }: &Entry| -> Result<_, OutOfMemory> {
            Ok(Entry { name: name.clone(), settings: settings.try_clone()?, is_changed: false })
        };
        // Room for one more event, so that adding one needs no second allocation.
        let mut entries = Vec::new();
        entries.try_reserve_exact(self.controls.len() + 1)?;
        self.controls.iter().try_for_each(|entry| fallible::push(&mut entries, copy(entry)?))?;
        Ok(Draft(entries))
    }

    /// Puts the draft into effect: the handlers and stubs of the events that it changes follow the new settings. If
    /// `disarmed`, no event is armed.
    pub(super) fn commit<P: Armed>(
        &mut self,
        events: &mut Events<P>,
        draft: Draft,
        disarmed: bool,
    ) -> Result<(), Errno> {
        let mut draft = draft;
        // A synthetic event's plan has the recorders of the armed events that are on it.
        for event in events.all().filter(|event| event.is_synthetic()) {
            let is_changed = |on: &Event<P>| draft.0.iter().any(|entry| entry.is_changed && is(on, entry));
            if events.attached_to(event).any(is_changed) {
                let count = events.attached_to(event).filter(|on| is_armed(on, &draft.0)).count();
                draft.get_mut(name(event))?.set_attached(count);
            }
        }
        let Draft(mut entries) = draft;
        let mut staged = Vec::new();
        for (number, event) in events.all().enumerate() {
            let Some(entry) = entries.iter().find(|entry| entry.is_changed && is(event, entry)) else { continue };
            let attached = attached(events, event, &entries)?;
            let (recorder, address) = (event.recorder(), event.address());
            let plan = self.plan(&entry.settings, recorder, address, event.gate(), &attached)?;
            let is_exempt = event.is_static() || event.is_of_commands();
            let is_to_be_armed = entry.settings.is_armed() && (!disarmed || is_exempt);
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
            P::synchronize();
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
        self.controls.retain(|entry| events.all().any(|event| is(event, entry)));
        self.refused.retain(|refused| events.all().any(|event| name(event) == refused.name()));
        self.settle(events);
    }

    /// Puts a reset into effect. It only disarms, so nothing can fail.
    fn settle<P: Armed>(&mut self, events: &Events<P>) {
        retarget(&mut self.controls);
        // The plan of a synthetic event may have recorders of events that are not armed any more.
        for event in events.all().filter(|event| event.is_synthetic()) {
            let count = events.attached_to(event).filter(|on| is_armed(on, &self.controls)).count();
            if let Some(entry) = self.controls.iter_mut().find(|entry| is(event, entry)) {
                entry.is_changed |= entry.settings.set_attached(count);
            }
        }
        for number in 0..self.controls.len() {
            let Some(entry) = self.controls.get_mut(number) else { break };
            entry.settings.settle();
            if !mem::take(&mut entry.is_changed) {
                continue;
            }
            let Some(entry) = self.controls.get(number) else { break };
            for event in events.all().filter(|event| is(event, entry)) {
                if !entry.settings.is_armed() {
                    let _ = event.set_enabled(false);
                }
                // Without memory the old plan stays. Events on this one that are not armed any more record nothing.
                let Ok(attached) = attached(events, event, &self.controls) else { continue };
                let (recorder, address) = (event.recorder(), event.address());
                let plan = self.plan(&entry.settings, recorder, address, event.gate(), &attached);
                if let Ok(Some(old)) = plan.map(|plan| event.replace_plan(plan)) {
                    P::synchronize();
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
            self.plan = event.replace_plan(self.plan.take());
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

/// Returns the recorders of the events on the synthetic event `event` that are armed by these settings; none, if it is
/// another event.
fn attached<P: Armed>(
    events: &Events<P>,
    event: &Event<P>,
    entries: &[Entry],
) -> Result<Vec<Arc<Recorder>>, OutOfMemory> {
    let armed = events.attached_to(event).filter(|on| is_armed(on, entries));
    fallible::collect(armed.map(|on| on.shared_recorder().clone()))
}

fn is_armed<P: Armed>(event: &Event<P>, entries: &[Entry]) -> bool {
    entries.iter().any(|entry| is(event, entry) && entry.settings.is_armed())
}

fn is<P: Armed>(event: &Event<P>, entry: &Entry) -> bool {
    entry.is(name(event))
}
