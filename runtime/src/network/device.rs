//! An interface as a device of the crate `smoltcp`: a source of tokens for packets that have arrived and for packets
//! that may be sent.

use alloc::boxed::Box;

use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

use super::card::{Buffer, PACKET_MAX};
use super::interface::{Interface, receive, transmit};

/// An interface, and the memory where the next packet to send is written.
pub(super) struct Device {
    interface: &'static Interface,
    draft: Box<[u8; PACKET_MAX]>,
}

/// A packet that has arrived.
pub(super) struct Received {
    interface: &'static Interface,
    /// `None` after the buffer has gone back to the card.
    buffer: Option<Buffer>,
    length: usize,
}

/// Permission to send a packet.
pub(super) struct SendToken<'a> {
    interface: &'static Interface,
    draft: &'a mut [u8; PACKET_MAX],
}

impl Device {
    pub(super) fn new(interface: &'static Interface) -> Self {
        Self { interface, draft: Box::new([0; PACKET_MAX]) }
    }

    fn send_token(&mut self) -> SendToken<'_> {
        SendToken { interface: self.interface, draft: &mut self.draft }
    }
}

impl phy::Device for Device {
    type RxToken<'a> = Received;
    type TxToken<'a> = SendToken<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, SendToken<'_>)> {
        if !self.interface.has_room() {
            return None;
        }
        let (buffer, length) = self.interface.take_received()?;
        Some((Received { interface: self.interface, buffer: Some(buffer), length }, self.send_token()))
    }

    fn transmit(&mut self, _: Instant) -> Option<SendToken<'_>> {
        self.interface.has_room().then(|| self.send_token())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = PACKET_MAX;
        capabilities
    }
}

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        let packet = self.buffer.as_ref().map_or(&[][..], |buffer| buffer.packet(self.length));
        receive(self.interface, packet);
        read(if has_sender(packet) { packet } else { &[] })
    }
}

/// Returns whether `packet`, an Ethernet frame, says who sent it. An IPv4 packet from 0.0.0.0 does not (RFC 1122,
/// 3.2.1.3). The stack takes one as the answer of a DHCP server, and panics when it answers that server. It ignores an
/// empty frame.
fn has_sender(packet: &[u8]) -> bool {
    !matches!((packet.get(12..14), packet.get(26..30)), (Some([0x08, 0x00]), Some([0, 0, 0, 0])))
}

impl Drop for Received {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.interface.offer(buffer);
        }
    }
}

impl phy::TxToken for SendToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let packet = &mut self.draft[..length];
        let result = write(packet);
        transmit(self.interface, packet);
        result
    }
}
