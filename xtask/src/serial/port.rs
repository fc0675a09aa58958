//! A serial port of the host as a stream of bytes: no line discipline, no flow control. Pseudo-terminals work, too.

use std::{
    os::fd::OwnedFd,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags, open},
    io::{Errno, read, write},
    termios::{ControlModes, OptionalActions, QueueSelector, isatty, tcflush, tcgetattr, tcsetattr},
};

use crate::lock::Locked;

/// How long the port may accept no byte.
const PATIENCE: Duration = Duration::from_secs(10);

/// An open port.
pub struct Port(Locked<OwnedFd>);

/// The port no longer exists, for example because its plug was pulled.
pub struct Unplugged;

impl Port {
    /// Opens the port at `path`, for this process alone, with this speed in baud.
    pub fn open(path: &Path, baud: u32) -> Result<Self> {
        let name = path.display();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let port = open(path, flags, Mode::empty()).with_context(|| format!("the port {name} cannot be opened"))?;
        ensure!(isatty(&port), "{name} is not a serial port");
        let port = Locked::new(port).with_context(|| format!("another program uses the port {name}"))?;
        let mut settings = tcgetattr(&port).with_context(|| format!("the port {name} cannot be set up"))?;
        settings.make_raw();
        settings.control_modes |= ControlModes::CLOCAL | ControlModes::CREAD;
        settings.control_modes &= !(ControlModes::CRTSCTS | ControlModes::CSTOPB);
        settings
            .set_speed(baud)
            .and_then(|()| tcsetattr(&port, OptionalActions::Now, &settings))
            .with_context(|| format!("the port {name} cannot be set to {baud} baud"))?;
        tcflush(&port, QueueSelector::IFlush).with_context(|| format!("the port {name} cannot be emptied"))?;
        Ok(Self(port))
    }

    /// Reads bytes that have come, or that come within `timeout`. Returns 0 if there are none.
    pub fn read(&self, buffer: &mut [u8], timeout: Duration) -> Result<usize, Unplugged> {
        if !self.wait(PollFlags::IN, timeout)? {
            return Ok(0);
        }
        match read(&self.0, buffer) {
            Ok(0) => Err(Unplugged),
            Ok(length) => Ok(length),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(_) => Err(Unplugged),
        }
    }

    /// Writes all bytes.
    pub fn write(&self, mut bytes: &[u8]) -> Result<(), Unplugged> {
        let mut deadline = Instant::now() + PATIENCE;
        while !bytes.is_empty() {
            // A signal may end the wait early.
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.wait(PollFlags::OUT, left)? {
                if left.is_zero() {
                    return Err(Unplugged);
                }
                continue;
            }
            deadline = Instant::now() + PATIENCE;
            match write(&self.0, bytes) {
                Ok(length) => bytes = &bytes[length..],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return Err(Unplugged),
            }
        }
        Ok(())
    }

    /// Returns whether the port becomes ready within `timeout`, which a signal ends early.
    fn wait(&self, what: PollFlags, timeout: Duration) -> Result<bool, Unplugged> {
        let timeout = Timespec::try_from(timeout).map_err(|_| Unplugged)?;
        match poll(&mut [PollFd::new(&self.0, what)], Some(&timeout)) {
            Ok(ready) => Ok(ready != 0),
            Err(Errno::INTR) => Ok(false),
            Err(_) => Err(Unplugged),
        }
    }
}
