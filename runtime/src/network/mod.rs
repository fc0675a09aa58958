//! Traffic to look at: network cards, an IP stack on each, and servers that anybody can talk to from another machine.
//!
//! | module | what it owns |
//! |---|---|
//! | [`interface`] | a card as the kernel knows it: the functions that every packet goes through, and what they count |
//! | `card` | the packets that a card has, and those that it may have |
//! | `device` | a card as the IP stack knows it |
//! | `station` | the task of an interface: its stack, its address, its servers |
//! | `service` | the connections to one port |
//! | [`protocol`] | what is said on a connection, whatever carries it |
//! | [`http`], [`echo`] | the two that are spoken |
//!
//! A card interrupts; the handler tells the task of its interface, which asks the IP stack (the crate `smoltcp`) to take what
//! has come and to send what is due, lets the servers talk, and sleeps until the next interrupt or the next thing that the
//! stack has to do. All memory for connections is allocated when the task begins, so there are no more connections at a time
//! than there is memory for; who comes when all are taken is refused.

pub mod echo;
pub mod http;
pub mod protocol;

#[cfg(target_os = "none")]
mod card;
#[cfg(target_os = "none")]
mod device;
#[cfg(target_os = "none")]
pub mod interface;
#[cfg(any(target_os = "none", test))]
mod service;
#[cfg(target_os = "none")]
mod station;

#[cfg(target_os = "none")]
pub(crate) use target::initialize;
#[cfg(target_os = "none")]
pub use target::{interfaces, start};

#[cfg(target_os = "none")]
mod target {
    use alloc::vec::Vec;

    use spin::Once;
    use virtio_drivers::transport::DeviceType;

    use super::card::Card;
    use super::interface::Interface;
    use super::station;
    use crate::sync::IrqMask;
    use crate::virtio::{self, DeviceError, Found};
    use crate::{interrupt, task};

    /// Every interface, in the order of their numbers. Set once, at boot.
    static INTERFACES: Once<Vec<Interface>> = Once::new();

    /// Takes the network cards out of `devices`. Calls `complain` with what is wrong with those that cannot be used. Nothing is
    /// sent before [`start`].
    pub(crate) fn initialize(devices: &mut Vec<Found>, mut complain: impl FnMut(DeviceError)) {
        let mut cards = virtio::take(devices, DeviceType::Network, "network card", Card::new, &mut complain);
        // The slots that they are in do not tell which is which, but this does.
        cards.sort_by_key(|(card, _)| card.hardware_address());
        // One that interrupts before it is among the interfaces would do so forever.
        let _mask = IrqMask::new();
        let mut interfaces = Vec::new();
        for (card, interrupt) in cards {
            match interrupt::register(interrupt, card_interrupt) {
                Ok(()) => interfaces.push(Interface::new(interfaces.len(), card)),
                // What tells of packets would not come.
                Err(error) => complain(DeviceError::Interrupt(error)),
            }
        }
        INTERFACES.call_once(|| interfaces);
    }

    /// Handles the interrupt of a card, whichever it is.
    fn card_interrupt() {
        interfaces().iter().for_each(Interface::answer_interrupt);
    }

    /// Every interface, in the order of their numbers.
    #[must_use]
    pub fn interfaces() -> &'static [Interface] {
        INTERFACES.get().map_or(&[], Vec::as_slice)
    }

    /// Begins to serve on every interface, with a task for each.
    ///
    /// # Panics
    ///
    /// As [`task::spawn`] does.
    pub fn start() {
        for interface in interfaces() {
            task::spawn(interface.name(), move || station::run(interface));
        }
    }
}
