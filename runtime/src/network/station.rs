//! The task of an interface: it runs the IP stack, gets the interface an address by DHCP (RFC 2131), and lets the
//! servers talk.

use alloc::vec::Vec;
use core::time::Duration;

use kprobes_servers::service::{Buffers, Service};
use kprobes_servers::{echo, http};
use smoltcp::iface::{Config, Interface as Stack, SocketSet};
use smoltcp::socket::dhcpv4;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, Ipv4Address};

use super::device::Device;
use super::interface::Interface;
use crate::{println, time};

/// How long to wait at most when the stack wants to send and the card has no room. The card interrupts as soon as it
/// has room.
const PAUSE: Duration = Duration::from_millis(10);

const HTTP: Buffers = Buffers { connections: 16, receive: 4 << 10, transmit: 32 << 10 };
const ECHO: Buffers = Buffers { connections: 8, receive: 8 << 10, transmit: 8 << 10 };

/// Serves on `interface` as long as its card can be used.
pub(super) fn run(interface: &'static Interface) {
    let mut device = Device::new(interface);
    let mut config = Config::new(EthernetAddress(interface.hardware_address().0).into());
    // The seed cannot be guessed without the exact tick of the boot. No better source exists on every machine.
    config.random_seed = time::counter();
    let mut stack = Stack::new(config, &mut device, now());
    let mut sockets = SocketSet::new(Vec::new());
    let dhcp = sockets.add(dhcpv4::Socket::new());
    let mut http = Service::<http::Connection>::new(http::PORT, &HTTP, &mut sockets);
    let mut echo = Service::<echo::Connection>::new(echo::PORT, &ECHO, &mut sockets);
    loop {
        let before = interface.statistics();
        stack.poll(now(), &mut device, &mut sockets);
        if let Some(event) = sockets.get_mut::<dhcpv4::Socket<'_>>(dhcp).poll() {
            configure(interface, &mut stack, &event);
        }
        if interface.is_broken() {
            println!(
                "{}: the card returned a buffer that it was not given: the interface is out of use",
                interface.name()
            );
            interface.set_address(None);
            return;
        }
        let (serviced, connected) = (now(), || interface.count_connection());
        let patience = [http.serve(&mut sockets, serviced, connected), echo.serve(&mut sockets, serviced, connected)];
        let next = stack.poll_at(now(), &sockets);
        let next = next.into_iter().chain(patience.into_iter().flatten()).min();
        let wait = next.map(|next| Duration::from(next - now().min(next)));
        let wait = match wait {
            Some(Duration::ZERO) if interface.statistics() != before => continue,
            Some(Duration::ZERO) => time::ticks(PAUSE),
            Some(wait) => time::ticks(wait),
            None => u64::MAX,
        };
        interface.wait_until(time::counter().saturating_add(wait));
    }
}

/// Gives the interface the address that a DHCP server has offered, or removes it when the lease ends.
fn configure(interface: &Interface, stack: &mut Stack, event: &dhcpv4::Event<'_>) {
    let (address, router) = match event {
        dhcpv4::Event::Configured(config) => (Some(config.address), config.router.filter(is_unicast)),
        dhcpv4::Event::Deconfigured => (None, None),
    };
    stack.update_ip_addrs(|addresses| {
        addresses.clear();
        // The list has room for one address.
        addresses.extend(address.map(IpCidr::Ipv4));
    });
    let routes = stack.routes_mut();
    let _ = match router {
        Some(router) => routes.add_default_ipv4_route(router).map_err(drop),
        None => Ok(routes.remove_default_ipv4_route()),
    };
    interface.set_address(address.map(|address| (address.address(), address.prefix_len())));
}

/// Returns whether a machine can have this address. A server without a router may say 0.0.0.0, and the stack panics
/// when it sends by a router that is no machine.
fn is_unicast(address: &Ipv4Address) -> bool {
    IpAddress::Ipv4(*address).is_unicast()
}

/// Returns the time since boot, as the stack represents it.
fn now() -> Instant {
    Instant::from_micros(i64::try_from(time::now().as_micros()).unwrap_or(i64::MAX))
}
