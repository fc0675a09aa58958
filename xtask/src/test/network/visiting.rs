//! Runs clients on a thread of their own, so that another thread can listen to the machine and none of its output is
//! missed.

use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow};

use crate::network::CardServers;

/// The work of the clients.
pub type Visit = fn(&[CardServers]) -> Result<()>;

/// Clients that are there, or have gone and were not asked for their result. If this is dropped, they end when they
/// notice that the machine is off.
pub struct Visiting(Option<JoinHandle<Result<()>>>);

impl Visiting {
    pub fn begin(visit: Visit, cards: Vec<CardServers>) -> Self {
        Self(Some(thread::spawn(move || visit(&cards))))
    }

    /// Returns the result of the clients, once, when all have gone.
    pub fn poll(&mut self) -> Option<Result<(), String>> {
        let clients = self.0.take_if(|clients| clients.is_finished())?;
        let result = clients.join().unwrap_or_else(|_| Err(anyhow!("a client has panicked")));
        Some(result.map_err(|error| format!("{error:#}")))
    }
}
