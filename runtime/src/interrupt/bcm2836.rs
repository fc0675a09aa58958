//! The interrupt controllers of the BCM2836 and the BCM2837, the chips of the Raspberry Pi 2 and 3.
//!
//! Each core has a local controller, which takes its timers and mailboxes ("BCM2836 ARM-local peripherals", QA7 rev
//! 3.4, chapters 3 and 4). One controller serves all peripherals, and its output goes to one core ("BCM2835 ARM
//! Peripherals", chapter 7).
//!
//! There are no priorities, and no interrupt has to be ended: a request stands until its cause is gone. A CPU
//! interrupts another by setting a bit in mailbox 0 of that core, one bit for each kind of interrupt. The bit is
//! cleared when the interrupt is taken.
//!
//! **Order.** Accesses to different peripherals of these chips may be answered in another order than they were made
//! ("BCM2835 ARM Peripherals", 1.3). An interrupt may come between two accesses to one peripheral and access others. So
//! all accesses are complete when an interrupt has been acknowledged, and when it has been handled.

use core::sync::atomic::{AtomicUsize, Ordering};

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::MPIDR_EL1;
use device_tree::{Interrupt, RegisterBlock};
use tock_registers::interfaces::{ReadWriteable, Readable, Writeable};
use tock_registers::registers::{ReadOnly, ReadWrite, WriteOnly};
use tock_registers::{register_bitfields, register_structs};

use super::delivery::FastError;
use super::{InterruptError, Ipi, SHARED, SPURIOUS};
use crate::memory::Mmio;
use crate::per_cpu::{MAX_CPUS, PerCpu};

/// The number of cores, each of which has its own registers.
const CORES: usize = 4;
/// The number of mailboxes of a core.
const MAILBOXES: usize = 4;
/// The number of the first interrupt of the local controller.
const LOCAL: u32 = 16;
/// The number of timers of a core.
const TIMERS: u32 = 4;
/// The number of the interrupt of the event counters.
const COUNTERS: u32 = LOCAL + 9;
/// The first of the bits that make timers interrupt by FIQ (QA7, 4.6), and of those that make the counters of each core
/// do so (4.3). They take precedence over the bits for IRQ.
const FAST: u32 = 4;
/// The number of banks of the peripherals' controller.
const BANKS: usize = 3;

register_bitfields! {
    u32,
    Routing [
        /// The core that the peripherals interrupt.
        IRQ OFFSET(0) NUMBITS(2) [],
        FIQ OFFSET(2) NUMBITS(2) [],
    ],
    /// The sources that interrupt a core.
    Source [
        TIMERS OFFSET(0) NUMBITS(4) [],
        MAILBOX0 OFFSET(4) NUMBITS(1) [],
        PERIPHERALS OFFSET(8) NUMBITS(1) [],
        COUNTERS OFFSET(9) NUMBITS(1) [],
    ],
}

register_structs! {
    Local {
        (0x000 => control: ReadWrite<u32>),
        (0x004 => _reserved0),
        (0x008 => prescaler: ReadWrite<u32>),
        (0x00c => routing: ReadWrite<u32, Routing::Register>),
        (0x010 => counters_set: WriteOnly<u32>),
        (0x014 => counters_clear: WriteOnly<u32>),
        (0x018 => _reserved1),
        (0x040 => timers: [ReadWrite<u32>; CORES]),
        (0x050 => mailboxes: [ReadWrite<u32>; CORES]),
        (0x060 => source: [ReadOnly<u32, Source::Register>; CORES]),
        (0x070 => fast_source: [ReadOnly<u32, Source::Register>; CORES]),
        (0x080 => mailbox_set: [WriteOnly<u32>; CORES * MAILBOXES]),
        (0x0c0 => mailbox_clear: [ReadWrite<u32>; CORES * MAILBOXES]),
        (0x100 => @END),
    },
    Peripherals {
        (0x00 => pending: [ReadOnly<u32>; BANKS]),
        (0x0c => fiq: ReadWrite<u32>),
        (0x10 => enable: [ReadWrite<u32>; BANKS]),
        (0x1c => disable: [ReadWrite<u32>; BANKS]),
        (0x28 => @END),
    }
}

/// The bank of the basic interrupts in the device tree's numbering, and the mask of its interrupts. Its pending
/// register is the first, but its enable and disable registers are the last. The upper bits of its pending register
/// summarize the other banks.
const BASIC: usize = 0;
const BASIC_INTERRUPTS: u32 = 0xff;

/// Returns the index of the enable and disable registers of bank `bank`.
const fn switch(bank: usize) -> usize {
    if bank == BASIC { BANKS - 1 } else { bank - 1 }
}

pub(super) struct Bcm2836 {
    local: Mmio<Local>,
    peripherals: Option<Mmio<Peripherals>>,
    /// The core number of each CPU.
    cores: PerCpu<AtomicUsize>,
}

/// Returns the number of a core's timer from 0 on, or `None` if `interrupt` is not that of a timer.
fn timer(interrupt: Interrupt) -> Option<u32> {
    interrupt.number.checked_sub(LOCAL).filter(|&timer| timer < TIMERS)
}

/// Returns the core that runs this. It is the only field of the affinity that differs between cores.
fn core() -> usize {
    MPIDR_EL1.get() as usize % CORES
}

