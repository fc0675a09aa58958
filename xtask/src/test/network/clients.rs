//! Clients of all kinds: those that fetch something, and those that only make trouble.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::{disk, network::CardServers};

/// How long a server may take to go on.
const PATIENCE: Duration = Duration::from_secs(120);
/// The size in bytes of the content to fetch, which is the beginning of the disk.
const MEGABYTE: usize = 1 << 20;
/// How often it is fetched on each card: on new connections, and on one connection.
const FETCHES: usize = 3;
/// The number of simultaneous connections to the echo server of each card, and the number of bytes that each sends and
/// gets back.
const ECHOES: usize = 6;
const ECHOED: usize = 100_000;
/// The number of simultaneous connections that the HTTP server takes, and a larger number.
const CONNECTIONS: usize = 16;
const CROWD: usize = 40;

/// A response of the HTTP server.
struct Response {
    /// The status line and the header fields.
    head: String,
    content: Vec<u8>,
}

/// The megabyte is fetched on all cards at once, on several connections and repeatedly on one.
pub fn http(cards: &[CardServers]) -> Result<()> {
    on_each(cards, |servers| {
        for _ in 0..FETCHES {
            fetch_whole(servers.http)?;
        }
        let mut connection = connect(servers.http)?;
        for _ in 0..FETCHES {
            let response = ask(&mut connection, "GET /megabyte HTTP/1.1\r\nHost: kernel\r\n\r\n")?;
            has_megabyte(&response)?;
        }
        let index = ask(&mut connection, "GET / HTTP/1.1\r\nHost: kernel\r\n\r\n")?;
        let text = String::from_utf8(index.content)?;
        ensure!(index.head.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("/megabyte"), "the page is {text:?}");
        Ok(())
    })
}

/// Several clients at once send bytes, and each gets its own bytes back.
pub fn echo(cards: &[CardServers]) -> Result<()> {
    on_each(cards, |servers| {
        // The clients connect one after the other: QEMU's queue of connections that it has not accepted yet is short,
        // and is not tested here. A client that receives something has been accepted by the kernel.
        let greet = |_| {
            let mut connection = connect(servers.echo)?;
            connection.get_mut().write_all(b"!")?;
            connection.read_exact(&mut [0])?;
            anyhow::Ok(connection)
        };
        let connections: Vec<_> = (0..ECHOES).map(greet).collect::<Result<_>>()?;
        in_parallel(connections.into_iter().zip(0_u8..).map(|(mut connection, number)| {
            move || {
                let sent: Vec<u8> = (0..ECHOED).map(|at| number.wrapping_mul(31) ^ (at / 7) as u8).collect();
                let mut sender = connection.get_ref().try_clone()?;
                let (returned, sending) = thread::scope(|scope| {
                    let sending = scope.spawn(|| {
                        sender.write_all(&sent)?;
                        sender.shutdown(Shutdown::Write)
                    });
                    let mut returned = Vec::new();
                    (connection.read_to_end(&mut returned).map(|_| returned), sending.join())
                });
                sending.map_err(|_| anyhow!("the sender has panicked"))??;
                ensure!(returned? == sent, "the echoed bytes differ from the sent ones");
                Ok(())
            }
        }))
    })
}

/// Wrong requests are answered as they should be, and clients that leave without a word do no harm, even if they are
/// more than the server takes at a time: after all of them, the megabyte is complete.
pub fn rough(cards: &[CardServers]) -> Result<()> {
    on_each(cards, |servers| {
        let long = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "k".repeat(4000));
        for (request, status) in [
            ("GET /nothing HTTP/1.1\r\nHost: kernel\r\n\r\n", "404 Not Found"),
            ("POST / HTTP/1.1\r\nHost: kernel\r\n\r\n", "405 Method Not Allowed"),
            ("\u{16}\u{3}\u{1}\r\n\r\n", "400 Bad Request"),
            ("GET / HTTP/1.1\r\n\r\n", "400 Bad Request"),
            (&long, "431 Request Header Fields Too Large"),
        ] {
            let Response { head, content } = ask(&mut connect(servers.http)?, request)?;
            ensure!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?} is answered by {head:?}");
            ensure!(content == status.as_bytes(), "{request:?} is answered by {content:?}");
        }
        for thousands in 1..=10 {
            let mut connection = connect(servers.http)?;
            connection.get_mut().write_all(b"GET /megabyte HTTP/1.1\r\nHost: kernel\r\n\r\n")?;
            connection.read_exact(&mut vec![0; thousands * 1000])?;
        }
        for beginning in ["", "GET /mega"] {
            annoy(servers.http, beginning);
            annoy(servers.echo, beginning);
        }
        let crowd: Vec<_> = (0..CROWD).map(|_| annoy(servers.http, "")).collect();
        drop(crowd);
        fetch_at_last(servers.http)
    })
}

