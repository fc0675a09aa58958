//! The hit path: what happens between a probe and its record in the ring.
//!
//! Everything in this module, [`ring`] and [`handler`] included, runs while a probe is handled, with
//! interrupts masked: no lock, no allocation, no panic, and no call out of the closed region of the image (the
//! linker script places this module there by its path). What is read and printed later is elsewhere.

use aarch64_kprobes::exception::TrapFrame;

use crate::definition::{MAX_ARGUMENTS, Source};
use crate::host::Context;
use ring::Rings;

#[cfg(target_os = "none")]
pub mod handler;
pub mod ring;

/// What the handlers of one event need.
#[derive(Debug)]
pub struct Recorder {
    event: u32,
    count: usize,
    sources: [Source; MAX_ARGUMENTS],
    rings: &'static Rings,
}

impl Recorder {
    /// A recorder of the event numbered `event`, that fetches `sources`, of which the first
    /// [`MAX_ARGUMENTS`] count, into `rings`.
    pub fn new(event: u32, sources: impl Iterator<Item = Source>, rings: &'static Rings) -> Self {
        let mut recorder = Self {
            event,
            count: 0,
            sources: [Source::Register(0); MAX_ARGUMENTS],
            rings,
        };
        for (place, source) in recorder.sources.iter_mut().zip(sources) {
            *place = source;
            recorder.count += 1;
        }
        recorder
    }

    /// Records a hit at the virtual address `address` with the registers in `frame`. `return_address` is 0
    /// unless a function, the one at `address`, returns to it.
    pub fn record(
        &self,
        frame: &TrapFrame,
        address: u64,
        return_address: u64,
        context: &Context,
        time: u64,
    ) {
        let Some(slot) = self.rings.reserve(context.cpu) else {
            return;
        };
        let flags = Flags::new(frame.pstate & TrapFrame::IRQ_MASKED != 0, context);
        slot.describe(self.event, flags, time, context);
        slot.locate(address, return_address);
        for (number, &source) in self.sources.iter().take(self.count).enumerate() {
            slot.value(number, fetch(source, frame));
        }
        slot.commit();
    }
}

/// The value that `source` has in `frame`.
fn fetch(source: Source, frame: &TrapFrame) -> u64 {
    match source {
        Source::Register(number) => frame.register(number),
        Source::StackPointer => frame.sp,
        Source::ProgramCounter => frame.pc,
        Source::ProcessorState => frame.pstate,
    }
}

/// The state of the CPU at a hit, as the five characters before the time show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u32);

impl Flags {
    /// Interrupts were masked.
    pub const IRQS_OFF: u32 = 1 << 0;
    /// The task is to be preempted.
    pub const RESCHEDULE: u32 = 1 << 1;
    /// In an interrupt handler.
    pub const INTERRUPT: u32 = 1 << 2;
    /// The depth of disabled preemption, in eight bits from here.
    pub const DEPTH: u32 = 8;

    fn new(irqs_off: bool, context: &Context) -> Self {
        let bit = |set: bool, flag: u32| if set { flag } else { 0 };
        Self(
            bit(irqs_off, Self::IRQS_OFF)
                | bit(context.reschedule, Self::RESCHEDULE)
                | bit(context.interrupt, Self::INTERRUPT)
                | u32::from(context.preemption_disabled) << Self::DEPTH,
        )
    }
}