impl Bcm2836 {
    pub(super) fn new(local: &RegisterBlock, peripherals: Option<&RegisterBlock>) -> Result<Self, InterruptError> {
        // SAFETY: the device tree says that these controllers have their registers there.
        let (local, peripherals) = unsafe {
            let peripherals = peripherals.map(|registers| Mmio::<Peripherals>::map(registers.address));
            (Mmio::<Local>::map(local.address)?, peripherals.transpose()?)
        };
        // Makes the counter of the generic timers count the crystal's 19.2 MHz one by one (QA7, 3.1), in case firmware
        // has not.
        local.control.set(0);
        local.prescaler.set(1 << 31);
        if let Some(peripherals) = &peripherals {
            peripherals.fiq.set(0);
            peripherals.disable.iter().for_each(|register| register.set(u32::MAX));
        }
        Ok(Self { local, peripherals, cores: PerCpu::new([const { AtomicUsize::new(0) }; MAX_CPUS]) })
    }

    pub(super) fn initialize_cpu(&self) {
        let core = core();
        self.cores.here().store(core, Ordering::Relaxed);
        self.local.timers[core].set(0);
        self.local.counters_clear.set((1 | 1 << FAST) << core);
        self.local.mailbox_clear[core * MAILBOXES].set(u32::MAX);
        // Mailbox 0 interrupts by IRQ.
        self.local.mailboxes[core].set(1);
    }

    /// Enables an interrupt. All interrupts of peripherals go to the CPU that enabled one last.
    pub(super) fn enable(&self, interrupt: Interrupt) -> Result<(), InterruptError> {
        let none = InterruptError::None("device");
        if interrupt.number < SHARED {
            // The event counters interrupt by FIQ only.
            let timer = timer(interrupt).ok_or(none)?;
            let timers = &self.local.timers[core()];
            timers.set(timers.get() | 1 << timer);
            return Ok(());
        }
        let (bank, bit) = ((interrupt.number - SHARED) as usize / 32, interrupt.number % 32);
        let peripherals = self.peripherals.as_ref().filter(|_| bank < BANKS).ok_or(none)?;
        self.local.routing.modify(Routing::IRQ.val(core() as u32));
        peripherals.enable[switch(bank)].set(1 << bit);
        Ok(())
    }

    /// Enables the interrupt of one of this core's timers, or of its event counters, as a fast interrupt. Others are
    /// refused: the peripherals have one fast interrupt together, on one core.
    pub(super) fn enable_fast(&self, interrupt: Interrupt) -> Result<(), FastError> {
        if interrupt.number == COUNTERS {
            self.enable_fast_counters();
            return Ok(());
        }
        let timer = timer(interrupt).ok_or(FastError::NoTimer)?;
        let timers = &self.local.timers[core()];
        timers.set(timers.get() | 1 << (FAST + timer));
        Ok(())
    }

    fn enable_fast_counters(&self) {
        self.local.counters_set.set(1 << (FAST as usize + core()));
    }

    /// Returns whether the event counters of this core request `interrupt`. The request shows only where it is routed
    /// to, so it is routed to this core meanwhile.
    pub(super) fn is_pending(&self, interrupt: Interrupt) -> bool {
        if interrupt.number != COUNTERS {
            return false;
        }
        self.enable_fast_counters();
        complete();
        let is_pending = self.local.fast_source[core()].is_set(Source::COUNTERS);
        self.local.counters_clear.set(1 << (FAST as usize + core()));
        complete();
        is_pending
    }

    /// Interrupts the CPU with the dense number `cpu`.
    pub(super) fn send(&self, cpu: usize, ipi: Ipi) {
        let core = self.cores.of(cpu).load(Ordering::Relaxed);
        self.local.mailbox_set[core * MAILBOXES].set(1 << ipi as u32);
    }

    /// Returns the number of the interrupt to handle.
    ///
    /// An interrupt that a CPU has sent is no longer pending afterwards. So reads after this see whatever the sender
    /// stored before it sent the interrupt, and an interrupt sent from now on is a new one.
    pub(super) fn acknowledge(&self) -> u32 {
        complete();
        let number = self.next();
        complete();
        number
    }

    /// Completes the accesses of the handler, after the interrupt has been handled.
    pub(super) fn end(&self) {
        complete();
    }

    fn next(&self) -> u32 {
        let core = core();
        let source = self.local.source[core].extract();
        if source.is_set(Source::MAILBOX0) {
            let mailbox = &self.local.mailbox_clear[core * MAILBOXES];
            let pending = mailbox.get();
            if pending != 0 {
                let number = pending.trailing_zeros();
                mailbox.set(1 << number);
                return number;
            }
        }
        let timers = source.read(Source::TIMERS);
        if timers != 0 {
            return LOCAL + timers.trailing_zeros();
        }
        let pending = |(bank, register): (usize, &ReadOnly<u32>)| {
            let bits = register.get() & if bank == BASIC { BASIC_INTERRUPTS } else { u32::MAX };
            (bits != 0).then(|| SHARED + 32 * bank as u32 + bits.trailing_zeros())
        };
        match &self.peripherals {
            Some(registers) if source.is_set(Source::PERIPHERALS) => {
                complete();
                registers.pending.iter().enumerate().find_map(pending).unwrap_or(SPURIOUS)
            }
            _ => SPURIOUS,
        }
    }
}

/// Waits until all accesses before this are complete. No later access starts before that (Arm ARM, B2.3.12).
fn complete() {
    barrier::dsb(barrier::SY);
}
