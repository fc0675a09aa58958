//! From a hit to its record in the ring of its CPU.
//!
//! Most hits are dealt with in one stretch, without a call: by `record_quickly`, which tells a hit that is filtered out before
//! anything else is known of it, and fills a record of words in where it will stay. It leaves the others to
//! [`record`](Recorder::record), which does the same for all.

use core::sync::atomic::Ordering;

use super::Registers;
use super::action::{self, Verdict};
use crate::fetch::{Program, Word};
use crate::host::Context;
use crate::recorder::{Flags, Recorder};
use crate::ring::{RECORD_HEADER, Ring};
use crate::trigger::Plan;
use room::Room;

mod compose;
#[cfg(any(all(test, not(loom)), target_os = "none"))]
mod mark;
mod pending;
mod room;

/// A hit, as far as it is not its registers.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Where and when.
    pub context: Context,
    /// The virtual address of the probe; of the function that returned.
    pub address: u64,
    /// The virtual address that the function returned to, of an event that is one of returns.
    pub return_address: Option<u64>,
    /// What was kept at the entry of the function.
    pub entry: &'a [u64],
}

impl Recorder {
    /// Records a hit, of whose `registers` those that are asked for were looked at when this returns.
    ///
    /// # Safety
    ///
    /// The hit is being handled, on the CPU of `moment`, and with interrupts masked; and `moment` has a return address if the
    /// event is one of returns, and only then.
    #[inline(never)]
    pub unsafe fn record(&self, registers: Registers<'_>, moment: &Moment<'_>) {
        // SAFETY: by the caller.
        unsafe {
            match self.plan.get() {
                None if self.rings.is_on() => self.enter(None, registers, moment),
                None => {}
                Some(plan) if plan.is_direct => self.act(plan, registers, moment),
                Some(plan) => {
                    self.enter(Some(plan), registers, moment);
                    if plan.emits {
                        self.drain(registers, moment);
                    }
                }
            }
        }
    }

    /// Does what `plan` says, which looks at no record; it does so also while nothing is recorded.
    ///
    /// # Safety
    ///
    /// As of [`record`](Self::record).
    #[inline(always)]
    unsafe fn act(&self, plan: &Plan, registers: Registers<'_>, moment: &Moment<'_>) {
        let Verdict { keep, stack } = plan.run(&[], &self.known(registers, moment), &self.rings.on);
        if keep {
            // SAFETY: by the caller.
            unsafe { self.enter(None, registers, moment) };
        }
        if stack {
            // SAFETY: by the caller.
            unsafe { self.enter_stack(plan, registers, moment) };
        }
    }

