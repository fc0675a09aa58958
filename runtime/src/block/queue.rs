//! The requests of a disk, which is a virtio block device (Virtio 1.2, 5.2): those that wait, and those that the device
//! has.
//!
//! The device accesses the header, the answer and the buffer of a request by itself. They stay where they are until the
//! device has answered, and the driver reaches them only through raw pointers meanwhile.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::{mem, ptr};

use aarch64_kprobes::emit;
use fallible::OutOfMemory;
use virtio_drivers::Error;
use virtio_drivers::device::blk::{BlkResp, VirtIOBlk};
use virtio_drivers::transport::mmio::MmioTransport;

use super::SECTOR;
use super::request::{Operation, Request, Status, abandon_request, end_request, update_request};
use crate::event::{self, BlockRqComplete, BlockRqIssue};
use crate::task::current_task;
use crate::virtio::Memory;

/// The most requests that the device has at a time. Their tokens are below this.
const DEPTH: usize = 16;

/// The requests of a disk, and the device.
pub(super) struct Queue {
    /// The index of the disk among all disks.
    number: u32,
    device: VirtIOBlk<Memory, MmioTransport<'static>>,
    waiting: VecDeque<Box<Request>>,
    /// The requests that the device has, by token; null if the token is free. Each pointer comes from a `Box` and is
    /// owned by this queue.
    issued: [*mut Request; DEPTH],
    /// Set after the device has answered a request that it did not have. Nothing more that it reports can be trusted,
    /// and it would report the same again and again.
    is_broken: bool,
}

/// A device has answered a request that it did not have, with this token.
#[derive(Debug)]
pub(super) struct UnknownToken(pub u16);

// SAFETY: the queue owns the issued requests as boxes would be owned, and any CPU may use their contents.
unsafe impl Send for Queue {}

impl Queue {
    /// Initializes the device.
    pub(super) fn new(transport: MmioTransport<'static>) -> Result<Self, Error> {
        let device = VirtIOBlk::new(transport)?;
        assert!(usize::from(device.virt_queue_size()) <= DEPTH);
        let (waiting, issued) = (VecDeque::new(), [ptr::null_mut(); DEPTH]);
        Ok(Self { number: 0, device, waiting, issued, is_broken: false })
    }

    /// Returns the queue as that of the disk with this number.
    pub(super) fn numbered(self, number: u32) -> Self {
        Self { number, ..self }
    }

    /// Returns the number of sectors on the disk.
    pub(super) fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    /// Returns whether the disk cannot be written to.
    pub(super) fn is_read_only(&self) -> bool {
        self.device.readonly()
    }

    /// Gives a request to the device as soon as the device has room. A request to a broken disk ends with an error.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the place in which the request waits.
    pub(super) fn submit(&mut self, request: Box<Request>) -> Result<(), OutOfMemory> {
        // Issued requests may have to wait again, after a turn, and `land` cannot fail.
        let issued = self.issued.iter().filter(|request| !request.is_null()).count();
        self.waiting.try_reserve(issued + 1)?;
        self.waiting.push_back(request);
        self.start();
        Ok(())
    }

    /// Handles the completions of the device, if there are any.
    ///
    /// # Errors
    ///
    /// [`UnknownToken`] if the device answers a request that it does not have. The disk is broken from then on: all
    /// requests end with an error.
    pub(super) fn complete(&mut self) -> Result<(), UnknownToken> {
        self.device.ack_interrupt();
        while let Some(token) = self.device.peek_used().filter(|_| !self.is_broken) {
            if !self.land(token) {
                self.give_up();
                return Err(UnknownToken(token));
            }
        }
        self.start();
        Ok(())
    }

    /// Takes the disk out of use.
    fn give_up(&mut self) {
        self.is_broken = true;
        for issued in &mut self.issued {
            let request = mem::replace(issued, ptr::null_mut());
            if !request.is_null() {
                // SAFETY: `issue` stored a pointer from a box here, and only the device has accessed the request since.
                unsafe { abandon_request(request) };
            }
        }
        // Ends the requests that wait.
        self.start();
    }

