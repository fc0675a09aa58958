//! The hit path: what happens between a probe and its record in the ring.
//!
//! Everything in this module and below runs while a probe is handled, with interrupts masked: no lock, no
//! allocation, no panic, and no call out of the closed region of the image. The linker script places it there by
//! its path, so only functions of the hit path are here, and none of the types that others are generic over.

use core::ptr;

use aarch64_kprobes::exception::{TrapFrame, nofault};

use crate::action::{self, Verdict};
use crate::fetch::{Program, Register, Word};
use crate::format::Shape;
use crate::host::Context;
use crate::recorder::{Flags, Recorder};
use crate::ring::{RECORD_HEADER, Ring};
use crate::trigger::Plan;

mod compose;
#[cfg(target_os = "none")]
pub(crate) mod handler;
mod room;

/// A hit, as far as it is not its registers.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// Where and when.
    pub context: Context,
    /// The virtual address of the probe; of the function that returned.
    pub address: u64,
    /// The virtual address that the function returned to.
    pub return_address: u64,
    /// What was kept at the entry of the function.
    pub entry: &'a [u64],
}

impl Recorder {
    /// Records a hit with the registers in `frame`, of which those that are asked for were looked at when this returns.
    #[inline(always)]
    pub fn record(&self, frame: &TrapFrame, moment: &Moment<'_>) {
        match self.plan.get() {
            None if self.rings.is_on() => self.enter(None, frame, moment),
            None => {}
            Some(plan) => self.consider(plan, frame, moment),
        }
    }

    /// Does what `plan` says; it does so also while nothing is recorded.
    #[inline(never)]
    fn consider(&self, plan: &Plan, frame: &TrapFrame, moment: &Moment<'_>) {
        let known = self.known(frame, moment);
        if !plan.is_direct {
            return self.enter(Some(plan), frame, moment);
        }
        if plan.dismisses(known) {
            return;
        }
        let Verdict { keep, stack } = plan.run(&[], known);
        if (keep || stack) && self.rings.is_on() {
            if keep {
                self.enter(None, frame, moment);
            }
            if stack {
                self.enter_stack(plan, frame, moment);
            }
        }
    }

    /// What filters and triggers know of a hit besides its record.
    #[inline(always)]
    fn known<'a>(&self, frame: &'a TrapFrame, moment: &'a Moment<'_>) -> action::Moment<'a> {
        let address = if self.shape == Shape::Return { moment.return_address } else { moment.address };
        action::Moment { frame, context: &moment.context, address }
    }

    #[inline(always)]
    fn enter(&self, plan: Option<&Plan>, frame: &TrapFrame, moment: &Moment<'_>) {
        let Some(ring) = self.rings.rings.get(moment.context.cpu) else { return };
        if !ring.enter() {
            return;
        }
        match (&self.program, plan) {
            (Program::Words(words), None) => self.record_words(ring, words, frame, moment),
            (_, plan) => self.record_composed(ring, plan, frame, moment),
        }
        ring.leave();
    }

    #[inline(never)]
    fn enter_stack(&self, plan: &Plan, frame: &TrapFrame, moment: &Moment<'_>) {
        let Some(ring) = self.rings.rings.get(moment.context.cpu) else { return };
        if ring.enter() {
            self.record_stack(ring, plan, frame, moment);
            ring.leave();
        }
    }

    #[inline(always)]
    fn record_words(&self, ring: &Ring, words: &[Word], frame: &TrapFrame, moment: &Moment<'_>) {
        const FIRST: usize = RECORD_HEADER / 8;
        let Some(room) = ring.reserve(self.size) else { return };
        let context = &moment.context;
        // SAFETY: of the size of a record of words these are the first, and its fields are the others, one for each word.
        unsafe {
            room.set(1, context.time);
            room.set(2, context.name[0]);
            room.set(3, context.name[1]);
            room.set(FIRST, self.common(ring, frame, context));
            room.set(FIRST + 1, moment.address);
            if self.shape == Shape::Return {
                room.set(FIRST + 2, moment.return_address);
            }
        }
        let first = if self.shape == Shape::Return { FIRST + 3 } else { FIRST + 2 };
        let mut faults = 0;
        for (number, word) in words.iter().enumerate() {
            let value = word.fetch(frame);
            if value.is_none() {
                faults |= 1 << (number & 31);
            }
            // SAFETY: as above.
            unsafe { room.set(first + number, value.unwrap_or(0)) };
        }
        // SAFETY: as above.
        unsafe { room.set(0, self.size as u64 | faults << 32) };
        room.commit();
    }

    /// The fields that every event has.
    #[inline(always)]
    fn common(&self, ring: &Ring, frame: &TrapFrame, context: &Context) -> u64 {
        let irqs_off = frame.pstate & TrapFrame::IRQ_MASKED != 0;
        let interrupt = ring.interrupt.load(core::sync::atomic::Ordering::Relaxed);
        let irqs_off = if irqs_off { u64::from(Flags::IRQS_OFF) } else { 0 };
        let interrupt = if interrupt { u64::from(Flags::INTERRUPT) } else { 0 };
        let flags = irqs_off | interrupt;
        u64::from(self.event) | flags << 16 | context.task << 32
    }
}

impl Word {
    /// The word, if it can be read.
    #[inline(always)]
    fn fetch(&self, frame: &TrapFrame) -> Option<u64> {
        let value = register(self.register, frame);
        if self.is_memory {
            return nofault::read(value.wrapping_add_signed(self.offset.into()) as usize).ok();
        }
        Some(value)
    }
}

/// The value of a register.
#[inline(always)]
pub(crate) fn register(register: Register, frame: &TrapFrame) -> u64 {
    // SAFETY: x0 to x30, sp, pc and pstate lie one behind the other, and a register is one of them.
    unsafe { *ptr::from_ref(frame).cast::<u64>().add(register.place()) }
}
