//! A machine whose packets are counted by a program that it runs, while clients come: what the program prints is compared with
//! QEMU's own capture.
//!
//! The comparison is exact as nothing passes while the program begins and ends. It is typed when the captures have not grown for
//! a while, and ended when they have not again; if they have grown between the typed line and the answer, one cannot tell
//! what was counted, and the test fails. What is captured between is what the program must have counted: no packet more, and
//! no packet less.

use std::{collections::BTreeMap, mem, time::Instant};

use super::{
    Host, PATIENCE,
    capture::Packet,
    curl,
    listed::{self, Interface},
    printed::{self, Printed},
    visiting::{Visit, Visiting},
};
use crate::{
    console::Event,
    conversation::PROMPT,
    test::{
        dialogue::{Reply, Subject},
        session::INTERRUPT_KEY,
    },
};

/// The functions that every packet goes through.
const TRANSMIT: &str = "runtime::network::interface::transmit";
const RECEIVE: &str = "runtime::network::interface::receive";
/// What is typed while everything is traced, and a part of the reply.
const COMMANDS: [(&str, &str); 6] = [
    ("run sha256 10", "10 iterations in 4 tasks: 10 right, 0 wrong"),
    ("network", "bytes of the heap"),
    ("tasks", "net1"),
    ("cpus", "running"),
    ("symbols sha2::*", "sha2::sha256::compress256"),
    ("list-probes kprobe:sha2::sha256::comp*", "1 probe"),
];
/// The command by which they can be typed meanwhile, and the one that ends it.
const CONSOLE: &str = "console";
const EXIT: &str = "exit";
/// So often in a row, after a silence each, captures that rest have the same lengths.
const CALM: u32 = 3;

/// Says what is wrong with what was printed, given what was captured of each interface.
type Check = fn(&Printed, &[(String, Vec<Packet>)]) -> Result<(), String>;

/// Whether captures grow.
#[derive(Default)]
struct Calm {
    lengths: Vec<u64>,
    times: u32,
}

impl Calm {
    /// The lengths of the captures, once they rest.
    fn look(&mut self, host: &Host) -> Result<Option<Vec<u64>>, String> {
        let lengths = host.lengths()?;
        self.times = if lengths == self.lengths { self.times + 1 } else { 1 };
        self.lengths = lengths;
        Ok((self.times >= CALM).then(|| self.lengths.clone()))
    }
}

/// How far it is.
enum State {
    Booting,
    /// The interfaces are to have addresses before this.
    Arriving(Instant),
    /// They have.
    Settling(Calm),
    /// The program was typed when the captures had these lengths.
    Arming(Vec<u64>),
    /// It runs, and the clients are there.
    Visited(Visiting),
    /// The clients have gone.
    Ebbing(Calm),
    /// It was ended when the captures had these lengths.
    Ending(Vec<u64>),
}

/// A machine that is traced.
pub struct Traced {
    host: Host,
    visit: Visit,
    /// The line that begins with the program.
    command: String,
    /// Other commands are typed meanwhile.
    is_console: bool,
    check: Check,
    state: State,
    /// How many commands were typed meanwhile.
    typed: usize,
    interfaces: Vec<Interface>,
    /// How long the captures were when the program began.
    since: Vec<u64>,
    /// What was said since the last prompt, or since the program was ended.
    reply: Vec<String>,
    /// The interfaces are to be asked for again.
    is_pending: bool,
}

impl Traced {
    fn new(host: Host, visit: Visit, command: String, check: Check) -> Self {
        Self {
            host,
            visit,
            command,
            is_console: false,
            check,
            state: State::Booting,
            typed: 0,
            interfaces: Vec::new(),
            since: Vec::new(),
            reply: Vec::new(),
            is_pending: false,
        }
    }

    /// To be traced by `command`, which counts what is transmitted.
    pub fn transmitted(host: Host, command: &str) -> Result<Self, String> {
        Ok(Self::new(host, curl::a_hundred_times, command.into(), |printed, captured| compare(printed, captured, true)))
    }

