//! Tests the kernel's network from the other end: what its servers say to a client on the host, byte for byte; whether
//! its interfaces have counted every packet that QEMU has captured; and whether a program that traces them has.
//!
//! A machine is asked for its interfaces until each has an address. Then clients of all kinds connect through the ports
//! of the host. The environment can set how many seconds a machine on which every function is probed is under load:
//!
//! ```text
//! NETWORK_SECONDS=60 cargo xtask test network::every_function
//! ```

mod arrival;
mod capture;
mod clients;
mod curl;
mod listed;
mod printed;
mod recorded;
mod stopped;
mod traced;
mod visited;
mod visiting;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};

use super::{
    select::{Demands, Trait},
    sessions,
};
use crate::{
    board::{Board, Card, Configuration},
    dialogue::Subject,
    machine::{Output, Qemu, Start, Uart, option_value},
    network::{self, CardServers},
    setup,
};
use capture::Packet;
use listed::Interface;
use recorded::{Recorded, TRACERS};
use stopped::Stopped;
use traced::{Check, Traced};
use visited::Visited;
use visiting::Visit;

/// How long the kernel may take to get addresses, and how long to come to rest after the clients.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long QEMU may take to write something. A QEMU that does not get its ports says so at once.
const TIME_TO_START: Duration = Duration::from_secs(30);
/// How often other ports are tried.
const ATTEMPTS: usize = 5;
/// The program that counts the segments of sockets by their control flags.
const CONTROLS: &str = "trace 'kprobe:<smoltcp::socket::tcp::Socket>::process { @[args.repr.control] = count(); }'";
/// The program that runs under load, on machines with [`CPUS`] CPUs.
const EVERYTHING: &str = "kprobe:* { @[func] = count(); }";
const CPUS: u32 = 4;

/// A program of `tools/` that needs clients, and the check of its output.
pub struct Tool {
    /// The name of its file without `.bt`, and of its test.
    name: &'static str,
    check: Check,
}

impl Tool {
    /// Returns the name of the file in `tools/`.
    pub fn file(&self) -> String {
        format!("{}.bt", self.name)
    }
}

/// The programs of `tools/` that are tested here.
pub const TOOLS: [Tool; 3] = [
    Tool { name: "netsize", check: traced::sizes },
    Tool { name: "tcpaccept", check: traced::accepted },
    Tool { name: "tcplife", check: traced::lives },
];

/// A dialogue with a machine.
type Dialogue = Box<dyn Subject<()> + Send>;

/// A visit, and the machine for it.
pub struct Trial {
    pub name: &'static str,
    pub demands: Demands,
    pub machine: Networked,
    pub subject: Result<Dialogue, String>,
    /// Whether it waits for clients most of the time. On a machine that is probed everywhere, the clients wait.
    pub is_patient: bool,
}

/// Returns every visit to this board, if it has cards. `arguments` are those of the machine without the cards. Packets
/// are captured in `directory`. Tests that depend only on the number of CPUs run where nothing else is special.
pub fn all(
    board: &Board,
    configuration: &Configuration,
    arguments: &[OsString],
    directory: &Path,
) -> Result<Vec<Trial>> {
    if board.cards().is_empty() {
        return Ok(Vec::new());
    }
    setup::tools()?;
    fs::create_dir_all(directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    let trial = |name: &'static str, traits: &[Trait], makes: &dyn Fn(HostNetworks) -> Result<Dialogue, String>| {
        let captures = board.cards().iter().map(|card| directory.join(format!("{name}-{}.pcap", card.name)));
        let networks = HostNetworks { servers: Arc::default(), captures: captures.collect() };
        let subject = makes(networks.clone());
        let machine = Networked { arguments: arguments.to_vec(), cards: board.cards().to_vec(), networks };
        Trial { name, demands: Demands::on(traits), machine, subject, is_patient: true }
    };
    // Packets arrive by interrupts, and tasks on all CPUs serve them.
    const SERVED: &[Trait] = &[Trait::Cpus, Trait::Interrupts];
    // The misuse of the protocol takes long, and does not depend on the interrupt controller.
    const MISUSED: &[Trait] = &[Trait::Cpus];
    let mut trials = Vec::new();
    let visits: [(&str, Visit, &[Trait]); 4] = [
        ("http", clients::http, SERVED),
        ("echo", clients::echo, SERVED),
        ("rough", clients::rough, MISUSED),
        ("full", clients::full, MISUSED),
    ];
    for (name, visit, traits) in visits {
        trials.push(trial(name, traits, &|networks| Ok(Box::new(Visited::new(networks, visit)))));
    }
    if !configuration.is_plain() {
        return Ok(trials);
    }
    let command = sessions::live_command();
    for (name, makes, traits) in [
        ("one_liner", Traced::transmitted as fn(HostNetworks, &str) -> Result<Traced, String>, &[Trait::Cpus][..]),
        ("one_liner_received", Traced::received, &[]),
    ] {
        trials.push(trial(name, traits, &|networks| {
            let traced = command.clone().and_then(|command| makes(networks, &command))?;
            Ok(Box::new(traced))
        }));
    }
    trials.push(trial("control_flags", &[], &|networks| {
        Ok(Box::new(Traced::new(networks, CONTROLS.into(), traced::controls)))
    }));
    for tool in TOOLS {
        trials.push(trial(tool.name, &[], &|networks| {
            let command = sessions::tool_command(&format!("trace tools/{}", tool.file()));
            let command = command.map_err(|error| format!("{error:#}"))?;
            Ok(Box::new(Traced::new(networks, command, tool.check)))
        }));
    }
    if board.cpus(configuration) == CPUS {
        let mut busy = vec![
            trial("every_function", &[], &|networks| Ok(Box::new(Traced::everything(networks, EVERYTHING)))),
            trial("every_instruction", &[], &|networks| Ok(Box::new(Stopped::new(networks)))),
        ];
        for tracer in &TRACERS {
            busy.push(trial(tracer.name, &[], &|networks| Ok(Box::new(Recorded::new(networks, tracer)))));
        }
        trials.extend(busy.into_iter().map(|trial| Trial { is_patient: false, ..trial }));
    }
    Ok(trials)
}

