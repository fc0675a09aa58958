//! Virtio devices: finds them, and gives the drivers of the crate `virtio-drivers` the memory they need.
//!
//! The devices have registers in memory (Virtio 1.2, 4.2), and the device tree lists them. A slot of the board may be
//! empty; an empty slot has the device number 0.

use alloc::vec::Vec;
use core::fmt;
use core::ptr::NonNull;

use device_tree::{Device, Hardware, Interrupt, RegisterBlock};
use virtio_drivers::transport::mmio::{MmioError, MmioTransport};
use virtio_drivers::transport::{DeviceType, Transport};
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

use crate::interrupt::InterruptError;
use crate::memory::{self, MapError, dma};
use crate::network::interface::HardwareAddress;

/// The most bytes of a device's registers that are mapped. The drivers read less of its configuration, and the tables
/// for as much as a device tree may claim would take all page frames.
const REGISTERS_MAX: u64 = 4096;

/// Why a virtio device cannot be used. Addresses are the physical addresses of its registers.
#[derive(Debug)]
pub(crate) enum VirtioError {
    /// The device would not see the contents of the CPUs' caches.
    NotCoherent(u64),
    /// Its registers cannot be mapped.
    Map(MapError),
    /// The driver does not know this kind of register interface.
    Transport(u64, MmioError),
    /// The driver failed to initialize the device.
    Driver(u64, virtio_drivers::Error),
    /// Its interrupt cannot be used.
    Interrupt(InterruptError),
    /// It is a network card, and its Ethernet address is that of a group.
    GroupAddress(HardwareAddress),
}

impl fmt::Display for VirtioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotCoherent(address) => {
                write!(f, "the device tree does not mark the virtio device at {address:#x} as dma-coherent")
            }
            Self::Map(error) => error.fmt(f),
            Self::Transport(address, error) => {
                write!(f, "the virtio device at {address:#x} cannot be reached: {error}")
            }
            Self::Driver(address, error) => write!(f, "the virtio device at {address:#x} does not start: {error}"),
            Self::Interrupt(error) => error.fmt(f),
            Self::GroupAddress(address) => write!(f, "its Ethernet address, {address}, is that of a group"),
        }
    }
}

/// A device that is present and that no driver has taken yet.
pub(crate) struct UnclaimedDevice {
    /// The physical address of its registers.
    pub address: u64,
    pub interrupt: Option<Interrupt>,
    pub transport: MmioTransport<'static>,
}

/// Returns every device that is present, in the order of the device tree. Calls `complain` with the error of each
/// device that cannot be used. Called once, at boot.
pub(crate) fn find(hardware: &Hardware, mut complain: impl FnMut(VirtioError)) -> Vec<UnclaimedDevice> {
    let mut found = Vec::new();
    for device in &hardware.virtio {
        match transport(device) {
            Ok(Some(transport)) => {
                found.push(UnclaimedDevice {
                    address: device.registers.address,
                    interrupt: device.interrupt,
                    transport,
                });
            }
            Ok(None) => {}
            Err(error) => complain(error),
        }
    }
    found
}

/// Takes the devices of one kind out of `devices`. Returns what `open` makes of each, with its interrupt. Calls
/// `complain` with the error of each device that cannot be used; `name` is what errors call it.
pub(crate) fn take<T>(
    devices: &mut Vec<UnclaimedDevice>,
    kind: DeviceType,
    name: &'static str,
    open: impl Fn(MmioTransport<'static>) -> virtio_drivers::Result<T>,
    complain: &mut impl FnMut(VirtioError),
) -> Vec<(T, Interrupt)> {
    let mut taken = Vec::new();
    for UnclaimedDevice { address, interrupt, transport } in
        devices.extract_if(.., |device| device.transport.device_type() == kind)
    {
        let opened = open(transport).map_err(|error| VirtioError::Driver(address, error));
        let no_interrupt = VirtioError::Interrupt(InterruptError::None(name));
        match opened.and_then(|opened| Ok((opened, interrupt.ok_or(no_interrupt)?))) {
            Ok(device) => taken.push(device),
            Err(error) => complain(error),
        }
    }
    taken
}

/// Maps the registers of a device. Returns `None` if the slot is empty.
fn transport(device: &Device) -> Result<Option<MmioTransport<'static>>, VirtioError> {
    let RegisterBlock { address, length } = device.registers;
    let length = length.min(REGISTERS_MAX);
    let header = memory::map_device(address, length).map_err(VirtioError::Map)?;
    let Some(header) = NonNull::new(core::ptr::with_exposed_provenance_mut(header)) else { return Ok(None) };
    // SAFETY: `map_device` has mapped these registers of the device, forever. `find` asks for each device once.
    match unsafe { MmioTransport::new(header, length as usize) } {
        Ok(_) if !device.is_coherent => Err(VirtioError::NotCoherent(address)),
        Ok(transport) => Ok(Some(transport)),
        Err(MmioError::InvalidDeviceID(_)) => Ok(None),
        Err(error) => Err(VirtioError::Transport(address, error)),
    }
}

/// The kernel's memory, as the virtio drivers use it.
pub(crate) struct Memory;

// SAFETY: `dma_alloc` returns heap memory without another owner, zeroed and aligned to a page. `mmio_phys_to_virt`
// never returns, as no device is on a PCI bus.
unsafe impl Hal for Memory {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        const { assert!(PAGE_SIZE == memory::layout::PAGE_SIZE) };
        // The address 0 reports that there is no memory.
        let none = (0, NonNull::dangling());
        dma::allocate(pages).and_then(|memory| Some((dma::physical(memory.addr().get())?, memory))).unwrap_or(none)
    }

    unsafe fn dma_dealloc(_: PhysAddr, memory: NonNull<u8>, pages: usize) -> i32 {
        // SAFETY: the driver gives back memory from `dma_alloc`, after the device has finished with it.
        unsafe { dma::free(memory, pages) };
        0
    }

    unsafe fn mmio_phys_to_virt(physical: PhysAddr, _: usize) -> NonNull<u8> {
        panic!("PCI devices are not supported: registers at {physical:#x}")
    }

    unsafe fn share(buffer: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        let address = buffer.cast::<u8>().addr().get();
        dma::physical(address).unwrap_or_else(|| panic!("a device was given {address:#x}, which is not heap memory"))
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}