    /// The same, with what is received.
    pub fn received(host: Host, command: &str) -> Result<Self, String> {
        if !command.contains(TRANSMIT) {
            return Err(format!("`{command}` does not trace {TRANSMIT}"));
        }
        let command = command.replace(TRANSMIT, RECEIVE);
        Ok(Self::new(host, curl::a_hundred_times, command, |printed, captured| compare(printed, captured, false)))
    }

    /// To be asked by `command` which control flags the segments have that sockets are given.
    pub fn controlled(host: Host, command: &str) -> Self {
        Self::new(host, curl::a_hundred_times, command.into(), controls)
    }

    /// To be traced by `program`, which counts by function, while other commands are typed.
    pub fn everything(host: Host, program: &str) -> Self {
        let command = format!("trace '{program}' -c {CONSOLE}");
        Self { is_console: true, ..Self::new(host, curl::for_some_time, command, calls) }
    }

    /// The machine asks.
    fn asked(&mut self) -> Result<Reply<()>, String> {
        let reply = mem::take(&mut self.reply);
        match &mut self.state {
            State::Booting => {
                self.state = State::Arriving(Instant::now() + PATIENCE);
                Ok(Reply::Type(listed::COMMAND.into()))
            }
            State::Arriving(deadline) => {
                self.interfaces = listed::interfaces(&reply);
                if self.host.is_reached(&self.interfaces) {
                    self.state = State::Settling(Calm::default());
                } else if *deadline < Instant::now() {
                    return Err("not all of the interfaces have addresses".into());
                } else {
                    self.is_pending = true;
                }
                Ok(Reply::Wait)
            }
            State::Visited(visiting) if self.is_console => {
                if let Some((command, part)) = self.typed.checked_sub(1).map(|last| COMMANDS[last % COMMANDS.len()])
                    && (reply.iter().any(|line| line.starts_with("error: "))
                        || !reply.iter().any(|line| line.contains(part)))
                {
                    return Err(format!("the reply to `{command}` has no {part:?}"));
                }
                if self.typed >= COMMANDS.len()
                    && let Some(result) = visiting.poll()
                {
                    result?;
                    self.state = State::Ebbing(Calm::default());
                    return Ok(Reply::Wait);
                }
                self.typed += 1;
                Ok(Reply::Type(COMMANDS[(self.typed - 1) % COMMANDS.len()].0.into()))
            }
            State::Ending(lengths) => {
                if *lengths != self.host.lengths()? {
                    return Err("packets have passed while the program was ended".into());
                }
                let packets = self.host.packets(&self.interfaces, &self.since)?;
                let names = self.interfaces.iter().map(|interface| interface.name.clone());
                let captured: Vec<_> = names.zip(packets).collect();
                let first = reply.iter().position(|line| line.starts_with(['@', 'M'])).unwrap_or(reply.len());
                (self.check)(&Printed::parse(&reply[first..])?, &captured)?;
                Ok(Reply::Done(Ok(())))
            }
            State::Settling(_) | State::Arming(_) | State::Visited(_) | State::Ebbing(_) => {
                Err("the program is over before it was ended".into())
            }
        }
    }

    /// The machine says how much is probed.
    fn armed(&mut self) -> Result<(), String> {
        if let State::Arming(lengths) = &mut self.state {
            if *lengths != self.host.lengths()? {
                return Err("packets have passed while the program was begun".into());
            }
            self.since = mem::take(lengths);
            self.state = State::Visited(Visiting::begin(self.visit, self.host.lines()));
        }
        Ok(())
    }

    /// The machine says nothing.
    fn silent(&mut self) -> Result<Reply<()>, String> {
        let keys = |line: &str| Reply::Keys(format!("{line}\r").into_bytes());
        match &mut self.state {
            State::Arriving(_) if mem::take(&mut self.is_pending) => Ok(keys(listed::COMMAND)),
            State::Settling(calm) => {
                let Some(lengths) = calm.look(&self.host)? else { return Ok(Reply::Wait) };
                self.state = State::Arming(lengths);
                Ok(keys(&self.command))
            }
            // Where commands are typed, their replies are waited for.
            State::Visited(visiting) if !self.is_console => {
                if let Some(result) = visiting.poll() {
                    result?;
                    self.state = State::Ebbing(Calm::default());
                }
                Ok(Reply::Wait)
            }
            State::Ebbing(calm) => {
                let Some(lengths) = calm.look(&self.host)? else { return Ok(Reply::Wait) };
                self.state = State::Ending(lengths);
                self.reply.clear();
                Ok(if self.is_console { keys(EXIT) } else { Reply::Keys(vec![INTERRUPT_KEY]) })
            }
            _ => Ok(Reply::Wait),
        }
    }
}

