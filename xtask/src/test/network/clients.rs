//! Clients of all kinds: those that want something, and those that only make trouble.

use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::{disk, network::Line};

/// How long a server may take to go on.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of what there is to fetch, which is what the disk begins with.
const MEGABYTE: usize = 1 << 20;
/// How often it is fetched on each card, on new connections and on one.
const FETCHES: usize = 3;
/// Connections to the echo server of each card at a time, and bytes that go to and fro on each.
const ECHOES: usize = 6;
const ECHOED: usize = 100_000;
/// Connections that the server of HTTP takes at a time, and more than that.
const CONNECTIONS: usize = 16;
const CROWD: usize = 40;

/// What was answered.
struct Response {
    /// The line that it begins with, and the fields.
    head: String,
    content: Vec<u8>,
}

/// The megabyte is fetched on all cards at once, on several connections and again and again on one.
pub fn http(lines: &[Line]) -> Result<()> {
    on_each(lines, |line| {
        for _ in 0..FETCHES {
            fetch_whole(line.http)?;
        }
        let mut connection = connect(line.http)?;
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

/// Several clients at once, whose bytes come back to the one that has sent them.
pub fn echo(lines: &[Line]) -> Result<()> {
    on_each(lines, |line| {
        // One after the other to begin with: QEMU's queue for those that it has not accepted yet is short, and it is not what is
        // tried here. The kernel has accepted who hears something.
        let greet = |_| {
            let mut connection = connect(line.echo)?;
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
                ensure!(returned? == sent, "other bytes come back than were sent");
                Ok(())
            }
        }))
    })
}

/// What is wrong is answered as it should be, and who leaves without a word does no harm, be they more than are taken at a time:
/// behind it all, the megabyte is whole.
pub fn rough(lines: &[Line]) -> Result<()> {
    on_each(lines, |line| {
        let long = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "k".repeat(4000));
        for (request, status) in [
            ("GET /nothing HTTP/1.1\r\nHost: kernel\r\n\r\n", "404 Not Found"),
            ("POST / HTTP/1.1\r\nHost: kernel\r\n\r\n", "405 Method Not Allowed"),
            ("\u{16}\u{3}\u{1}\r\n\r\n", "400 Bad Request"),
            ("GET / HTTP/1.1\r\n\r\n", "400 Bad Request"),
            (&long, "431 Request Header Fields Too Large"),
        ] {
            let Response { head, content } = ask(&mut connect(line.http)?, request)?;
            ensure!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request:?} is answered by {head:?}");
            ensure!(content == status.as_bytes(), "{request:?} is answered by {content:?}");
        }
        for thousands in 1..=10 {
            let mut connection = connect(line.http)?;
            connection.get_mut().write_all(b"GET /megabyte HTTP/1.1\r\nHost: kernel\r\n\r\n")?;
            connection.read_exact(&mut vec![0; thousands * 1000])?;
        }
        for beginning in ["", "GET /mega"] {
            annoy(line.http, beginning);
            annoy(line.echo, beginning);
        }
        let crowd: Vec<_> = (0..CROWD).map(|_| annoy(line.http, "")).collect();
        drop(crowd);
        fetch_at_last(line.http)
    })
}

/// Who comes when all connections are taken is refused at once; those who are there are served, and others when they have gone.
pub fn full(lines: &[Line]) -> Result<()> {
    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: kernel\r\n\r\n";
    on_each(lines, |line| {
        let mut served: Vec<_> = (0..CONNECTIONS).map(|_| connect(line.http)).collect::<Result<_>>()?;
        // Who has an answer has been accepted.
        served.iter_mut().try_for_each(|connection| ask(connection, REQUEST).map(drop))?;
        let mut refused = connect(line.http)?;
        // It may have been refused before this.
        let _ = refused.get_mut().write_all(REQUEST.as_bytes());
        match refused.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            other => bail!("who comes when all connections are taken hears {other:?}"),
        }
        served.iter_mut().try_for_each(|connection| ask(connection, REQUEST).map(drop))?;
        drop(served);
        fetch_at_last(line.http)
    })
}

/// Fetches the megabyte when those who were there before have gone: the last of them may be on their way still.
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

/// Comes, says something, and wants no answer. Whether it gets through is a matter of chance: QEMU's queue is short.
fn annoy(address: SocketAddr, beginning: &str) -> Option<BufReader<TcpStream>> {
    let mut connection = connect(address).ok()?;
    connection.get_mut().write_all(beginning.as_bytes()).ok()?;
    Some(connection)
}

/// Does the same on each card, on all at once.
pub fn on_each(lines: &[Line], visit: impl Fn(&Line) -> Result<()> + Sync) -> Result<()> {
    let visit = &visit;
    in_parallel(lines.iter().map(|line| move || visit(line).with_context(|| line.name.clone())))
}

/// Does all at once.
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

/// Fetches the megabyte on a connection of its own, which the server ends.
fn fetch_whole(address: SocketAddr) -> Result<()> {
    let mut connection = connect(address)?;
    let response = ask(&mut connection, "GET /megabyte HTTP/1.1\r\nHost: kernel\r\nConnection: close\r\n\r\n")?;
    has_megabyte(&response)?;
    ensure!(connection.read(&mut [0])? == 0, "more follows the megabyte");
    Ok(())
}

/// Whether the answer is the megabyte.
fn has_megabyte(response: &Response) -> Result<()> {
    let Response { head, content } = response;
    ensure!(head.starts_with("HTTP/1.1 200 OK\r\n"), "it is answered by {head:?}");
    is_megabyte(content)
}

/// Whether this is the megabyte, which the disk begins with.
pub fn is_megabyte(content: &[u8]) -> Result<()> {
    let megabyte = &disk::contents()[..MEGABYTE];
    let wrong = content.iter().zip(megabyte).position(|(one, other)| one != other);
    ensure!(
        wrong.is_none() && content.len() == megabyte.len(),
        "{} bytes, the first wrong at {wrong:?}",
        content.len()
    );
    Ok(())
}

/// Sends a request, and reads the response with all of its content.
fn ask(connection: &mut BufReader<TcpStream>, request: &str) -> Result<Response> {
    connection.get_mut().write_all(request.as_bytes())?;
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if connection.read_line(&mut head)? == 0 {
            bail!("the connection ends behind {head:?}");
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
    let mut content = vec![0; length.with_context(|| format!("no length is told: {head:?}"))?];
    connection.read_exact(&mut content)?;
    Ok(Response { head, content })
}
