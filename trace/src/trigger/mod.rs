//! Triggers: what an event does at a hit besides recording (Linux: Documentation/trace/events.rst, section 6).
//!
//! The handlers of an event consult its [`Plan`], and its snippets are made from it: the filter, the triggers, and
//! whether hits are recorded at all. A plan never changes. A new plan replaces it, and the old one is dropped when no
//! hit can be using it any more.
//!
//! `hit::action` carries plans out. Triggers are set and removed in [`settings`] for one event, and in
//! [`Events`](crate::events::Events) for all; [`restriction`] limits recording to tasks and CPUs.

pub mod inherited_tasks;
mod parse;
pub mod restriction;
pub mod settings;

use alloc::boxed::Box;
use alloc::string::String;
use core::fmt;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};

use fallible::{Arc, OutOfMemory};

pub(crate) use parse::Line;
pub use parse::{Error, Request, TriggerKind};

use crate::filter::{Filter, Number, RegisterQuestion, Test};
use crate::histogram::{Histogram, Key, Tally};
use crate::recorder::Recorder;
use crate::ring::Rings;
use crate::switch::Switch;
use crate::tracer::Recording;
use inherited_tasks::InheritedTasks;

/// The text of the file `trigger` for an event without triggers.
pub const AVAILABLE: &str = "# Available triggers:\n# traceon traceoff snapshot stacktrace enable_event disable_event \
     enable_hist disable_hist hist\n";

/// What the handlers of an event do besides recording, or instead of it.
#[derive(Debug)]
pub struct Plan {
    /// The filter of the hits to record; `None` records all.
    pub(crate) filter: Option<Filter>,
    /// The triggers, in the order in which they fire: those that fire after the record come last.
    pub(crate) triggers: Box<[BoundTrigger]>,
    /// Whether a trigger looks at the hit or fires after the record. Then all triggers fire after the record has been
    /// begun, and what they switch applies from the next hit on. Otherwise they fire before it is begun (Linux:
    /// `EVENT_FILE_FL_TRIGGER_COND`).
    pub(crate) has_conditional_trigger: bool,
    /// The switch for recording hits.
    pub(crate) recording: Arc<Switch>,
    /// Whether hits are recorded, if no trigger can change that; otherwise `None`.
    records: Option<bool>,
    /// Whether the probed code's caller is in x30 and not yet in a frame record.
    pub(crate) is_caller_in_x30: bool,
    /// Whether a record of the stack follows each record.
    pub(crate) stacks: bool,
    /// The tasks whose hits are recorded, if children inherit the restriction; otherwise the filter has the tasks.
    pub(crate) inherited: Option<Arc<InheritedTasks>>,
    /// The task that the event is about besides the one that is hit, if `inherited` applies to it, too.
    pub(crate) other_task: Option<Number>,
    /// Whether a trigger records synthetic events.
    pub(crate) emits: bool,
    /// The recorders of the armed events that are on this event, if it is a synthetic one.
    pub(crate) dependents: Box<[Arc<Recorder>]>,
    /// Whether nothing in the plan looks at the record, so that a record is made only if it is kept.
    pub(crate) is_direct: bool,
    /// The filter, if the plan only records what the filter accepts, and the filter looks only at registers.
    pub(crate) register_tests: Option<Box<[Test<RegisterQuestion>]>>,
}

/// A trigger whose operands are resolved to their sources at one probe.
#[derive(Debug)]
pub(crate) struct BoundTrigger {
    pub(crate) trigger: Arc<Trigger>,
    /// The filter of the hits at which the trigger fires; `None` means all.
    pub(crate) filter: Option<Filter>,
    /// The keys, if the trigger is a histogram.
    pub(crate) keys: Box<[Key]>,
    pub(crate) values: Box<[Number]>,
    /// Whether the trigger is a histogram with variables or expressions, which look at the record.
    uses_variables: bool,
    /// The fast path, if the trigger is a histogram of all hits by a register or a part of one.
    pub(crate) tally: Option<Tally>,
}