impl Subject<()> for Traced {
    fn prompt(&self) -> &'static str {
        PROMPT
    }

    fn event(&mut self, event: Event) -> Reply<()> {
        let reply = match event {
            Event::Prompt => self.asked(),
            Event::Line(line) => {
                let is_said = line.split_once(" probe").is_some_and(|(number, _)| number.parse::<u64>().is_ok());
                let result = if is_said { self.armed() } else { Ok(()) };
                self.reply.push(line);
                result.map(|()| Reply::Wait)
            }
        };
        reply.unwrap_or_else(|sentence| Reply::Done(Err(sentence)))
    }

    /// Where the clients have failed as the machine has stopped, it has said that before.
    fn silence(&mut self) -> Reply<()> {
        self.silent().unwrap_or_else(|sentence| Reply::Done(Err(sentence)))
    }
}

/// Whether the packets that were captured are those that were counted, and every one.
fn compare(printed: &Printed, captured: &[(String, Vec<Packet>)], is_transmitted: bool) -> Result<(), String> {
    let mut expected = BTreeMap::new();
    for (interface, packets) in captured {
        let packets: Vec<_> =
            packets.iter().filter(|packet| packet.is_transmitted == is_transmitted).copied().collect();
        if packets.is_empty() {
            return Err(format!("nothing has passed {interface}"));
        }
        expected.extend(printed::of_packets(interface, &packets));
    }
    match (printed.losses.first(), printed.maps == expected) {
        (None, true) => Ok(()),
        (Some(loss), _) => Err(format!("something was lost: {loss}")),
        (None, false) => {
            Err(format!("{}the program has counted other packets", printed::difference(&printed.maps, &expected)))
        }
    }
}

/// Whether the segments that a socket was given are those that were captured, by their control flags: every connection begins once.
/// Some of the other segments are for a connection that has ended, and are given to no socket.
fn controls(printed: &Printed, captured: &[(String, Vec<Packet>)]) -> Result<(), String> {
    if let Some(loss) = printed.losses.first() {
        return Err(format!("something was lost: {loss}"));
    }
    for control in ["Syn", "Fin", "Psh", "None", "Rst"] {
        let received = captured.iter().flat_map(|(_, packets)| packets).filter(|packet| !packet.is_transmitted);
        let passed = received.filter(|packet| packet.control == Some(control)).count() as u64;
        let counted = printed.maps.get(&format!("@[{control}]")).copied().unwrap_or_default();
        let is_all = control != "Syn" || counted == passed && counted > 0;
        if counted > passed || !is_all || (counted == 0) != (passed == 0) {
            return Err(format!("{counted} segments were counted as {control}, and {passed} have passed"));
        }
    }
    Ok(())
}

/// Whether the functions that every packet goes through were counted so often, among all others. No more calls are missing than
/// are said to be missed or lost.
fn calls(printed: &Printed, captured: &[(String, Vec<Packet>)]) -> Result<(), String> {
    let missing = printed.losses.iter().map(|loss| printed::number_of(loss)).sum::<Result<u64, _>>()?;
    for (function, is_transmitted) in [(TRANSMIT, true), (RECEIVE, false)] {
        let packets = captured.iter().flat_map(|(_, packets)| packets);
        let passed = packets.filter(|packet| packet.is_transmitted == is_transmitted).count() as u64;
        let counted = printed.maps.get(&format!("@[{function}]")).copied().unwrap_or_default();
        if passed == 0 || counted > passed || counted + missing < passed {
            return Err(format!(
                "{function} was called {counted} times, {passed} packets have passed, and {missing} calls are said to be missing"
            ));
        }
    }
    Ok(())
}
