//! The GICv2 (Arm IHI 0048B), whose registers are all in memory.

use aarch64_cpu::asm::barrier;
use device_tree::{Interrupt, RegisterBlock};
use tock_registers::interfaces::{ReadWriteable, Readable, Writeable};
use tock_registers::registers::{ReadOnly, ReadWrite, WriteOnly};
use tock_registers::{register_bitfields, register_structs};

use core::sync::atomic::{AtomicU8, Ordering};

use super::delivery::FastError;
use super::{FAST_PRIORITY, GENERATED, InterruptError, Ipi, PRIORITY, SHARED};
use crate::memory::Mmio;
use crate::per_cpu::{MAX_CPUS, PerCpu};

register_bitfields! {
    u32,
    Control [
        /// Enables group 0; in the non-secure view, group 1.
        ENABLE OFFSET(0) NUMBITS(1) [],
        /// Reserved in the non-secure view, as are the next two.
        ENABLE_GROUP1 OFFSET(1) NUMBITS(1) [],
        /// CPU interface: the same register acknowledges both groups.
        ACKNOWLEDGE_BOTH OFFSET(2) NUMBITS(1) [],
        /// CPU interface: group 0 is signalled by FIQ.
        FAST OFFSET(3) NUMBITS(1) [],
    ],
    Type [
        /// The number of interrupts in units of 32, minus one.
        LINES OFFSET(0) NUMBITS(5) [],
        SECURITY_EXTENSIONS OFFSET(10) NUMBITS(1) [],
    ],
    GeneratedInterrupt [
        NUMBER OFFSET(0) NUMBITS(4) [],
        TARGETS OFFSET(16) NUMBITS(8) [],
    ],
    Priority [
        VALUE OFFSET(0) NUMBITS(8) [],
    ],
}

register_structs! {
    Distributor {
        (0x000 => control: ReadWrite<u32, Control::Register>),
        (0x004 => type_: ReadOnly<u32, Type::Register>),
        (0x008 => _reserved0),
        (0x080 => group: [ReadWrite<u32>; 32]),
        (0x100 => set_enable: [ReadWrite<u32>; 32]),
        (0x180 => clear_enable: [ReadWrite<u32>; 32]),
        (0x200 => set_pending: [ReadWrite<u32>; 32]),
        (0x280 => clear_pending: [ReadWrite<u32>; 32]),
        (0x300 => _reserved2),
        (0x380 => clear_active: [ReadWrite<u32>; 32]),
        (0x400 => priority: [ReadWrite<u8>; 1024]),
        (0x800 => targets: [ReadWrite<u8>; 1024]),
        (0xc00 => configuration: [ReadWrite<u32>; 64]),
        (0xd00 => _reserved3),
        (0xf00 => generate: WriteOnly<u32, GeneratedInterrupt::Register>),
        (0xf04 => _reserved4),
        (0xf10 => clear_pending_sgi: [ReadWrite<u32>; 4]),
        (0xf20 => @END),
    },
    CpuInterface {
        (0x00 => control: ReadWrite<u32, Control::Register>),
        (0x04 => priority_mask: ReadWrite<u32, Priority::Register>),
        (0x08 => _reserved0),
        (0x0c => acknowledge: ReadOnly<u32>),
        (0x10 => end: WriteOnly<u32>),
        (0x14 => _reserved1),
        (0xd0 => active_priorities: [ReadWrite<u32>; 4]),
        /// The active priorities of group 1, if the GIC has groups.
        (0xe0 => active_priorities_of_group1: [ReadWrite<u32>; 4]),
        (0xf0 => @END),
    }
}

/// The distributor, which all CPUs share, and the CPU interface, which every CPU finds at the same address.
pub(super) struct GicV2 {
    distributor: Mmio<Distributor>,
    cpu: Mmio<CpuInterface>,
    /// Whether the kernel can put interrupts into either group. If so, all are in group 1, except for fast interrupts.
    /// With the Security Extensions, secure state decides that.
    has_groups: bool,
    /// The bit of each CPU's interface in target registers.
    interfaces: PerCpu<AtomicU8>,
}

impl Distributor {
    /// Disables the 32 interrupts of bank `bank`, and makes them neither pending nor active, whatever the firmware did
    /// with them. An interrupt that stays active is not signalled again.
    fn reset(&self, bank: usize) {
        self.clear_enable[bank].set(u32::MAX);
        self.clear_pending[bank].set(u32::MAX);
        self.clear_active[bank].set(u32::MAX);
    }
}

