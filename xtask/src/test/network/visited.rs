//! A machine that is visited. When the clients have gone, the counts of the interfaces are compared with QEMU's own capture of
//! the same traffic, once both have come to rest.

use std::{mem, time::Instant};

use super::{
    Host, PATIENCE,
    capture::Passed,
    listed::{self, COMMAND},
    visiting::{Visit, Visiting},
};
use crate::{
    console::Event,
    conversation::PROMPT,
    test::dialogue::{Reply, Subject},
};

/// How far it is.
enum State {
    /// It has not asked yet.
    Booting,
    /// The interfaces are to have addresses before this.
    Arriving(Instant),
    /// The clients are there. So many bytes of the heap were in use before they came.
    Visiting(Visiting, u64),
    /// The clients have gone. Before this, the counts are to be those of the captures, and so many bytes of the heap in use, as
    /// before they came.
    Resting(Instant, u64),
}

/// A machine that is visited.
pub struct Visited {
    visit: Visit,
    host: Host,
    state: State,
    /// What was said since the command was typed.
    reply: Vec<String>,
    /// The command is to be typed again.
    is_pending: bool,
}

impl Visited {
    /// To visit a machine that was just started.
    pub fn new(host: Host, visit: Visit) -> Self {
        Self { visit, host, state: State::Booting, reply: Vec::new(), is_pending: false }
    }

    /// Looks at what the machine has said. Gives the result, or nothing if it is to be asked again.
    fn look(&mut self) -> Result<Option<()>, String> {
        let reply = mem::take(&mut self.reply);
        let (interfaces, heap) = (listed::interfaces(&reply), listed::heap(&reply));
        self.is_pending = true;
        match self.state {
            State::Booting => self.state = State::Arriving(Instant::now() + PATIENCE),
            State::Arriving(deadline) => match heap {
                Some(heap) if self.host.is_reached(&interfaces) => {
                    self.is_pending = false;
                    self.state = State::Visiting(Visiting::begin(self.visit, self.host.lines()), heap);
                }
                _ if deadline < Instant::now() => return Err("not all of the interfaces have addresses".into()),
                _ => {}
            },
            State::Visiting(..) => return Err("the machine asks twice".into()),
            State::Resting(deadline, before) => {
                let captured = self.host.packets(&interfaces, &vec![0; interfaces.len()])?;
                let is_counted = interfaces.iter().zip(&captured).all(|(one, packets)| one.has_counted(packets));
                if self.host.is_reached(&interfaces) && is_counted && heap == Some(before) {
                    return Ok(Some(()));
                }
                if deadline < Instant::now() {
                    let captured: Vec<_> = captured.iter().map(|packets| Passed::of(packets)).collect();
                    return Err(format!(
                        "QEMU has captured {captured:?}; {before} bytes of the heap were in use before"
                    ));
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
            Event::Line(line) => self.reply.push(line),
            Event::Prompt => match self.look() {
                Ok(Some(())) => return Reply::Done(Ok(())),
                Ok(None) => {}
                Err(sentence) => return Reply::Done(Err(sentence)),
            },
        }
        Reply::Wait
    }

    /// Where the clients have failed as the machine has stopped, it has said that before.
    fn silence(&mut self) -> Reply<()> {
        if let State::Visiting(visiting, heap) = &mut self.state {
            match visiting.poll() {
                None => return Reply::Wait,
                Some(Err(sentence)) => return Reply::Done(Err(sentence)),
                Some(Ok(())) => {
                    self.state = State::Resting(Instant::now() + PATIENCE, *heap);
                    self.is_pending = true;
                }
            }
        }
        match mem::take(&mut self.is_pending) {
            true => Reply::Keys(format!("{COMMAND}\r").into_bytes()),
            false => Reply::Wait,
        }
    }
}
