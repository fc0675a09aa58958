//! Writing records: from a hit to its record in the ring of its CPU.
//!
//! Most hits are handled in one stretch, without a call, by `record_fast`. It drops a hit that the filter rejects
//! before it looks at anything else, and writes a record of words straight into its final place. It leaves all other
//! hits to [`record`](Recorder::record), which handles every kind.

use core::sync::atomic::Ordering;

use super::Registers;
use super::action::{HitState, Verdict};
use crate::context::Context;
use crate::fetch::{FetchProgram, Word};
use crate::recorder::{Flags, Recorder};
use crate::ring::{RECORD_HEADER, Ring};
use crate::trigger::Plan;
use reservation::Reservation;

mod compose;
mod mark;
mod pending;
mod reservation;

/// A hit to record, apart from its registers.
#[derive(Clone, Copy, Debug)]
pub struct RecordedHit<'a> {
    /// Where and when the hit was.
    pub context: Context,
    /// The virtual address of the probe; in a return probe, of the function that returned. For an event on a synthetic
    /// event that a return has caused, the return address.
    pub address: u64,
    /// The return address, if the event is one of returns.
    pub return_address: Option<u64>,
    /// The values that were saved at the entry of the function; for an event on a synthetic event, the words of the
    /// record of the synthetic event.
    pub entry: &'a [u64],
    /// For a synthetic event, and an event on one: whether the code that was hit has its caller in x30 and not yet in a
    /// frame record. Of any other event, the plan knows it.
    pub is_caller_in_x30: bool,
}

impl Recorder {
    /// Records a hit. When this returns, the `registers` have been read.
    ///
    /// # Safety
    ///
    /// The caller must be handling the hit, on the CPU of `hit`, with interrupts masked. `hit` must have a return
    /// address exactly if the event is one of returns.
    #[inline(never)]
    pub unsafe fn record(&self, registers: Registers<'_>, hit: &RecordedHit<'_>) {
        // SAFETY: the caller guarantees that the hit is being handled on this CPU and that `hit` fits the event (see
        // # Safety).
        unsafe {
            match self.plan.get() {
                None if self.rings.is_on() => self.enter(None, registers, hit),
                None => {}
                Some(plan) if plan.is_direct => self.act(plan, registers, hit),
                Some(plan) => {
                    self.enter(Some(plan), registers, hit);
                    if plan.emits {
                        self.drain(plan, registers, hit);
                    }
                }
            }
        }
    }