impl GicV2 {
    pub(super) fn new(distributor: &RegisterBlock, cpu_interface: &RegisterBlock) -> Result<Self, InterruptError> {
        // SAFETY: the device tree says that a GICv2 has its registers there.
        let (distributor, cpu) = unsafe {
            (Mmio::<Distributor>::map(distributor.address)?, Mmio::<CpuInterface>::map(cpu_interface.address)?)
        };
        distributor.control.set(0);
        // If the register is not writable, it reads as zero (IHI 0048B, 4.3.4).
        distributor.group[0].set(u32::MAX);
        let has_groups = !distributor.type_.is_set(Type::SECURITY_EXTENSIONS) && distributor.group[0].get() == u32::MAX;
        for bank in SHARED as usize / 32..=distributor.type_.read(Type::LINES) as usize {
            distributor.reset(bank);
            if has_groups {
                distributor.group[bank].set(u32::MAX);
            }
        }
        let groups = if has_groups { Control::ENABLE_GROUP1::SET } else { Control::ENABLE_GROUP1::CLEAR };
        distributor.control.write(Control::ENABLE::SET + groups);
        Ok(Self { distributor, cpu, has_groups, interfaces: PerCpu::new([const { AtomicU8::new(0) }; MAX_CPUS]) })
    }

    /// Prepares this CPU's own registers: those of its CPU interface, and the banked ones of the first 32 interrupts.
    pub(super) fn initialize_cpu(&self) {
        self.distributor.reset(0);
        // The target registers of a CPU's own interrupts read as its bit (4.3.12), or as 0 if it is the only CPU.
        self.interfaces.here().store(self.distributor.targets[0].get(), Ordering::Relaxed);
        // Software-generated interrupts have separate pending state for each sender (GICD_CPENDSGIRn).
        for register in &self.distributor.clear_pending_sgi {
            register.set(u32::MAX);
        }
        // Otherwise, an interrupt that the firmware has not ended would block all of its priority and lower
        // (GICC_APRn).
        for register in &self.cpu.active_priorities {
            register.set(0);
        }
        for priority in &self.distributor.priority[..GENERATED as usize] {
            priority.set(PRIORITY);
        }
        self.distributor.set_enable[0].set(Ipi::ALL);
        self.cpu.priority_mask.write(Priority::VALUE.val(0xff));
        // The other bits belong to the firmware: they may configure a bypass of the GIC.
        self.cpu.control.modify(Control::ENABLE::SET);
        if self.has_groups {
            self.distributor.group[0].set(u32::MAX);
            for register in &self.cpu.active_priorities_of_group1 {
                register.set(0);
            }
            self.cpu.control.modify(Control::ENABLE_GROUP1::SET + Control::ACKNOWLEDGE_BOTH::SET + Control::FAST::SET);
        }
    }

    /// Enables an interrupt as a fast interrupt, which is level-sensitive, whatever the device tree says: no handler of
    /// fast interrupts acknowledges one.
    pub(super) fn enable_fast(&self, interrupt: Interrupt) -> Result<(), FastError> {
        if !self.has_groups {
            return Err(FastError::Secure);
        }
        let group = &self.distributor.group[interrupt.number as usize / 32];
        group.set(group.get() & !(1 << (interrupt.number % 32)));
        self.enable_with(Interrupt { edge: false, ..interrupt }, FAST_PRIORITY);
        Ok(())
    }

    pub(super) fn enable(&self, interrupt: Interrupt) {
        self.enable_with(interrupt, PRIORITY);
    }

    fn enable_with(&self, interrupt: Interrupt, priority: u8) {
        let number = interrupt.number as usize;
        self.distributor.priority[number].set(priority);
        // Each interrupt has two bits; the upper one means edge-triggered (4.3.13).
        let (register, bit) = (&self.distributor.configuration[number / 16], 1 << (number % 16 * 2 + 1));
        register.set(if interrupt.edge { register.get() | bit } else { register.get() & !bit });
        if interrupt.number >= SHARED {
            self.distributor.targets[number].set(self.interfaces.here().load(Ordering::Relaxed));
        }
        self.distributor.set_enable[number / 32].set(1 << (number % 32));
    }

    /// Returns whether the interrupt is requested, enabled or not.
    pub(super) fn is_pending(&self, interrupt: Interrupt) -> bool {
        self.distributor.set_pending[interrupt.number as usize / 32].get() >> (interrupt.number % 32) & 1 != 0
    }

    /// Interrupts the CPU with the dense number `cpu`.
    pub(super) fn send(&self, cpu: usize, ipi: Ipi) {
        let interface = self.interfaces.of(cpu).load(Ordering::Relaxed);
        let (number, targets) = (GeneratedInterrupt::NUMBER.val(ipi as u32), interface.into());
        self.distributor.generate.write(number + GeneratedInterrupt::TARGETS.val(targets));
    }

    /// Returns the number of the interrupt to handle. For a software-generated interrupt, upper bits name the CPU that
    /// sent it.
    ///
    /// If a fast interrupt has become pending since this one was taken, returns the number of the fast one. After it
    /// is ended, the requests of both still stand.
    pub(super) fn acknowledge(&self) -> u32 {
        let acknowledged = self.cpu.acknowledge.get();
        // Reads after this must see what the sender stored before it sent the interrupt. The acknowledged interrupt may
        // be a later one than the interrupt that was taken, so the exception alone does not order them (Arm ARM,
        // B2.3.7).
        barrier::dmb(barrier::ISHLD);
        acknowledged
    }

    /// Ends the interrupt that [`acknowledge`](Self::acknowledge) has returned.
    pub(super) fn end(&self, acknowledged: u32) {
        self.cpu.end.set(acknowledged);
    }
}
