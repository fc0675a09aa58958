//! A network interface: a numbered card, and the two functions that every packet passes through.
//!
//! [`transmit`] and [`receive`] are called once for each packet that the card gets or delivers. Their arguments are the
//! same: the interface, the address of the packet, and its length. A slice is passed in two registers, so a probe on
//! either function finds them in `x0`, `x1` and `x2`. An interface begins with its name, which ends with a 0: it is the
//! string at `x0`.

use core::fmt;
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU64, Ordering};

use aarch64_kprobes::emit;

use super::card::{Buffer, Card};
use crate::event::{self, NetDevXmit, NetifReceiveSkb};
use crate::sync::{IrqLock, Signal};

/// The size in bytes of a name, including the final 0.
const NAME: usize = 8;

/// A network interface.
#[repr(C)]
pub struct Interface {
    name: [u8; NAME],
    hardware_address: HardwareAddress,
    /// The IPv4 address and the length of its network prefix in bits, once the interface has one.
    address: IrqLock<Option<(Ipv4Addr, u8)>>,
    received: Count,
    transmitted: Count,
    lost: AtomicU64,
    connections: AtomicU64,
    card: IrqLock<Card>,
    work: Signal,
}

/// The Ethernet address of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HardwareAddress(pub [u8; 6]);

impl HardwareAddress {
    /// Returns whether this is the address of a group of stations or of all, which none of them has as its own.
    pub(super) fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for HardwareAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([a, b, c, d, e, last]) = self;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{last:02x}")
    }
}

/// A number of packets, and of their bytes.
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

/// The traffic of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that have arrived.
    pub packets_received: u64,
    /// Bytes of packets that have arrived, including Ethernet headers.
    pub bytes_received: u64,
    /// Packets that the card was given to send.
    pub packets_transmitted: u64,
    /// Bytes of packets that the card was given to send, including Ethernet headers.
    pub bytes_transmitted: u64,
    /// Packets that were lost, because the card refused a buffer or reported something impossible.
    pub lost: u64,
    /// Connections that clients have opened.
    pub connections: u64,
}

impl Interface {
    /// Creates the interface with the number `number`.
    pub(super) fn new(number: usize, card: Card) -> Self {
        let mut name = *b"net\0\0\0\0\0";
        // The number is below 100: there are fewer slots for devices.
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

    /// Returns the name: `net0`, `net1` and so on.
    #[must_use]
    pub fn name(&self) -> &str {
        core::ffi::CStr::from_bytes_until_nul(&self.name).ok().and_then(|name| name.to_str().ok()).unwrap_or_default()
    }

    /// Returns the Ethernet address of the card.
    #[must_use]
    pub fn hardware_address(&self) -> HardwareAddress {
        self.hardware_address
    }

    /// Returns the IPv4 address and the length of its network prefix in bits, if the interface has been given an
    /// address.
    #[must_use]
    pub fn address(&self) -> Option<(Ipv4Addr, u8)> {
        *self.address.lock()
    }

    /// Stores the address that other tasks see.
    pub(super) fn set_address(&self, address: Option<(Ipv4Addr, u8)>) {
        *self.address.lock() = address;
    }

    /// Returns the traffic so far.
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

    /// Counts a lost packet.
    fn count_lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Handles the interrupt of the card, if the card has caused one.
    pub(super) fn answer_interrupt(&self) {
        if self.card.lock().acknowledge() {
            self.work.set();
        }
    }

    /// Waits until the card has work, or until the counter reads `deadline`.
    pub(super) fn wait_until(&self, deadline: u64) {
        if !self.card.lock().has_work() {
            self.work.wait_until(deadline);
        }
    }

    /// Returns whether the card can take another packet.
    pub(super) fn has_room(&self) -> bool {
        self.card.lock().has_room()
    }

    /// Returns whether the card can no longer be used.
    pub(super) fn is_broken(&self) -> bool {
        self.card.lock().is_broken()
    }

    /// Takes the oldest received packet, if there is one: its buffer and its length in bytes.
    pub(super) fn take_received(&self) -> Option<(Buffer, usize)> {
        match self.card.lock().take_received()? {
            Ok(received) => Some(received),
            Err(_) => {
                self.count_lost();
                None
            }
        }
    }

    /// Gives a buffer back to the card, after its packet has been read.
    pub(super) fn offer(&self, buffer: Buffer) {
        if self.card.lock().offer(buffer).is_err() {
            self.count_lost();
        }
    }
}

/// Sends `packet`, an Ethernet frame. The caller has checked that the interface has room (`Interface::has_room`). A
/// packet that the card does not take is counted as lost.
// Not inlined, so that it can be traced as a function of the image.
#[inline(never)]
pub fn transmit(interface: &Interface, packet: &[u8]) {
    let Some(mut buffer) = interface.card.lock().take_free() else { return interface.count_lost() };
    if !buffer.set_packet(packet) {
        interface.card.lock().give_back(buffer);
        return interface.count_lost();
    }
    let sent = interface.card.lock().send(buffer, packet.len());
    emit!(NetDevXmit {
        skbaddr: packet.as_ptr(),
        len: packet.len() as u32,
        rc: if sent.is_ok() { 0 } else { event::EIO },
        name: interface.name().into(),
    });
    match sent {
        Ok(()) => interface.transmitted.add(packet.len()),
        Err(_) => interface.count_lost(),
    }
}

/// Counts `packet`, an Ethernet frame that has arrived, on its way to the IP stack.
// Not inlined, so that it can be traced as a function of the image.
#[inline(never)]
pub fn receive(interface: &Interface, packet: &[u8]) {
    emit!(NetifReceiveSkb { skbaddr: packet.as_ptr(), len: packet.len() as u32, name: interface.name().into() });
    interface.received.add(packet.len());
}
