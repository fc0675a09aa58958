//! Interrupts: a handler for each, called through whichever controller the machine has.
//!
//! Handlers run with interrupts masked, on the stack of the interrupted task. A handler must make its device withdraw
//! the request before it returns. All interrupts have the same priority, so none interrupts another.
//!
//! One timer of each CPU interrupts by FIQ instead, even code that has interrupts masked: see [`fast`]. So do the event
//! [`counters`].
//!
//! A device interrupts the CPU that has registered its handler. CPUs interrupt each other by software-generated
//! interrupts ([`Ipi`]). Several of one kind that are sent before the first is taken are merged into one.

#[macro_use]
mod system_register;

mod bcm2836;
pub mod counters;
mod delivery;
pub mod fast;
mod gic_v2;
mod gic_v3;

use core::arch::asm;
use core::fmt;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use aarch64_cpu::asm::barrier;
use aarch64_kprobes::emit;
use aarch64_kprobes::exception::TrapFrame;
use device_tree::{Interrupt, InterruptController};
use heapless::Vec;
use spin::Once;

use crate::event::{IrqHandlerEntry, IrqHandlerExit};
use crate::memory::MapError;
use crate::per_cpu::MAX_CPUS;
use crate::sync::IrqLock;
use crate::{machine, smp, task};
use bcm2836::Bcm2836;
pub use delivery::{Delivery, FastError};
use gic_v2::GicV2;
use gic_v3::GicV3;

/// The end of the software-generated interrupt numbers, which begin at 0. Numbers from 8 on often belong to the
/// firmware.
const GENERATED: u32 = 8;
/// The end of the interrupt numbers that are private to a CPU.
const SHARED: u32 = 32;
/// The first interrupt number with a special meaning.
const SPECIAL: u32 = 1020;
/// The number that means no interrupt.
const SPURIOUS: u32 = 1023;
/// The priority of every interrupt. The priority mask is fully open, so any value would do.
const PRIORITY: u8 = 0xa0;
/// The priority of fast interrupts, which is higher. A CPU is signalled only the pending interrupt of the highest
/// priority. So an interrupt that waits for interrupts to be unmasked must not hold back a fast one.
const FAST_PRIORITY: u8 = 0x80;

#[expect(clippy::large_enum_variant, reason = "there is one instance, which never moves")]
enum Controller {
    V2(GicV2),
    V3(GicV3),
    Bcm2836(Bcm2836),
}

impl Controller {
    /// Enables an interrupt: on this CPU if it is a private one, otherwise routed to this CPU. [`SETUP`] is held if it
    /// is a shared one.
    fn enable(&self, interrupt: Interrupt) -> Result<(), InterruptError> {
        match self {
            Self::V2(gic) => {
                gic.enable(interrupt);
                Ok(())
            }
            Self::V3(gic) => gic.enable(interrupt),
            Self::Bcm2836(local) => local.enable(interrupt),
        }
    }

    /// Enables an interrupt as a fast one, as [`enable`](Self::enable) does.
    fn enable_fast(&self, interrupt: Interrupt) -> Result<(), FastError> {
        match self {
            Self::V2(gic) => gic.enable_fast(interrupt),
            Self::V3(gic) => gic.enable_fast(interrupt),
            Self::Bcm2836(local) => local.enable_fast(interrupt),
        }
    }

    /// Returns whether `interrupt`, which the event counters of this CPU may raise, is requested.
    fn is_pending(&self, interrupt: Interrupt) -> bool {
        match self {
            Self::V2(gic) => gic.is_pending(interrupt),
            Self::V3(gic) => gic.is_pending(interrupt),
            Self::Bcm2836(local) => local.is_pending(interrupt),
        }
    }
}

/// Interrupts that are to be fast ones.
struct Fast {
    timer: Option<Interrupt>,
    counters: Vec<Interrupt, MAX_CPUS>,
}

static CONTROLLER: Once<Controller> = Once::new();
/// Set once, on the boot CPU.
static FAST: Once<Fast> = Once::new();
/// Held while the controller's shared registers are changed.
static SETUP: IrqLock<()> = IrqLock::new(());
/// The handlers by interrupt number; null where there is none.
static HANDLERS: [AtomicPtr<Handler>; SPECIAL as usize] = [const { AtomicPtr::new(ptr::null_mut()) }; SPECIAL as usize];
/// Which CPUs are in a handler, by dense number. Not a [`PerCpu`](crate::per_cpu::PerCpu), because indexing one may
/// panic and the hit path reads this.
pub(crate) static IN_HANDLER: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

