//! The GICv3 and GICv4 (Arm IHI 0069). The distributor and a redistributor for each CPU are in memory, and the CPU
//! interface is in system registers.

use core::sync::atomic::{AtomicU64, Ordering};

use aarch64_cpu::asm::barrier;
use aarch64_cpu::registers::MPIDR_EL1;
use device_tree::{AFFINITY, Interrupt, RegisterBlock};
use heapless::Vec;
use spin::Once;
use tock_registers::interfaces::{Readable, Writeable};
use tock_registers::registers::{ReadOnly, ReadWrite};
use tock_registers::{register_bitfields, register_structs};

use super::delivery::FastError;
use super::{FAST_PRIORITY, GENERATED, InterruptError, Ipi, PRIORITY, SHARED};
use crate::memory::Mmio;
use crate::per_cpu::{MAX_CPUS, PerCpu};

register_bitfields! {
    u32,
    DistributorControl [
        /// Its meaning depends on the view: group 1 without affinity routing in non-secure state, group 0 with one
        /// security state.
        ENABLE_GROUP1_NON_AFFINITY OFFSET(0) NUMBITS(1) [],
        ENABLE_GROUP1 OFFSET(1) NUMBITS(1) [],
        AFFINITY_ROUTING OFFSET(4) NUMBITS(1) [],
        /// There is one security state, or secure state leaves all interrupts to non-secure state.
        DISABLE_SECURITY OFFSET(6) NUMBITS(1) [],
        WRITE_PENDING OFFSET(31) NUMBITS(1) [],
    ],
    DistributorType [
        /// The number of interrupts in units of 32, minus one.
        LINES OFFSET(0) NUMBITS(5) [],
    ],
    Waker [
        PROCESSOR_SLEEP OFFSET(1) NUMBITS(1) [],
        CHILDREN_ASLEEP OFFSET(2) NUMBITS(1) [],
    ],
    RedistributorControl [
        WRITE_PENDING OFFSET(3) NUMBITS(1) [],
    ],
}

register_bitfields! {
    u64,
    RedistributorType [
        VIRTUAL_LPIS OFFSET(1) NUMBITS(1) [],
        LAST OFFSET(4) NUMBITS(1) [],
        AFFINITY OFFSET(32) NUMBITS(32) [],
    ],
}

register_structs! {
    Distributor {
        (0x0000 => control: ReadWrite<u32, DistributorControl::Register>),
        (0x0004 => type_: ReadOnly<u32, DistributorType::Register>),
        (0x0008 => _reserved0),
        (0x0080 => group: [ReadWrite<u32>; 32]),
        (0x0100 => set_enable: [ReadWrite<u32>; 32]),
        (0x0180 => clear_enable: [ReadWrite<u32>; 32]),
        (0x0200 => set_pending: [ReadWrite<u32>; 32]),
        (0x0280 => clear_pending: [ReadWrite<u32>; 32]),
        (0x0300 => _reserved2),
        (0x0380 => clear_active: [ReadWrite<u32>; 32]),
        (0x0400 => priority: [ReadWrite<u8>; 1024]),
        (0x0800 => _reserved3),
        (0x0c00 => configuration: [ReadWrite<u32>; 64]),
        (0x0d00 => _reserved4),
        (0x6000 => route: [ReadWrite<u64>; 1020]),
        (0x7fe0 => @END),
    },
    Redistributor {
        (0x00000 => control: ReadWrite<u32, RedistributorControl::Register>),
        (0x00004 => _reserved0),
        (0x00008 => type_: ReadOnly<u64, RedistributorType::Register>),
        (0x00010 => _reserved1),
        (0x00014 => waker: ReadWrite<u32, Waker::Register>),
        (0x00018 => _reserved2),
        (0x10080 => group: ReadWrite<u32>),
        (0x10084 => _reserved3),
        (0x10100 => set_enable: ReadWrite<u32>),
        (0x10104 => _reserved4),
        (0x10180 => clear_enable: ReadWrite<u32>),
        (0x10184 => _reserved5),
        (0x10200 => set_pending: ReadWrite<u32>),
        (0x10204 => _reserved10),
        (0x10280 => clear_pending: ReadWrite<u32>),
        (0x10284 => _reserved6),
        (0x10380 => clear_active: ReadWrite<u32>),
        (0x10384 => _reserved7),
        (0x10400 => priority: [ReadWrite<u8>; 32]),
        (0x10420 => _reserved8),
        (0x10c00 => configuration: [ReadWrite<u32>; 2]),
        (0x10c08 => _reserved9),
        (0x20000 => @END),
    }
}

