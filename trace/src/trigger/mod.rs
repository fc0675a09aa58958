//! Triggers: what an event does when it is hit, besides being recorded (Linux: Documentation/trace/events.rst, section 6).
//!
//! What the handlers of an event look at, and what its stubs are made from, is its [`Plan`]: its filter, its triggers, and whether
//! it is recorded at all. A plan is never changed; another takes its place, and the old one is dropped when no hit can be using it
//! any more. What is carried out at a hit is in `hit::action`; what is set and removed, in [`settings`] for one event, in
//! [`controls`] for all, and in [`restriction`] by tasks and CPUs.

pub mod controls;
mod parse;
pub mod restriction;
pub mod settings;

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::ptr;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

use fallible::{Arc, OutOfMemory};

pub use parse::{Error, Kind, Request};

use crate::filter::{Filter, Number, Test, WordQuestion};
use crate::histogram::{Histogram, Key, Tally};
use crate::ring::Rings;

/// What is printed where an event has no triggers.
pub const AVAILABLE: &str =
    "# Available triggers:\n# traceon traceoff snapshot stacktrace enable_event disable_event hist\n";

/// What the handlers of an event do besides recording, or instead.
#[derive(Debug)]
pub struct Plan {
    /// The hits that are recorded; all, if there is no filter.
    pub(crate) filter: Option<Filter>,
    pub(crate) triggers: Box<[Bound]>,
    /// A trigger looks at the hit, so all are carried out when its record has been begun, and what they switch is for the next
    /// one. Otherwise they precede it (Linux: `EVENT_FILE_FL_TRIGGER_COND`).
    pub(crate) triggers_look: bool,
    /// Hits are recorded.
    pub(crate) recording: Arc<Switch>,
    /// Whether they are, if no trigger changes that.
    records: Option<bool>,
    /// The caller of what is hit is in x30, and not yet in a frame record.
    pub(crate) in_link: bool,
    /// A trigger records synthetic events.
    pub(crate) emits: bool,
    /// Nothing here looks at the record: what is not to be kept need not be made.
    pub(crate) is_direct: bool,
    /// The filter, if there is nothing to do but to record what it accepts, and it looks at nothing but words.
    pub(crate) words: Option<Box<[Test<WordQuestion>]>>,
}

/// A trigger, with what it looks at as this probe has it.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) trigger: Arc<Trigger>,
    /// At these hits; at all, if there is no filter.
    pub(crate) filter: Option<Filter>,
    /// Of a histogram.
    pub(crate) keys: Box<[Key]>,
    pub(crate) values: Box<[Number]>,
    /// It has variables, or values that are computed: these look at the record.
    is_linked: bool,
    /// If it is a histogram of all hits, by one word.
    pub(crate) tally: Option<Tally>,
}

impl Plan {
    /// A plan of a probe that has numbers in the places that `number` says.
    fn new(
        filter: Option<&Filter>,
        triggers: &[Arc<Trigger>],
        recording: Arc<Switch>,
        records: Option<bool>,
        in_link: bool,
        number: &dyn Fn(Number) -> Number,
    ) -> Result<Self, OutOfMemory> {
        let filter = filter.map(|filter| filter.map(number)).transpose()?;
        let triggers = fallible::collect_results(triggers.iter().map(|trigger| Bound::new(trigger, number)))?;
        let triggers = fallible::boxed_slice(triggers)?;
        let is_direct = !filter.as_ref().is_some_and(Filter::needs_record) && !triggers.iter().any(Bound::needs_record);
        let triggers_look = triggers.iter().any(Bound::looks);
        let emits = triggers.iter().any(Bound::emits);
        let words = filter.as_ref().filter(|_| triggers.is_empty()).map(Filter::words).transpose()?.flatten();
        Ok(Self { filter, triggers, triggers_look, recording, records, in_link, emits, is_direct, words })
    }
}

impl Plan {
    /// What there is to do, as far as stubs can.
    pub(crate) fn task(&self) -> Task<'_> {
        match (self.records, self.words.as_deref(), &*self.triggers) {
            (Some(true), Some(tests), _) => Task::Record(tests),
            (Some(false), _, [bound]) if bound.filter.is_none() => Task::Count(bound),
            _ => Task::Other,
        }
    }
}

