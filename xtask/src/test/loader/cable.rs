//! A board on a cable, as a serial port of the host: QEMU with the loader, and a pseudo-terminal that carries bytes,
//! not always correctly. A cable can be pulled. It is then put in again at another port with the same name.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Receiver},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use kprobes_random::Random;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::{Errno, ioctl_fionbio, read, write},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{OptionalActions, tcgetattr, tcsetattr},
};

use crate::machine::{Output, Qemu, Uart};

/// How long a pulled cable stays out.
const PULLED: Duration = Duration::from_millis(700);
/// The longest time to wait before looking again.
const TURN: Duration = Duration::from_millis(1);
/// The most writes to the host before the bytes from the host have their turn.
const WRITES: usize = 64;

/// The faults of a cable.
#[derive(Clone, Default)]
pub struct Faults {
    /// In each direction, one byte in this many is changed, and one is lost. No byte if 0.
    pub noise: u64,
    /// The noise ends after this many bytes from the host.
    pub until: u64,
    /// The cable is pulled after these numbers of bytes from the host.
    pub pulls: Vec<u64>,
}

/// A cable with a board at its end, which ends when it is dropped.
pub struct Cable {
    /// The path of the port on the host.
    pub port: PathBuf,
    is_over: Arc<AtomicBool>,
    /// The number of bytes from the host so far.
    sent: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Cable {
    /// Starts QEMU with these arguments, at the end of a cable with these faults. The port is in `directory`.
    pub fn new(arguments: &[OsString], faults: Faults, directory: &Path, name: &str) -> Result<Self> {
        let (output, sent) = mpsc::channel();
        let board = Qemu::start(arguments, move |piece| drop(output.send(piece)))?;
        fs::create_dir_all(directory).with_context(|| format!("{} cannot be made", directory.display()))?;
        let port = directory.join(name);
        let end = plug(&port)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let carried = Arc::new(AtomicU64::new(0));
        let mut carrier = Carrier {
            board,
            sent,
            unwritten: Vec::new(),
            port: port.clone(),
            end: Some(end),
            faults,
            carried: Arc::clone(&carried),
            random: Random::new(1),
            pulled: None,
            is_over: Arc::clone(&is_over),
        };
        let thread = thread::spawn(move || while !carrier.is_over() && carrier.carry() {});
        Ok(Self { port, is_over, sent: carried, thread: Some(thread) })
    }

    /// Returns how many bytes the host has sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread ends within one turn. If it has panicked, the board is gone as well.
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.port);
    }
}

/// Opens a new pseudo-terminal, and links it as `port`.
fn plug(port: &Path) -> Result<OwnedFd> {
    let end = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).context("there is no pseudo-terminal")?;
    grantpt(&end).and_then(|()| unlockpt(&end)).context("the pseudo-terminal cannot be used")?;
    // Nothing must be echoed before the other side has set up its end.
    let mut settings = tcgetattr(&end)?;
    settings.make_raw();
    tcsetattr(&end, OptionalActions::Now, &settings)?;
    ioctl_fionbio(&end, true)?;
    let name = ptsname(&end, Vec::new())?;
    match fs::remove_file(port) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => symlink(name.to_string_lossy().as_ref(), port)?,
    }
    Ok(end)
}

/// Waits for one of these events, for [`TURN`] at most, and returns what has come.
fn wait(end: &OwnedFd, events: PollFlags) -> PollFlags {
    let mut events = [PollFd::new(end, events)];
    match poll(&mut events, Timespec::try_from(TURN).ok().as_ref()) {
        Ok(_) => events[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

struct Carrier {
    board: Qemu,
    sent: Receiver<Output>,
    /// Bytes of the board that the host has not taken yet.
    unwritten: Vec<u8>,
    port: PathBuf,
    /// The board's end of the pseudo-terminal. `None` while the cable is out.
    end: Option<OwnedFd>,
    faults: Faults,
    /// The number of bytes from the host so far.
    carried: Arc<AtomicU64>,
    random: Random,
    pulled: Option<Instant>,
    is_over: Arc<AtomicBool>,
}

impl Carrier {
    /// Whether the cable has ended.
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Carries waiting bytes in both directions. Returns false if the board is gone.
    fn carry(&mut self) -> bool {
        if self.pulled.is_some_and(|pulled| pulled.elapsed() > PULLED) {
            self.pulled = None;
            self.end = plug(&self.port).ok();
        }
        let from_host = self.read();
        if !from_host.is_empty() {
            let length = from_host.len() as u64;
            let carried = self.carried.fetch_add(length, Ordering::Relaxed) + length;
            let keys = self.spoil(from_host);
            self.board.type_keys(keys);
            if self.faults.pulls.first().is_some_and(|place| carried >= *place) {
                self.faults.pulls.remove(0);
                self.pulled = Some(Instant::now());
                self.end = None;
            }
        }
        for _ in 0..WRITES {
            if self.unwritten.is_empty() {
                match self.sent.try_recv() {
                    Ok(Output::Bytes(bytes)) => self.unwritten = self.spoil(bytes),
                    Ok(Output::End) => return false,
                    Err(_) => break,
                }
            }
            self.write();
        }
        true
    }

    fn read(&self) -> Vec<u8> {
        let mut buffer = [0; 1024];
        let ready = self.end.as_ref().map(|end| (end, wait(end, PollFlags::IN)));
        match ready {
            Some((end, ready)) if ready.contains(PollFlags::IN) => {
                read(end, &mut buffer).map_or(Vec::new(), |length| buffer[..length].to_vec())
            }
            Some((_, ready)) if ready.is_empty() => Vec::new(),
            // No process has the port open, which `poll` reports at once, or the cable is out.
            _ => {
                thread::sleep(TURN);
                Vec::new()
            }
        }
    }

    /// Writes what the host takes within [`TURN`]. The rest waits for its reader, however long a busy host keeps that
    /// reader waiting. Bytes are lost while no process has the port open.
    fn write(&mut self) {
        let written = match &self.end {
            Some(end) if !wait(end, PollFlags::OUT).contains(PollFlags::HUP) => write(end, &self.unwritten),
            _ => Ok(self.unwritten.len()),
        };
        match written {
            Ok(length) => drop(self.unwritten.drain(..length)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.unwritten.clear(),
        }
    }

    fn spoil(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        if self.faults.noise == 0 || self.carried.load(Ordering::Relaxed) > self.faults.until {
            return bytes;
        }
        let mut spoilt = Vec::with_capacity(bytes.len());
        for byte in bytes {
            match self.random.below(self.faults.noise) {
                0 => {}
                1 => spoilt.push(byte ^ 0x40),
                _ => spoilt.push(byte),
            }
        }
        spoilt
    }
}
