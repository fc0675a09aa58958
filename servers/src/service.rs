//! The connections to one port. Their number is fixed, and each has its memory from the start, so clients cannot make
//! the kernel use more.

use alloc::vec;
use alloc::vec::Vec;
use core::mem;

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};

use crate::protocol::Protocol;

/// How long a connection may stall: no bytes arrive, and none that were sent are acknowledged.
const PATIENCE: Duration = Duration::from_secs(30);
/// The least number of connections that wait for clients. If fewer wait, a connection in TIME-WAIT is reused. That
/// state only keeps late packets from being taken for packets of a new connection (RFC 9293, 3.6.1).
const SPARE: usize = 4;

/// The memory that a service needs.
pub struct Buffers {
    /// The number of connections at a time.
    pub connections: usize,
    /// Bytes of each connection that may have arrived without being read.
    pub receive: usize,
    /// Bytes of each connection that may have been sent without being acknowledged.
    pub transmit: usize,
}

/// A port, and the protocol that is served there.
pub struct Service<P> {
    port: u16,
    connections: Vec<Connection<P>>,
}

struct Connection<P> {
    socket: SocketHandle,
    protocol: P,
    /// When the connection will have stalled for too long; `None` while it waits for a client.
    deadline: Option<Instant>,
    /// Whether its client has been reported as connected.
    is_reported: bool,
    /// The number of sent bytes that were not acknowledged at the last look.
    underway: usize,
}

impl<P: Protocol + Default> Service<P> {
    /// Creates the connections and adds their sockets to `sockets`.
    pub fn new(port: u16, buffers: &Buffers, sockets: &mut SocketSet<'_>) -> Self {
        let buffer = |length| SocketBuffer::new(vec![0; length]);
        let connections = (0..buffers.connections)
            .map(|_| {
                let mut socket = Socket::new(buffer(buffers.receive), buffer(buffers.transmit));
                // Short messages have to arrive without delay.
                socket.set_nagle_enabled(false);
                let socket = sockets.add(socket);
                Connection { socket, protocol: P::default(), deadline: None, is_reported: false, underway: 0 }
            })
            .collect();
        Self { port, connections }
    }

    /// Serves every connection, and calls `connected` once for each that a client has opened, after its handshake.
    /// Returns the latest time of the next call.
    pub fn serve(&mut self, sockets: &mut SocketSet<'_>, now: Instant, mut connected: impl FnMut()) -> Option<Instant> {
        let states = self.connections.iter().map(|connection| sockets.get::<Socket<'_>>(connection.socket).state());
        let mut waiting = states.filter(|state| matches!(state, State::Listen | State::Closed)).count();
        let mut next: Option<Instant> = None;
        for connection in &mut self.connections {
            let socket = sockets.get_mut::<Socket<'_>>(connection.socket);
            match socket.state() {
                // A client that left before its connection was established has left nothing behind.
                State::Listen => connection.deadline = None,
                State::Closed => connection.listen(socket, self.port),
                State::TimeWait if waiting < SPARE => {
                    waiting += 1;
                    connection.listen(socket, self.port);
                }
                State::TimeWait => {}
                state => {
                    if state != State::SynReceived && !mem::replace(&mut connection.is_reported, true) {
                        connected();
                    }
                    let deadline = connection.speak(socket, now);
                    next = Some(next.map_or(deadline, |next| next.min(deadline)));
                }
            }
        }
        next
    }
}

impl<P: Protocol + Default> Connection<P> {
    /// Makes the connection wait for a client.
    fn listen(&mut self, socket: &mut Socket<'_>, port: u16) {
        self.protocol = P::default();
        self.deadline = None;
        self.is_reported = false;
        self.underway = 0;
        // `listen` fails only if the socket is open or the port is 0. Neither is the case.
        let _ = socket.listen(port);
    }

