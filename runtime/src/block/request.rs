//! A request, from its submission to its completion.

use alloc::boxed::Box;
use core::fmt;

use fallible::Arc;
use virtio_drivers::device::blk::{BlkReq, BlkResp};

use super::SECTOR;
use crate::sync::{IrqLock, WaitQueue};

/// The most bytes that a disk transfers in one turn.
pub const SEGMENT: usize = 32 << 10;

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// The status of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The transfer was done.
    Ok = 0,
    /// The disk does not know this kind of request.
    Unsupported = 1,
    /// The disk has failed.
    IoError = 10,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "done",
            Self::Unsupported => "it does not support the request",
            Self::IoError => "it has failed",
        })
    }
}

/// A request to read or write sectors.
pub struct Request {
    operation: Operation,
    sector: u64,
    buffer: Box<[u8]>,
    /// The number of bytes that have been transferred.
    done: usize,
    status: Status,
    /// `None` after the end of the request, when the completion holds the request.
    completion: Option<Arc<Completion>>,
    /// What the device reads and writes in a turn beside the bytes.
    header: BlkReq,
    answer: BlkResp,
}

impl Request {
    /// Creates a request for the sectors from `sector` on. `buffer` is a whole number of sectors, at least one.
    pub(super) fn new(operation: Operation, sector: u64, buffer: Box<[u8]>, completion: Arc<Completion>) -> Self {
        Self {
            operation,
            sector,
            buffer,
            done: 0,
            status: Status::Ok,
            completion: Some(completion),
            header: BlkReq::default(),
            answer: BlkResp::default(),
        }
    }

    /// Returns the direction of the transfer.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the status of the latest turn.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Returns the first sector of the next turn.
    pub(super) fn next_sector(&self) -> u64 {
        self.sector + (self.done / SECTOR) as u64
    }

    /// Returns what the device accesses in the next turn: the header, the bytes, and the answer.
    pub(super) fn turn(&mut self) -> (&mut BlkReq, &mut [u8], &mut BlkResp) {
        let end = self.buffer.len().min(self.done + SEGMENT);
        (&mut self.header, &mut self.buffer[self.done..end], &mut self.answer)
    }

    /// Returns the buffer, after the request has ended.
    #[must_use]
    pub fn into_buffer(self) -> Box<[u8]> {
        self.buffer
    }
}

/// Records the end of a turn: `bytes` bytes were transferred, or none if `status` is an error. Returns whether there is
/// more to do, which is false after an error and when all bytes have been transferred.
// Not inlined, so that it can be traced as a function of the image.
#[inline(never)]
pub fn update_request(request: &mut Request, status: Status, bytes: usize) -> bool {
    request.status = status;
    request.done += bytes;
    status == Status::Ok && request.done < request.buffer.len()
}

/// Hands a finished request to the task that waits for it.
// Not inlined, so that it can be traced as a function of the image.
#[inline(never)]
pub fn end_request(mut request: Box<Request>) {
    let Some(completion) = request.completion.take() else { return };
    completion.end(Some(request));
}

/// Tells the task that waits for a request that the disk has failed. The disk still has the request, which therefore is
/// never freed.
///
/// # Safety
///
/// `request` is a request that only a disk accesses: its header, its buffer and its answer.
pub(super) unsafe fn abandon_request(request: *mut Request) {
    // SAFETY: the caller guarantees that there is a request and that the disk accesses other parts of it (see
    // # Safety).
    let completion = unsafe { &mut (*request).completion };
    if let Some(completion) = completion.take() {
        completion.end(None);
    }
}

/// The meeting point of a task and its request.
pub(super) struct Completion {
    /// The end of the request, once it has come: the request, or `None` if it was abandoned.
    ended: IrqLock<Option<Option<Box<Request>>>>,
    finished: WaitQueue,
}

impl Completion {
    pub(super) const fn new() -> Self {
        Self { ended: IrqLock::new(None), finished: WaitQueue::new() }
    }

    #[inline(always)]
    fn end(&self, request: Option<Box<Request>>) {
        *self.ended.lock() = Some(request);
        self.finished.wake_one();
    }

    /// Waits until the request has ended, and returns it. Returns `None` if it was abandoned.
    pub(super) fn wait(&self) -> Option<Box<Request>> {
        self.finished.wait_until(|| self.ended.lock().take())
    }
}
