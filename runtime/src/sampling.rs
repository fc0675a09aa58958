//! A clock that samples all CPUs: at exact times, or after numbers of events that it counts, each CPU is interrupted,
//! and a handler gets the registers of the code that it was running.
//!
//! Samples come by [fast interrupts](crate::interrupt::fast) where the CPU takes them, so also in code that has
//! interrupts masked. Where secure state keeps fast interrupts for itself, the same interrupts come by IRQ
//! ([`Delivery::Ordinary`]): a sample that is due while interrupts are masked comes at the end of that code.
//!
//! No sample comes while an exception is handled or a probe is hit. So the handler may hit probes, and may run code
//! that only runs with all interrupts masked.
//!
//! There is one timer for each CPU, and one [`Sampler`] at a time. A sampler has any number of [periods](Period). The
//! timer is set for the next deadline among them. Deadlines are multiples of the period since the start, so they do not
//! drift, and they are the same on all CPUs. A deadline that was not met before the next one of its period is missed:
//! the handler gets their number with the next sample, and [`stop`](host::Sampler::stop) returns the number of those
//! that no sample followed. After a sample by the timer, the CPU has at least as much time for other work as the sample
//! took.
//!
//! Each period of events has an [event counter](counters) of its own on each CPU. Events of the handler do not count.
//! If a sample begins before the CPU has had that time, the counters do not interrupt until the time after that sample
//! is over. They count meanwhile, so the samples that fall due are counted as missed.
//!
//! **Starting and stopping.** Only the CPU itself can set its timer. So the start publishes the plan and makes every
//! CPU set its timer and counters by it ([`smp::on_each_cpu`]), and the stop withdraws the plan and makes every CPU
//! disarm its timer and end its counting ([`fast::Owner`]). A CPU that is asked to is in no handler of a sample. So
//! after the stop, no CPU uses the plan. No CPU starts or stops after the boot.

use alloc::boxed::Box;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use core::time::Duration;

use aarch64_kprobes::exception::{TrapFrame, nofault};
use aarch64_kprobes::probe;
use kprobes_console::host::{self, HardwareEvent, Period, SampleHandler, SamplingError};

use crate::interrupt::counters::{self, CounterError, Event, Mode};
use crate::interrupt::{self, Delivery, FastError, fast};
use crate::per_cpu::{MAX_CPUS, PerCpu};
use crate::{smp, task, time};

const NANOSECONDS: u128 = 1_000_000_000;

/// The plan that all CPUs follow while they are sampled.
struct Plan {
    handler: SampleHandler,
    /// The physical counter at the start.
    start: u64,
    clocks: Box<[Clock]>,
    counters: Box<[Counter]>,
    /// The physical counter up to which each CPU should have time for other work after its last sample.
    earliest: PerCpu<AtomicU64>,
}

/// Samples after a number of events. The index is the number of the counter.
struct Counter {
    /// The index of the period.
    period: usize,
    event: Event,
    count: u32,
    /// The samples that were due on any CPU, could not be taken, and were not reported to the handler.
    unmet: AtomicU64,
    /// The samples that were the last due ones of their CPU: they may have been on their way when the program ended.
    last: AtomicU64,
}

/// Samples of one period of time.
struct Clock {
    /// The index of the period.
    index: usize,
    /// The period in nanoseconds.
    period: u64,
    /// The number of the next deadline on each CPU: its distance from the start in periods.
    next: PerCpu<AtomicU64>,
}

/// The plan of the sampler, or null.
static PLAN: AtomicPtr<Plan> = AtomicPtr::new(ptr::null_mut());
/// The plan of a sampler that is being stopped, or null.
static STOPPING: AtomicPtr<Plan> = AtomicPtr::new(ptr::null_mut());

/// Samples all CPUs until it is dropped.
#[derive(Debug)]
pub struct Sampler {
    plan: *mut Plan,
    /// The owner of the timers; `None` after the stop.
    owner: Option<fast::Owner>,
}

// SAFETY: the sampler owns the plan, which `start` has made from a box. Only atomic parts of the plan change after
// that.
unsafe impl Send for Sampler {}
// SAFETY: only atomic parts of the plan change after `start` has made it.
unsafe impl Sync for Sampler {}