/// A handler of an interrupt.
#[derive(Debug)]
pub struct Handler {
    /// The name of the device.
    pub name: &'static str,
    /// Called on the CPU that has taken the interrupt, with interrupts masked.
    pub handle: fn(),
}

/// The purpose of an interrupt between CPUs: the number of a software-generated interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ipi {
    /// The CPU is to look for a ready task.
    Reschedule = 0,
    /// The CPU is to come to a rendezvous.
    Rendezvous = 1,
    /// The CPU is to stop forever, because the machine stops.
    Stop = 2,
    /// The CPU is to call the function that runs on each CPU.
    Call = 3,
}

impl Ipi {
    const ALL: u32 =
        1 << Self::Reschedule as u32 | 1 << Self::Rendezvous as u32 | 1 << Self::Stop as u32 | 1 << Self::Call as u32;
}

/// Why interrupts cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterruptError {
    /// The device tree gives the named device no interrupt, or none that the interrupt controller receives.
    None(&'static str),
    /// The interrupt with this number has another handler.
    Taken(u32),
    /// The controller's registers cannot be mapped.
    Map(MapError),
    /// The GIC's system registers are not accessible at EL1.
    NoSystemRegisters,
    /// A part of the GIC, which is named, does not become ready.
    Busy(&'static str),
    /// There is no redistributor for the CPU with this affinity.
    NoRedistributor(u64),
    /// No controller has been set up.
    NoController,
}

impl fmt::Display for InterruptError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Self::None(device) => write!(f, "the device tree describes no usable interrupt of the {device}"),
            Self::Taken(number) => write!(f, "interrupt {number} already has a handler"),
            Self::Map(error) => error.fmt(f),
            Self::NoSystemRegisters => f.write_str("the GIC's system registers are not accessible at EL1"),
            Self::Busy(component) => write!(f, "{component} does not become ready"),
            Self::NoRedistributor(affinity) => {
                write!(f, "the GIC has no redistributor for the CPU with affinity {affinity:#x}")
            }
            Self::NoController => f.write_str("there is no supported interrupt controller"),
        }
    }
}

