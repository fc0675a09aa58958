//! Disks: tasks ask for sectors and wait; the device answers by an interrupt.
//!
//! | module | what it owns |
//! |---|---|
//! | [`request`] | what is asked for, and how it comes to its end |
//! | `queue` | the requests that wait for a disk, and those that it is at |
//!
//! A task makes a [`Request`] of a buffer and submits it, and gets the buffer back when the disk has done with it. A disk does
//! no more than [`SEGMENT`](request::SEGMENT) bytes at a time, so a request may take several turns: after each, the interrupt
//! handler calls [`update_request`](request::update_request), which says whether there is more to do.

mod queue;
pub mod request;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use spin::Once;
use virtio_drivers::transport::DeviceType;

use crate::interrupt;
use crate::sync::IrqLock;
use crate::virtio::{self, DeviceError, Found};
use queue::Queue;
use request::{Completion, Operation, Request, Status};

/// Bytes of a sector.
pub const SECTOR: usize = virtio_drivers::device::blk::SECTOR_SIZE;

/// Every disk, in the order of the device tree. Set once, at boot.
static DISKS: Once<Vec<Disk>> = Once::new();

/// A disk.
pub struct Disk {
    capacity: u64,
    is_read_only: bool,
    queue: IrqLock<Queue>,
}

/// Why sectors were not read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// The buffer has this many bytes, which is nothing, or no whole number of sectors.
    Length(usize),
    /// The sectors end at this one, and the disk at the other.
    PastTheEnd(u64, u64),
    /// The disk cannot be written to.
    ReadOnly,
    /// The disk has refused, with this status, at this sector or behind it.
    Device(u64, Status),
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "{length} bytes are no whole number of sectors of {SECTOR} bytes"),
            Self::PastTheEnd(end, capacity) => write!(f, "the sectors end at {end}, and the disk at {capacity}"),
            Self::ReadOnly => f.write_str("the disk cannot be written to"),
            Self::Device(sector, status) => write!(f, "the disk has refused at sector {sector}: {status}"),
        }
    }
}

/// Takes the disks out of `devices`. Calls `complain` with what is wrong with those that cannot be used.
pub(crate) fn initialize(devices: &mut Vec<Found>, mut complain: impl FnMut(DeviceError)) {
    let queues = virtio::take(devices, DeviceType::Block, "disk", Queue::new, &mut complain);
    let (queues, interrupts): (Vec<_>, Vec<_>) = queues.into_iter().unzip();
    let disk = |queue: Queue| Disk {
        capacity: queue.capacity(),
        is_read_only: queue.is_read_only(),
        queue: IrqLock::new(queue),
    };
    DISKS.call_once(|| queues.into_iter().map(disk).collect());
    for interrupt in interrupts {
        if let Err(error) = interrupt::register(interrupt, disk_interrupt) {
            complain(DeviceError::Interrupt(error));
        }
    }
}

/// Every disk, in the order of the device tree.
#[must_use]
pub fn disks() -> &'static [Disk] {
    DISKS.get().map_or(&[], Vec::as_slice)
}

/// Handles the interrupt of a disk, whichever it is.
fn disk_interrupt() {
    disks().iter().for_each(|disk| disk.queue.lock().complete());
}

impl Disk {
    /// How many sectors it has.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Whether it cannot be written to.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Begins to read or write `buffer`, from the sector with the number `sector` on.
    ///
    /// # Errors
    ///
    /// Where the buffer is no whole number of sectors, or some of them are not on the disk, or it cannot be written to.
    pub fn submit(&self, operation: Operation, sector: u64, buffer: Box<[u8]>) -> Result<Pending, BlockError> {
        let length = buffer.len();
        if length == 0 || !length.is_multiple_of(SECTOR) {
            return Err(BlockError::Length(length));
        }
        let end = sector.saturating_add((length / SECTOR) as u64);
        if end > self.capacity {
            return Err(BlockError::PastTheEnd(end, self.capacity));
        }
        if operation == Operation::Write && self.is_read_only {
            return Err(BlockError::ReadOnly);
        }
        let completion = Arc::new(Completion::new());
        self.queue.lock().submit(Box::new(Request::new(operation, sector, buffer, completion.clone())));
        Ok(Pending { sector, completion })
    }

    /// Reads `count` sectors, from the one with the number `sector` on. The task waits meanwhile.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit), and where the disk refuses.
    // Not inlined, so that it can be probed at every level of optimization.
    #[inline(never)]
    pub fn read(&self, sector: u64, count: usize) -> Result<Box<[u8]>, BlockError> {
        let buffer = alloc::vec![0; count.saturating_mul(SECTOR)].into_boxed_slice();
        self.submit(Operation::Read, sector, buffer)?.wait()
    }

    /// Writes `buffer`, from the sector with the number `sector` on, and gives it back. The task waits meanwhile.
    ///
    /// # Errors
    ///
    /// As [`submit`](Self::submit), and where the disk refuses.
    pub fn write(&self, sector: u64, buffer: Box<[u8]>) -> Result<Box<[u8]>, BlockError> {
        self.submit(Operation::Write, sector, buffer)?.wait()
    }
}

/// A request that the disk has. To drop it leaves the request to itself.
pub struct Pending {
    sector: u64,
    completion: Arc<Completion>,
}

impl Pending {
    /// Waits until the disk has done with it, and returns the buffer.
    ///
    /// # Errors
    ///
    /// Where the disk has refused.
    pub fn wait(self) -> Result<Box<[u8]>, BlockError> {
        let request = self.completion.wait();
        match request.status() {
            Status::Ok => Ok(request.into_buffer()),
            status => Err(BlockError::Device(self.sector, status)),
        }
    }
}
