//! The event counters of the performance monitors (Arm ARM, D13): each CPU counts what happens on it, and interrupts
//! itself after a number of events.
//!
//! The interrupt is a fast one ([`fast`](super::fast)) where the CPU takes these, and an ordinary one elsewhere. Its
//! handler is that of the timer. Each CPU tries its interrupt out when it starts. A device tree may describe one that
//! is not wired up, and where it has one for each CPU, it need not say which is whose.
//!
//! The cycle counter is not used, so that it can be read while others sample. Counters stand still from the beginning
//! of the handler to its end (`Mode::Paused`). Entry to the exception and return from it count.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::{ID_AA64DFR0_EL1, Readable};
use device_tree::Interrupt;
use heapless::Vec;
use spin::Once;

use super::delivery::{self, Delivery};
use super::{Controller, SETUP, SHARED, without};
use crate::per_cpu::{MAX_CPUS, PerCpu};

/// Why a CPU takes no interrupts after a number of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterError {
    /// The CPU has no performance monitors.
    NoMonitors,
    /// The counters do not interrupt.
    NoInterrupt,
    /// The CPU does not count the event.
    NotCounted(Event),
    /// The CPU has only that many counters.
    TooFew(usize),
}

/// An architected event, by its number, which is below 64 (Arm ARM, D13.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(u8);

impl Event {
    /// An instruction has been executed.
    pub const INST_RETIRED: Self = Self(0x08);
    /// The level 1 data cache has been accessed.
    pub const L1D_CACHE: Self = Self(0x04);
    /// The level 1 data cache has been refilled.
    pub const L1D_CACHE_REFILL: Self = Self(0x03);
    /// A branch has been executed that was taken.
    pub const PC_WRITE_RETIRED: Self = Self(0x0c);
    /// A branch has been executed.
    pub const BR_RETIRED: Self = Self(0x21);
    /// A branch was predicted wrong, or not at all.
    pub const BR_MIS_PRED: Self = Self(0x10);
    /// A cycle of the CPU.
    pub const CPU_CYCLES: Self = Self(0x11);
    /// A cycle of the bus.
    pub const BUS_CYCLES: Self = Self(0x1d);
    /// A cycle in which the frontend had no operation for the backend.
    pub const STALL_FRONTEND: Self = Self(0x23);
    /// A cycle in which the backend took no operation.
    pub const STALL_BACKEND: Self = Self(0x24);
}

system_register!(pmcr_el0, "pmcr_el0");
system_register!(pmcntenset_el0, "pmcntenset_el0");
system_register!(pmcntenclr_el0, "pmcntenclr_el0");
system_register!(pmintenset_el1, "pmintenset_el1");
system_register!(pmintenclr_el1, "pmintenclr_el1");
system_register!(pmovsclr_el0, "pmovsclr_el0");
system_register!(pmovsset_el0, "pmovsset_el0");
system_register!(pmselr_el0, "pmselr_el0");
system_register!(pmxevtyper_el0, "pmxevtyper_el0");
system_register!(pmxevcntr_el0, "pmxevcntr_el0");
system_register!(pmceid0_el0, "pmceid0_el0");
system_register!(pmceid1_el0, "pmceid1_el0");

/// The value of PMCR_EL0. E: counters count, and interrupt; P: event counters are 0; LC: the cycle counter overflows
/// after 64 bits. Without LP, event counters overflow after 32 bits; without FZO, they go on then.
const CONTROL: u64 = 1 | 1 << 1 | 1 << 6;
/// The bits of the event counters in the registers that have one for each; the bit above is that of the cycle counter.
const EVENT_COUNTERS: u64 = (1 << 31) - 1;
/// How often to look for an interrupt that has been requested. It takes a while to reach the controller.
const CHECKS: usize = 1000;

/// The mode of the counters that are [prepared](prepare) on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They stand still, and request no interrupt.
    Paused,
    /// They count, and request no interrupt. [`overflows`] returns later what they have counted.
    Silent,
    /// They count, and request interrupts.
    Interrupting,
}