impl From<MapError> for InterruptError {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

/// Sets up the controller with every interrupt disabled. Called once, on the boot CPU, before [`initialize_cpu`].
/// `timer` is the interrupt of the timer that is to interrupt by FIQ, and `counters` those of the event counters: one
/// for all CPUs, or one for each.
pub(crate) fn initialize(
    description: &InterruptController,
    timer: Option<Interrupt>,
    counters: &[Interrupt],
) -> Result<(), InterruptError> {
    let controller = match description {
        InterruptController::GicV2 { distributor, cpu_interface } => {
            Controller::V2(GicV2::new(distributor, cpu_interface)?)
        }
        InterruptController::GicV3 { distributor, redistributors } => {
            Controller::V3(GicV3::new(distributor, redistributors)?)
        }
        InterruptController::Bcm2836 { local, peripherals } => {
            Controller::Bcm2836(Bcm2836::new(local, peripherals.as_ref())?)
        }
    };
    CONTROLLER.call_once(|| controller);
    FAST.call_once(|| Fast { timer, counters: counters.iter().copied().collect() });
    Ok(())
}

/// Lets this CPU receive interrupts. Called on every CPU.
pub(crate) fn initialize_cpu() -> Result<(), InterruptError> {
    let controller = CONTROLLER.get().ok_or(InterruptError::NoController)?;
    match controller {
        Controller::V2(gic) => gic.initialize_cpu(),
        Controller::V3(gic) => gic.initialize_cpu()?,
        Controller::Bcm2836(local) => local.initialize_cpu(),
    }
    if let Some(Fast { timer, counters }) = FAST.get() {
        fast::initialize_cpu(controller, *timer);
        counters::initialize_cpu(controller, counters);
    }
    Ok(())
}

/// Registers `handler` for an interrupt, and enables the interrupt: on this CPU if it is a private one, otherwise
/// routed to this CPU.
pub fn register(interrupt: Interrupt, handler: &'static Handler) -> Result<(), InterruptError> {
    let controller = CONTROLLER.get().ok_or(InterruptError::NoController)?;
    let slot = HANDLERS.get(interrupt.number as usize).ok_or(InterruptError::Taken(interrupt.number))?;
    let handler = ptr::from_ref(handler).cast_mut();
    match slot.compare_exchange(ptr::null_mut(), handler, Ordering::Release, Ordering::Relaxed) {
        Err(found) if found != handler => return Err(InterruptError::Taken(interrupt.number)),
        _ => {}
    }
    let _setup = SETUP.lock();
    controller.enable(interrupt)
}

/// Interrupts the CPU with the dense number `cpu`, which may be this one. When that CPU takes the interrupt, it sees
/// all that this CPU has stored before. Takes no lock, so any code may call it.
pub fn send(cpu: usize, ipi: Ipi) {
    // The stores must be complete before the interrupt is generated. Generating it is no memory access that a weaker
    // barrier would order (Arm ARM, B2.3.12).
    barrier::dsb(barrier::ISHST);
    match CONTROLLER.get() {
        Some(Controller::V2(gic)) => gic.send(cpu, ipi),
        Some(Controller::V3(gic)) => gic.send(cpu, ipi),
        Some(Controller::Bcm2836(local)) => local.send(cpu, ipi),
        None => {}
    }
}

/// Calls `f` with all interrupts masked, including fast ones, and debug exceptions. For data that probe handlers must
/// not find half written: a fast interrupt may hit probes, and an access a watchpoint.
#[inline]
pub fn without<R>(f: impl FnOnce() -> R) -> R {
    let daif: u64;
    // SAFETY: masking interrupts is always allowed. Without `nomem`, the accesses of `f` cannot move out of the masked
    // region.
    unsafe { asm!("mrs {}, daif", "msr daifset, #0b1011", out(reg) daif, options(nostack, preserves_flags)) };
    let result = f();
    // SAFETY: this restores the masks that were read above.
    unsafe { asm!("msr daif, {}", in(reg) daif, options(nostack, preserves_flags)) };
    result
}

/// Handles the interrupt that this CPU has taken in the code whose registers are in `frame`.
pub(crate) fn dispatch(frame: &TrapFrame) {
    let Some(controller) = CONTROLLER.get() else { return };
    let acknowledged = match controller {
        Controller::V2(gic) => gic.acknowledge(),
        Controller::V3(gic) => gic.acknowledge(),
        Controller::Bcm2836(local) => local.acknowledge(),
    };
    // On GICv2, upper bits name the CPU that sent the interrupt, and the end of the interrupt needs them.
    let number = match controller {
        Controller::V2(_) => acknowledged & 0x3ff,
        Controller::V3(_) | Controller::Bcm2836(_) => acknowledged,
    };
    let Some(slot) = HANDLERS.get(number as usize) else {
        // The request was withdrawn before it was acknowledged, so there is nothing to end.
        return;
    };
    let end = || match controller {
        Controller::V2(gic) => gic.end(acknowledged),
        Controller::V3(gic) => gic.end(acknowledged),
        Controller::Bcm2836(local) => local.end(),
    };
    let cpu = task::current_cpu();
    let state = &IN_HANDLER[cpu];
    state.store(true, Ordering::Relaxed);
    if number < GENERATED {
        // No device still requests this interrupt, so it can be ended first. It must be: the handler may wait for
        // another interrupt in WFI, and the GIC signals none of the same priority before this one has ended.
        end();
        answer(number, cpu, frame.pc as usize);
    } else if delivery::is_ordinary(number) {
        // The result is ignored: without a handler, no code has armed the timer or a counter. The handler runs as it
        // does by a fast interrupt: no watchpoint is hit in it.
        without(|| fast::dispatch(frame));
        end();
    } else {
        // SAFETY: a pointer that is not null was stored by `register`, from a static.
        let handler = unsafe { slot.load(Ordering::Acquire).as_ref() };
        // An interrupt without a handler was never enabled, or is the fast one, which the controller requests again
        // after this has ended.
        if let Some(handler) = handler {
            emit!(IrqHandlerEntry { irq: number as i32, name: handler.name.into() });
            (handler.handle)();
            emit!(IrqHandlerExit { irq: number as i32, ret: 1 });
        }
        end();
    }
    state.store(false, Ordering::Relaxed);
}

/// Acts on the software-generated interrupt `number` that this CPU, whose dense number is `cpu`, has received.
fn answer(number: u32, cpu: usize, pc: usize) {
    const RESCHEDULE: u32 = Ipi::Reschedule as u32;
    const RENDEZVOUS: u32 = Ipi::Rendezvous as u32;
    const STOP: u32 = Ipi::Stop as u32;
    const CALL: u32 = Ipi::Call as u32;
    match number {
        RESCHEDULE => task::reschedule_interrupt(),
        RENDEZVOUS => smp::answer(cpu, pc),
        STOP => machine::stop_if_requested(cpu),
        CALL => smp::answer_call(cpu),
        _ => {}
    }
}