impl Plan {
    /// Makes the plan of a probe. `number` maps a number of the record to its source at this probe.
    fn new(
        filter: Option<&Filter>,
        triggers: &[Arc<Trigger>],
        recording: Arc<Switch>,
        records: Option<bool>,
        context: ProbeContext<'_>,
        number: &dyn Fn(Number) -> Number,
    ) -> Result<Self, OutOfMemory> {
        let ProbeContext { is_caller_in_x30, stacks, inherited, other_task, gate, dependents } = context;
        let filter = gated(gate, filter, number)?;
        let of = |is_late: bool| triggers.iter().filter(move |trigger| trigger.is_late() == is_late);
        let in_order = of(false).chain(of(true)).map(|trigger| BoundTrigger::new(trigger, gate, number));
        let triggers = fallible::collect_results(in_order)?;
        let triggers = fallible::boxed_slice(triggers)?;
        let other_task = other_task.filter(|_| inherited.is_some()).map(number);
        let is_direct = !filter.as_ref().is_some_and(Filter::needs_record)
            && !triggers.iter().any(BoundTrigger::needs_record)
            && !other_task.is_some_and(Number::needs_record);
        let has_conditional_trigger = triggers.iter().any(BoundTrigger::is_conditional);
        let emits = triggers.iter().any(BoundTrigger::emits);
        let only_filters = triggers.is_empty() && !stacks && inherited.is_none();
        let register_tests =
            filter.as_ref().filter(|_| only_filters).map(Filter::register_tests).transpose()?.flatten();
        let inherited = inherited.cloned();
        let dependents = fallible::boxed_slice(dependents.iter().cloned())?;
        Ok(Self {
            filter,
            triggers,
            has_conditional_trigger,
            recording,
            records,
            is_caller_in_x30,
            stacks,
            inherited,
            other_task,
            emits,
            dependents,
            is_direct,
            register_tests,
        })
    }

    /// Returns the plan of a tracer; `None` means record every hit.
    pub(crate) fn of_tracer(recording: &Recording<'_>) -> Result<Option<Box<Self>>, OutOfMemory> {
        let &Recording { restriction, inherited, stacks, .. } = recording;
        let filter = restriction.filter(None, None)?;
        if filter.is_none() && !stacks && inherited.is_none() {
            return Ok(None);
        }
        let context = ProbeContext { stacks, inherited, ..ProbeContext::AT_ENTRY };
        let recording = Arc::try_new(Switch::new(true))?;
        fallible::boxed(Self::new(filter.as_ref(), &[], recording, Some(true), context, &|number| number)?).map(Some)
    }

    /// Returns what a hit has to do, if a stub can do it.
    pub(crate) fn work(&self) -> Work<'_> {
        match (self.records, self.register_tests.as_deref(), &*self.triggers) {
            (Some(true), Some(tests), _) => Work::Record(tests),
            (Some(false), _, [bound]) if bound.filter.is_none() => Work::Count(bound),
            _ => Work::Other,
        }
    }
}

/// What the plan of a probe depends on besides the settings of its event.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProbeContext<'a> {
    /// Whether the probed code's caller is in x30 and not yet in a frame record.
    pub is_caller_in_x30: bool,
    /// Whether a record of the stack follows each record.
    pub stacks: bool,
    /// The tasks whose hits are recorded, if children inherit the restriction.
    pub inherited: Option<&'a Arc<InheritedTasks>>,
    /// The task that the event is about besides the one that is hit.
    pub other_task: Option<Number>,
    /// The filter of the hits that count at all, for records and for triggers.
    pub gate: Option<&'a Filter>,
    /// The recorders of the armed events that are on this event, if it is a synthetic one.
    pub dependents: &'a [Arc<Recorder>],
}

impl ProbeContext<'_> {
    /// The context of a probe at the entry of a function.
    pub const AT_ENTRY: Self = Self { is_caller_in_x30: true, ..Self::INSIDE };
    /// The context of a probe at another instruction.
    pub const INSIDE: Self =
        Self { is_caller_in_x30: false, stacks: false, inherited: None, other_task: None, gate: None, dependents: &[] };
}

/// Returns the filter of the hits that both `gate` and `filter` accept, with `number` applied to each number.
fn gated(
    gate: Option<&Filter>,
    filter: Option<&Filter>,
    number: &dyn Fn(Number) -> Number,
) -> Result<Option<Filter>, OutOfMemory> {
    match (gate, filter) {
        (Some(gate), Some(filter)) => gate.and(filter)?.map(number).map(Some),
        (one, other) => one.or(other).map(|filter| filter.map(number)).transpose(),
    }
}