    /// Exchanges bytes with the client. Returns the time at which the connection will have stalled for too long.
    fn speak(&mut self, socket: &mut Socket<'_>, now: Instant) -> Instant {
        // Bytes may still be acknowledged long after the last of them was sent.
        let mut is_moving = self.deadline.is_none() || socket.send_queue() != self.underway;
        loop {
            // Neither call fails after its check.
            let received = if socket.can_recv() {
                socket.recv(|bytes| once(self.protocol.receive(bytes))).unwrap_or(0)
            } else {
                0
            };
            let sent =
                if socket.can_send() { socket.send(|room| once(self.protocol.send(room))).unwrap_or(0) } else { 0 };
            if received + sent == 0 {
                break;
            }
            is_moving |= !self.protocol.is_complete();
        }
        self.underway = socket.send_queue();
        let has_left = socket.state() == State::CloseWait && !socket.can_recv();
        if self.protocol.is_complete() || has_left && !self.protocol.has_output() {
            socket.close();
        }
        match self.deadline {
            Some(deadline) if !is_moving && deadline <= now => {
                socket.abort();
                now
            }
            Some(deadline) if !is_moving => deadline,
            _ => *self.deadline.insert(now + PATIENCE),
        }
    }
}

/// Returns `count` twice: for the socket, and as the result of the call.
fn once(count: usize) -> (usize, usize) {
    (count, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use smoltcp::iface::{Config, Interface};
    use smoltcp::phy::{Loopback, Medium};
    use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr, IpListenEndpoint};
    use std::vec::Vec;

    const PORT: u16 = 80;
    const ADDRESS: IpAddress = IpAddress::v4(127, 0, 0, 1);
    /// The number of bytes that the server sends. All of them fit into the transmit buffer.
    const LENGTH: usize = 4000;
    const BUFFERS: Buffers = Buffers { connections: 2, receive: 512, transmit: 8192 };
    /// The size of a client's receive buffer in bytes.
    const WINDOW: usize = 500;

    #[derive(Default)]
    struct Lecture {
        sent: usize,
    }

    impl Protocol for Lecture {
        fn receive(&mut self, bytes: &[u8]) -> usize {
            bytes.len()
        }

        fn send(&mut self, room: &mut [u8]) -> usize {
            let count = room.len().min(LENGTH - self.sent);
            room[..count].fill(b'x');
            self.sent += count;
            count
        }

        fn has_output(&self) -> bool {
            self.sent < LENGTH
        }

        fn is_complete(&self) -> bool {
            self.sent == LENGTH
        }
    }

    /// A server and its clients, with a simulated clock.
    struct World {
        device: Loopback,
        stack: Interface,
        sockets: SocketSet<'static>,
        service: Service<Lecture>,
        now: Instant,
        connected: usize,
    }

    impl World {
        fn new() -> Self {
            let mut device = Loopback::new(Medium::Ethernet);
            let config = Config::new(EthernetAddress([2, 0, 0, 0, 0, 1]).into());
            let mut stack = Interface::new(config, &mut device, Instant::ZERO);
            stack.update_ip_addrs(|addresses| addresses.extend([IpCidr::new(ADDRESS, 8)]));
            let mut sockets = SocketSet::new(Vec::new());
            let service = Service::new(PORT, &BUFFERS, &mut sockets);
            let mut world = Self { device, stack, sockets, service, now: Instant::ZERO, connected: 0 };
            world.pass(1);
            world
        }

        /// Lets this many tenths of a second pass.
        fn pass(&mut self, tenths: u64) {
            for _ in 0..tenths {
                self.now += Duration::from_millis(100);
                self.stack.poll(self.now, &mut self.device, &mut self.sockets);
                self.service.serve(&mut self.sockets, self.now, || self.connected += 1);
                self.stack.poll(self.now, &mut self.device, &mut self.sockets);
            }
        }

        /// Lets a new client begin to connect.
        fn connect(&mut self, client: impl Into<IpListenEndpoint>) -> SocketHandle {
            let buffer = |length| SocketBuffer::new(vec![0; length]);
            let handle = self.sockets.add(Socket::new(buffer(WINDOW), buffer(64)));
            let socket = self.sockets.get_mut::<Socket<'_>>(handle);
            socket.connect(self.stack.context(), (ADDRESS, PORT), client).expect("a port and an address");
            handle
        }

        /// Connects a new client.
        fn client(&mut self, port: u16) -> SocketHandle {
            let handle = self.connect(port);
            self.pass(10);
            handle
        }

        fn socket(&mut self, handle: SocketHandle) -> &mut Socket<'static> {
            self.sockets.get_mut(handle)
        }

        /// Returns the number of connections that clients have taken.
        fn taken(&self) -> usize {
            let states = self.service.connections.iter().map(|one| self.sockets.get::<Socket<'_>>(one.socket).state());
            states.filter(|state| !matches!(state, State::Listen | State::Closed | State::TimeWait)).count()
        }
    }

    /// The server sends everything in a moment, and the client takes minutes to read it.
    #[test]
    fn a_slow_client_hears_the_end() {
        let mut world = World::new();
        let client = world.client(1000);
        let mut received = 0;
        while world.socket(client).may_recv() {
            let count = world.socket(client).recv(|bytes| once(bytes.len())).expect("it may be received");
            assert!(count > 0 || received == LENGTH, "nothing came for 25 s, behind {received} bytes");
            received += count;
            world.pass(250);
        }
        assert_eq!(received, LENGTH);
        assert!(world.now > Instant::ZERO + PATIENCE * 5);
    }

    #[test]
    fn who_stands_still_is_sent_away() {
        let mut world = World::new();
        let client = world.client(1000);
        let tenths = PATIENCE.total_millis() / 100;
        world.pass(tenths - 20);
        assert_eq!(world.taken(), 1);
        world.pass(20);
        assert_eq!((world.taken(), world.socket(client).state()), (0, State::Closed));
    }

    #[test]
    fn who_does_not_answer_has_not_connected() {
        let mut world = World::new();
        let other = IpAddress::v4(127, 0, 0, 2);
        world.stack.update_ip_addrs(|addresses| addresses.extend([IpCidr::new(other, 8)]));
        world.connect((other, 1000));
        while world.taken() == 0 {
            world.pass(1);
        }
        // The packets under way are lost, and no machine has the client's address any more.
        world.device = Loopback::new(Medium::Ethernet);
        world.stack.update_ip_addrs(|addresses| addresses.truncate(1));
        let tenths = PATIENCE.total_millis() / 100;
        world.pass(tenths - 20);
        assert_eq!((world.taken(), world.connected), (1, 0));
        world.pass(20);
        assert_eq!((world.taken(), world.connected), (0, 0));
    }

    #[test]
    fn who_comes_when_all_connections_are_taken_is_refused() {
        let mut world = World::new();
        let clients = [1000, 1001].map(|port| world.client(port));
        let late = world.client(1002);
        assert_eq!((world.taken(), world.connected, world.socket(late).state()), (2, 2, State::Closed));
        assert!(clients.into_iter().all(|client| world.socket(client).may_recv()));
        world.socket(clients[0]).abort();
        world.pass(10);
        let late = world.client(1003);
        assert!(world.socket(late).may_recv() && world.connected == 3);
    }
}