/// Bytes from one redistributor to the next. A redistributor with registers for virtual LPIs takes twice that (IHI
/// 0069, 12.10).
const REDISTRIBUTOR_SIZE: u64 = size_of::<Redistributor>() as u64;

/// The number of polls after which a part of the GIC that is still busy is taken to be off. They take a second or more:
/// a load from a device takes 50 ns at least.
const POLLS_MAX: u32 = 20_000_000;

system_register!(icc_pmr_el1, "S3_0_C4_C6_0");
system_register!(icc_ap0r0_el1, "S3_0_C12_C8_4");
system_register!(icc_ap0r1_el1, "S3_0_C12_C8_5");
system_register!(icc_ap0r2_el1, "S3_0_C12_C8_6");
system_register!(icc_ap0r3_el1, "S3_0_C12_C8_7");
system_register!(icc_ap1r0_el1, "S3_0_C12_C9_0");
system_register!(icc_ap1r1_el1, "S3_0_C12_C9_1");
system_register!(icc_ap1r2_el1, "S3_0_C12_C9_2");
system_register!(icc_ap1r3_el1, "S3_0_C12_C9_3");
system_register!(icc_iar1_el1, "S3_0_C12_C12_0");
system_register!(icc_eoir1_el1, "S3_0_C12_C12_1");
system_register!(icc_sgi1r_el1, "S3_0_C12_C11_5");
system_register!(icc_bpr1_el1, "S3_0_C12_C12_3");
system_register!(icc_ctlr_el1, "S3_0_C12_C12_4");
system_register!(icc_sre_el1, "S3_0_C12_C12_5");
system_register!(icc_igrpen0_el1, "S3_0_C12_C12_6");
system_register!(icc_igrpen1_el1, "S3_0_C12_C12_7");

/// The functions that write the registers with the active priorities of a group.
type ActivePriorities = [fn(u64); 4];

const GROUP_0: ActivePriorities =
    [icc_ap0r0_el1::write, icc_ap0r1_el1::write, icc_ap0r2_el1::write, icc_ap0r3_el1::write];
const GROUP_1: ActivePriorities =
    [icc_ap1r0_el1::write, icc_ap1r1_el1::write, icc_ap1r2_el1::write, icc_ap1r3_el1::write];

/// Clears the priorities of interrupts that the firmware has not ended. They would block all interrupts of these
/// priorities and lower. Group 0 is cleared only where it is accessible.
///
/// The number of priority bits tells how many of the registers exist. Access to others is undefined (IHI 0069,
/// ICC_AP1R<n>_EL1).
fn clear_active_priorities(group: ActivePriorities) {
    let count = match priority_bits() {
        7.. => 4,
        6 => 2,
        _ => 1,
    };
    group[..count].iter().for_each(|write| write(0));
}

/// Returns the number of priority bits that the CPU interface has (ICC_CTLR_EL1.PRIbits).
fn priority_bits() -> u64 {
    (icc_ctlr_el1::read() >> 8 & 7) + 1
}

/// Returns whether EL3 leaves group 0 to EL1. If EL3 takes FIQs itself (SCR_EL3.FIQ), accesses to the registers of
/// group 0 trap to EL3. Also, the priority mask then has one bit less: the lowest bit written to it is lost (IHI 0069,
/// 4.8.6).
fn is_group0_accessible() -> bool {
    let mask = icc_pmr_el1::read();
    icc_pmr_el1::write(1 << (8 - priority_bits()));
    let is_kept = icc_pmr_el1::read() != 0;
    icc_pmr_el1::write(mask);
    is_kept
}

/// Polls `is_busy` until it returns false; an error after [`POLLS_MAX`] calls.
fn wait_while(component: &'static str, is_busy: impl Fn() -> bool) -> Result<(), InterruptError> {
    if (0..POLLS_MAX).all(|_| is_busy()) { Err(InterruptError::Busy(component)) } else { Ok(()) }
}

/// The distributor, and the redistributors of the CPUs that have been initialized.
pub(super) struct GicV3 {
    distributor: Mmio<Distributor>,
    regions: Vec<RegisterBlock, 4>,
    redistributors: PerCpu<Once<Mmio<Redistributor>>>,
    /// The affinity fields of each CPU's MPIDR_EL1.
    affinities: PerCpu<AtomicU64>,
}