/// What a hit has to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work<'a> {
    /// Record the hit if it passes these tests.
    Record(&'a [Test<RegisterQuestion>]),
    /// Fire this trigger at every hit, and record nothing.
    Count(&'a BoundTrigger),
    Other,
}

impl BoundTrigger {
    fn new(
        trigger: &Arc<Trigger>,
        gate: Option<&Filter>,
        number: &dyn Fn(Number) -> Number,
    ) -> Result<Self, OutOfMemory> {
        let filter = gated(gate, trigger.filter.as_ref(), number)?;
        let histogram = trigger.shared_histogram();
        let (keys, values) = histogram.map_or((&[][..], &[][..]), |of| (&of.keys[..], &of.values[..]));
        let keys = fallible::boxed_slice(keys.iter().map(|key| key.map(number)))?;
        let values = fallible::boxed_slice(values.iter().map(|&value| number(value)))?;
        let plain = histogram.filter(|histogram| filter.is_none() && histogram.variable_use.is_none());
        let tally = plain.map(|of| Tally::new(of, &keys, &values));
        let uses_variables = histogram.is_some_and(|histogram| histogram.variable_use.is_some());
        let tally = tally.transpose()?.flatten();
        Ok(Self { trigger: trigger.clone(), filter, keys, values, uses_variables, tally })
    }

    /// Whether the trigger cannot fire before the record is begun.
    fn is_conditional(&self) -> bool {
        self.trigger.filter.is_some() || self.trigger.histogram().is_some() || self.trigger.is_late()
    }

    /// Whether the trigger records synthetic events.
    fn emits(&self) -> bool {
        self.trigger.histogram().is_some_and(|histogram| histogram.definition().emits())
    }

    fn needs_record(&self) -> bool {
        self.uses_variables
            || self.filter.as_ref().is_some_and(Filter::needs_record)
            || self.keys.iter().any(|key| key.needs_record())
            || self.values.iter().any(|value| value.needs_record())
    }
}

/// A trigger of an event.
#[derive(Debug)]
pub struct Trigger {
    pub(crate) action: Action,
    /// The filter of the hits at which the trigger fires; `None` means all.
    pub(crate) filter: Option<Filter>,
    /// How often the trigger fires at most.
    pub(crate) limit: u64,
    /// How often the trigger was due. It fires at most `limit` times.
    pub(crate) taken: AtomicU64,
    /// Whether the trigger is a histogram that does not count hits for now.
    pause: Pause,
    /// The beginning of the text: `stacktrace`, `enable_event:GROUP:EVENT`.
    name: String,
}

/// What a trigger does when it fires.
#[derive(Debug)]
pub(crate) enum Action {
    Histogram(Arc<Histogram>),
    /// Records the stack.
    Stacktrace {
        /// Whether its count is used only while the trace is on.
        is_command: bool,
    },
    /// Separates the present records of these rings from later ones.
    Snapshot(&'static Rings),
    /// Turns all tracing, or the recording of an event, on or off.
    Switch {
        switch: Arc<Switch>,
        on: bool,
    },
    /// Lets the histograms of an event continue, or pauses them.
    Order {
        orders: Arc<Orders>,
        on: bool,
    },
}

/// What a trigger acts on, besides its own event.
#[derive(Clone, Debug)]
pub enum Target {
    /// All tracing, or the recording of an event.
    Recording(Arc<Switch>),
    /// The histograms of an event.
    Histograms(Arc<Orders>),
}

/// The orders of triggers to all histograms of an event.
#[derive(Debug, Default)]
pub struct Orders {
    /// Whether the last order was to pause. Written before `number` is raised.
    pub(crate) is_pause: AtomicBool,
    pub(crate) number: AtomicU64,
}

/// Whether a histogram is paused: by its own file `trigger`, or by an order that came later.
#[derive(Debug)]
struct Pause {
    orders: Arc<Orders>,
    is_paused: AtomicBool,
    /// The number of orders when `is_paused` was set.
    since: AtomicU64,
}

impl Pause {
    fn new(orders: &Arc<Orders>, is_paused: bool) -> Self {
        let since = AtomicU64::new(orders.number.load(Relaxed));
        Self { orders: orders.clone(), is_paused: AtomicBool::new(is_paused), since }
    }

    fn set(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Relaxed);
        self.since.store(self.orders.number.load(Relaxed), Relaxed);
    }

    #[inline(always)]
    fn is_set(&self) -> bool {
        let is_last = self.orders.number.load(Acquire) == self.since.load(Relaxed);
        if is_last { &self.is_paused } else { &self.orders.is_pause }.load(Relaxed)
    }
}

impl Trigger {
    /// Pauses counting, or continues it.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.pause.set(paused);
    }

    /// Whether counting is paused.
    #[inline(always)]
    pub(crate) fn is_paused(&self) -> bool {
        self.pause.is_set()
    }

    /// Whether the trigger fires after the record of the hit (Linux: `EVENT_CMD_FL_POST_TRIGGER`).
    fn is_late(&self) -> bool {
        matches!(self.action, Action::Stacktrace { .. }) || self.name == TRACEOFF
    }

    /// Returns the histogram; `None` for another trigger.
    #[must_use]
    pub fn histogram(&self) -> Option<&Histogram> {
        self.shared_histogram().map(|histogram| &**histogram)
    }

    /// Returns the histogram to share with others; `None` for another trigger.
    pub(crate) fn shared_histogram(&self) -> Option<&Arc<Histogram>> {
        match &self.action {
            Action::Histogram(histogram) => Some(histogram),
            _ => None,
        }
    }
}

