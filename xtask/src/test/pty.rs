//! A pseudo-terminal of 80 by 24, for a command that a person would run.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::process::CommandExt,
    process::{Child, Command},
    sync::mpsc::{self, Receiver},
    thread,
};

use anyhow::{Context, Result};
use rustix::{
    fd::OwnedFd,
    fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open},
    io::write,
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{ControlModes, InputModes, LocalModes, OutputModes, Winsize, tcgetattr, tcsetwinsize},
};

/// The terminal, until this is dropped.
pub struct Pty {
    master: OwnedFd,
    slave: OwnedFd,
}

impl Pty {
    pub fn new() -> Result<Self> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("there is no pseudo-terminal")?;
        grantpt(&master).and_then(|()| unlockpt(&master)).context("the pseudo-terminal cannot be used")?;
        let slave = open(ptsname(&master, Vec::new())?, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())?;
        tcsetwinsize(&slave, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 })?;
        Ok(Self { master, slave })
    }

    /// Starts a command on this terminal. Returns it, and what it shows, piece by piece.
    pub fn spawn(&self, command: &mut Command) -> Result<(Child, Receiver<Vec<u8>>)> {
        command.stdin(self.slave.try_clone()?).stdout(self.slave.try_clone()?).stderr(self.slave.try_clone()?);
        // SAFETY: the closure runs in the child between fork and exec, where only async-signal-safe functions may be
        // called. Both are bare system calls, and making an error from errno allocates nothing.
        unsafe {
            // With the terminal of the process that runs the tests, the child would ask that for its size.
            command.pre_exec(|| match libc::setsid() >= 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) >= 0 {
                true => Ok(()),
                false => Err(io::Error::last_os_error()),
            });
        }
        let child = command.spawn()?;
        let (sender, pieces) = mpsc::channel();
        let mut reader = File::from(self.master.try_clone()?);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Ok((child, pieces))
    }

    /// Types keys.
    pub fn type_keys(&self, keys: &[u8]) -> Result<()> {
        write(&self.master, keys)?;
        Ok(())
    }

    /// Makes the terminal non-blocking for the processes that read it, as another program on it may.
    pub fn set_non_blocking(&self) -> Result<()> {
        Ok(fcntl_setfl(&self.slave, fcntl_getfl(&self.slave)? | OFlags::NONBLOCK)?)
    }

    /// Shows `text` after all that commands have shown.
    pub fn show(&self, text: &str) -> Result<()> {
        write(&self.slave, text.as_bytes())?;
        Ok(())
    }

    /// Returns the settings of the terminal that tell a line discipline from none.
    pub fn modes(&self) -> Result<(InputModes, OutputModes, ControlModes, LocalModes)> {
        let modes = tcgetattr(&self.slave)?;
        Ok((modes.input_modes, modes.output_modes, modes.control_modes, modes.local_modes))
    }
}
