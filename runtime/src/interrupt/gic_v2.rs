//! GICv2 (Arm IHI 0048B): everything through memory.

use aarch64_cpu::asm::barrier;
use tock_registers::interfaces::{ReadWriteable, Readable, Writeable};
use tock_registers::registers::{ReadOnly, ReadWrite, WriteOnly};
use tock_registers::{register_bitfields, register_structs};

use core::sync::atomic::{AtomicU8, Ordering};

use super::fast::FastError;
use super::{FAST_PRIORITY, GENERATED, InterruptError, Ipi, PRIORITY, SHARED};
use crate::device_tree::{Interrupt, Registers};
use crate::memory::Mmio;
use crate::per_cpu::{MAX_CPUS, PerCpu};

register_bitfields! {
    u32,
    Control [
        /// Group 0; in the non-secure view, group 1.
        ENABLE OFFSET(0) NUMBITS(1) [],
        /// Reserved in the non-secure view, as the next two.
        ENABLE_GROUP1 OFFSET(1) NUMBITS(1) [],
        /// Of the CPU interface: both groups are acknowledged by the same register.
        ACKNOWLEDGE_BOTH OFFSET(2) NUMBITS(1) [],
        /// Of the CPU interface: group 0 is signalled by FIQ.
        FAST OFFSET(3) NUMBITS(1) [],
    ],
    Type [
        /// Interrupts in units of 32, less one.
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
        (0x200 => _reserved1),
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
        /// Those of group 1, where the GIC has groups.
        (0xe0 => active_priorities_of_group1: [ReadWrite<u32>; 4]),
        (0xf0 => @END),
    }
}

/// The distributor, which all CPUs share, and the CPU interface, which is at the same address for each.
pub(super) struct GicV2 {
    distributor: Mmio<Distributor>,
    cpu: Mmio<CpuInterface>,
    /// Whether interrupts can be put into either group: then all are in group 1 but those that are to be fast. With the Security
    /// Extensions that is up to secure state.
    has_groups: bool,
    /// The bit of each CPU's interface.
    interfaces: PerCpu<AtomicU8>,
}

impl Distributor {
    /// Disables the 32 interrupts of bank `bank`, and makes them neither pending nor active, whatever the firmware did
    /// with them: an interrupt that is active is not signalled again.
    fn reset(&self, bank: usize) {
        self.clear_enable[bank].set(u32::MAX);
        self.clear_pending[bank].set(u32::MAX);
        self.clear_active[bank].set(u32::MAX);
    }
}

impl GicV2 {
    pub(super) fn new(distributor: &Registers, cpu_interface: &Registers) -> Result<Self, InterruptError> {
        // SAFETY: the device tree says that a GICv2 has its registers there.
        let (distributor, cpu) = unsafe {
            (Mmio::<Distributor>::map(distributor.address)?, Mmio::<CpuInterface>::map(cpu_interface.address)?)
        };
        distributor.control.set(0);
        // Where the register is not writable it reads as zero (IHI 0048B, 4.3.4).
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

    /// The first 32 interrupts have their registers for each CPU.
    pub(super) fn initialize_cpu(&self) {
        self.distributor.reset(0);
        // This CPU's bit is what the registers of its own interrupts read as (4.3.12); 0 if it is the only one.
        self.interfaces.here().store(self.distributor.targets[0].get(), Ordering::Relaxed);
        // Those that CPUs send have their pending state by sender, elsewhere (GICD_CPENDSGIRn).
        for register in &self.distributor.clear_pending_sgi {
            register.set(u32::MAX);
        }
        // Without this, an interrupt that the firmware has not ended keeps out all of its priority and lower (GICC_APRn).
        for register in &self.cpu.active_priorities {
            register.set(0);
        }
        for priority in &self.distributor.priority[..GENERATED as usize] {
            priority.set(PRIORITY);
        }
        self.distributor.set_enable[0].set(Ipi::ALL);
        self.cpu.priority_mask.write(Priority::VALUE.val(0xff));
        // The other bits are the firmware's: a bypass of the GIC, perhaps.
        self.cpu.control.modify(Control::ENABLE::SET);
        if self.has_groups {
            self.distributor.group[0].set(u32::MAX);
            for register in &self.cpu.active_priorities_of_group1 {
                register.set(0);
            }
            self.cpu.control.modify(Control::ENABLE_GROUP1::SET + Control::ACKNOWLEDGE_BOTH::SET + Control::FAST::SET);
        }
    }

    /// Makes an interrupt of this CPU's own a fast one, and enables it.
    pub(super) fn enable_fast(&self, interrupt: Interrupt) -> Result<(), FastError> {
        if !self.has_groups {
            return Err(FastError::Secure);
        }
        let group = &self.distributor.group[0];
        group.set(group.get() & !(1 << interrupt.number));
        self.distributor.priority[interrupt.number as usize].set(FAST_PRIORITY);
        self.distributor.set_enable[0].set(1 << interrupt.number);
        Ok(())
    }

    pub(super) fn enable(&self, interrupt: Interrupt) {
        let number = interrupt.number as usize;
        self.distributor.priority[number].set(PRIORITY);
        // Two bits for each, the upper one of which says edge-triggered (4.3.13).
        let (register, bit) = (&self.distributor.configuration[number / 16], 1 << (number % 16 * 2 + 1));
        register.set(if interrupt.edge { register.get() | bit } else { register.get() & !bit });
        if interrupt.number >= SHARED {
            self.distributor.targets[number].set(self.interfaces.here().load(Ordering::Relaxed));
        }
        self.distributor.set_enable[number / 32].set(1 << (number % 32));
    }

    /// Interrupts the CPU with the dense number `cpu`.
    pub(super) fn send(&self, cpu: usize, ipi: Ipi) {
        let interface = self.interfaces.of(cpu).load(Ordering::Relaxed);
        let (number, targets) = (GeneratedInterrupt::NUMBER.val(ipi as u32), interface.into());
        self.distributor.generate.write(number + GeneratedInterrupt::TARGETS.val(targets));
    }

    /// The number of the interrupt to handle, and, for one that a CPU has sent, that CPU. It is that of the fast interrupt if this
    /// has become pending since the other was taken: its request stands when it is ended, and the other one's too.
    pub(super) fn acknowledge(&self) -> u32 {
        let acknowledged = self.cpu.acknowledge.get();
        // What the sender stored before is read after: the interrupt that is acknowledged may have come later than the one
        // that was taken (Arm ARM, B2.3.7).
        barrier::dmb(barrier::ISHLD);
        acknowledged
    }

    /// Ends the interrupt that [`acknowledge`](Self::acknowledge) gave.
    pub(super) fn end(&self, acknowledged: u32) {
        self.cpu.end.set(acknowledged);
    }
}
