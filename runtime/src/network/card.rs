//! A network card, which is a virtio network device (Virtio 1.2, 5.1): the buffers that it receives into, those that it sends
//! from, and those that are free.
//!
//! What the device reads and writes by itself stays where it is until the device has done with it: it is reached by pointers
//! alone meanwhile.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr;
use core::sync::atomic::{Ordering, fence};

use virtio_drivers::Error;
use virtio_drivers::device::net::VirtIONetRaw;
use virtio_drivers::transport::mmio::MmioTransport;

use crate::virtio::Memory;

/// Buffers in either direction.
const DEPTH: usize = 64;
/// Bytes of an Ethernet frame, its header included and its checksum not: what a card sends and receives at most.
pub(super) const PACKET_MAX: usize = 1514;
/// Bytes of what a device that keeps to the standard has before each packet (Virtio 1.2, 5.1.6).
const HEADER: usize = 12;

/// Header and packet.
type Bytes = [u8; HEADER + PACKET_MAX];

/// A buffer for one packet.
pub(super) struct Buffer(Box<Bytes>);

impl Buffer {
    fn new() -> Self {
        Self(Box::new([0; HEADER + PACKET_MAX]))
    }

    /// The first `length` bytes of the packet, as many as there are.
    pub(super) fn packet(&self, length: usize) -> &[u8] {
        &self.0[HEADER..][..length.min(PACKET_MAX)]
    }

    /// Makes a copy of `packet` the packet, if it is not too long.
    pub(super) fn set_packet(&mut self, packet: &[u8]) -> bool {
        let room = self.0[HEADER..].get_mut(..packet.len());
        room.map(|room| room.copy_from_slice(packet)).is_some()
    }
}

/// A card.
pub(super) struct Card {
    /// Long, and not to be moved from stack to stack while the kernel boots.
    driver: Box<VirtIONetRaw<Memory, MmioTransport<'static>, DEPTH>>,
    /// The buffers that the device receives into, by its number; null where it has none. Each is a `Box` that only this has.
    receiving: [*mut Bytes; DEPTH],
    /// The buffers that it sends from, with the lengths of header and packet together.
    sending: [(*mut Bytes, usize); DEPTH],
    /// Those to send from that the device does not have. It has room for all.
    free: Vec<Buffer>,
    /// The device has said that it has done with a buffer that it was not given: nothing more that it says can be relied on, and
    /// it would say this again and again.
    is_broken: bool,
}

// SAFETY: the buffers are this card's own, as boxes would be, and may be used by any CPU.
unsafe impl Send for Card {}

impl Card {
    /// Starts the device.
    pub(super) fn new(transport: MmioTransport<'static>) -> Result<Self, Error> {
        let driver = Box::new(VirtIONetRaw::new(transport)?);
        let free: Vec<_> = (0..DEPTH).map(|_| Buffer::new()).collect();
        if driver.fill_buffer_header(&mut *Buffer::new().0)? != HEADER {
            return Err(Error::Unsupported);
        }
        let (receiving, sending) = ([ptr::null_mut(); DEPTH], [(ptr::null_mut(), 0); DEPTH]);
        let mut card = Self { driver, receiving, sending, free, is_broken: false };
        for _ in 0..DEPTH {
            card.offer(Buffer::new())?;
        }
        Ok(card)
    }

    /// The address by which others on the network reach it.
    pub(super) fn hardware_address(&self) -> [u8; 6] {
        self.driver.mac_address()
    }

    /// Makes the device withdraw its interrupt; returns whether it had one.
    pub(super) fn acknowledge(&mut self) -> bool {
        !self.driver.ack_interrupt().is_empty()
    }

    /// Whether it cannot be used any more: nothing is received, and there is no room to send.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Whether the device has done something that it may not interrupt for, as it has done it before it could know that it
    /// should.
    pub(super) fn has_work(&mut self) -> bool {
        // What was stored to ask for an interrupt is seen before what the device has done is read (Virtio 1.2, 2.7.13).
        fence(Ordering::SeqCst);
        self.is_broken
            || self.driver.poll_receive().is_some()
            || self.free.is_empty() && self.driver.poll_transmit().is_some()
    }