/// Returns how the samples of `periods` would interrupt: by FIQ on all CPUs, or by IRQ on some.
///
/// # Errors
///
/// The reason why a CPU would not be interrupted; [`SamplingError::Timer`] also if the timers have another
/// [owner](fast::Owner); [`SamplingError::Busy`].
pub fn delivery(periods: &[Period]) -> Result<Delivery, SamplingError> {
    if fast::is_owned() {
        return Err(busy());
    }
    let events = fallible::collect(periods.iter().filter_map(|period| period.event()))?;
    let mut found = Delivery::Fast;
    for cpu in smp::running() {
        found = worse(found, fast::delivery_on(cpu).map_err(|why| SamplingError::Timer(why.reason()))?);
        if !events.is_empty() {
            let delivery = counters::delivery_on(cpu, events.iter().map(|&event| counted(event)));
            found = worse(found, delivery.map_err(|why| refusal(why, &events))?);
        }
    }
    Ok(found)
}

/// Returns the delivery that reaches less code.
fn worse(one: Delivery, other: Delivery) -> Delivery {
    if one == Delivery::Fast { other } else { one }
}

/// Returns the error for timers that have an owner.
fn busy() -> SamplingError {
    match PLAN.load(Ordering::Relaxed).is_null() {
        true => SamplingError::Timer(FastError::Busy.reason()),
        false => SamplingError::Busy,
    }
}

/// Returns the error for counters of a CPU that do not sample `events`.
fn refusal(why: CounterError, events: &[HardwareEvent]) -> SamplingError {
    match why {
        CounterError::TooFew(most) => SamplingError::TooManyEvents(most),
        CounterError::NotCounted(missing) => match events.iter().find(|&&event| counted(event) == missing) {
            Some(&event) => SamplingError::NotCounted(event),
            None => SamplingError::Counters("a CPU does not count them"),
        },
        CounterError::NoMonitors => SamplingError::Counters("a CPU has no performance monitors"),
        CounterError::NoInterrupt => SamplingError::Counters("the event counters of a CPU do not interrupt"),
    }
}

/// Returns whether timers and counters can hold the period.
fn is_valid(period: &Period) -> bool {
    match *period {
        Period::Time(period) => !period.is_zero(),
        Period::Events { count, .. } => count != 0 && count <= i32::MAX as u32,
    }
}

