//! The network of the kernel, from the other end: what its servers say to a client on the host, byte for byte, and whether its
//! interfaces have counted every packet that QEMU has seen pass.
//!
//! A machine is asked for its interfaces until each has an address. Then clients of all kinds come, by way of the ports of
//! the host. When they have gone, the counts of the interfaces are compared with QEMU's own capture of the same traffic, once
//! both have come to rest.

mod capture;
mod clients;

use std::{
    ffi::OsString,
    fs, mem,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::dialogue::{Reply, Subject};
use crate::{
    board::{Board, Card},
    console::{Event, stop_reason},
    conversation::PROMPT,
    machine::{Output, Start, Uart},
    network::{self, Line},
};
use capture::Capture;

/// What is typed to hear of the interfaces.
const COMMAND: &str = "network";
/// How long the kernel may take to have addresses, and how long to come to rest when the clients have gone.
const PATIENCE: Duration = Duration::from_secs(120);

/// What clients do.
type Visit = fn(&[Line]) -> Result<()>;

/// A visit, and the machine for it.
pub struct Trial {
    pub name: &'static str,
    pub machine: Networked,
    pub subject: Visited,
}

/// Every visit to this board, if it has cards; `arguments` are those of the machine without them. What passes is captured
/// in `directory`.
pub fn all(board: &Board, arguments: &[OsString], directory: &Path) -> Result<Vec<Trial>> {
    if board.cards().is_empty() {
        return Ok(Vec::new());
    }
    fs::create_dir_all(directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    let visits: [(&str, Visit); 3] = [("http", clients::http), ("echo", clients::echo), ("rough", clients::rough)];
    let trial = |(name, visit): (&'static str, Visit)| {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let captures: Vec<_> =
            board.cards().iter().map(|card| directory.join(format!("{name}-{}.pcap", card.name))).collect();
        let machine = Networked {
            arguments: arguments.to_vec(),
            cards: board.cards().to_vec(),
            captures: captures.clone(),
            lines: lines.clone(),
        };
        let subject = Visited { visit, lines, captures, state: State::Booting, reply: Vec::new(), is_pending: false };
        Trial { name, machine, subject }
    };
    Ok(visits.into_iter().map(trial).collect())
}

/// A machine with cards, whose ports are chosen when it is started.
pub struct Networked {
    arguments: Vec<OsString>,
    cards: Vec<Card>,
    /// For each card, the file that QEMU writes what passes to.
    captures: Vec<PathBuf>,
    /// How its cards are reached, once it was started.
    lines: Arc<Mutex<Vec<Line>>>,
}

impl Start for Networked {
    fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>> {
        let plugged = network::plug(&self.cards)?;
        let mut arguments = self.arguments.clone();
        arguments.extend(plugged.arguments);
        for (card, file) in self.cards.iter().zip(&self.captures) {
            let mut dump = OsString::from(format!("filter-dump,id=capture-{0},netdev={0},file=", card.name));
            dump.push(file.to_string_lossy().replace(',', ",,"));
            arguments.extend(["-object".into(), dump]);
        }
        *self.lines.lock().unwrap_or_else(PoisonError::into_inner) = plugged.lines;
        arguments.start(output)
    }
}

/// What an interface says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    name: String,
    hardware_address: String,
    has_address: bool,
    /// Packets and bytes of them that it has received and transmitted.
    passed: Capture,
    lost: u64,
}

impl Interface {
    /// The interface that a line of the list is about.
    fn parse(line: &str) -> Option<Self> {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let has_address = words.len() == 9;
        if has_address {
            words.remove(1);
        }
        let [name, hardware_address, packets_received, bytes_received, packets_transmitted, bytes_transmitted, lost, _] =
            words[..]
        else {
            return None;
        };
        let passed = Capture {
            packets_received: packets_received.parse().ok()?,
            bytes_received: bytes_received.parse().ok()?,
            packets_transmitted: packets_transmitted.parse().ok()?,
            bytes_transmitted: bytes_transmitted.parse().ok()?,
        };
        let lost = lost.parse().ok()?;
        Some(Self { name: name.into(), hardware_address: hardware_address.into(), has_address, passed, lost })
    }
}

/// How many bytes of the heap are in use, if this line tells.
fn heap(line: &str) -> Option<u64> {
    line.strip_prefix("memory: ")?.strip_suffix(" bytes of the heap")?.parse().ok()
}

/// How far it is.
enum State {
    /// It has not asked yet.
    Booting,
    /// The interfaces are to have addresses before this.
    Arriving(Instant),
    /// The clients have gone. Before this, the counts are to be those of the captures, and so many bytes of the heap in use, as
    /// before they came.
    Resting(Instant, u64),
}

/// A machine that is visited.
pub struct Visited {
    visit: Visit,
    lines: Arc<Mutex<Vec<Line>>>,
    captures: Vec<PathBuf>,
    state: State,
    /// What was said since the command was typed.
    reply: Vec<String>,
    /// The command is to be typed again.
    is_pending: bool,
}

impl Visited {
    /// Looks at what the machine has said. Gives the result, or nothing if it is to be asked again.
    fn look(&mut self) -> Result<Option<()>, String> {
        let reply = mem::take(&mut self.reply);
        let interfaces: Vec<_> = reply.iter().filter_map(|line| Interface::parse(line)).collect();
        let heap = reply.iter().find_map(|line| heap(line));
        let shown = || reply.join("\n");
        match self.state {
            State::Booting => self.state = State::Arriving(Instant::now() + PATIENCE),
            State::Arriving(deadline) => {
                let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let are_there = lines.iter().map(|line| &line.name).eq(interfaces.iter().map(|one| &one.name))
                    && interfaces.iter().all(|interface| interface.has_address);
                match heap {
                    Some(heap) if are_there => {
                        (self.visit)(&lines).map_err(|error| format!("{error:#}"))?;
                        self.state = State::Resting(Instant::now() + PATIENCE, heap);
                    }
                    _ if deadline < Instant::now() => {
                        return Err(format!("{}\nnot all of the interfaces have addresses", shown()));
                    }
                    _ => {}
                }
            }
            State::Resting(deadline, before) => {
                let captured = self.captures.iter().zip(&interfaces).map(|(file, interface)| {
                    Capture::read(file, &interface.hardware_address).map_err(|error| format!("{error:#}"))
                });
                let captured = captured.collect::<Result<Vec<_>, String>>()?;
                let counted: Vec<_> = interfaces.iter().map(|interface| interface.passed).collect();
                let are_whole = interfaces.iter().all(|interface| interface.lost == 0);
                if captured.len() == self.captures.len() && captured == counted && are_whole && heap == Some(before) {
                    return Ok(Some(()));
                }
                if deadline < Instant::now() {
                    let sentence =
                        format!("QEMU has captured {captured:?}; {before} bytes of the heap were in use before");
                    return Err(format!("{}\n{sentence}", shown()));
                }
            }
        }
        Ok(None)
    }
}

impl Subject<()> for Visited {
    fn prompt(&self) -> &'static str {
        PROMPT
    }

    fn event(&mut self, event: Event) -> Reply<()> {
        match event {
            Event::Line(line) => {
                if let Some(reason) = stop_reason(&line) {
                    return Reply::Done(Err(format!("the machine stopped: {reason}")));
                }
                self.reply.push(line);
            }
            Event::Prompt => match self.look() {
                Ok(Some(())) => return Reply::Done(Ok(())),
                Ok(None) => self.is_pending = true,
                Err(sentence) => return Reply::Done(Err(sentence)),
            },
        }
        Reply::Wait
    }

    fn silence(&mut self) -> Option<Vec<u8>> {
        mem::take(&mut self.is_pending).then(|| format!("{COMMAND}\r").into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::{Capture, Interface, heap};

    #[test]
    fn the_list_is_read() {
        let passed =
            Capture { packets_received: 2, bytes_received: 1180, packets_transmitted: 3, bytes_transmitted: 620 };
        let line = "net0  10.0.2.15/24        52:54:00:12:34:56         2        1180            3         620     4            0";
        let interface = Interface::parse(line).unwrap();
        assert_eq!((interface.passed, interface.lost, interface.has_address), (passed, 4, true));
        let interface = Interface::parse(&line.replace("10.0.2.15/24", "")).unwrap();
        assert_eq!((interface.passed, interface.lost, interface.has_address), (passed, 4, false));
        assert_eq!((&*interface.name, &*interface.hardware_address), ("net0", "52:54:00:12:34:56"));
        assert_eq!(Interface::parse(&line.replace("1180", "many")), None);
        assert_eq!(heap("memory: 12 bytes of the heap"), Some(12));
        assert_eq!(heap("memory: no bytes of the heap"), None);
    }
}
