//! Runs a program that counts packets on a machine while clients come, and compares its output with QEMU's own capture.
//!
//! The comparison is exact because no packets pass while the program begins and ends. The program is typed when the
//! captures have not grown for a while, and ended when they have again not grown. If they have grown between the typed
//! line and the reply, it is unknown what was counted, and the test fails. The program must have counted exactly the
//! packets that were captured in between.

use std::mem;

use kprobes_pl011::PULSE_KEY;

use super::{
    HostNetworks,
    arrival::{Arrival, Arrived},
    capture::Packet,
    curl,
    listed::Interface,
    printed::{self, Numbers, Printed},
    visiting::{Visit, Visiting},
};
use crate::{
    console::Event,
    dialogue::{Reply, Subject},
    test::session::INTERRUPT_KEY,
};

/// The functions that every packet goes through.
const TRANSMIT: &str = "runtime::network::interface::transmit";
const RECEIVE: &str = "runtime::network::interface::receive";
/// Commands that are typed while everything is traced, with a part of each reply.
const COMMANDS: [(&str, &str); 6] = [
    ("run sha256 10", "10 iterations in 4 tasks: 10 right, 0 wrong"),
    ("network", "bytes of the heap"),
    ("tasks", "net1"),
    ("cpus", "running"),
    ("symbols sha2::*", "sha2::sha256::compress256"),
    ("list-probes kprobe:sha2::sha256::comp*", "1 probe"),
];
/// The command that makes it possible to type them meanwhile, and the command that ends it.
const CONSOLE: &str = "console";
const EXIT: &str = "exit";
/// Captures are at rest if they have the same lengths this many times in a row, after a silence each in which the
/// machine has replied to the host. Without a reply, a busy host may not let the machine run.
const CALM: u32 = 3;

/// Checks the output of a program against the captured packets of each interface. The error says what is wrong.
pub type Check = fn(&Printed, &[(String, Vec<Packet>)]) -> Result<(), String>;

/// Finds out whether captures grow.
#[derive(Default)]
struct CaptureMonitor {
    lengths: Vec<u64>,
    times: u32,
}

impl CaptureMonitor {
    /// Returns the lengths of the captures, once they are at rest.
    fn look(&mut self, networks: &HostNetworks) -> Result<Option<Vec<u64>>, String> {
        let lengths = networks.lengths()?;
        self.times = if lengths == self.lengths { self.times + 1 } else { 1 };
        self.lengths = lengths;
        Ok((self.times >= CALM).then(|| self.lengths.clone()))
    }
}

/// The state of the test.
enum State {
    Arriving(Arrival),
    /// The interfaces have addresses, and the captures come to rest.
    Settling(CaptureMonitor),
    /// The program was typed when the captures had these lengths.
    Arming(Vec<u64>),
    /// The program runs, and the clients are there.
    Visited(Visiting),
    /// The clients have gone, and the captures come to rest.
    Ebbing(CaptureMonitor),
    /// The program was ended when the captures had these lengths.
    Ending(Vec<u64>),
}

/// A machine in this test.
pub struct Traced {
    networks: HostNetworks,
    visit: Visit,
    /// The line that begins with the program.
    command: String,
    /// Whether other commands are typed while the program runs.
    is_console: bool,
    check: Check,
    state: State,
    /// How many commands were typed meanwhile.
    typed: usize,
    interfaces: Vec<Interface>,
    /// The lengths of the captures when the program began.
    since: Vec<u64>,
    /// The lines since the last prompt, or since the program was ended.
    reply: Vec<String>,
    /// Whether the machine has replied to [`PULSE_KEY`] since the captures were last looked at.
    has_replied: bool,
}

impl Traced {
    /// Creates a test of `command`, which traces a hundred fetches.
    pub fn new(networks: HostNetworks, command: String, check: Check) -> Self {
        Self {
            networks,
            visit: curl::a_hundred_times,
            command,
            is_console: false,
            check,
            state: State::Arriving(Arrival::default()),
            typed: 0,
            interfaces: Vec::new(),
            since: Vec::new(),
            reply: Vec::new(),
            has_replied: false,
        }
    }

    /// Creates a test of `command`, which counts the transmitted packets.
    pub fn transmitted(networks: HostNetworks, command: &str) -> Result<Self, String> {
        Ok(Self::new(networks, command.into(), |printed, captured| compare(printed, captured, true)))
    }

