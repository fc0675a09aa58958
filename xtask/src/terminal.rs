//! The terminal of a person at a machine's console. Typed keys go to the machine unchanged, except that Ctrl-A X
//! leaves, as in QEMU. If the terminal has colors, parts of the output are painted. Typed lines are kept for the next
//! machine.

mod history;
mod paint;

use std::{
    io::{self, IsTerminal, Read},
    sync::mpsc::{self, Receiver, TryRecvError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::{Errno, write},
    termios::{OptionalActions, Termios, tcgetattr, tcsetattr},
};

use crate::signals::{catch_interrupts, check_signals, is_noted, release_interrupts, restore_on_exit};
use history::History;
use paint::{PLAIN, Painter};

/// Ctrl-A: the next key is for this command, or for QEMU.
const ESCAPE: u8 = 1;

/// The longest time until a typed key is passed on.
pub const KEY_TURN: Duration = Duration::from_millis(5);
/// Redraws the line at the prompt, on a blank screen. A command that runs does not notice.
pub const REDRAW_KEY: u8 = 0x0c;
/// How the user of a machine that runs already gets back to the shell.
pub const HOW_TO_LEAVE: &str = "To leave the machine to itself: Ctrl-A X. To end it: `poweroff`.";

/// Keys that the person has typed.
pub enum Keystrokes {
    Nothing,
    /// Keys for the machine.
    Keys(Vec<u8>),
    /// The person leaves, or a signal asks this process to end. These are the last keys for the machine.
    Leave(Vec<u8>),
}

/// The receiver of the command that Ctrl-A begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Menu {
    /// A command for this process, which knows only X.
    Own,
    /// A command for QEMU, which gets all keys.
    Qemu,
}

/// The terminal, without line discipline until this is dropped.
pub struct Terminal {
    raw: Raw,
    keys: Receiver<Vec<u8>>,
    /// `None` if QEMU has the menu.
    filter: Option<Filter>,
    history: History,
    painter: Option<Painter>,
}

impl Terminal {
    /// Takes the terminal for a machine.
    pub fn open(menu: Menu) -> Result<Self> {
        catch_interrupts();
        let painter = Painter::for_stdout();
        let raw = Raw::set(painter.is_some())?;
        let filter = (menu == Menu::Own).then(Filter::default);
        let history = History::open(menu == Menu::Qemu);
        Ok(Self { raw, keys: keys(), filter, history, painter })
    }

    /// Shows output of the machine at once, painted if there is a painter.
    pub fn show(&mut self, bytes: &[u8]) -> Result<()> {
        let plain = self.history.hear(bytes);
        let shown = match &mut self.painter {
            Some(painter) => painter.paint(&plain),
            None => plain,
        };
        let (out, mut rest) = (io::stdout(), &*shown);
        while !rest.is_empty() {
            match write(&out, rest) {
                Ok(length) => rest = &rest[length..],
                // Another process on the terminal may have made it non-blocking.
                Err(Errno::AGAIN) => drop(poll(&mut [PollFd::new(&out, PollFlags::OUT)], None)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("the terminal cannot be written"),
            }
        }
        Ok(())
    }

    /// Returns what was typed since the last call.
    pub fn keystrokes(&mut self) -> Keystrokes {
        let (typed, leaves) = match self.keys.try_recv() {
            _ if is_noted() => (Vec::new(), true),
            Ok(typed) => match &mut self.filter {
                Some(filter) => filter.pass(&typed),
                None => (typed, false),
            },
            Err(error) => (Vec::new(), error == TryRecvError::Disconnected),
        };
        let mut keys = if leaves && typed.is_empty() { typed } else { self.history.pass(typed) };
        if leaves {
            keys.extend(self.history.leave());
            return Keystrokes::Leave(keys);
        }
        if keys.is_empty() { Keystrokes::Nothing } else { Keystrokes::Keys(keys) }
    }

    /// Gives the terminal its line discipline back while `work` is done, which a signal ends.
    pub fn lend(&mut self, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.raw = Raw(None);
        release_interrupts();
        // A signal may have come just before.
        check_signals()?;
        work()?;
        catch_interrupts();
        self.raw = Raw::set(self.painter.is_some())?;
        Ok(())
    }
}

/// Starts a thread that reads keys from the terminal.
fn keys() -> Receiver<Vec<u8>> {
    let (sender, keys) = mpsc::channel();
    thread::spawn(move || {
        let mut buffer = [0; 256];
        let mut stdin = io::stdin().lock();
        loop {
            match stdin.read(&mut buffer) {
                Ok(length @ 1..) => {
                    if sender.send(buffer[..length].to_vec()).is_err() {
                        return;
                    }
                }
                // Another process on the terminal may have made it non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let _ = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], None);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return,
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
    /// Returns the keys for the machine, and whether the person leaves after them. Ctrl-A twice is one Ctrl-A for the
    /// machine.
    fn pass(&mut self, typed: &[u8]) -> (Vec<u8>, bool) {
        let mut keys = Vec::new();
        for &key in typed {
            match (key, std::mem::take(&mut self.is_escaped)) {
                (b'x' | b'X', true) => return (keys, true),
                (ESCAPE, false) => self.is_escaped = true,
                _ => keys.push(key),
            }
        }
        (keys, false)
    }
}

/// The terminal without line discipline, until this is dropped.
struct Raw(Option<Termios>);

impl Raw {
    /// Takes the line discipline off, if standard input is a terminal. If the output `is_painted`, a signal that ends
    /// this process ends the color as well.
    fn set(is_painted: bool) -> Result<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Ok(Self(None));
        }
        restore_on_exit(if is_painted { PLAIN.as_bytes() } else { b"" });
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
        for (typed, keys, leaves) in [
            (&b"ab\r"[..], &b"ab\r"[..], false),
            (b"x\x01", b"x", false),
            (b"\x01\x01\x01", b"\x01\x01", false),
            (b"y\x01Xz", b"y", true),
        ] {
            assert_eq!(filter.pass(typed), (keys.to_vec(), leaves), "{typed:?}");
        }
    }
}