/// A client that comes when all connections are taken is refused at once. The present clients are served, and new ones
/// after they have gone.
pub fn full(cards: &[CardServers]) -> Result<()> {
    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: kernel\r\n\r\n";
    on_each(cards, |servers| {
        let mut served: Vec<_> = (0..CONNECTIONS).map(|_| connect(servers.http)).collect::<Result<_>>()?;
        // A client that has a response has been accepted.
        served.iter_mut().try_for_each(|connection| ask(connection, REQUEST).map(drop))?;
        let mut refused = connect(servers.http)?;
        // The connection may have been refused before this.
        let _ = refused.get_mut().write_all(REQUEST.as_bytes());
        match refused.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => bail!("a client beyond the last connection is answered by {other:?}"),
        }
        served.iter_mut().try_for_each(|connection| ask(connection, REQUEST).map(drop))?;
        drop(served);
        fetch_at_last(servers.http)
    })
}

/// Fetches the megabyte after the earlier clients have gone. The last of them may still be on their way out.
fn fetch_at_last(address: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match fetch_whole(address) {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => {}
        }
    }
}

/// Connects, sends something, and reads no reply. QEMU's queue is short, so it is a matter of chance whether this gets
/// through.
fn annoy(address: SocketAddr, beginning: &str) -> Option<BufReader<TcpStream>> {
    let mut connection = connect(address).ok()?;
    connection.get_mut().write_all(beginning.as_bytes()).ok()?;
    Some(connection)
}

/// Calls `visit` for each card, for all of them at once.
pub fn on_each(cards: &[CardServers], visit: impl Fn(&CardServers) -> Result<()> + Sync) -> Result<()> {
    let visit = &visit;
    in_parallel(cards.iter().map(|servers| move || visit(servers).with_context(|| servers.name.clone())))
}

/// Runs all of these at once.
fn in_parallel<F: FnOnce() -> Result<()> + Send>(all: impl Iterator<Item = F>) -> Result<()> {
    thread::scope(|scope| {
        let all: Vec<_> = all.map(|one| scope.spawn(one)).collect();
        let results: Vec<_> = all.into_iter().map(|one| one.join()).collect();
        results.into_iter().try_for_each(|result| result.map_err(|_| anyhow!("a client has panicked"))?)
    })
}

fn connect(address: SocketAddr) -> Result<BufReader<TcpStream>> {
    let stream =
        TcpStream::connect_timeout(&address, PATIENCE).with_context(|| format!("no connection to {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

/// Fetches the megabyte on a connection of its own, which the server closes.
fn fetch_whole(address: SocketAddr) -> Result<()> {
    let mut connection = connect(address)?;
    let response = ask(&mut connection, "GET /megabyte HTTP/1.1\r\nHost: kernel\r\nConnection: close\r\n\r\n")?;
    has_megabyte(&response)?;
    ensure!(connection.read(&mut [0])? == 0, "more follows the megabyte");
    Ok(())
}

/// Checks that the response is the megabyte.
fn has_megabyte(response: &Response) -> Result<()> {
    let Response { head, content } = response;
    ensure!(head.starts_with("HTTP/1.1 200 OK\r\n"), "it is answered by {head:?}");
    is_megabyte(content)
}

/// Checks that this is the megabyte at the beginning of the disk.
pub fn is_megabyte(content: &[u8]) -> Result<()> {
    let megabyte = &disk::contents()[..MEGABYTE];
    let wrong = || content.iter().zip(megabyte).position(|(one, other)| one != other);
    ensure!(content == megabyte, "{} bytes, the first wrong at {:?}", content.len(), wrong());
    Ok(())
}

/// Sends a request, and reads the response with all of its content.
fn ask(connection: &mut BufReader<TcpStream>, request: &str) -> Result<Response> {
    connection.get_mut().write_all(request.as_bytes())?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if connection.read_line(&mut head)? == 0 {
            bail!("the connection ends after {head:?}");
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
    let mut content = vec![0; length.with_context(|| format!("the response has no length: {head:?}"))?];
    connection.read_exact(&mut content)?;
    Ok(Response { head, content })
}