/// The host's side of a machine's networks.
#[derive(Clone)]
struct HostNetworks {
    /// The addresses of the cards' servers, once the machine was started.
    servers: Arc<Mutex<Vec<CardServers>>>,
    /// For each card, the file that QEMU captures its packets in.
    captures: Vec<PathBuf>,
}

impl HostNetworks {
    fn servers(&self) -> Vec<CardServers> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether these are all interfaces, and all have addresses.
    fn is_reached(&self, interfaces: &[Interface]) -> bool {
        self.servers().iter().map(|servers| &servers.name).eq(interfaces.iter().map(|interface| &interface.name))
            && interfaces.iter().all(|interface| interface.has_address)
    }

    /// Returns the lengths of the captures in bytes.
    fn lengths(&self) -> Result<Vec<u64>, String> {
        let length = |file: &PathBuf| match fs::metadata(file) {
            Ok(metadata) => Ok(metadata.len()),
            Err(error) => Err(format!("{} cannot be looked at: {error}", file.display())),
        };
        self.captures.iter().map(length).collect()
    }

    /// Returns the packets that were captured of each interface since the captures had these lengths.
    fn packets(&self, interfaces: &[Interface], since: &[u64]) -> Result<Vec<Vec<Packet>>, String> {
        let packets = self.captures.iter().zip(interfaces).zip(since).map(|((file, interface), &since)| {
            capture::read(file, &interface.hardware_address, since).map_err(|error| format!("{error:#}"))
        });
        packets.collect()
    }
}

/// The current receiver of a machine's output.
type Listener = Arc<Mutex<Box<dyn Fn(Output) + Send>>>;

/// A machine with cards. Its ports are chosen when it is started.
pub struct Networked {
    arguments: Vec<OsString>,
    cards: Vec<Card>,
    networks: HostNetworks,
}

impl Networked {
    /// Starts the machine with ports that are free now. If QEMU ends at once, the inner error is its sentence.
    fn attempt(&self, output: &Listener) -> Result<Result<Box<dyn Uart>, String>> {
        let plugged = network::plug(&self.cards)?;
        let mut arguments = self.arguments.clone();
        arguments.extend(plugged.arguments);
        for (card, file) in self.cards.iter().zip(&self.networks.captures) {
            let before = format!("filter-dump,id=capture-{0},netdev={0},file=", card.name);
            arguments.extend(["-object".into(), option_value(&before, file)]);
        }
        *self.networks.servers.lock().unwrap_or_else(PoisonError::into_inner) = plugged.servers;
        let (said, heard) = mpsc::channel();
        let (is_first, output) = (AtomicBool::new(true), output.clone());
        let machine = Qemu::start(&arguments, move |what| {
            if is_first.swap(false, Ordering::Relaxed) {
                let has_ended = matches!(what, Output::End);
                // The receiver may have given up.
                let _ = said.send(has_ended);
                if has_ended {
                    return;
                }
            }
            output.lock().unwrap_or_else(PoisonError::into_inner)(what);
        })?;
        let machine: Box<dyn Uart> = Box::new(machine);
        Ok(match heard.recv_timeout(TIME_TO_START) {
            Ok(true) => Err(machine.end().err().unwrap_or_else(|| "it powered off".into())),
            Ok(false) | Err(_) => Ok(machine),
        })
    }
}

impl Start for Networked {
    fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>> {
        let output = Arc::new(Mutex::new(output));
        let mut attempt = 1;
        loop {
            match self.attempt(&output)? {
                Ok(machine) => return Ok(machine),
                // Another process has taken a port in the meantime.
                Err(how) if network::is_port_taken(&how) && attempt < ATTEMPTS => attempt += 1,
                Err(how) => bail!("QEMU ended without a result: {how}"),
            }
        }
    }
}