/// The trigger as the file `trigger` shows it, without the line end.
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

/// The name of the trigger that turns all tracing off.
const TRACEOFF: &str = "traceoff";

/// The cell in which the handlers of an event find its plan: a pointer to a plan that the cell owns, or null.
#[derive(Debug, Default)]
pub struct PlanCell(pub(crate) AtomicPtr<Plan>);

// `AtomicPtr` is `Send` and `Sync` whatever it points to. The cell shares its plan with the hits on all CPUs, and any
// task may drop the plan.
const _: fn() = || {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Plan>();
};

impl PlanCell {
    /// Returns whether there is a plan now. It does not look at the plan, which may be dropped at any moment outside of
    /// a hit.
    pub(crate) fn has_plan(&self) -> bool {
        !self.0.load(Relaxed).is_null()
    }

    /// Gives a cell that never had a plan its first one.
    pub(crate) fn set_first(&self, plan: Option<Box<Plan>>) {
        let old = self.replace(plan);
        debug_assert!(old.is_none(), "the cell had a plan, which is leaked");
    }

    /// Replaces the plan by `plan`, and returns the old one.
    pub(crate) fn replace(&self, plan: Option<Box<Plan>>) -> Option<RetiredPlan> {
        self.swap(plan.map_or(ptr::null_mut(), Box::into_raw))
    }

    /// Replaces the plan by `plan`, which was in the cell before, and returns the plan that was in the cell meanwhile.
    pub(crate) fn restore(&self, plan: Option<RetiredPlan>) -> Option<RetiredPlan> {
        self.swap(plan.map_or(ptr::null_mut(), |RetiredPlan(plan)| plan.as_ptr()))
    }

    /// Stores a pointer to a plan that the cell owns from now on, or null. Returns the old plan.
    fn swap(&self, plan: *mut Plan) -> Option<RetiredPlan> {
        NonNull::new(self.0.swap(plan, AcqRel)).map(RetiredPlan)
    }
}

impl Drop for PlanCell {
    fn drop(&mut self) {
        let plan = self.replace(None);
        // SAFETY: the cell is borrowed mutably, so no reference from `PlanCell::get` exists, and the plan was in the
        // cell until now.
        plan.into_iter().for_each(|plan| unsafe { plan.free() });
    }
}

/// A plan that was taken out of its cell, and that hits may still be using. Dropping this leaks the plan.
///
/// A pointer, not a `Box`: moving a `Box` asserts that it is the only pointer to its value. The plan is a `Box` before
/// it gets into the cell, and again when it is freed.
#[derive(Debug)]
#[must_use]
pub(crate) struct RetiredPlan(NonNull<Plan>);

impl RetiredPlan {
    /// Frees the plan.
    ///
    /// # Safety
    ///
    /// No reference to the plan may be used any more that [`PlanCell::get`] returned before the plan was taken out of
    /// its cell. Hits have such references, so the caller must have waited for them since:
    /// [`RegisteredProbe::synchronize`](crate::events::RegisteredProbe::synchronize).
    pub(crate) unsafe fn free(self) {
        // SAFETY: `PlanCell::replace` got the pointer from a box. Only `PlanCell::swap` makes a `RetiredPlan`, and
        // takes the pointer out of the cell then, so it is freed only once. The caller guarantees that no hit uses the
        // plan.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
