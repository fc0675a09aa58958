//! A network interface: a card and its number, and the two functions that every packet goes through.
//!
//! [`transmit`] and [`receive`] are called once for each packet that the card is given or has given, with the same arguments:
//! the interface, the address of the packet, and its length. A slice is passed in two registers, so a probe at either finds
//! them in `x0`, `x1` and `x2`. An interface begins with its name, which ends with a 0: the string at `x0`.

use core::fmt;
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU64, Ordering};

use super::card::{Buffer, Card};
use crate::sync::{IrqLock, Signal};

/// Bytes of a name, with the 0 behind it.
const NAME: usize = 8;

/// An interface.
#[repr(C)]
pub struct Interface {
    name: [u8; NAME],
    hardware_address: HardwareAddress,
    /// Its address in the network, and how many bits of that are the network's, once it has one.
    address: IrqLock<Option<(Ipv4Addr, u8)>>,
    received: Count,
    transmitted: Count,
    lost: AtomicU64,
    connections: AtomicU64,
    card: IrqLock<Card>,
    work: Signal,
}

/// The address of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareAddress(pub [u8; 6]);

impl fmt::Display for HardwareAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([a, b, c, d, e, last]) = self;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{last:02x}")
    }
}

/// Packets, and bytes of them.
#[derive(Default)]
struct Count {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    fn add(&self, bytes: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        (self.packets.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }
}

/// What has gone through an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that have come.
    pub packets_received: u64,
    /// Bytes of these, Ethernet headers included.
    pub bytes_received: u64,
    /// Packets that the card was given.
    pub packets_transmitted: u64,
    /// How many bytes these packets have.
    pub bytes_transmitted: u64,
    /// Packets that did not get through, as the card has refused a buffer, or said what cannot be.
    pub lost: u64,
    /// Connections that others have begun.
    pub connections: u64,
}

impl Interface {
    /// The interface with the number `number`.
    pub(super) fn new(number: usize, card: Card) -> Self {
        let mut name = *b"net\0\0\0\0\0";
        // There are as many as there are slots for devices, which are fewer than a hundred.
        let digits = [b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8];
        let digits = if number < 10 { &digits[1..] } else { &digits[..] };
        name[3..3 + digits.len()].copy_from_slice(digits);
        Self {
            name,
            hardware_address: HardwareAddress(card.hardware_address()),
            address: IrqLock::new(None),
            received: Count::default(),
            transmitted: Count::default(),
            lost: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            card: IrqLock::new(card),
            work: Signal::new(),
        }
    }

    /// What it is called by: `net0`, `net1` and so on.
    #[must_use]
    pub fn name(&self) -> &str {
        core::ffi::CStr::from_bytes_until_nul(&self.name).ok().and_then(|name| name.to_str().ok()).unwrap_or_default()
    }

    /// The address of its card.
    #[must_use]
    pub fn hardware_address(&self) -> HardwareAddress {
        self.hardware_address
    }

    /// Its address in the network, and how many bits of that are the network's, if it has been given one.
    #[must_use]
    pub fn address(&self) -> Option<(Ipv4Addr, u8)> {
        *self.address.lock()
    }

    /// Tells everybody of its address.
    pub(super) fn set_address(&self, address: Option<(Ipv4Addr, u8)>) {
        *self.address.lock() = address;
    }

    /// What has gone through it so far.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        let (packets_received, bytes_received) = self.received.get();
        let (packets_transmitted, bytes_transmitted) = self.transmitted.get();
        let lost = self.lost.load(Ordering::Relaxed);
        let connections = self.connections.load(Ordering::Relaxed);
        Statistics { packets_received, bytes_received, packets_transmitted, bytes_transmitted, lost, connections }
    }

    /// Counts a connection that a client has opened.
    pub(super) fn count_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a packet that did not get through.
    fn lose(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Does what its card has caused an interrupt for, if it has.
    pub(super) fn answer_interrupt(&self) {
        if self.card.lock().acknowledge() {
            self.work.set();
        }
    }

    /// Waits until its card has something for it, or the counter reads `deadline`.
    pub(super) fn wait_until(&self, deadline: u64) {
        if !self.card.lock().has_work() {
            self.work.wait_until(deadline);
        }
    }

    /// Whether the card takes another packet.
    pub(super) fn has_room(&self) -> bool {
        self.card.lock().has_room()
    }

    /// Whether its card cannot be used any more.
    pub(super) fn is_broken(&self) -> bool {
        self.card.lock().is_broken()
    }

    /// The packet that has come first, if one has: its buffer, and its length.
    pub(super) fn take_received(&self) -> Option<(Buffer, usize)> {
        match self.card.lock().take_received()? {
            Ok(received) => Some(received),
            Err(_) => {
                self.lose();
                None
            }
        }
    }

    /// Gives a buffer back, whose packet was read.
    pub(super) fn offer(&self, buffer: Buffer) {
        if self.card.lock().offer(buffer).is_err() {
            self.lose();
        }
    }
}

/// Sends `packet`, an Ethernet frame. One that the card does not take is counted as lost; the caller knows that it
/// [has room](Interface::has_room).
// A function of its own in the image, so that it can be traced.
#[inline(never)]
pub fn transmit(interface: &Interface, packet: &[u8]) {
    let Some(mut buffer) = interface.card.lock().take_free() else { return interface.lose() };
    if !buffer.set_packet(packet) {
        interface.card.lock().give_back(buffer);
        return interface.lose();
    }
    match interface.card.lock().send(buffer, packet.len()) {
        Ok(()) => interface.transmitted.add(packet.len()),
        Err(_) => interface.lose(),
    }
}

/// Takes note of `packet`, an Ethernet frame that has come, on its way to the IP stack.
// As above.
#[inline(never)]
pub fn receive(interface: &Interface, packet: &[u8]) {
    interface.received.add(packet.len());
}
