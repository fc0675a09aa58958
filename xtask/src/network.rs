//! Connects the network cards of an emulated machine to ports of the host's loopback address. Several machines may run
//! at once, so each gets ports that are free.

use std::{
    ffi::OsString,
    fmt,
    net::{Ipv4Addr, SocketAddr, TcpListener},
};

use anyhow::{Context, Result};

use crate::board::Card;

/// Stands for the port that leads to the kernel's HTTP server in the arguments of a card.
const HTTP: &str = "{http}";
/// Stands for the port that leads to the machine's echo server.
const ECHO: &str = "{echo}";

/// The addresses at which the servers on a card are reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardServers {
    /// The name of the card.
    pub name: String,
    pub http: SocketAddr,
    pub echo: SocketAddr,
}

impl fmt::Display for CardServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: http://{}/, and echo at {}", self.name, self.http, self.echo)
    }
}

/// Cards with the ports that have been chosen for them.
pub struct CardsWithPorts {
    /// QEMU's arguments for the cards.
    pub arguments: Vec<OsString>,
    /// The addresses of the servers, in the order of the cards.
    pub servers: Vec<CardServers>,
}

/// Whether QEMU complains that another process has taken a port in the meantime.
pub fn is_port_taken(complaint: &str) -> bool {
    complaint.contains("host forwarding")
}

/// Finds a free port of 127.0.0.1, and holds it until the returned value is dropped.
pub fn hold_port() -> Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("there is no free port")
}

/// Chooses free ports for these cards. QEMU should take them soon: another process could take them until then.
pub fn plug(cards: &[Card]) -> Result<CardsWithPorts> {
    let mut plugged = CardsWithPorts { arguments: Vec::new(), servers: Vec::new() };
    // All ports are held at the same time, so that no two are the same.
    let mut held = Vec::new();
    let mut free = || {
        let listener = hold_port()?;
        let address = listener.local_addr()?;
        held.push(listener);
        anyhow::Ok(address)
    };
    for card in cards {
        let servers = CardServers { name: card.name.clone(), http: free()?, echo: free()? };
        let port = |address: SocketAddr| address.port().to_string();
        plugged.arguments.extend(card.arguments.iter().map(|argument| {
            OsString::from(argument.replace(HTTP, &port(servers.http)).replace(ECHO, &port(servers.echo)))
        }));
        plugged.servers.push(servers);
    }
    Ok(plugged)
}

#[cfg(test)]
mod tests {
    use super::plug;
    use crate::board::Card;
    use std::collections::HashSet;

    #[test]
    fn every_port_is_another() {
        let card = |name: &str| Card {
            name: name.into(),
            arguments: vec!["-netdev".into(), "user,hostfwd=tcp::{http}-:80,hostfwd=tcp::{echo}-:7".into()],
        };
        let plugged = plug(&[card("a"), card("b")]).unwrap();
        let ports: HashSet<_> =
            plugged.servers.iter().flat_map(|servers| [servers.http.port(), servers.echo.port()]).collect();
        assert_eq!((ports.len(), plugged.servers.len(), plugged.arguments.len()), (4, 2, 4));
        let servers = &plugged.servers[1];
        let expected = format!("user,hostfwd=tcp::{}-:80,hostfwd=tcp::{}-:7", servers.http.port(), servers.echo.port());
        assert_eq!(plugged.arguments[3], *expected);
        let text =
            format!("b: http://127.0.0.1:{}/, and echo at 127.0.0.1:{}", servers.http.port(), servers.echo.port());
        assert_eq!(servers.to_string(), text);
    }
}