    /// The packet that has come first, if one has: its buffer and its length, or an error where there is none that can be used.
    /// The buffer is to be given back by [`offer`](Self::offer).
    pub(super) fn take_received(&mut self) -> Option<Result<(Buffer, usize), Error>> {
        let token = self.driver.poll_receive().filter(|_| !self.is_broken)?;
        let Some(place) = self.receiving.get_mut(usize::from(token)).filter(|place| !place.is_null()) else {
            self.is_broken = true;
            return Some(Err(Error::WrongToken));
        };
        let buffer = core::mem::replace(place, ptr::null_mut());
        // SAFETY: `offer` has put a box here, and the device has done with it.
        let mut buffer = Buffer(unsafe { Box::from_raw(buffer) });
        // SAFETY: it is what the device was given under this number.
        match unsafe { self.driver.receive_complete(token, &mut *buffer.0) } {
            Ok((_, length)) => Some(Ok((buffer, length))),
            Err(error) => Some(self.offer(buffer).and(Err(error))),
        }
    }

    /// Gives the device a buffer to receive into.
    pub(super) fn offer(&mut self, buffer: Buffer) -> Result<(), Error> {
        let buffer = Box::into_raw(buffer.0);
        // SAFETY: the box was just made into this pointer; it stays where it is, and the driver does not access it, until
        // `take_received`, when the device has done with it.
        match unsafe { self.driver.receive_begin(&mut *buffer) } {
            Ok(token) => {
                self.receiving[usize::from(token)] = buffer;
                Ok(())
            }
            Err(error) => {
                // SAFETY: the device has not got it, and the pointer came from a box.
                drop(unsafe { Box::from_raw(buffer) });
                Err(error)
            }
        }
    }

    /// Whether there is a buffer to send from.
    pub(super) fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            self.reclaim();
        }
        !self.free.is_empty() && !self.is_broken
    }

    /// A buffer to send from, if there is one.
    pub(super) fn take_free(&mut self) -> Option<Buffer> {
        if self.has_room() { self.free.pop() } else { None }
    }

    /// Takes back a buffer that was not sent.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        self.free.push(buffer);
    }

    /// Has the device send the first `length` bytes of the packet in `buffer`.
    pub(super) fn send(&mut self, buffer: Buffer, length: usize) -> Result<(), Error> {
        let length = HEADER + length.min(PACKET_MAX);
        let buffer = Box::into_raw(buffer.0);
        // SAFETY: the box was just made into this pointer; it stays where it is, and the driver does not write to it,
        // until `reclaim`, when the device has done with it.
        match unsafe { self.driver.transmit_begin(&(&*buffer)[..length]) } {
            Ok(token) => {
                self.sending[usize::from(token)] = (buffer, length);
                Ok(())
            }
            Err(error) => {
                // SAFETY: the device has not got it, and the pointer came from a box.
                self.free.push(Buffer(unsafe { Box::from_raw(buffer) }));
                Err(error)
            }
        }
    }

    /// Takes back what the device has sent.
    fn reclaim(&mut self) {
        while let Some(token) = self.driver.poll_transmit().filter(|_| !self.is_broken) {
            let Some(place) = self.sending.get_mut(usize::from(token)).filter(|(buffer, _)| !buffer.is_null()) else {
                self.is_broken = true;
                return;
            };
            let (buffer, length) = core::mem::replace(place, (ptr::null_mut(), 0));
            // SAFETY: `send` has put a box here, and the device has done with it.
            let buffer = Buffer(unsafe { Box::from_raw(buffer) });
            // SAFETY: it is what the device was given under this number. What it says of the length means nothing.
            let _ = unsafe { self.driver.transmit_complete(token, &buffer.0[..length]) };
            self.free.push(buffer);
        }
    }
}