/// What there is to do at a hit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task<'a> {
    /// To record it, if it passes these tests.
    Record(&'a [Test<WordQuestion>]),
    /// To carry out a trigger of every hit, and not to record it.
    Count(&'a Bound),
    Other,
}

impl Bound {
    fn new(trigger: &Arc<Trigger>, number: &dyn Fn(Number) -> Number) -> Result<Self, OutOfMemory> {
        let filter = trigger.filter.as_ref().map(|filter| filter.map(number)).transpose()?;
        let histogram = match &trigger.action {
            Action::Histogram(histogram) => Some(histogram),
            _ => None,
        };
        let (keys, values) = histogram.map_or((&[][..], &[][..]), |of| (&of.keys[..], &of.values[..]));
        let keys = fallible::boxed_slice(keys.iter().map(|key| key.map(number)))?;
        let values = fallible::boxed_slice(values.iter().map(|&value| number(value)))?;
        let plain = histogram.filter(|histogram| filter.is_none() && histogram.link.is_none());
        let tally = plain.map(|of| Tally::new(of, &keys, &values));
        let is_linked = histogram.is_some_and(|histogram| histogram.link.is_some());
        let tally = tally.transpose()?.flatten();
        Ok(Self { trigger: trigger.clone(), filter, keys, values, is_linked, tally })
    }

    /// Whether it looks at the hit, and not only that there is one.
    fn looks(&self) -> bool {
        self.filter.is_some() || !matches!(self.trigger.action, Action::Switch { .. } | Action::Snapshot(_))
    }

    /// Whether it records synthetic events.
    fn emits(&self) -> bool {
        self.trigger.histogram().is_some_and(|histogram| histogram.definition().emits())
    }

    fn needs_record(&self) -> bool {
        self.is_linked
            || self.filter.as_ref().is_some_and(Filter::needs_record)
            || self.keys.iter().any(|key| key.needs_record())
            || self.values.iter().any(|value| value.needs_record())
    }
}

/// Something that is on or off, and that hits can change.
#[derive(Debug)]
pub struct Switch(pub(crate) AtomicBool);

/// What is done at a hit.
#[derive(Debug)]
pub struct Trigger {
    pub(crate) action: Action,
    /// At these hits; at all, if there is no filter.
    pub(crate) filter: Option<Filter>,
    /// As often as this at most.
    pub(crate) limit: u64,
    /// How often it was wanted.
    pub(crate) taken: AtomicU64,
    /// It is a histogram that counts no hits for now.
    paused: AtomicBool,
    /// The beginning of its text: `stacktrace`, `enable_event:GROUP:EVENT`.
    name: String,
}

/// What a trigger does.
#[derive(Debug)]
pub(crate) enum Action {
    Histogram(Arc<Histogram>),
    /// Records the stack.
    Stacktrace,
    /// Parts what is in these rings from what comes.
    Snapshot(&'static Rings),
    /// Has all tracing, or the recording of an event, be on or off.
    Switch {
        switch: Arc<Switch>,
        on: bool,
    },
}

impl Switch {
    /// A switch that is on, or off.
    #[must_use]
    pub const fn new(on: bool) -> Self {
        Self(AtomicBool::new(on))
    }
}

impl Trigger {
    /// Has hits not be counted, or be counted again.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Relaxed);
    }

    /// Whether hits are not counted.
    #[inline(always)]
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// The histogram, if it is one.
    #[must_use]
    pub fn histogram(&self) -> Option<&Histogram> {
        self.shared_histogram().map(|histogram| &**histogram)
    }

    /// The same, as others refer to it.
    pub(crate) fn shared_histogram(&self) -> Option<&Arc<Histogram>> {
        match &self.action {
            Action::Histogram(histogram) => Some(histogram),
            _ => None,
        }
    }
}

/// The trigger as the file `trigger` shows it, without the end of the line.
impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.action, self.limit) {
            (Action::Histogram(histogram), _) => write!(f, "hist:{}", histogram.definition())?,
            (_, u64::MAX) => write!(f, "{}:unlimited", self.name)?,
            (_, limit) => {
                write!(f, "{}:count={}", self.name, limit.saturating_sub(self.taken.load(Relaxed)))?;
            }
        }
        if let Some(filter) = &self.filter {
            write!(f, " if {filter}")?;
        }
        match (&self.action, self.is_paused()) {
            (Action::Histogram(_), true) => f.write_str(" [paused]"),
            (Action::Histogram(_), false) => f.write_str(" [active]"),
            _ => Ok(()),
        }
    }
}

/// Where the handlers of an event find its plan.
#[derive(Debug, Default)]
pub struct PlanCell(pub(crate) AtomicPtr<Plan>);

impl PlanCell {
    /// The virtual address of a word that is 0 while there is no plan.
    pub(crate) fn address(&self) -> u64 {
        (&raw const self.0).expose_provenance() as u64
    }

    /// Puts `plan` in the place of the one that is there, which is returned.
    ///
    /// Hits that are being handled may still use that: it must not be dropped before they are over.
    #[must_use]
    pub(crate) fn replace(&self, plan: Option<Box<Plan>>) -> Option<Box<Plan>> {
        let old = self.0.swap(plan.map_or(ptr::null_mut(), Box::into_raw), AcqRel);
        // SAFETY: it was put here by a call of this function, from a box, and is taken out once.
        (!old.is_null()).then(|| unsafe { Box::from_raw(old) })
    }
}

impl Drop for PlanCell {
    fn drop(&mut self) {
        // No hit can refer to this cell any more.
        drop(self.replace(None));
    }
}

#[cfg(test)]
mod tests;