impl GicV3 {
    pub(super) fn new(distributor: &RegisterBlock, regions: &Vec<RegisterBlock, 4>) -> Result<Self, InterruptError> {
        // SAFETY: the device tree says that a GICv3 has its distributor there.
        let distributor = unsafe { Mmio::<Distributor>::map(distributor.address)? };
        let gic = Self {
            distributor,
            regions: regions.clone(),
            redistributors: PerCpu::new([const { Once::new() }; MAX_CPUS]),
            affinities: PerCpu::new([const { AtomicU64::new(0) }; MAX_CPUS]),
        };
        distributor.control.set(0);
        gic.wait_for_distributor()?;
        // The firmware may have left interrupts pending or active; active ones are not signalled again.
        for bank in SHARED as usize / 32..=distributor.type_.read(DistributorType::LINES) as usize {
            distributor.clear_enable[bank].set(u32::MAX);
            distributor.clear_pending[bank].set(u32::MAX);
            distributor.clear_active[bank].set(u32::MAX);
            distributor.group[bank].set(u32::MAX);
        }
        gic.wait_for_distributor()?;
        distributor.control.write(DistributorControl::AFFINITY_ROUTING::SET);
        gic.wait_for_distributor()?;
        distributor.control.write(
            DistributorControl::AFFINITY_ROUTING::SET
                + DistributorControl::ENABLE_GROUP1::SET
                + DistributorControl::ENABLE_GROUP1_NON_AFFINITY::SET,
        );
        gic.wait_for_distributor()?;
        Ok(gic)
    }

    fn wait_for_distributor(&self) -> Result<(), InterruptError> {
        wait_while("the GIC's distributor", || self.distributor.control.is_set(DistributorControl::WRITE_PENDING))
    }

    pub(super) fn initialize_cpu(&self) -> Result<(), InterruptError> {
        let redistributor = self.find_redistributor()?;
        self.redistributors.here().call_once(|| redistributor);
        self.affinities.here().store(MPIDR_EL1.get() & AFFINITY, Ordering::Relaxed);
        redistributor.waker.write(Waker::PROCESSOR_SLEEP::CLEAR);
        wait_while("the GIC's redistributor", || redistributor.waker.is_set(Waker::CHILDREN_ASLEEP))?;
        redistributor.clear_enable.set(u32::MAX);
        redistributor.clear_pending.set(u32::MAX);
        redistributor.clear_active.set(u32::MAX);
        redistributor.group.set(u32::MAX);
        wait_while("the GIC's redistributor", || redistributor.control.is_set(RedistributorControl::WRITE_PENDING))?;
        for priority in &redistributor.priority[..GENERATED as usize] {
            priority.set(PRIORITY);
        }
        redistributor.set_enable.set(Ipi::ALL);

        icc_sre_el1::write(icc_sre_el1::read() | 1);
        barrier::isb(barrier::SY);
        if icc_sre_el1::read() & 1 == 0 {
            return Err(InterruptError::NoSystemRegisters);
        }
        icc_pmr_el1::write(0xff);
        icc_bpr1_el1::write(0);
        // EOImode 0: ending an interrupt also deactivates it.
        icc_ctlr_el1::write(0);
        clear_active_priorities(GROUP_1);
        icc_igrpen1_el1::write(1);
        barrier::isb(barrier::SY);
        Ok(())
    }

    /// Enables an interrupt as a fast interrupt, which is level-sensitive, whatever the device tree says: no handler of
    /// fast interrupts acknowledges one.
    pub(super) fn enable_fast(&self, interrupt: Interrupt) -> Result<(), FastError> {
        let redistributor = self.redistributors.here().get().ok_or(FastError::NoController)?;
        if !self.distributor.control.is_set(DistributorControl::DISABLE_SECURITY) || !is_group0_accessible() {
            return Err(FastError::Secure);
        }
        let group = match interrupt.number {
            ..SHARED => &redistributor.group,
            number => &self.distributor.group[number as usize / 32],
        };
        group.set(group.get() & !(1 << (interrupt.number % 32)));
        self.enable_with(Interrupt { edge: false, ..interrupt }, FAST_PRIORITY).map_err(|_| FastError::NoController)?;
        if icc_igrpen0_el1::read() & 1 == 0 {
            clear_active_priorities(GROUP_0);
            icc_igrpen0_el1::write(1);
            barrier::isb(barrier::SY);
        }
        Ok(())
    }

