//! A machine that clients visit. After they have gone, the counts of the interfaces are compared with QEMU's own
//! capture of the same traffic, once both have come to rest.

use std::{mem, time::Instant};

use super::{
    HostNetworks, PATIENCE,
    arrival::{Arrival, Arrived},
    capture::Passed,
    listed::{self, COMMAND},
    visiting::{Visit, Visiting},
};
use crate::{
    console::Event,
    dialogue::{Reply, Subject},
};

/// The state of a visit.
enum State {
    Arriving(Arrival),
    /// The clients are there. The number is the heap bytes that were in use before they came.
    Visiting(Visiting, u64),
    /// The clients have gone. By this time, the counts must equal those of the captures, and as many heap bytes be in
    /// use as before the clients came.
    Resting(Instant, u64),
}

/// The test of a visited machine.
pub struct Visited {
    visit: Visit,
    networks: HostNetworks,
    state: State,
    /// The lines since the command was typed.
    reply: Vec<String>,
    /// Whether the counts must be asked for again.
    is_pending: bool,
}

impl Visited {
    /// Creates the test for a machine that was just started.
    pub fn new(networks: HostNetworks, visit: Visit) -> Self {
        Self { visit, networks, state: State::Arriving(Arrival::default()), reply: Vec::new(), is_pending: false }
    }

    /// Checks the machine's reply.
    fn look(&mut self) -> Result<Reply<()>, String> {
        let reply = mem::take(&mut self.reply);
        match &mut self.state {
            State::Arriving(arrival) => match arrival.asked(&self.networks, &reply)? {
                Arrived::NotYet(reply) => return Ok(reply),
                Arrived::All(_) => {
                    let heap = listed::heap(&reply).ok_or("the reply does not say how much of the heap is in use")?;
                    self.state = State::Visiting(Visiting::begin(self.visit, self.networks.servers()), heap);
                }
            },
            State::Visiting(..) => return Err("the machine asks twice".into()),
            &mut State::Resting(deadline, before) => {
                let (interfaces, heap) = (listed::interfaces(&reply), listed::heap(&reply));
                let captured = self.networks.packets(&interfaces, &vec![0; interfaces.len()])?;
                let is_counted = interfaces.iter().zip(&captured).all(|(one, packets)| one.has_counted(packets));
                if self.networks.is_reached(&interfaces) && is_counted && heap == Some(before) {
                    return Ok(Reply::Done(Ok(())));
                }
                if deadline < Instant::now() {
                    let captured: Vec<_> = captured.iter().map(|packets| Passed::of(packets)).collect();
                    return Err(format!(
                        "QEMU has captured {captured:?}; {before} bytes of the heap were in use before"
                    ));
                }
                self.is_pending = true;
            }
        }
        Ok(Reply::Wait)
    }
}

impl Subject<()> for Visited {
    fn event(&mut self, event: Event) -> Reply<()> {
        match event {
            Event::Line(line) => {
                self.reply.push(line);
                Reply::Wait
            }
            Event::Prompt => self.look().unwrap_or_else(|sentence| Reply::Done(Err(sentence))),
        }
    }

    /// If the clients have failed because the machine has stopped, the machine's own message has ended the test before.
    fn silence(&mut self) -> Reply<()> {
        match &mut self.state {
            State::Arriving(arrival) => return arrival.silence(),
            State::Visiting(visiting, heap) => match visiting.poll() {
                None => return Reply::Wait,
                Some(Err(sentence)) => return Reply::Done(Err(sentence)),
                Some(Ok(())) => {
                    self.state = State::Resting(Instant::now() + PATIENCE, *heap);
                    self.is_pending = true;
                }
            },
            State::Resting(..) => {}
        }
        match mem::take(&mut self.is_pending) {
            // A line that the enter key ends would be kept in the history, on the heap.
            true => Reply::Keys(format!("{COMMAND}\n").into_bytes()),
            false => Reply::Wait,
        }
    }
}
