//! What a hit does besides recording: the parts of filters, triggers and histograms that run in the hit path.
//!
//! A CPU handles one hit from beginning to end, without another hit on the same CPU in between. Therefore per-CPU data
//! is changed here without atomic read-modify-write operations.

mod accept;
mod count;
mod inherited_tasks;
mod load;
mod variables;

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use aarch64_kprobes::probe::StackWalk;

use crate::atomic::fence;
use crate::context::Context;
use crate::fetch::Register;
use crate::hit::Registers;
use crate::ring::Rings;
use crate::switch::Switch;
use crate::trigger::{Action, BoundTrigger, Orders, Plan, PlanCell, Trigger};

/// Everything about a hit that is not in its record.
#[derive(Clone, Copy, Debug)]
pub struct HitState<'a> {
    /// The registers of the probed code.
    pub registers: Registers<'a>,
    /// Where and when the hit was.
    pub context: &'a Context,
    /// The virtual address of the probe; in a return probe, the return address.
    pub address: u64,
    /// The arguments in the record that could not be read, bit 0 for the first.
    pub faults: u32,
    /// Whether the caller of the probed code is in x30 and not yet in a frame record, even if the plan does not say so.
    pub is_caller_in_x30: bool,
}

impl HitState<'_> {
    /// Starts a walk along the stack. `is_caller_in_x30` says that the probed function has not made its frame record
    /// yet, so its caller is in x30.
    pub(crate) fn walk(&self, is_caller_in_x30: bool) -> StackWalk {
        let get = |register| self.registers.get(register);
        let link = if is_caller_in_x30 { Some((get(Register::LINK), get(Register::SP))) } else { None };
        // SAFETY: the registers are those of the code that was hit, which does not go on before the hit ends. Code that
        // uses x29 for something else makes the walk read whatever x29 points to (README.md, Limits).
        unsafe { StackWalk::new(self.address, get(Register::FRAME), link) }
    }
}

/// What the plan decides about the record of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the record stays in the ring.
    pub keep: bool,
    /// Whether a record of the stack follows, even if the record itself is dropped.
    pub stack: bool,
}

impl PlanCell {
    /// Returns the plan; `None` means record every hit. The reference is valid while the hit is handled.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&Plan> {
        // SAFETY: the pointer is null or that of a plan that `PlanCell::replace` was given in a box. A plan that is
        // taken out of the cell is freed only when no reference to it is used any more (# Safety of
        // `RetiredPlan::free`). It never becomes a `Box` before, which would invalidate the reference.
        unsafe { self.0.load(Acquire).as_ref() }
    }
}

impl Plan {
    /// Starts a walk along the stack at a hit of this event.
    pub(crate) fn walk(&self, state: &HitState<'_>) -> StackWalk {
        state.walk(self.is_caller_in_x30 || state.is_caller_in_x30)
    }

    /// Whether the filter accepts the hit.
    #[inline(always)]
    fn accepts(&self, record: &[u8], state: &HitState<'_>) -> bool {
        self.filter.as_ref().is_none_or(|filter| accept::accepts(filter.tests(), record, state))
    }

    /// Decides a hit from its registers alone, if filtering by registers is all that the plan does: returns whether to
    /// record the hit. `None` if the plan needs more.
    #[inline(always)]
    pub(crate) fn filter_fast(&self, registers: Registers<'_>) -> Option<bool> {
        let tests = self.register_tests.as_deref()?;
        Some(accept::accepts_registers(tests, registers) && self.recording.is_on())
    }

    /// Fires the triggers of the event, and decides what happens to `record`. `record` is empty if no trigger or filter
    /// looks at it. `tracing` is the switch for all recording, which triggers may change.
    #[inline]
    pub(crate) fn run(&self, record: &[u8], state: &HitState<'_>, tracing: &Switch) -> Verdict {
        let was_on = tracing.is_on();
        let mut stack = false;
        for bound in &self.triggers {
            stack |= bound.fire(self, record, state, tracing) && tracing.is_on();
        }
        let is_on = tracing.is_on();
        let may_keep = if self.has_conditional_trigger { was_on } else { is_on };
        let is_accepted = || match (&self.inherited, &self.other_task) {
            (None, _) => true,
            (Some(tasks), None) => tasks.accepts(state.context.task as u32),
            (Some(tasks), Some(other)) => {
                tasks.accepts(state.context.task as u32) || tasks.accepts(load::counted(*other, record, state) as u32)
            }
        };
        let keep = may_keep && self.recording.is_on() && is_accepted() && self.accepts(record, state);
        Verdict { keep, stack: stack || keep && self.stacks }
    }
}

impl BoundTrigger {
    /// Fires the trigger if its filter accepts the hit. Returns whether the trigger wants a record of the stack.
    /// `tracing` is the switch for all recording.
    #[inline(always)]
    fn fire(&self, plan: &Plan, record: &[u8], state: &HitState<'_>, tracing: &Switch) -> bool {
        if let Some(filter) = &self.filter
            && !accept::accepts(filter.tests(), record, state)
        {
            return false;
        }
        match &self.trigger.action {
            Action::Histogram(histogram) => histogram.count(self, plan, record, state),
            Action::Stacktrace { is_command } => return (!is_command || tracing.is_on()) && self.trigger.take(),
            Action::Snapshot(rings) => {
                if self.trigger.take() {
                    rings.split();
                }
            }
            Action::Switch { switch, on } => {
                if switch.is_on() != *on && self.trigger.take() {
                    switch.set(*on);
                }
            }
            Action::Order { orders, on } => {
                if self.trigger.take() {
                    orders.give(*on);
                }
            }
        }
        false
    }
}

impl Rings {
    /// Separates the present records from later ones, for the next reader.
    //
    // Not inlined: a function that counts atomically, as its caller does, looks to the audit like one that takes a lock
    // if it also contains a barrier.
    #[cold]
    #[inline(never)]
    pub(super) fn split(&self) {
        for ring in &self.rings {
            // A reader may load this position at once, because of an earlier hit. It then finds all records before the
            // position.
            ring.split.store(ring.position(Acquire), Release);
        }
        // Release: a reader that finds the word below finds these positions.
        fence(AcqRel);
        self.splits.store(1, Relaxed);
    }
}

impl Trigger {
    /// Counts a firing. Returns false if the trigger has fired as often as its limit allows.
    fn take(&self) -> bool {
        self.taken.fetch_add(1, Relaxed) < self.limit
    }
}

impl Orders {
    /// Lets all histograms of the event continue, or pauses them. Of two orders at the same time, either is the last.
    fn give(&self, on: bool) {
        self.is_pause.store(!on, Relaxed);
        self.number.fetch_add(1, Release);
    }
}

impl Switch {
    #[inline(always)]
    fn is_on(&self) -> bool {
        self.0.load(Relaxed)
    }

    fn set(&self, on: bool) {
        self.0.store(on, Relaxed);
    }
}

#[cfg(test)]
pub(crate) mod tests;
