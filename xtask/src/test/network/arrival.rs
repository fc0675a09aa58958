//! The beginning of every test with clients: the machine is asked for its interfaces until each has an address.

use std::{mem, time::Instant};

use super::{
    HostNetworks, PATIENCE,
    listed::{self, COMMAND, Interface},
};
use crate::dialogue::Reply;

/// A machine that is asked for its interfaces.
#[derive(Default)]
pub struct Arrival {
    /// When the interfaces must have addresses. `None` before the first question.
    deadline: Option<Instant>,
    /// Whether the question must be repeated.
    is_pending: bool,
}

/// The consequence of a reply.
pub enum Arrived {
    /// The test goes on with this.
    NotYet(Reply<()>),
    /// All interfaces can be reached.
    All(Vec<Interface>),
}

impl Arrival {
    /// Called at each prompt, with the lines before it.
    pub fn asked(&mut self, networks: &HostNetworks, reply: &[String]) -> Result<Arrived, String> {
        let Some(deadline) = self.deadline else {
            self.deadline = Some(Instant::now() + PATIENCE);
            return Ok(Arrived::NotYet(Reply::Type(COMMAND.into())));
        };
        let interfaces = listed::interfaces(reply);
        if networks.is_reached(&interfaces) {
            return Ok(Arrived::All(interfaces));
        }
        if deadline < Instant::now() {
            return Err("not all of the interfaces have addresses".into());
        }
        self.is_pending = true;
        Ok(Arrived::NotYet(Reply::Wait))
    }

    /// Called when the machine has printed nothing for a while.
    pub fn silence(&mut self) -> Reply<()> {
        match mem::take(&mut self.is_pending) {
            true => Reply::Keys(format!("{COMMAND}\r").into_bytes()),
            false => Reply::Wait,
        }
    }
}
