//! The line to a board. A port that is gone comes back under the same name when its plug is put in again. Bytes in
//! transit meanwhile are lost.

use std::{
    collections::VecDeque,
    mem,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::Result;
use kprobes_loader_protocol::{
    Reply,
    frame::{LONGEST_REPLY, Piece, Splitter},
};
use kprobes_pl011::PULSE;

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
    /// The last byte was a zero that ended no message. It begins one, or is [`PULSE`].
    is_zero_alone: bool,
    heard: VecDeque<Heard>,
}

impl SerialLine {
    /// Opens the line on the existing port at `path`.
    pub fn open(path: &Path, baud: u32) -> Result<Self> {
        let port = Some(Port::open(path, baud)?);
        Ok(Self {
            path: path.into(),
            baud,
            port,
            splitter: Splitter::new(),
            is_zero_alone: false,
            heard: VecDeque::new(),
        })
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
            Err(Unplugged) => (self.port, self.is_zero_alone) = (None, false),
            // Within a frame there is no pause.
            Ok(0) => {
                let pulse = mem::take(&mut self.is_zero_alone).then_some(&[PULSE][..]);
                self.heard.extend(self.splitter.flush().or(pulse).map(|text| Heard::Text(text.into())));
            }
            Ok(length) => buffer[..length].iter().for_each(|byte| self.take(*byte)),
        }
    }

    fn take(&mut self, byte: u8) {
        self.is_zero_alone = false;
        match (self.splitter.push(byte), self.heard.back_mut()) {
            (Piece::Nothing, _) => self.is_zero_alone = byte == PULSE,
            (Piece::Message(reply), _) => self.heard.push_back(Heard::Reply(reply)),
            (Piece::Text(bytes), Some(Heard::Text(text))) => text.extend(bytes),
            (Piece::Text(bytes), _) => self.heard.push_back(Heard::Text(bytes.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use kprobes_loader_protocol::frame::{ROOM, encode};
    use rustix::{
        io::write,
        pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    };

    use super::*;

    /// A kernel that prints nothing for a while answers with nothing but a zero, and messages are between zeros.
    #[test]
    fn a_zero_is_heard_unless_it_is_of_a_message() {
        let board = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&board).and_then(|()| unlockpt(&board)).unwrap();
        let path = PathBuf::from(ptsname(&board, Vec::new()).unwrap().into_string().unwrap());
        let mut line = SerialLine::open(&path, 115_200).unwrap();
        let mut heard = |sent: &[u8], count: usize| -> Vec<String> {
            write(&board, sent).unwrap();
            let mut heard = Vec::new();
            // Turns without output show that nothing else comes, many that nothing comes.
            let mut quiet = 0;
            while quiet < if heard.len() < count { 100 } else { 2 } {
                match line.hear(Duration::from_millis(20)) {
                    Some(output) => heard.push(format!("{output:?}")),
                    None => quiet += 1,
                }
            }
            heard
        };
        let text = |text: &str| format!("{:?}", Heard::Text(text.into()));
        let reply = || Reply::Started { id: 7 };
        let mut room = [0; ROOM];
        let message = encode(&reply(), &mut room).unwrap();
        let told = format!("{:?}", Heard::Reply(reply()));
        assert_eq!(heard(&[PULSE], 1), [text("\0")]);
        assert_eq!(heard(&[PULSE, PULSE], 1), [text("\0")]);
        assert_eq!(heard(message, 1), [told.as_str()]);
        assert_eq!(heard(&[PULSE], 1), [text("\0")]);
        assert_eq!(heard(&[b"a", message, b"\0"].concat(), 3), [text("a"), told, text("\0")]);
    }
}
