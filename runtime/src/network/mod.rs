//! Network traffic to trace: network cards, an IP stack on each, and servers that any other machine can talk to.
//!
//! | module | what it owns |
//! |---|---|
//! | [`interface`] | an interface: the functions that every packet passes through, and its counters |
//! | `card` | a card and its packet buffers |
//! | `device` | an interface as the IP stack sees it |
//! | `station` | the task of an interface: its stack, its address, its servers (`kprobes_servers`) |
//!
//! When a card interrupts, the handler wakes the task of its interface. The task lets the IP stack (the crate
//! `smoltcp`) take received packets and send due ones, and lets the servers talk. Then it sleeps until the next
//! interrupt, or until the stack has the next thing to do. All memory for connections is allocated when the task
//! begins, which limits their number. A client that comes when all are taken is refused.

mod card;
mod device;
pub mod interface;
mod station;

use alloc::vec::Vec;

use spin::Once;
use virtio_drivers::transport::DeviceType;

use crate::interrupt::{self, Handler};
use crate::sync::IrqMask;
use crate::task;
use crate::virtio::{self, UnclaimedDevice, VirtioError};
use card::Card;
use interface::{HardwareAddress, Interface};

/// All interfaces, in the order of their numbers. Set once, at boot.
static INTERFACES: Once<Vec<Interface>> = Once::new();

/// Takes the network cards out of `devices`. Calls `complain` with the error of each card that cannot be used. No
/// packet is sent before [`start`].
pub(crate) fn initialize(devices: &mut Vec<UnclaimedDevice>, mut complain: impl FnMut(VirtioError)) {
    let mut cards = virtio::take(devices, DeviceType::Network, "network card", Card::new, &mut complain);
    // The order of the slots does not identify the cards, but the Ethernet addresses do.
    cards.sort_by_key(|(card, _)| card.hardware_address());
    // A card that interrupts before it is among the interfaces would interrupt forever.
    let _mask = IrqMask::new();
    let mut interfaces = Vec::new();
    for (mut card, interrupt) in cards {
        // The stack panics if its own address is that of a group.
        let address = HardwareAddress(card.hardware_address());
        if address.is_group() {
            complain(VirtioError::GroupAddress(address));
            continue;
        }
        match interrupt::register(interrupt, &HANDLER) {
            Ok(()) => {
                // The device may have asked for an interrupt before the controller was configured, and until that is
                // withdrawn no other is an edge. The interface looks at what has come when it starts.
                card.acknowledge();
                interfaces.push(Interface::new(interfaces.len(), card));
            }
            // Without the interrupt, the interface would not learn of packets.
            Err(error) => complain(VirtioError::Interrupt(error)),
        }
    }
    INTERFACES.call_once(|| interfaces);
}

static HANDLER: Handler = Handler { name: "virtio-net", handle: card_interrupt };

/// Handles the interrupt of any card.
fn card_interrupt() {
    interfaces().iter().for_each(Interface::answer_interrupt);
}

/// Returns all interfaces, in the order of their numbers.
#[must_use]
pub fn interfaces() -> &'static [Interface] {
    INTERFACES.get().map_or(&[], Vec::as_slice)
}

/// Starts the servers on all interfaces, with a task for each.
///
/// # Panics
///
/// Panics if [`task::spawn`] does.
pub fn start() {
    for interface in interfaces() {
        task::spawn(interface.name(), move || station::run(interface));
    }
}
