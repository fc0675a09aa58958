//! Samples for the console's programs, by the kernel's [`sampling`].

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use fallible::OutOfMemory;
use kprobes_console::host::{self, Coverage, HardwareEvent, SampleHandler, SamplingClock};

use crate::interrupt::Delivery;
use crate::interrupt::counters::{self, CounterError, Event};
use crate::sampling::{self, Period, Sampler};
use crate::smp;

/// The clock of [`sampling`].
pub(super) struct Sampling;

// SAFETY: the drop of a `Sampler` returns when its handler runs on no CPU, and the handler is not called after that.
unsafe impl SamplingClock for Sampling {
    fn coverage(&self, wanted: &[host::Period]) -> Result<Coverage, host::SamplingError> {
        let delivery = sampling::delivery(&periods(wanted)?).map_err(|error| host_error(error, wanted))?;
        Ok(match delivery {
            Delivery::Fast => Coverage::Masked,
            Delivery::Ordinary(why) => Coverage::Unmasked(why.reason()),
        })
    }

    unsafe fn start(
        &self,
        wanted: &[host::Period],
        handler: SampleHandler,
    ) -> Result<Box<dyn host::Sampler>, host::SamplingError> {
        let periods = periods(wanted)?;
        // SAFETY: the caller guarantees that the function can be called with the data until the result is dropped (see
        // # Safety); `SampleHandler` demands what `fast::set_handler` does.
        let sampler = unsafe { Sampler::start(&periods, handler.take, handler.data) };
        Ok(fallible::boxed(sampler.map_err(|error| host_error(error, wanted))?)?)
    }
}

impl host::Sampler for Sampler {
    fn stop(self: Box<Self>, ended: Option<Duration>) -> u64 {
        Self::stop(*self, ended)
    }
}

fn periods(wanted: &[host::Period]) -> Result<Vec<Period>, OutOfMemory> {
    fallible::collect(wanted.iter().map(|period| match *period {
        host::Period::Time(time) => Period::Time(time),
        host::Period::Events { event, count } => Period::Events(counted(event), count),
    }))
}

/// Returns the event that the monitors count for `event` (Linux, drivers/perf/arm_pmuv3.c, `armv8_pmuv3_perf_map`).
fn counted(event: HardwareEvent) -> Event {
    match event {
        HardwareEvent::CpuCycles => Event::CPU_CYCLES,
        HardwareEvent::Instructions => Event::INST_RETIRED,
        HardwareEvent::CacheReferences => Event::L1D_CACHE,
        HardwareEvent::CacheMisses => Event::L1D_CACHE_REFILL,
        // Linux prefers the event that counts the branches that are taken.
        HardwareEvent::BranchInstructions
            if smp::running().all(|cpu| counters::counts(cpu, Event::PC_WRITE_RETIRED)) =>
        {
            Event::PC_WRITE_RETIRED
        }
        HardwareEvent::BranchInstructions => Event::BR_RETIRED,
        HardwareEvent::BranchMisses => Event::BR_MIS_PRED,
        HardwareEvent::BusCycles => Event::BUS_CYCLES,
        HardwareEvent::FrontendStalls => Event::STALL_FRONTEND,
        HardwareEvent::BackendStalls => Event::STALL_BACKEND,
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

/// Returns why samples of the periods `wanted` could not be started.
fn host_error(error: sampling::SamplingError, wanted: &[host::Period]) -> host::SamplingError {
    match error {
        sampling::SamplingError::Timer { why, .. } => host::SamplingError::Timer(why.reason()),
        sampling::SamplingError::Counters { why: CounterError::TooFew(most), .. } => {
            host::SamplingError::TooManyEvents(most)
        }
        sampling::SamplingError::Counters { why: CounterError::NotCounted(missing), .. } => {
            let event = wanted.iter().find_map(|period| period.event().filter(|&event| counted(event) == missing));
            event.map_or(host::SamplingError::Counters("a CPU does not count them"), host::SamplingError::NotCounted)
        }
        sampling::SamplingError::Counters { why: CounterError::NoMonitors, .. } => {
            host::SamplingError::Counters("a CPU has no performance monitors")
        }
        sampling::SamplingError::Counters { why: CounterError::NoInterrupt, .. } => {
            host::SamplingError::Counters("the event counters of a CPU do not interrupt")
        }
        sampling::SamplingError::Period => host::SamplingError::Timer("a period is out of range"),
        sampling::SamplingError::Busy => host::SamplingError::Busy,
        sampling::SamplingError::OutOfMemory => host::SamplingError::OutOfMemory,
    }
}