/// The performance monitors of a CPU.
struct Monitors {
    /// The number of event counters.
    counters: usize,
    /// A bit for each event that is counted.
    events: u64,
    /// How the interrupt of the counters reaches the CPU.
    delivery: Result<Delivery, CounterError>,
}

/// The monitors of each CPU that has any.
static MONITORS: PerCpu<Once<Monitors>> = PerCpu::new([const { Once::new() }; MAX_CPUS]);
/// The shared interrupts that CPUs have claimed for their counters; 0 in unused entries.
static CLAIMED: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(0) }; MAX_CPUS];
/// The counters that have been [prepared](prepare) on each CPU, as bits.
static COUNTING: PerCpu<AtomicU64> = PerCpu::new([const { AtomicU64::new(0) }; MAX_CPUS]);

/// Stops all counters of this CPU, whatever the firmware did with them, and finds out which of `interrupts` they raise.
pub(super) fn initialize_cpu(controller: &Controller, interrupts: &[Interrupt]) {
    // 15 means monitors of another architecture.
    if matches!(ID_AA64DFR0_EL1.read(ID_AA64DFR0_EL1::PMUVer), 0 | 15) {
        return;
    }
    // After a reset, the registers are unknown. The cycle counter shares the interrupt of the event counters.
    stop(u64::MAX);
    pmcr_el0::write(CONTROL);
    let counters = (pmcr_el0::read() >> 11 & 31) as usize;
    let events = u64::from(pmceid0_el0::read() as u32) | pmceid1_el0::read() << 32;
    let delivery = match counters {
        0 => Err(CounterError::NoInterrupt),
        _ => find_interrupt(controller, interrupts),
    };
    MONITORS.here().call_once(|| Monitors { counters, events, delivery });
}

/// Makes a counter overflow, and enables the one of `interrupts` that is requested then.
fn find_interrupt(controller: &Controller, interrupts: &[Interrupt]) -> Result<Delivery, CounterError> {
    // The controller's shared registers may be changed, and the interrupts of one CPU must not be taken for those of
    // another.
    let _setup = SETUP.lock();
    without(|| {
        let is_pending = |interrupt: &&Interrupt| controller.is_pending(**interrupt);
        let before: Vec<bool, MAX_CPUS> = interrupts.iter().map(|interrupt| is_pending(&interrupt)).collect();
        let is_new = |(interrupt, was_pending): &(&Interrupt, &bool)| !**was_pending && is_pending(interrupt);
        pmintenset_el1::write(1);
        pmovsset_el0::write(1);
        barrier::isb(barrier::SY);
        let raised = (0..CHECKS).find_map(|_| interrupts.iter().zip(&before).find(is_new));
        stop(EVENT_COUNTERS);
        let (&interrupt, _) = raised.ok_or(CounterError::NoInterrupt)?;
        let is_over = (0..CHECKS).any(|_| !controller.is_pending(interrupt));
        if !is_over || !claim(interrupt) {
            return Err(CounterError::NoInterrupt);
        }
        delivery::enable(controller, interrupt).map_err(|_| CounterError::NoInterrupt)
    })
}

/// Claims the interrupt for this CPU. Returns false if it is a shared one that another CPU has claimed: a shared
/// interrupt that several CPUs raise reaches only one of them.
fn claim(interrupt: Interrupt) -> bool {
    if interrupt.number < SHARED {
        return true;
    }
    let is_claimed = CLAIMED.iter().any(|claimed| claimed.load(Ordering::Relaxed) == interrupt.number);
    let free = CLAIMED.iter().find(|claimed| claimed.load(Ordering::Relaxed) == 0).filter(|_| !is_claimed);
    free.inspect(|free| free.store(interrupt.number, Ordering::Relaxed)).is_some()
}

/// Stops these counters of this CPU, and withdraws their interrupts.
fn stop(counters: u64) {
    pmintenclr_el1::write(counters);
    pmcntenclr_el0::write(counters);
    pmovsclr_el0::write(counters);
    barrier::isb(barrier::SY);
}