    /// What filters and triggers know of a hit besides its record.
    #[inline(always)]
    fn known<'a>(&self, registers: Registers<'a>, moment: &'a Moment<'_>) -> action::Moment<'a> {
        let address = moment.return_address.unwrap_or(moment.address);
        action::Moment { registers, context: &moment.context, address, faults: 0 }
    }

    /// Records the hit, unless `plan` has it otherwise.
    ///
    /// # Safety
    ///
    /// As of [`record`](Self::record).
    #[inline(never)]
    unsafe fn enter(&self, plan: Option<&Plan>, registers: Registers<'_>, moment: &Moment<'_>) {
        let Some(ring) = self.rings.rings.get(moment.context.cpu) else { return };
        if !ring.enter() {
            return;
        }
        match (&self.program, plan) {
            (Program::Words(words), None) => {
                if let Some(room) = ring.reserve(self.size) {
                    // SAFETY: the room is that of a record, and the moment is one of the event.
                    unsafe { self.fill(ring, &room, words, registers, moment) };
                    room.commit();
                }
            }
            // SAFETY: it has been entered above.
            (_, plan) => unsafe { self.record_composed(ring, plan, registers, moment) },
        }
        ring.leave();
    }

    /// Records the stack.
    ///
    /// # Safety
    ///
    /// As of [`record`](Self::record).
    #[inline(never)]
    unsafe fn enter_stack(&self, plan: &Plan, registers: Registers<'_>, moment: &Moment<'_>) {
        let Some(ring) = self.rings.rings.get(moment.context.cpu) else { return };
        if ring.enter() {
            // SAFETY: it has been entered just now.
            unsafe { self.record_stack(ring, plan, registers, moment) };
            ring.leave();
        }
    }

    /// The same as [`record`](Self::record), where there is nothing to do but to count the hit under a word. Returns false
    /// otherwise, and nothing was done.
    #[inline(always)]
    pub fn tallies(&self, registers: Registers<'_>, cpu: usize) -> bool {
        match self.plan.get() {
            Some(plan) => plan.tallies(registers, cpu),
            None => false,
        }
    }

    /// The same as [`record`](Self::record), where nothing is unusual: there is nothing to do but to filter by words, the record is
    /// one of words, and there is room in the page. Returns false otherwise, and nothing was done.
    ///
    /// # Safety
    ///
    /// As of [`record`](Self::record).
    #[inline(always)]
    pub unsafe fn record_quickly<'a>(&self, registers: Registers<'_>, moment: impl FnOnce() -> Moment<'a>) -> bool {
        match self.plan.get().map(|plan| plan.keeps_quickly(registers)) {
            None | Some(Some(true)) => {}
            Some(Some(false)) => return true,
            Some(None) => return false,
        }
        let Program::Words(words) = &self.program else { return false };
        if !self.rings.is_on() {
            return true;
        }
        let moment = moment();
        let Some(ring) = self.rings.rings.get(moment.context.cpu) else { return true };
        let Some(room) = ring.reserve_here(self.size) else { return false };
        // SAFETY: as in `enter`.
        unsafe { self.fill(ring, &room, words, registers, &moment) };
        room.commit();
        ring.leave();
        true
    }

    /// Writes a record of words.
    ///
    /// # Safety
    ///
    /// `room` is for `size` bytes, and `moment` has a return address if the event is one of returns, and only then.
    #[inline(always)]
    unsafe fn fill(&self, ring: &Ring, room: &Room<'_>, words: &[Word], registers: Registers<'_>, moment: &Moment<'_>) {
        const FIRST: usize = RECORD_HEADER / 8;
        let context = &moment.context;
        // SAFETY: of the size of a record of words these are the first, and its fields are the others, one for each word; an event
        // of returns has one more, as the caller knows.
        unsafe {
            room.set(1, context.time);
            room.set(2, context.name[0]);
            room.set(3, context.name[1]);
            room.set(FIRST, self.common(ring, registers, context));
            room.set(FIRST + 1, moment.address);
        }
        let first = match moment.return_address {
            None => FIRST + 2,
            Some(address) => {
                // SAFETY: as above.
                unsafe { room.set(FIRST + 2, address) };
                FIRST + 3
            }
        };
        let mut faults = 0;
        for (number, word) in words.iter().enumerate() {
            let value = registers.fetch(word);
            if value.is_none() {
                faults |= 1 << (number & 31);
            }
            // SAFETY: as above.
            unsafe { room.set(first + number, value.unwrap_or(0)) };
        }
        // SAFETY: as above.
        unsafe { room.set(0, self.size as u64 | faults << 32) };
    }

    /// The fields that every event has.
    #[inline(always)]
    fn common(&self, ring: &Ring, registers: Registers<'_>, context: &Context) -> u64 {
        const SHIFT: u32 = 16;
        let irqs_off = u64::from(registers.irqs_masked());
        let interrupt = u64::from(ring.interrupt.load(Ordering::Relaxed));
        let flags = irqs_off << (SHIFT + Flags::IRQS_OFF.trailing_zeros())
            | interrupt << (SHIFT + Flags::INTERRUPT.trailing_zeros());
        u64::from(self.event) | flags | context.task << 32
    }
}
