//! The line to a board. A port that is gone comes back under the same name when its plug is put in again. Bytes in
//! transit meanwhile are lost.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::Result;
use kprobes_loader_protocol::{
    Reply,
    frame::{LONGEST_REPLY, Piece, Splitter},
};

use super::port::{Port, Unplugged};

/// How often a port that is gone is looked for.
const RETRY: Duration = Duration::from_millis(100);

/// Output of the board.
#[derive(Debug)]
pub enum Heard {
    /// Output of a kernel or any other program on the board.
    Text(Vec<u8>),
    /// A message of the loader.
    Reply(Reply),
}

/// A line.
pub struct SerialLine {
    path: PathBuf,
    baud: u32,
    /// `None` while the port is gone.
    port: Option<Port>,
    splitter: Splitter<LONGEST_REPLY>,
    heard: VecDeque<Heard>,
}

impl SerialLine {
    /// Opens the line on the existing port at `path`.
    pub fn open(path: &Path, baud: u32) -> Result<Self> {
        let port = Some(Port::open(path, baud)?);
        Ok(Self { path: path.into(), baud, port, splitter: Splitter::new(), heard: VecDeque::new() })
    }

    /// The name of its port.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Whether the port is there.
    pub fn is_connected(&self) -> bool {
        self.port.is_some()
    }

    /// Closes the port, for other processes.
    pub fn close(&mut self) {
        self.port = None;
    }

    /// Returns how long this many bytes take, each with a start bit and a stop bit.
    pub fn time_of(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 * 10.0 / f64::from(self.baud))
    }

    /// Returns output that comes within `timeout`, if any.
    pub fn hear(&mut self, timeout: Duration) -> Option<Heard> {
        if self.heard.is_empty() {
            self.listen(timeout);
        }
        self.heard.pop_front()
    }

    /// Sends bytes. They are lost if the port is gone.
    pub fn send(&mut self, bytes: &[u8]) {
        if let Some(port) = &self.port
            && let Err(Unplugged) = port.write(bytes)
        {
            self.port = None;
        }
    }

    fn listen(&mut self, timeout: Duration) {
        let Some(port) = &self.port else {
            self.port = Port::open(&self.path, self.baud).ok();
            return thread::sleep(if self.port.is_some() { Duration::ZERO } else { timeout.min(RETRY) });
        };
        let mut buffer = [0; 4096];
        match port.read(&mut buffer, timeout) {
            Err(Unplugged) => self.port = None,
            // Within a frame there is no pause.
            Ok(0) => self.heard.extend(self.splitter.flush().map(|text| Heard::Text(text.into()))),
            Ok(length) => buffer[..length].iter().for_each(|byte| self.take(*byte)),
        }
    }

    fn take(&mut self, byte: u8) {
        match (self.splitter.push(byte), self.heard.back_mut()) {
            (Piece::Nothing, _) => {}
            (Piece::Message(reply), _) => self.heard.push_back(Heard::Reply(reply)),
            (Piece::Text(bytes), Some(Heard::Text(text))) => text.extend(bytes),
            (Piece::Text(bytes), _) => self.heard.push_back(Heard::Text(bytes.into())),
        }
    }
}
