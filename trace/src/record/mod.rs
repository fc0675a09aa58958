//! The hit path: what happens between a probe and its record in the ring.
//!
//! Everything in this module and below runs while a probe is handled, with interrupts masked: no lock, no
//! allocation, no panic, and no call out of the closed region of the image. The linker script places it there by
//! its path, so only functions of the hit path are here, and none of the types that others are generic over.

use aarch64_kprobes::exception::TrapFrame;

use crate::definition::Source;
use crate::host::Context;
use crate::recorder::{Flags, Recorder};

#[cfg(target_os = "none")]
pub(crate) mod handler;
mod slot;

impl Recorder {
    /// Records a hit at the virtual address `address` with the registers in `frame`. `return_address` is 0
    /// unless a function, the one at `address`, returns to it.
    pub fn record(&self, frame: &TrapFrame, address: u64, return_address: u64, context: &Context, time: u64) {
        let Some(slot) = self.rings.reserve(context.cpu) else {
            return;
        };
        let flags = flags(frame.pstate & TrapFrame::IRQ_MASKED != 0, context);
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

/// The state of the CPU.
fn flags(irqs_off: bool, context: &Context) -> Flags {
    let bit = |set: bool, flag: u32| if set { flag } else { 0 };
    Flags(bit(irqs_off, Flags::IRQS_OFF) | bit(context.interrupt, Flags::INTERRUPT))
}
