//! Disks: tasks request sectors and wait, and the device answers with an interrupt.
//!
//! | module | what it owns |
//! |---|---|
//! | [`request`] | a request, from submission to completion |
//! | `queue` | the requests of a disk: those that wait, and those that the device has |
//!
//! A task makes a [`Request`] from a buffer, submits it, and gets the buffer back when the disk has finished. A disk
//! transfers at most [`SEGMENT`](request::SEGMENT) bytes at a time, so a request may take several turns. After each
//! turn, the interrupt handler calls [`update_request`](request::update_request), which returns whether there is more
//! to do.

mod queue;
pub mod request;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use fallible::{Arc, OutOfMemory};
use spin::Once;
use virtio_drivers::transport::DeviceType;

use crate::interrupt::{self, Handler};
use crate::println;
use crate::sync::{IrqLock, IrqMask};
use crate::virtio::{self, UnclaimedDevice, VirtioError};
use queue::{Queue, UnknownToken};
use request::{Completion, Operation, Request, Status};

/// Bytes in a sector.
pub const SECTOR: usize = virtio_drivers::device::blk::SECTOR_SIZE;

/// Every disk, in the order of the device tree. Set once, at boot.
static DISKS: Once<Vec<Disk>> = Once::new();

/// A disk, which any task may use.
pub struct Disk {
    capacity: u64,
    is_read_only: bool,
    queue: IrqLock<Queue>,
}

/// Why sectors were not read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockError {
    /// The length of the buffer in bytes, which is 0 or not a whole number of sectors.
    Length(usize),
    /// The first sector after the request, and the number of sectors on the disk, which is smaller.
    PastTheEnd(u64, u64),
    /// The disk cannot be written to.
    ReadOnly,
    /// There is no memory for the request or for its buffer.
    OutOfMemory,
    /// The disk has failed with this status. The sector is the first of the request; the failure may be at a later one.
    Device(u64, Status),
}

impl fmt::Display for BlockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "{length} bytes are not a whole number of sectors of {SECTOR} bytes"),
            Self::PastTheEnd(end, capacity) => {
                write!(f, "the request ends at sector {end}, but the disk has {capacity} sectors")
            }
            Self::ReadOnly => f.write_str("the disk cannot be written to"),
            Self::OutOfMemory => OutOfMemory.fmt(f),
            Self::Device(sector, status) => write!(f, "the disk failed a request at sector {sector}: {status}"),
        }
    }
}

impl From<OutOfMemory> for BlockError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

/// Takes the disks out of `devices`. Calls `complain` with the error of each disk that cannot be used.
pub(crate) fn initialize(devices: &mut Vec<UnclaimedDevice>, mut complain: impl FnMut(VirtioError)) {
    let queues = virtio::take(devices, DeviceType::Block, "disk", Queue::new, &mut complain);
    // A disk that interrupts before it is among the disks would interrupt forever.
    let _mask = IrqMask::new();
    let mut disks = Vec::new();
    for (queue, interrupt) in queues {
        match interrupt::register(interrupt, &HANDLER) {
            Ok(()) => disks.push(Disk {
                capacity: queue.capacity(),
                is_read_only: queue.is_read_only(),
                queue: IrqLock::new(queue.numbered(disks.len() as u32)),
            }),
            // Without the interrupt, no request would end.
            Err(error) => complain(VirtioError::Interrupt(error)),
        }
    }
    DISKS.call_once(|| disks);
}

/// Returns all disks, in the order of the device tree.
#[must_use]
pub fn disks() -> &'static [Disk] {
    DISKS.get().map_or(&[], Vec::as_slice)
}

static HANDLER: Handler = Handler { name: "virtio-blk", handle: disk_interrupt };

/// Handles the interrupt of any disk.
fn disk_interrupt() {
    for (number, disk) in disks().iter().enumerate() {
        // The lock is free again when the text is printed, which takes long.
        let completed = disk.queue.lock().complete();
        if let Err(UnknownToken(token)) = completed {
            println!("disk {number}: it answered request {token}, which it was not given: the disk is out of use");
        }
    }
}

impl Disk {
    /// Returns the number of sectors.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns whether the disk cannot be written to.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Begins to read or write `buffer`, starting at the sector with the number `sector`.
    ///
    /// # Errors
    ///
    /// [`BlockError::Length`] if the buffer is empty or not a whole number of sectors; [`BlockError::PastTheEnd`] if
    /// sectors are not on the disk; [`BlockError::ReadOnly`] if a write goes to a read-only disk;
    /// [`BlockError::OutOfMemory`] if there is no memory for the request.
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
        let completion = Arc::try_new(Completion::new())?;
        let request = fallible::boxed(Request::new(operation, sector, buffer, completion.clone()))?;
        self.queue.lock().submit(request)?;
        Ok(Pending { sector, completion })
    }

    /// Reads `count` sectors, starting at the sector with the number `sector`. The task waits meanwhile.
    ///
    /// # Errors
    ///
    /// The errors of [`submit`](Self::submit), [`BlockError::OutOfMemory`] if there is no memory for the sectors, and
    /// [`BlockError::Device`] if the disk fails.
    // Not inlined, so that it can be probed at every level of optimization.
    #[inline(never)]
    pub fn read(&self, sector: u64, count: usize) -> Result<Box<[u8]>, BlockError> {
        let buffer = fallible::zeroed(count.saturating_mul(SECTOR))?;
        self.submit(Operation::Read, sector, buffer)?.wait()
    }

    /// Writes `buffer`, starting at the sector with the number `sector`, and returns the buffer. The task waits
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// The errors of [`submit`](Self::submit), and [`BlockError::Device`] if the disk fails.
    pub fn write(&self, sector: u64, buffer: Box<[u8]>) -> Result<Box<[u8]>, BlockError> {
        self.submit(Operation::Write, sector, buffer)?.wait()
    }
}

/// A request that has been submitted to a disk. Dropping it does not cancel the request.
pub struct Pending {
    sector: u64,
    completion: Arc<Completion>,
}

impl Pending {
    /// Waits until the disk has finished, and returns the buffer.
    ///
    /// # Errors
    ///
    /// [`BlockError::Device`] if the disk has failed.
    pub fn wait(self) -> Result<Box<[u8]>, BlockError> {
        let status = match self.completion.wait() {
            Some(request) if request.status() == Status::Ok => return Ok(request.into_buffer()),
            Some(request) => request.status(),
            None => Status::IoError,
        };
        Err(BlockError::Device(self.sector, status))
    }
}
