//! A request, from its submission to its completion.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;

use super::SECTOR;
use crate::sync::{IrqLock, WaitQueue};

/// Bytes that a disk transfers in one turn, at most.
pub const SEGMENT: usize = 32 << 10;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// From the disk.
    Read,
    /// To the disk.
    Write,
}

/// What has become of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// It was done.
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

/// Sectors that are to be read or written.
pub struct Request {
    operation: Operation,
    sector: u64,
    buffer: Box<[u8]>,
    /// How many of the bytes were transferred.
    done: usize,
    status: Status,
    /// None from the end on: the completion then has the request.
    completion: Option<Arc<Completion>>,
}

impl Request {
    /// For the sectors from `sector` on; `buffer` is a whole number of them, at least one.
    pub(super) fn new(operation: Operation, sector: u64, buffer: Box<[u8]>, completion: Arc<Completion>) -> Self {
        Self { operation, sector, buffer, done: 0, status: Status::Ok, completion: Some(completion) }
    }

    /// Which way the bytes go.
    #[must_use]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// What has become of it so far.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// The sector that the next turn begins at.
    pub(super) fn next_sector(&self) -> u64 {
        self.sector + (self.done / SECTOR) as u64
    }

    /// What the next turn transfers, as bytes of the buffer.
    pub(super) fn next_segment(&self) -> Range<usize> {
        self.done..self.buffer.len().min(self.done + SEGMENT)
    }

    /// The bytes of the next turn.
    pub(super) fn segment(&mut self) -> &mut [u8] {
        let segment = self.next_segment();
        &mut self.buffer[segment]
    }

    /// The buffer, of a request that has come to its end.
    #[must_use]
    pub fn into_buffer(self) -> Box<[u8]> {
        self.buffer
    }
}

/// Takes note that `bytes` bytes of `request` were transferred, or, where `status` says so, that they were not. Returns
/// whether there is more to do: false, when all was transferred or something has failed.
// A function of its own in the image, so that it can be traced.
#[inline(never)]
pub fn update_request(request: &mut Request, status: Status, bytes: usize) -> bool {
    request.status = status;
    request.done += bytes;
    status == Status::Ok && request.done < request.buffer.len()
}

/// Hands a finished request to the task that waits for it.
// As above.
#[inline(never)]
pub fn end_request(mut request: Box<Request>) {
    let Some(completion) = request.completion.take() else { return };
    *completion.request.lock() = Some(request);
    completion.finished.wake_one();
}

/// Where a task waits for its request.
pub(super) struct Completion {
    request: IrqLock<Option<Box<Request>>>,
    finished: WaitQueue,
}

impl Completion {
    pub(super) const fn new() -> Self {
        Self { request: IrqLock::new(None), finished: WaitQueue::new() }
    }

    /// The request, when it has come to its end.
    pub(super) fn wait(&self) -> Box<Request> {
        self.finished.wait_until(|| self.request.lock().take())
    }
}
