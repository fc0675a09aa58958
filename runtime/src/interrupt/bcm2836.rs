//! The interrupt controllers of the BCM2836 and the BCM2837, the chips of the Raspberry Pi 2 and 3: for each core a local
//! one, which takes its timers and mailboxes ("BCM2836 ARM-local peripherals", QA7 rev 3.4, chapters 3 and 4), and one for
//! all peripherals, whose output goes to one core ("BCM2835 ARM Peripherals", chapter 7).
//!
//! Nothing has priorities, and nothing is to be ended: a request stands until its cause is gone. The cause of an interrupt
//! that a CPU sends is a bit in mailbox 0 of the core that it is for, one for each kind; it is cleared as it is taken.
//!
//! **Order.** What different peripherals of these chips are asked may be answered in another order than asked ("BCM2835 ARM
//! Peripherals", 1.3). An interrupt may come between two accesses to one, and leads to accesses to others; so accesses are
//! complete when it has been acknowledged, and when it has been handled.

use core::sync::atomic::{AtomicUsize, Ordering};

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::MPIDR_EL1;
use tock_registers::interfaces::{ReadWriteable, Readable, Writeable};
use tock_registers::registers::{ReadOnly, ReadWrite, WriteOnly};
use tock_registers::{register_bitfields, register_structs};

use super::{InterruptError, Ipi, SHARED, SPURIOUS};
use crate::device_tree::{Interrupt, Registers};
use crate::memory::Mmio;
use crate::per_cpu::{MAX_CPUS, PerCpu};

/// Cores, each with registers of its own.
const CORES: usize = 4;
/// Mailboxes of a core.
const MAILBOXES: usize = 4;
/// The number of the first interrupt of the local controller.
const LOCAL: u32 = 16;
/// Where the bits of the timers begin that have them interrupt by FIQ (QA7, 4.6); they take precedence over those for IRQ.
const FAST: u32 = 4;
/// Banks of the peripherals' controller.
const BANKS: usize = 3;

register_bitfields! {
    u32,
    Routing [
        /// The core that the peripherals interrupt.
        IRQ OFFSET(0) NUMBITS(2) [],
        FIQ OFFSET(2) NUMBITS(2) [],
    ],
    /// What interrupts a core.
    Source [
        TIMERS OFFSET(0) NUMBITS(4) [],
        MAILBOX0 OFFSET(4) NUMBITS(1) [],
        PERIPHERALS OFFSET(8) NUMBITS(1) [],
    ],
}

register_structs! {
    Local {
        (0x000 => control: ReadWrite<u32>),
        (0x004 => _reserved0),
        (0x008 => prescaler: ReadWrite<u32>),
        (0x00c => routing: ReadWrite<u32, Routing::Register>),
        (0x010 => _reserved1),
        (0x040 => timers: [ReadWrite<u32>; CORES]),
        (0x050 => mailboxes: [ReadWrite<u32>; CORES]),
        (0x060 => source: [ReadOnly<u32, Source::Register>; CORES]),
        (0x070 => _reserved2),
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

/// The device tree's banks: of the registers, the first is that of the basic interrupts, which is behind the others where
/// interrupts are enabled and disabled. Above the basic interrupts it sums up the others.
const BASIC: usize = 0;
const BASIC_INTERRUPTS: u32 = 0xff;

/// Where bank `bank` is enabled and disabled.
const fn switch(bank: usize) -> usize {
    if bank == BASIC { BANKS - 1 } else { bank - 1 }
}

pub(super) struct Bcm2836 {
    local: Mmio<Local>,
    peripherals: Option<Mmio<Peripherals>>,
    /// The core that each CPU is.
    cores: PerCpu<AtomicUsize>,
}

/// The core that runs this: the only field of its affinity that differs.
fn core() -> usize {
    MPIDR_EL1.get() as usize % CORES
}

impl Bcm2836 {
    pub(super) fn new(local: &Registers, peripherals: Option<&Registers>) -> Result<Self, InterruptError> {
        // SAFETY: the device tree says that these controllers have their registers there.
        let (local, peripherals) = unsafe {
            let peripherals = peripherals.map(|registers| Mmio::<Peripherals>::map(registers.address));
            (Mmio::<Local>::map(local.address)?, peripherals.transpose()?)
        };
        // The counter of the generic timers counts the crystal's 19.2 MHz, one by one (QA7, 3.1): firmware need not have
        // said so.
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
        self.local.mailbox_clear[core * MAILBOXES].set(u32::MAX);
        // Mailbox 0, as an IRQ.
        self.local.mailboxes[core].set(1);
    }

    /// Enables an interrupt. Those of peripherals all go to the CPU that has enabled one last.
    pub(super) fn enable(&self, interrupt: Interrupt) -> Result<(), InterruptError> {
        let none = InterruptError::None("device");
        if interrupt.number < SHARED {
            let timers = &self.local.timers[core()];
            timers.set(timers.get() | 1 << (interrupt.number - LOCAL));
            return Ok(());
        }
        let (bank, bit) = ((interrupt.number - SHARED) as usize / 32, interrupt.number % 32);
        let peripherals = self.peripherals.as_ref().filter(|_| bank < BANKS).ok_or(none)?;
        self.local.routing.modify(Routing::IRQ.val(core() as u32));
        peripherals.enable[switch(bank)].set(1 << bit);
        Ok(())
    }

    /// Makes the interrupt of one of this core's timers a fast one, and enables it.
    pub(super) fn enable_fast(&self, interrupt: Interrupt) {
        let timers = &self.local.timers[core()];
        timers.set(timers.get() | 1 << (FAST + interrupt.number - LOCAL));
    }

    /// Interrupts the CPU with the dense number `cpu`.
    pub(super) fn send(&self, cpu: usize, ipi: Ipi) {
        let core = self.cores.of(cpu).load(Ordering::Relaxed);
        self.local.mailbox_set[core * MAILBOXES].set(1 << ipi as u32);
    }

    /// The number of the interrupt to handle. One that a CPU has sent is no longer pending then: what was stored before it
    /// was sent is read after that, and one that is sent from now on is another one.
    pub(super) fn acknowledge(&self) -> u32 {
        complete();
        let number = self.next();
        complete();
        number
    }

    /// The interrupt has been handled.
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

/// All accesses before this are done before any after it (Arm ARM, B2.3.12).
fn complete() {
    barrier::dsb(barrier::SY);
}
