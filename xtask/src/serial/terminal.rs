//! The board's console on this terminal. Typed keys go to the board unchanged, except that Ctrl-A X leaves, as in QEMU.

use std::{
    io::{self, IsTerminal, Read, Write},
    sync::mpsc::{self, Receiver, TryRecvError},
    thread,
};

use anyhow::{Context, Result};
use kprobes_loader_protocol::Reply;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

use super::{
    TURN,
    line::{Heard, Line},
    load::Load,
};

/// Ctrl-A: the next key is for this command.
const ESCAPE: u8 = 1;

/// Loads the image whenever the loader comes back, and is its console in between. Returns when the person leaves.
pub fn interact(line: &mut Line, load: &Load) -> Result<()> {
    load.run(line)?;
    eprintln!("To quit: Ctrl-A X.");
    let mut raw = Raw::set()?;
    let keys = keys();
    let mut filter = Filter::default();
    let mut was_connected = true;
    let mut is_left = false;
    while !is_left {
        match line.hear(TURN) {
            Some(Heard::Text(text)) => show(&text)?,
            Some(Heard::Reply(Reply::Ready { .. })) => {
                drop(raw);
                eprintln!("\nThe board was reset, and its loader is back.");
                load.run(line)?;
                raw = Raw::set()?;
            }
            Some(Heard::Reply(_)) | None => {}
        }
        if line.is_connected() != was_connected {
            was_connected = !was_connected;
            let sentence = if was_connected { "is back" } else { "is gone; waiting for it" };
            eprint!("\r\n{} {sentence}\r\n", line.name());
        }
        match keys.try_recv() {
            Ok(typed) => match filter.pass(&typed) {
                Some(keys) => line.send(&keys),
                None => is_left = true,
            },
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => is_left = true,
        }
    }
    eprint!("\r\n");
    Ok(())
}

/// Writes text to standard output at once.
pub fn show(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text)?;
    out.flush()
}

/// Starts a thread that reads keys from the terminal.
pub fn keys() -> Receiver<Vec<u8>> {
    let (sender, keys) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 256];
        while let Ok(length @ 1..) = io::stdin().lock().read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    keys
}

/// Separates the keys for this command from the keys for the board.
#[derive(Default)]
pub struct Filter {
    is_escaped: bool,
}

impl Filter {
    /// Returns the keys for the board. `None` if the person leaves. Ctrl-A twice is one Ctrl-A for the board.
    pub fn pass(&mut self, typed: &[u8]) -> Option<Vec<u8>> {
        let mut keys = Vec::new();
        for &key in typed {
            match (key, std::mem::take(&mut self.is_escaped)) {
                (b'x' | b'X', true) => return None,
                (ESCAPE, false) => self.is_escaped = true,
                _ => keys.push(key),
            }
        }
        Some(keys)
    }
}

/// The terminal without line discipline, until this is dropped.
pub struct Raw(Option<Termios>);

impl Raw {
    /// Takes the line discipline off, if standard input is a terminal.
    pub fn set() -> Result<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self(None));
        }
        let before = tcgetattr(&stdin).context("the terminal cannot be set up")?;
        let mut settings = before.clone();
        settings.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &settings).context("the terminal cannot be set up")?;
        Ok(Self(Some(before)))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // If the terminal is gone, there is no user to tell.
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Filter;

    #[test]
    fn only_the_command_s_own_keys_are_kept_back() {
        let mut filter = Filter::default();
        assert_eq!(filter.pass(b"ab\r").unwrap(), b"ab\r");
        assert_eq!(filter.pass(b"x\x01").unwrap(), b"x");
        assert_eq!(filter.pass(b"\x01\x01\x01").unwrap(), b"\x01\x01");
        assert_eq!(filter.pass(b"y\x01X").map(|keys| keys.len()), None);
    }
}
