//! Samples for the console's programs, by the kernel's [`sampling`].

use alloc::boxed::Box;
use core::fmt;

use kprobes_console::host::{self, Coverage, HardwareEvent, Period, SampleHandler, SamplingClock, SamplingError};

use crate::interrupt::Delivery;
use crate::interrupt::counters;
use crate::sampling::{self, Sampler, counted};
use crate::smp;

/// The clock of [`sampling`].
pub(super) struct Sampling;

// SAFETY: the drop of a `Sampler` returns when its handler runs on no CPU, and the handler is not called after that.
unsafe impl SamplingClock for Sampling {
    fn coverage(&self, periods: &[Period]) -> Result<Coverage, SamplingError> {
        Ok(match sampling::delivery(periods)? {
            Delivery::Fast => Coverage::Masked,
            Delivery::Ordinary(why) => Coverage::Unmasked(why.reason()),
        })
    }

    unsafe fn start(
        &self,
        periods: &[Period],
        handler: SampleHandler,
    ) -> Result<Box<dyn host::Sampler>, SamplingError> {
        // SAFETY: the caller guarantees that the function can be called with the data until the result is dropped (see
        // # Safety); `SampleHandler` demands what `fast::set_handler` does.
        let sampler = unsafe { Sampler::start(periods, handler) }?;
        Ok(fallible::boxed(sampler)?)
    }
}

/// Writes a line with the hardware events that programs can sample by.
pub(super) fn write_counted(out: &mut dyn fmt::Write) -> fmt::Result {
    let is_counted = |event: &HardwareEvent| {
        let events = [counted(*event)];
        smp::running().all(|cpu| counters::delivery_on(cpu, events.into_iter()).is_ok())
    };
    out.write_str("counted events:")?;
    let mut is_any = false;
    for event in HardwareEvent::ALL.into_iter().filter(is_counted) {
        write!(out, "{} {}", if is_any { "," } else { "" }, event.name())?;
        is_any = true;
    }
    writeln!(out, "{}", if is_any { "" } else { " none that interrupts" })
}