    /// Gives waiting requests to the device as long as it has room.
    fn start(&mut self) {
        while let Some(request) = self.waiting.pop_front() {
            match self.issue(request) {
                Ok(()) => {}
                Err((Error::QueueFull, request)) => {
                    self.waiting.push_front(request);
                    return;
                }
                Err((_, mut request)) => {
                    update_request(&mut request, Status::IoError, 0);
                    end_request(request);
                }
            }
        }
    }

    /// Gives the device the next turn of a request. Returns the request with the error if the device does not take it.
    fn issue(&mut self, request: Box<Request>) -> Result<(), (Error, Box<Request>)> {
        if self.is_broken {
            return Err((Error::IoError, request));
        }
        let (operation, sector) = (request.operation(), request.next_sector());
        let request = Box::into_raw(request);
        // SAFETY: the pointer comes from the box above, and nothing else refers to it.
        let (header, bytes, answer) = unsafe { &mut *request }.turn();
        let length = bytes.len();
        // The answer of the turn before does not count for this one.
        *answer = BlkResp::default();
        // SAFETY: all three stay in place, and only the device accesses them, until `land`, after the device has
        // answered.
        let token = unsafe {
            match operation {
                Operation::Read => self.device.read_blocks_nb(sector as usize, header, bytes, answer),
                Operation::Write => self.device.write_blocks_nb(sector as usize, header, bytes, answer),
            }
        };
        match token {
            Ok(token) => {
                emit!(BlockRqIssue {
                    dev: event::disk(self.number),
                    sector,
                    nr_sector: (length / SECTOR) as u32,
                    bytes: length as u32,
                    rwbs: letter(operation),
                    comm: current_task().short_name(),
                    cmd: "".into(),
                });
                self.issued[usize::from(token)] = request;
            }
            // SAFETY: the pointer comes from the box above. The device has refused it, so nothing else refers to it.
            Err(error) => return Err((error, unsafe { Box::from_raw(request) })),
        }
        Ok(())
    }

    /// Takes the turn with this token back from the device, which has answered. Returns false if there is none.
    fn land(&mut self, token: u16) -> bool {
        let place = self.issued.get_mut(usize::from(token));
        let request = place.map_or(ptr::null_mut(), |place| mem::replace(place, ptr::null_mut()));
        if request.is_null() {
            return false;
        }
        // SAFETY: `issue` stored a pointer from a box here, and the device has finished with it.
        let mut request = unsafe { Box::from_raw(request) };
        let (operation, sector) = (request.operation(), request.next_sector());
        let (header, bytes, answer) = request.turn();
        let length = bytes.len();
        // SAFETY: `issue` gave these three to the device under this token, and the box has kept them in place.
        let result = unsafe {
            match operation {
                Operation::Read => self.device.complete_read_blocks(token, header, bytes, answer),
                Operation::Write => self.device.complete_write_blocks(token, header, bytes, answer),
            }
        };
        let (status, done) = match result {
            Ok(()) => (Status::Ok, length),
            Err(Error::Unsupported) => (Status::Unsupported, 0),
            Err(_) => (Status::IoError, 0),
        };
        emit!(BlockRqComplete {
            dev: event::disk(self.number),
            sector,
            nr_sector: (length / SECTOR) as u32,
            error: if status == Status::Ok { 0 } else { event::EIO },
            rwbs: letter(operation),
            cmd: "".into(),
        });
        if update_request(&mut request, status, done) {
            self.waiting.push_front(request);
        } else {
            end_request(request);
        }
        true
    }
}

/// Returns the direction of a transfer, as Linux's events encode it in `rwbs`.
fn letter(operation: Operation) -> [u8; 8] {
    let letter = match operation {
        Operation::Read => b'R',
        Operation::Write => b'W',
    };
    [letter, 0, 0, 0, 0, 0, 0, 0]
}