    /// Records a hit of an event on a synthetic event, whose record is the `entry` of `hit`. The records that its
    /// triggers make stay pending.
    ///
    /// # Safety
    ///
    /// The contract of [`record`](Self::record) applies.
    #[inline(never)]
    unsafe fn record_dependent(&self, registers: Registers<'_>, hit: &RecordedHit<'_>) {
        if !self.armed.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: the caller upholds the contract of `record` (see # Safety).
        unsafe {
            match self.plan.get() {
                None if self.rings.is_on() => self.enter(None, registers, hit),
                None => {}
                Some(plan) if plan.is_direct => self.act(plan, registers, hit),
                Some(plan) => self.enter(Some(plan), registers, hit),
            }
        }
    }

    /// Carries out a `plan` that does not look at the record. The plan applies even while recording is off.
    ///
    /// # Safety
    ///
    /// The contract of [`record`](Self::record) applies.
    #[inline(always)]
    unsafe fn act(&self, plan: &Plan, registers: Registers<'_>, hit: &RecordedHit<'_>) {
        let Verdict { keep, stack } = plan.run(&[], &self.known(registers, hit), &self.rings.on);
        if keep {
            // SAFETY: the caller upholds the contract of `record` (see # Safety).
            unsafe { self.enter(None, registers, hit) };
        }
        if stack {
            // SAFETY: the caller upholds the contract of `record` (see # Safety).
            unsafe { self.enter_stack(plan, registers, hit) };
        }
    }

    /// Returns the state of a hit that filters and triggers see besides its record.
    #[inline(always)]
    fn known<'a>(&self, registers: Registers<'a>, hit: &'a RecordedHit<'_>) -> HitState<'a> {
        let address = hit.return_address.unwrap_or(hit.address);
        let is_caller_in_x30 = hit.is_caller_in_x30;
        HitState { registers, context: &hit.context, address, faults: 0, is_caller_in_x30 }
    }

    /// Records the hit, unless `plan` drops it.
    ///
    /// # Safety
    ///
    /// The contract of [`record`](Self::record) applies.
    #[inline(never)]
    unsafe fn enter(&self, plan: Option<&Plan>, registers: Registers<'_>, hit: &RecordedHit<'_>) {
        let Some(ring) = self.rings.rings.get(hit.context.cpu) else { return };
        if !ring.enter() {
            return;
        }
        match (&self.program, plan) {
            (FetchProgram::Words(words), None) => {
                if let Some(reservation) = ring.reserve(self.size) {
                    // SAFETY: the reservation is for `self.size` bytes, and `hit` fits the event (see # Safety).
                    unsafe { self.fill(ring, &reservation, words, registers, hit) };
                    reservation.commit();
                }
            }
            // SAFETY: `ring` was entered above, so no other hit uses its buffer.
            (_, plan) => unsafe { self.record_composed(ring, plan, registers, hit) },
        }
        ring.leave();
    }

    /// Records the stack.
    ///
    /// # Safety
    ///
    /// The contract of [`record`](Self::record) applies.
    #[inline(never)]
    unsafe fn enter_stack(&self, plan: &Plan, registers: Registers<'_>, hit: &RecordedHit<'_>) {
        let Some(ring) = self.rings.rings.get(hit.context.cpu) else { return };
        if !ring.is_left_out() && ring.enter() {
            // SAFETY: `ring` was just entered, so no other hit uses its buffer.
            unsafe { self.record_stack(ring, plan, registers, hit) };
            ring.leave();
        }
    }

    /// Handles a hit whose plan only counts by registers. Returns false, and does nothing, for any other plan.
    ///
    /// # Safety
    ///
    /// The caller must be handling the hit, on the CPU `cpu`, with interrupts masked.
    #[inline(always)]
    pub unsafe fn tallies(&self, registers: Registers<'_>, cpu: usize) -> bool {
        match self.plan.get() {
            Some(plan) => plan.tallies(registers, cpu),
            None => false,
        }
    }

    /// Records a hit if nothing about it is unusual: the plan only filters by registers, the record consists of words,
    /// and the page has room. Otherwise returns false, and does nothing.
    ///
    /// # Safety
    ///
    /// The contract of [`record`](Self::record) applies.
    #[inline(always)]
    pub unsafe fn record_fast<'a>(&self, registers: Registers<'_>, hit: impl FnOnce() -> RecordedHit<'a>) -> bool {
        match self.plan.get().map(|plan| plan.filter_fast(registers)) {
            None | Some(Some(true)) => {}
            Some(Some(false)) => return true,
            Some(None) => return false,
        }
        let FetchProgram::Words(words) = &self.program else { return false };
        if !self.rings.is_on() {
            return true;
        }
        let hit = hit();
        let Some(ring) = self.rings.rings.get(hit.context.cpu) else { return true };
        let Some(reservation) = ring.reserve_here(self.size) else { return false };
        // SAFETY: the reservation is for `self.size` bytes, and `hit` fits the event (see # Safety).
        unsafe { self.fill(ring, &reservation, words, registers, &hit) };
        reservation.commit();
        ring.leave();
        true
    }

    /// Writes a record of words.
    ///
    /// # Safety
    ///
    /// `reservation` must be for `size` bytes. `hit` must have a return address exactly if the event is one of returns.
    #[inline(always)]
    unsafe fn fill(
        &self,
        ring: &Ring,
        reservation: &Reservation<'_>,
        words: &[Word],
        registers: Registers<'_>,
        hit: &RecordedHit<'_>,
    ) {
        const FIRST: usize = RECORD_HEADER / 8;
        let context = &hit.context;
        // SAFETY: `size` covers the header (words 0 to 3), the common fields, the address, and one word for each of
        // `words`. An event of returns has one word more, for the return address, which the caller guarantees `hit` to
        // have.
        unsafe {
            reservation.set(1, context.time);
            reservation.set(2, context.name[0]);
            reservation.set(3, context.name[1]);
            reservation.set(FIRST, self.common(ring, registers, context));
            reservation.set(FIRST + 1, hit.address);
        }
        let first = match hit.return_address {
            None => FIRST + 2,
            Some(address) => {
                // SAFETY: an event of returns has this word (see above).
                unsafe { reservation.set(FIRST + 2, address) };
                FIRST + 3
            }
        };
        let mut faults = 0;
        for (number, word) in words.iter().enumerate() {
            let value = registers.fetch(word);
            if value.is_none() {
                faults |= 1 << (number & 31);
            }
            // SAFETY: `size` covers a word for each of `words` (see above).
            unsafe { reservation.set(first + number, value.unwrap_or(0)) };
        }
        // SAFETY: word 0 is part of the header.
        unsafe { reservation.set(0, self.size as u64 | faults << 32) };
    }

    /// Returns the fields that every event has, as one word.
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