/// Returns the event that the monitors count for `event` (Linux, drivers/perf/arm_pmuv3.c, `armv8_pmuv3_perf_map`).
pub(crate) fn counted(event: HardwareEvent) -> Event {
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

impl Sampler {
    /// Starts to call `handler` on every CPU, for each of `periods`. When this returns, all CPUs have set their timers.
    /// The caller must be a task, with interrupts unmasked.
    ///
    /// # Errors
    ///
    /// A [`SamplingError`]; nothing is sampled then.
    ///
    /// # Safety
    ///
    /// The function of `handler` can be called with its data on any CPU until the sampler is dropped. It keeps the
    /// contract of [`fast::set_handler`].
    pub unsafe fn start(periods: &[Period], handler: SampleHandler) -> Result<Self, SamplingError> {
        delivery(periods)?;
        if periods.is_empty() || !periods.iter().all(is_valid) {
            return Err(SamplingError::Timer("a period is out of range"));
        }
        let clocks = fallible::boxed_slice(periods.iter().enumerate().filter_map(|(index, period)| match *period {
            Period::Time(period) => Some(Clock {
                index,
                period: period.as_nanos().try_into().unwrap_or(u64::MAX),
                next: PerCpu::new([const { AtomicU64::new(1) }; MAX_CPUS]),
            }),
            Period::Events { .. } => None,
        }))?;
        let counters =
            fallible::boxed_slice(periods.iter().enumerate().filter_map(|(period, events)| match *events {
                Period::Time(_) => None,
                Period::Events { event, count } => {
                    let [unmet, last] = [const { AtomicU64::new(0) }; 2];
                    Some(Counter { period, event: counted(event), count, unmet, last })
                }
            }))?;
        let start = fast::counter();
        let earliest = PerCpu::new([const { AtomicU64::new(0) }; MAX_CPUS]);
        let plan = fallible::boxed(Plan { handler, start, clocks, counters, earliest })?;
        // SAFETY: `take` takes no lock, allocates nothing and does not panic; the caller guarantees the same for
        // `handler` (see # Safety).
        let owner = unsafe { fast::set_handler(take) }.map_err(|_| busy())?;
        let plan = Box::into_raw(plan);
        PLAN.store(plan, Ordering::Release);
        smp::on_each_cpu(follow);
        Ok(Self { plan, owner: Some(owner) })
    }

    /// Disarms the timers of all CPUs and ends their counting, if they are this sampler's. When this returns, no CPU
    /// uses the plan.
    fn end(&mut self) {
        if let Some(owner) = self.owner.take() {
            PLAN.store(ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: `start` has made the plan from a box, and the drop, which frees it, comes after this.
            if !unsafe { &*self.plan }.counters.is_empty() {
                STOPPING.store(self.plan, Ordering::Release);
                smp::on_each_cpu(count_unmet);
                STOPPING.store(ptr::null_mut(), Ordering::Relaxed);
            }
            drop(owner);
        }
    }
}

impl host::Sampler for Sampler {
    /// Of samples by events, all but the last on each CPU count if the program has ended.
    fn stop(mut self: Box<Self>, ended: Option<Duration>) -> u64 {
        let end = fast::counter().saturating_sub(ended.map_or(0, time::ticks));
        self.end();
        // SAFETY: `start` has made the plan from a box, and the drop, which frees it, comes after this.
        unsafe { &*self.plan }.unmet(end, ended.is_some())
    }
}

impl Drop for Sampler {
    /// Disarms the timers of all CPUs, and ends their counting. When this returns, the handler runs on no CPU.
    fn drop(&mut self) {
        self.end();
        // SAFETY: `start` has made the plan from a box. After the end, no CPU uses it.
        drop(unsafe { Box::from_raw(self.plan) });
    }
}

/// Sets the timer of this CPU by the plan, and starts its counters.
fn follow() {
    // Masked, so that no sample is taken between the computation of the deadline and the setting of the timer.
    interrupt::without(|| {
        // SAFETY: the pointer is null, or `Sampler::start` has stored it from a box. The sampler frees the plan when it
        // is dropped, which is after `on_each_cpu` has returned from all calls of this function.
        if let Some(plan) = unsafe { PLAN.load(Ordering::Acquire).as_ref() } {
            for (number, counter) in plan.counters.iter().enumerate() {
                counters::prepare(number, counter.event, counter.count);
            }
            counters::set(Mode::Interrupting);
            fast::set_deadline(plan.next_deadline(task::current_cpu()));
        }
    });
}

/// Counts the samples that are due by the counters of this CPU. None is taken any more.
fn count_unmet() {
    interrupt::without(|| {
        counters::set(Mode::Paused);
        // SAFETY: the pointer is null, or `Sampler::end` has stored it, whose `on_each_cpu` returns after all calls of
        // this function. The plan is freed after that.
        if let Some(plan) = unsafe { STOPPING.load(Ordering::Acquire).as_ref() } {
            for (number, counter) in plan.counters.iter().enumerate() {
                if let Some(due) = counters::overflows(number, counter.count) {
                    counter.refuse(due);
                }
            }
        }
    });
}

impl Counter {
    /// Counts `due` samples, at least one, that this CPU does not take. It takes no later ones either.
    fn refuse(&self, due: u64) {
        self.unmet.fetch_add(due - 1, Ordering::Relaxed);
        self.last.fetch_add(1, Ordering::Relaxed);
    }
}

impl Clock {
    /// Returns the ticks from the start to deadline `number`, rounded up.
    fn ticks(&self, number: u64) -> u64 {
        let ticks = u128::from(self.period) * u128::from(number) * u128::from(time::frequency());
        ticks.div_ceil(NANOSECONDS).try_into().unwrap_or(u64::MAX)
    }

    /// Returns the number of the last deadline that is not later than `ticks` after the start.
    fn last(&self, ticks: u64) -> u64 {
        let period = u128::from(self.period) * u128::from(time::frequency());
        (u128::from(ticks) * NANOSECONDS).checked_div(period).unwrap_or(0) as u64
    }
}

impl Plan {
    fn next_deadline(&self, cpu: usize) -> u64 {
        let next = self.clocks.iter().map(|clock| clock.ticks(clock.next.of(cpu).load(Ordering::Relaxed))).min();
        self.start.saturating_add(next.unwrap_or(u64::MAX))
    }

    /// Calls the handler for each period that has a deadline at `now` or before, or whose events have happened. Returns
    /// false if it did not take a sample.
    fn sample(&self, cpu: usize, now: u64, frame: &TrapFrame) -> bool {
        let since = now.saturating_sub(self.start);
        for (number, counter) in self.counters.iter().enumerate() {
            let Some(due) = counters::overflows(number, counter.count) else { continue };
            // SAFETY: `Sampler::start` requires that the handler can be called with the data until the sampler is
            // dropped, which waits for this CPU before it frees the plan.
            if !unsafe { (self.handler.take)(self.handler.data, counter.period, due - 1, frame) } {
                counter.refuse(due);
                return false;
            }
        }
        for clock in &self.clocks {
            let next = clock.next.of(cpu);
            let due = next.load(Ordering::Relaxed);
            let last = clock.last(since);
            if last < due {
                continue;
            }
            // SAFETY: `Sampler::start` requires that the handler can be called with the data until the sampler is
            // dropped, which waits for this CPU before it frees the plan.
            if !unsafe { (self.handler.take)(self.handler.data, clock.index, last - due, frame) } {
                return false;
            }
            next.store(last + 1, Ordering::Relaxed);
        }
        true
    }

    /// Returns the number of deadlines at `end` or before that were not met, and of samples by events that were not
    /// taken. Leaves out the last one of each period on each CPU if `is_last_on_its_way`. No CPU may follow the plan
    /// any more.
    fn unmet(&self, end: u64, is_last_on_its_way: bool) -> u64 {
        let since = end.saturating_sub(self.start);
        let of_clock = |clock: &Clock| {
            let first_after = clock.last(since) + u64::from(!is_last_on_its_way);
            let unmet = |cpu| first_after.saturating_sub(clock.next.of(cpu).load(Ordering::Relaxed));
            smp::running().map(unmet).sum::<u64>()
        };
        let counted = |counter: &Counter| {
            let last = if is_last_on_its_way { 0 } else { counter.last.load(Ordering::Relaxed) };
            counter.unmet.load(Ordering::Relaxed) + last
        };
        self.clocks.iter().map(of_clock).chain(self.counters.iter().map(counted)).sum()
    }
}

/// Returns the registers in `frame` as they would be without probes ([`probe::recover`]). They are those of the
/// interrupted code of the current task.
///
/// # Safety
///
/// `frame` holds the registers of code that was interrupted on this CPU, in the current task, and that does not go on
/// before this returns.
#[must_use]
pub unsafe fn recovered(frame: &TrapFrame) -> TrapFrame {
    let mut frame = *frame;
    // SAFETY: `recover` passes only addresses of words that the interrupted code has stored on its stack, as the caller
    // guarantees that these are its registers.
    let read = |address| unsafe { nofault::read::<u64>(address) }.ok();
    // SAFETY: the current task is the one that was interrupted on this CPU, so it owns `calls` and runs on this CPU.
    unsafe { probe::recover(&mut frame, &task::current_task().calls, read) };
    frame
}

/// Handles the interrupt of the timer or of the counters in the code whose registers are in `frame`.
fn take(frame: &TrapFrame) {
    // SAFETY: the pointer is null, or `Sampler::start` has stored it from a box. Before the plan is freed, the drop of
    // the `fast::Owner` waits for each CPU that is in this handler.
    let Some(plan) = (unsafe { PLAN.load(Ordering::Acquire).as_ref() }) else { return };
    let cpu = task::current_cpu();
    let begin = fast::counter();
    // SAFETY: the interrupt that this handles came in the code whose registers are in `frame`.
    let recovered = unsafe { recovered(frame) };
    if !plan.sample(cpu, begin, &recovered) {
        // The timer stays disarmed, and the counters paused.
        return;
    }
    let end = fast::counter();
    // Time for other work, so that samples that take longer than their period do not stop the CPU.
    let earliest = end.saturating_add(end.saturating_sub(begin));
    let is_early = begin < plan.earliest.of(cpu).swap(earliest, Ordering::Relaxed);
    // After an early sample, the timer ends the silence of the counters.
    fast::set_deadline(if is_early { earliest } else { plan.next_deadline(cpu).max(earliest) });
    counters::set(if is_early { Mode::Silent } else { Mode::Interrupting });
}
