//! A network card, which is a virtio network device (Virtio 1.2, 5.1), and its buffers: those it receives into, those
//! it sends from, and the free ones.
//!
//! The device accesses buffers by itself. A buffer stays where it is until the device has finished with it, and the
//! driver reaches it only through a raw pointer meanwhile.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ptr;
use core::sync::atomic::{Ordering, fence};

use virtio_drivers::Error;
use virtio_drivers::device::net::VirtIONetRaw;
use virtio_drivers::transport::mmio::MmioTransport;

use crate::virtio::Memory;

/// The number of buffers for each direction.
const DEPTH: usize = 64;
/// The largest packet that a card sends or receives: an Ethernet frame in bytes, with its header and without its
/// checksum.
pub(super) const PACKET_MAX: usize = 1514;
/// The size in bytes of the header that a standard device puts before each packet (Virtio 1.2, 5.1.6).
const HEADER: usize = 12;

/// A header and a packet.
type Bytes = [u8; HEADER + PACKET_MAX];

/// A buffer for one packet and its header.
pub(super) struct Buffer(Box<Bytes>);

impl Buffer {
    fn new() -> Self {
        Self(Box::new([0; HEADER + PACKET_MAX]))
    }

    /// Returns the first `length` bytes of the packet, or all that there are.
    pub(super) fn packet(&self, length: usize) -> &[u8] {
        &self.0[HEADER..][..length.min(PACKET_MAX)]
    }

    /// Copies `packet` into the buffer. Returns false if it is too long.
    pub(super) fn set_packet(&mut self, packet: &[u8]) -> bool {
        let room = self.0[HEADER..].get_mut(..packet.len());
        room.map(|room| room.copy_from_slice(packet)).is_some()
    }
}

/// A network card and its buffers.
pub(super) struct Card {
    /// The driver, in a box because it is large and should not move from stack to stack during the boot.
    driver: Box<VirtIONetRaw<Memory, MmioTransport<'static>, DEPTH>>,
    /// The buffers that the device receives into, by token; null if the token is free. Each pointer comes from a `Box`
    /// and is owned by this card.
    receiving: [*mut Bytes; DEPTH],
    /// The buffers that the device sends from, by token, with the length of header and packet together.
    sending: [(*mut Bytes, usize); DEPTH],
    /// The buffers to send from that the device does not have. The list has capacity for all of them.
    free: Vec<Buffer>,
    /// Set after the device has returned a buffer that it did not have. Nothing more that it reports can be trusted,
    /// and it would report the same again and again.
    is_broken: bool,
}

// SAFETY: the card owns its buffers as boxes would be owned, and any CPU may use them.
unsafe impl Send for Card {}

impl Card {
    /// Initializes the device, and gives it buffers to receive into.
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

    /// Returns the Ethernet address of the card.
    pub(super) fn hardware_address(&self) -> [u8; 6] {
        self.driver.mac_address()
    }

    /// Makes the device withdraw its interrupt. Returns whether it had one.
    pub(super) fn acknowledge(&mut self) -> bool {
        !self.driver.ack_interrupt().is_empty()
    }

    /// Returns whether the card can no longer be used. A broken card receives nothing and has no room to send.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns whether the device has done something for which it may not interrupt, because it did so before it knew
    /// that an interrupt was wanted.
    pub(super) fn has_work(&mut self) -> bool {
        // The store that asks for an interrupt must be visible before the device's progress is read (Virtio 1.2,
        // 2.7.13).
        fence(Ordering::SeqCst);
        // A packet is not taken before there is room for its answer.
        let is_done = if self.free.is_empty() { self.driver.poll_transmit() } else { self.driver.poll_receive() };
        self.is_broken || is_done.is_some()
    }

    /// Takes the oldest received packet, if there is one: its buffer and its length in bytes. Returns an error if the
    /// packet cannot be used. The caller returns the buffer by [`offer`](Self::offer).
    pub(super) fn take_received(&mut self) -> Option<Result<(Buffer, usize), Error>> {
        let token = self.driver.poll_receive().filter(|_| !self.is_broken)?;
        let Some(place) = self.receiving.get_mut(usize::from(token)).filter(|place| !place.is_null()) else {
            self.is_broken = true;
            return Some(Err(Error::WrongToken));
        };
        let buffer = core::mem::replace(place, ptr::null_mut());
        // SAFETY: `offer` stored a pointer from a box here, and the device has finished with it.
        let mut buffer = Buffer(unsafe { Box::from_raw(buffer) });
        // SAFETY: `offer` gave the device this buffer under this token.
        match unsafe { self.driver.receive_complete(token, &mut *buffer.0) } {
            Ok((_, length)) => Some(Ok((buffer, length))),
            Err(error) => Some(self.offer(buffer).and(Err(error))),
        }
    }

    /// Gives the device a buffer to receive into.
    pub(super) fn offer(&mut self, buffer: Buffer) -> Result<(), Error> {
        let buffer = Box::into_raw(buffer.0);
        // SAFETY: the pointer comes from the box above. The buffer stays in place, and only the device accesses it,
        // until `take_received`, after the device has finished with it.
        match unsafe { self.driver.receive_begin(&mut *buffer) } {
            Ok(token) => {
                self.receiving[usize::from(token)] = buffer;
                Ok(())
            }
            Err(error) => {
                // SAFETY: the pointer comes from the box above. The device has refused it, so nothing else refers to
                // it.
                drop(unsafe { Box::from_raw(buffer) });
                Err(error)
            }
        }
    }

    /// Returns whether there is a buffer to send from.
    pub(super) fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            self.reclaim();
        }
        !self.free.is_empty() && !self.is_broken
    }

    /// Takes a buffer to send from, if there is one.
    pub(super) fn take_free(&mut self) -> Option<Buffer> {
        if self.has_room() { self.free.pop() } else { None }
    }

    /// Returns a buffer that was not sent to the free ones.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        self.free.push(buffer);
    }

    /// Makes the device send the first `length` bytes of the packet in `buffer`.
    pub(super) fn send(&mut self, buffer: Buffer, length: usize) -> Result<(), Error> {
        let length = HEADER + length.min(PACKET_MAX);
        let buffer = Box::into_raw(buffer.0);
        // SAFETY: the pointer comes from the box above. The buffer stays in place, and nothing writes to it, until
        // `reclaim`, after the device has finished with it.
        match unsafe { self.driver.transmit_begin(&(&*buffer)[..length]) } {
            Ok(token) => {
                self.sending[usize::from(token)] = (buffer, length);
                Ok(())
            }
            Err(error) => {
                // SAFETY: the pointer comes from the box above. The device has refused it, so nothing else refers to
                // it.
                self.free.push(Buffer(unsafe { Box::from_raw(buffer) }));
                Err(error)
            }
        }
    }

    /// Returns the buffers that the device has sent to the free ones.
    fn reclaim(&mut self) {
        while let Some(token) = self.driver.poll_transmit().filter(|_| !self.is_broken) {
            let Some(place) = self.sending.get_mut(usize::from(token)).filter(|(buffer, _)| !buffer.is_null()) else {
                self.is_broken = true;
                return;
            };
            let (buffer, length) = core::mem::replace(place, (ptr::null_mut(), 0));
            // SAFETY: `send` stored a pointer from a box here, and the device has finished with it.
            let buffer = Buffer(unsafe { Box::from_raw(buffer) });
            // SAFETY: `send` gave the device this buffer under this token. The length that the device returns has no
            // meaning.
            let _ = unsafe { self.driver.transmit_complete(token, &buffer.0[..length]) };
            self.free.push(buffer);
        }
    }
}