/// Returns whether the CPU with the dense number `cpu` counts the event.
#[must_use]
pub fn counts(cpu: usize, event: Event) -> bool {
    MONITORS.of(cpu).get().is_some_and(|monitors| monitors.events >> event.0 & 1 != 0)
}

/// Returns how the CPU with the dense number `cpu` would be interrupted after numbers of `events`, each with a counter
/// of its own.
///
/// # Errors
///
/// A [`CounterError`] with the reason why it would not be.
pub(crate) fn delivery_on(cpu: usize, events: impl ExactSizeIterator<Item = Event>) -> Result<Delivery, CounterError> {
    let monitors = MONITORS.of(cpu).get().ok_or(CounterError::NoMonitors)?;
    let delivery = monitors.delivery?;
    if events.len() > monitors.counters {
        return Err(CounterError::TooFew(monitors.counters));
    }
    for event in events {
        if !counts(cpu, event) {
            return Err(CounterError::NotCounted(event));
        }
    }
    Ok(delivery)
}

/// Makes counter `counter` of this CPU ready to count `event`. It overflows after `count` events, not 0. [`set`] starts
/// it. The CPU has the counter, and fast interrupts are masked.
pub(crate) fn prepare(counter: usize, event: Event, count: u32) {
    let bit = 1 << counter;
    with(counter, || {
        // No filters: events at EL1 and EL0 of non-secure state count, events at EL2 do not (PMEVTYPER<n>_EL0).
        pmxevtyper_el0::write(event.0.into());
        pmxevcntr_el0::write(count.wrapping_neg().into());
    });
    pmovsclr_el0::write(bit);
    COUNTING.here().fetch_or(bit, Ordering::Relaxed);
}

/// Sets the mode of the counters that are [prepared](prepare) on this CPU.
pub(crate) fn set(mode: Mode) {
    let counting = COUNTING.here().load(Ordering::Relaxed);
    if counting != 0 {
        match mode {
            Mode::Interrupting => pmintenset_el1::write(counting),
            Mode::Silent | Mode::Paused => pmintenclr_el1::write(counting),
        }
        match mode {
            Mode::Interrupting | Mode::Silent => pmcntenset_el0::write(counting),
            Mode::Paused => pmcntenclr_el0::write(counting),
        }
        barrier::isb(barrier::SY);
    }
}

/// Returns whether a counter of this CPU requests an interrupt.
pub(super) fn is_due() -> bool {
    COUNTING.here().load(Ordering::Relaxed) != 0 && pmovsclr_el0::read() & pmintenset_el1::read() != 0
}

/// Returns how many times `count` events have happened on counter `counter`, since it was prepared or since the last
/// call that returned a number; `None` if not once. The remaining events stay counted. The counter is
/// [paused](Mode::Paused), and fast interrupts are masked. The number is too small if more than 2³² events have come
/// after the first overflow.
pub(crate) fn overflows(counter: usize, count: u32) -> Option<u64> {
    let bit = 1 << counter;
    if pmovsclr_el0::read() & bit == 0 {
        return None;
    }
    let more = with(counter, || {
        let since = pmxevcntr_el0::read() as u32;
        let (more, rest) = (since.checked_div(count)?, since.checked_rem(count)?);
        pmxevcntr_el0::write((count - rest).wrapping_neg().into());
        Some(more)
    })?;
    pmovsclr_el0::write(bit);
    Some(1 + u64::from(more))
}

/// Ends all counting on this CPU. Fast interrupts are masked.
pub(crate) fn end() {
    if COUNTING.here().swap(0, Ordering::Relaxed) != 0 {
        stop(EVENT_COUNTERS);
    }
}

/// Calls `access` with the registers of counter `counter` selected, and then restores the selection of the interrupted
/// code.
fn with<T>(counter: usize, access: impl FnOnce() -> T) -> T {
    let selected = pmselr_el0::read();
    pmselr_el0::write(counter as u64);
    barrier::isb(barrier::SY);
    let result = access();
    pmselr_el0::write(selected);
    result
}