    /// Creates a test of `command` changed to count the received packets.
    pub fn received(networks: HostNetworks, command: &str) -> Result<Self, String> {
        if !command.contains(TRANSMIT) {
            return Err(format!("`{command}` does not trace {TRANSMIT}"));
        }
        let command = command.replace(TRANSMIT, RECEIVE);
        Ok(Self::new(networks, command, |printed, captured| compare(printed, captured, false)))
    }

    /// Creates a test of `program`, which counts by function while other commands are typed.
    pub fn everything(networks: HostNetworks, program: &str) -> Self {
        let command = format!("trace '{program}' -c {CONSOLE}");
        Self { visit: curl::for_some_time, is_console: true, ..Self::new(networks, command, calls) }
    }

    /// Called at a prompt: checks the reply and decides what to type.
    fn asked(&mut self) -> Result<Reply<()>, String> {
        let reply = mem::take(&mut self.reply);
        match &mut self.state {
            State::Arriving(arrival) => match arrival.asked(&self.networks, &reply)? {
                Arrived::NotYet(reply) => Ok(reply),
                Arrived::All(interfaces) => {
                    self.interfaces = interfaces;
                    self.state = State::Settling(CaptureMonitor::default());
                    Ok(Reply::Wait)
                }
            },
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
                    self.state = State::Ebbing(CaptureMonitor::default());
                    return Ok(Reply::Wait);
                }
                self.typed += 1;
                Ok(Reply::Type(COMMANDS[(self.typed - 1) % COMMANDS.len()].0.into()))
            }
            State::Ending(lengths) => {
                if *lengths != self.networks.lengths()? {
                    return Err("packets were sent or received while the program ended".into());
                }
                let packets = self.networks.packets(&self.interfaces, &self.since)?;
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

    /// Called when the machine has printed how many probes there are.
    fn armed(&mut self) -> Result<(), String> {
        if let State::Arming(lengths) = &mut self.state {
            if *lengths != self.networks.lengths()? {
                return Err("packets were sent or received while the program began".into());
            }
            self.since = mem::take(lengths);
            self.state = State::Visited(Visiting::begin(self.visit, self.networks.servers()));
        }
        Ok(())
    }

    /// Called when the machine has written nothing for a while.
    fn silent(&mut self) -> Result<Reply<()>, String> {
        let keys = |line: &str| Reply::Keys(format!("{line}\r").into_bytes());
        let ask = Reply::Keys(vec![PULSE_KEY]);
        if matches!(self.state, State::Settling(_) | State::Ebbing(_)) && !mem::take(&mut self.has_replied) {
            return Ok(ask);
        }
        match &mut self.state {
            State::Arriving(arrival) => Ok(arrival.silence()),
            State::Settling(calm) => {
                let Some(lengths) = calm.look(&self.networks)? else { return Ok(ask) };
                self.state = State::Arming(lengths);
                Ok(keys(&self.command))
            }
            // If commands are typed, their replies are waited for instead.
            State::Visited(visiting) if !self.is_console => {
                if let Some(result) = visiting.poll() {
                    result?;
                    self.state = State::Ebbing(CaptureMonitor::default());
                }
                Ok(Reply::Wait)
            }
            State::Ebbing(calm) => {
                let Some(lengths) = calm.look(&self.networks)? else { return Ok(ask) };
                self.state = State::Ending(lengths);
                self.reply.clear();
                Ok(if self.is_console { keys(EXIT) } else { Reply::Keys(vec![INTERRUPT_KEY]) })
            }
            _ => Ok(Reply::Wait),
        }
    }
}

impl Subject<()> for Traced {
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

    /// If the clients have failed because the machine has stopped, the machine's own message has ended the test before.
    fn silence(&mut self) -> Reply<()> {
        self.silent().unwrap_or_else(|sentence| Reply::Done(Err(sentence)))
    }

