//! What is done at a hit beside recording it: the part of filters, triggers and histograms that is in the hit path.
//!
//! A hit is handled by one CPU from its beginning to its end, and no other hit on the same CPU comes between: what each CPU
//! has of its own is changed here without atomic read-modify-write.

mod accept;
mod count;
mod link;
mod load;
mod walk;

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

pub use walk::Walk;

use crate::atomic::fence;
use crate::hit::Registers;
use crate::host::Context;
use crate::ring::Rings;
use crate::trigger::{Action, Bound, Plan, PlanCell, Switch, Trigger};

/// What is known of a hit besides its record.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// The registers of the probed code.
    pub registers: Registers<'a>,
    /// Where it ran.
    pub context: &'a Context,
    /// The virtual address of the probe; of a return, the address that is returned to.
    pub address: u64,
    /// Which arguments in the record could not be read, bit 0 for the first.
    pub faults: u32,
}

/// What becomes of the record of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// It stays in the ring.
    pub keep: bool,
    /// It, or its place, is followed by a record of the stack.
    pub stack: bool,
}

impl PlanCell {
    /// What is to be done besides recording, if anything. It stays for as long as the hit is being handled.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&Plan> {
        // SAFETY: what is here came from a box, and is dropped, when it was replaced, only after hits that may have found it.
        unsafe { self.0.load(Acquire).as_ref() }
    }
}

impl Plan {
    /// The addresses of the stack at a hit of this event.
    pub(crate) fn walk<'a>(&self, moment: &Moment<'a>) -> Walk<'a> {
        Walk::new(moment, self.in_link)
    }

    /// Whether the filter accepts the hit.
    #[inline(always)]
    fn accepts(&self, record: &[u8], moment: &Moment<'_>) -> bool {
        self.filter.as_ref().is_none_or(|filter| accept::accepts(filter.tests(), record, moment))
    }

    /// Whether a hit with these registers is to be recorded, if that is all there is to do, and nothing else need be known.
    #[inline(always)]
    pub(crate) fn keeps_quickly(&self, registers: Registers<'_>) -> Option<bool> {
        let tests = self.words.as_deref()?;
        Some(accept::accepts_words(tests, registers) && self.recording.is_on())
    }

    /// Carries the triggers of the event out, and says what becomes of `record`, which has not been made if nothing looks at it.
    /// `tracing` says whether anything is recorded, which triggers may change.
    #[inline]
    pub(crate) fn run(&self, record: &[u8], moment: &Moment<'_>, tracing: &Switch) -> Verdict {
        let was_on = tracing.is_on();
        let mut stack = false;
        for bound in &self.triggers {
            stack |= bound.fire(self, record, moment);
        }
        let is_on = tracing.is_on();
        let may_keep = if self.triggers_look { was_on } else { is_on };
        Verdict { keep: may_keep && self.recording.is_on() && self.accepts(record, moment), stack: stack && is_on }
    }
}

impl Bound {
    /// Carries the trigger out if it wants this hit. Whether it wants a record of the stack.
    #[inline(always)]
    fn fire(&self, plan: &Plan, record: &[u8], moment: &Moment<'_>) -> bool {
        if let Some(filter) = &self.filter
            && !accept::accepts(filter.tests(), record, moment)
        {
            return false;
        }
        match &self.trigger.action {
            Action::Histogram(histogram) => histogram.count(self, plan, record, moment),
            Action::Stacktrace => return self.trigger.take(),
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
        }
        false
    }
}

impl Rings {
    /// Parts what is in the rings from what will be, for whoever reads them next.
    //
    // Not inlined: with a barrier in it, a function that counts atomically, as its caller does, looks to the audit like one that
    // takes a lock.
    #[cold]
    #[inline(never)]
    pub(super) fn split(&self) {
        for ring in &self.rings {
            // A reader may load this at once, for an earlier hit, and finds all records in front of it.
            ring.split.store(ring.position.load(Acquire), Release);
        }
        // A reader that finds the word below finds these positions.
        fence(AcqRel);
        self.splits.store(1, Relaxed);
    }
}

impl Trigger {
    /// Whether the trigger has not been carried out as often as it is to be. It is counted.
    fn take(&self) -> bool {
        self.taken.fetch_add(1, Relaxed) < self.limit
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