    /// Returns the redistributor of this CPU, which has the CPU's affinity.
    fn find_redistributor(&self) -> Result<Mmio<Redistributor>, InterruptError> {
        let affinity = MPIDR_EL1.get() & AFFINITY;
        // Aff3 is in bits 39–32 of MPIDR_EL1, and in the highest byte of the redistributor's field.
        let wanted = affinity >> 32 << 24 | affinity & 0xff_ffff;
        for region in &self.regions {
            let mut offset = 0;
            while offset + REDISTRIBUTOR_SIZE <= region.length {
                // SAFETY: the device tree says that redistributors are here, contiguous up to the one marked as last.
                let redistributor = unsafe { Mmio::<Redistributor>::map(region.address + offset)? };
                let kind = redistributor.type_.extract();
                if kind.read(RedistributorType::AFFINITY) == wanted {
                    return Ok(redistributor);
                }
                if kind.is_set(RedistributorType::LAST) {
                    break;
                }
                offset += REDISTRIBUTOR_SIZE << u32::from(kind.is_set(RedistributorType::VIRTUAL_LPIS));
            }
        }
        Err(InterruptError::NoRedistributor(affinity))
    }

    pub(super) fn enable(&self, interrupt: Interrupt) -> Result<(), InterruptError> {
        self.enable_with(interrupt, PRIORITY)
    }

    fn enable_with(&self, interrupt: Interrupt, priority: u8) -> Result<(), InterruptError> {
        let number = interrupt.number as usize;
        // Each interrupt has two bits; the upper one means edge-triggered (IHI 0069, 12.9.9).
        let configure = |register: &ReadWrite<u32>| {
            let bit = 1 << (number % 16 * 2 + 1);
            register.set(if interrupt.edge { register.get() | bit } else { register.get() & !bit });
        };
        if interrupt.number < SHARED {
            let redistributor = self.redistributors.here().get().ok_or(InterruptError::NoController)?;
            redistributor.priority[number].set(priority);
            configure(&redistributor.configuration[number / 16]);
            redistributor.set_enable.set(1 << number);
        } else {
            self.distributor.priority[number].set(priority);
            configure(&self.distributor.configuration[number / 16]);
            self.distributor.route[number].set(MPIDR_EL1.get() & AFFINITY);
            self.distributor.set_enable[number / 32].set(1 << (number % 32));
        }
        Ok(())
    }

    /// Returns whether the interrupt is requested, enabled or not.
    pub(super) fn is_pending(&self, interrupt: Interrupt) -> bool {
        let pending = match (interrupt.number, self.redistributors.here().get()) {
            (..SHARED, Some(redistributor)) => &redistributor.set_pending,
            (..SHARED, None) => return false,
            (number, _) => &self.distributor.set_pending[number as usize / 32],
        };
        pending.get() >> (interrupt.number % 32) & 1 != 0
    }

    /// Interrupts the CPU with the dense number `cpu`, by its affinity. One of 16 target bits stands for the low four
    /// bits of Aff0, and RS for its high bits (IHI 0069, ICC_SGI1R_EL1). If any CPU has high bits, the GIC supports
    /// them.
    pub(super) fn send(&self, cpu: usize, ipi: Ipi) {
        let affinity = self.affinities.of(cpu).load(Ordering::Relaxed);
        let [aff0, aff1, aff2, _, aff3, ..] = affinity.to_le_bytes().map(u64::from);
        let (target, range) = (1 << (aff0 & 0xf), aff0 >> 4);
        icc_sgi1r_el1::write(aff3 << 48 | range << 44 | aff2 << 32 | (ipi as u64) << 24 | aff1 << 16 | target);
        barrier::isb(barrier::SY);
    }

    /// Returns the number of the interrupt to handle.
    pub(super) fn acknowledge(&self) -> u32 {
        let number = icc_iar1_el1::read() as u32;
        // The accesses of the handler must not come before the acknowledgement (IHI 0069, 4.1.1).
        barrier::dsb(barrier::SY);
        number
    }

    /// Ends the interrupt that [`acknowledge`](Self::acknowledge) has returned.
    pub(super) fn end(&self, acknowledged: u32) {
        icc_eoir1_el1::write(acknowledged.into());
        barrier::isb(barrier::SY);
    }
}
