//! The terminal of a person at a machine's console. Typed keys go to the machine unchanged, except that Ctrl-A X
//! leaves, as in QEMU. If the terminal has colors, parts of the output are painted.

mod paint;

use std::{
    io::{self, IsTerminal, Read},
    sync::mpsc::{self, Receiver, TryRecvError},
    thread,
};

use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, write},
    termios::{OptionalActions, Termios, tcgetattr, tcsetattr},
};

use crate::trace::{catch_endings, check_signals, ended_by, release_endings};
pub use paint::Painter;

/// Ctrl-A: the next key is for this command.
const ESCAPE: u8 = 1;

/// Redraws the line at the prompt, on a blank screen. A command that runs does not notice.
pub const REDRAW_KEY: u8 = 0x0c;
/// How the user of a machine that runs already gets back to the shell.
pub const HOW_TO_LEAVE: &str = "To leave the machine to itself: Ctrl-A X. To end it: `poweroff`.";

/// What the person has typed.
pub enum Typed {
    Nothing,
    /// Keys for the machine.
    Keys(Vec<u8>),
    /// The person leaves, or a signal asks this process to end.
    Leave,
}

/// The terminal, without line discipline until this is dropped.
pub struct Terminal {
    raw: Raw,
    keys: Receiver<Vec<u8>>,
    filter: Filter,
    painter: Option<Painter>,
}

impl Terminal {
    /// Takes the terminal for a machine.
    pub fn open() -> Result<Self> {
        catch_endings();
        let raw = Raw::set()?;
        Ok(Self { raw, keys: keys(), filter: Filter::default(), painter: Painter::for_stdout() })
    }

    /// Shows output of the machine.
    pub fn show(&mut self, bytes: &[u8]) -> Result<()> {
        show(&mut self.painter, bytes)
    }

    /// Returns what was typed since the last call.
    pub fn typed(&mut self) -> Typed {
        if ended_by().is_some() {
            return Typed::Leave;
        }
        match self.keys.try_recv() {
            Ok(typed) => self.filter.pass(&typed).map_or(Typed::Leave, Typed::Keys),
            Err(TryRecvError::Empty) => Typed::Nothing,
            Err(TryRecvError::Disconnected) => Typed::Leave,
        }
    }

    /// Gives the terminal its line discipline back while `work` is done, which a signal ends.
    pub fn lend(&mut self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.raw = Raw(None);
        release_endings();
        // A signal may have come just before.
        check_signals()?;
        work()?;
        catch_endings();
        self.raw = Raw::set()?;
        Ok(())
    }
}

/// Writes output of a machine to the standard output at once, painted if there is a painter.
pub fn show(painter: &mut Option<Painter>, bytes: &[u8]) -> Result<()> {
    let painted = painter.as_mut().map(|painter| painter.paint(bytes));
    let mut rest = painted.as_deref().unwrap_or(bytes);
    let out = io::stdout();
    while !rest.is_empty() {
        match write(&out, rest) {
            Ok(length) => rest = &rest[length..],
            // QEMU makes its standard input non-blocking, which may be the same terminal.
            Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(&out, PollFlags::OUT)], None)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error).context("the terminal cannot be written"),
        }
    }
    Ok(())
}

/// Starts a thread that reads keys from the terminal.
fn keys() -> Receiver<Vec<u8>> {
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

/// Separates the keys for this command from the keys for the machine.
#[derive(Default)]
struct Filter {
    is_escaped: bool,
}

impl Filter {
    /// Returns the keys for the machine. `None` if the person leaves. Ctrl-A twice is one Ctrl-A for the machine.
    fn pass(&mut self, typed: &[u8]) -> Option<Vec<u8>> {
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
struct Raw(Option<Termios>);

impl Raw {
    /// Takes the line discipline off, if standard input is a terminal.
    fn set() -> Result<Self> {
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