    fn pulse(&mut self) {
        self.has_replied = true;
    }
}

/// Checks that exactly the captured packets were counted.
fn compare(printed: &Printed, captured: &[(String, Vec<Packet>)], is_transmitted: bool) -> Result<(), String> {
    equals(printed, &passed(captured, is_transmitted)?)
}

/// Checks that exactly the captured packets were counted, by their direction.
pub fn sizes(printed: &Printed, captured: &[(String, Vec<Packet>)]) -> Result<(), String> {
    let mut expected = Numbers::new();
    for (direction, is_transmitted) in [("@sent_", true), ("@received_", false)] {
        let passed = passed(captured, is_transmitted)?;
        expected.extend(passed.into_iter().map(|(name, number)| (name.replacen('@', direction, 1), number)));
    }
    equals(printed, &expected)
}

/// Checks that each captured SYN was counted as a connection to the HTTP server.
pub fn accepted(printed: &Printed, captured: &[(String, Vec<Packet>)]) -> Result<(), String> {
    let connections = received(captured).filter(|packet| packet.control == Some("Syn")).count() as u64;
    equals(printed, &Numbers::from([("@connections[80]".into(), connections)]))
}

/// Checks that every connection ended, and that the clients have sent the captured bytes. The requests of `curl` fit
/// into a segment each, which has PSH and no options.
pub fn lives(printed: &Printed, captured: &[(String, Vec<Packet>)]) -> Result<(), String> {
    /// The bytes of the headers of Ethernet, IPv4 and TCP.
    const HEADERS: u64 = 14 + 20 + 20;
    let connections = received(captured).filter(|packet| packet.control == Some("Syn")).count() as u64;
    let requests = received(captured).filter(|packet| packet.control == Some("Psh"));
    let sent = requests.map(|packet| packet.length - HEADERS).sum();
    equals(printed, &Numbers::from([("@ended".into(), connections), ("@sent".into(), sent)]))
}

/// Returns the packets that have arrived at any interface.
fn received(captured: &[(String, Vec<Packet>)]) -> impl Iterator<Item = &Packet> {
    captured.iter().flat_map(|(_, packets)| packets).filter(|packet| !packet.is_transmitted)
}

/// Returns the numbers of the packets that have passed in one direction. On each interface, at least one must have.
fn passed(captured: &[(String, Vec<Packet>)], is_transmitted: bool) -> Result<Numbers, String> {
    let mut expected = Numbers::new();
    for (interface, packets) in captured {
        let packets: Vec<_> =
            packets.iter().filter(|packet| packet.is_transmitted == is_transmitted).copied().collect();
        if packets.is_empty() {
            return Err(format!("nothing has passed {interface}"));
        }
        expected.extend(printed::of_packets(interface, &packets));
    }
    Ok(expected)
}

/// Checks that these numbers were printed, and no others, and that nothing was lost.
fn equals(printed: &Printed, expected: &Numbers) -> Result<(), String> {
    match (printed.losses.first(), printed.maps == *expected) {
        (None, true) => Ok(()),
        (Some(loss), _) => Err(format!("something was lost: {loss}")),
        (None, false) => {
            Err(format!("{}the program has counted other packets", printed::difference(&printed.maps, expected)))
        }
    }
}

/// Checks that sockets were given the captured segments, by their control flags: every connection begins once. Some of
/// the other segments are for a connection that has ended, and are given to no socket.
pub fn controls(printed: &Printed, captured: &[(String, Vec<Packet>)]) -> Result<(), String> {
    if let Some(loss) = printed.losses.first() {
        return Err(format!("something was lost: {loss}"));
    }
    for control in ["Syn", "Fin", "Psh", "None", "Rst"] {
        let passed = received(captured).filter(|packet| packet.control == Some(control)).count() as u64;
        let counted = printed.maps.get(&format!("@[{control}]")).copied().unwrap_or_default();
        let is_all = control != "Syn" || counted == passed && counted > 0;
        if counted > passed || !is_all || (counted == 0) != (passed == 0) {
            return Err(format!("{counted} segments were counted as {control}, and {passed} have passed"));
        }
    }
    Ok(())
}

/// Checks that, among all functions, those that every packet goes through were counted once for each packet. No more
/// calls may be missing than are reported as missed or lost.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{CALM, CaptureMonitor, HostNetworks, PULSE_KEY, Reply, State, Subject, Traced};

    #[test]
    fn a_machine_that_does_not_reply_is_not_at_rest() {
        let networks = HostNetworks { servers: Arc::default(), captures: Vec::new() };
        let mut traced = Traced::new(networks, "trace".into(), |_, _| Ok(()));
        traced.state = State::Settling(CaptureMonitor::default());
        let ask = || Reply::Keys(vec![PULSE_KEY]);
        for _ in 0..10 {
            assert_eq!(traced.silence(), ask());
        }
        for _ in 1..CALM {
            traced.pulse();
            assert_eq!([traced.silence(), traced.silence()], [ask(), ask()]);
        }
        traced.pulse();
        assert_eq!(traced.silence(), Reply::Keys(b"trace\r".to_vec()));
    }
}
