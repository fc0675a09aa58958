//! A board at a serial line. First an image is sent over the line to the loader on its card. Then the line is the
//! board's console, for a person or for the tests, until the loader is back and takes the next image.

mod line;
mod load;
mod port;
mod progress;
mod visit;

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Sender, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use kprobes_loader_protocol::{Reply, package::Package};

use crate::{
    board::Board,
    console::printable,
    machine::{Output, Start, Uart},
};
use line::{Heard, SerialLine};
use load::Load;
pub use load::QUIT;

/// How long a loader may take to answer by default.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest time from the order to reset a board until its loader answers.
const RESET_TIMEOUT: Duration = Duration::from_secs(10);
/// Keys are looked for after this time without a byte.
const TURN: Duration = Duration::from_millis(5);

/// The serial line of a board.
#[derive(clap::Args)]
pub struct Options {
    /// A serial port, such as /dev/ttyUSB0: the board there runs the image, and not QEMU. It has the chain-loader on
    /// its card (`cargo xtask flash --loader`).
    #[arg(long, value_name = "DEVICE")]
    pub serial: Option<PathBuf>,
    /// The speed of the port, as the card's config.txt sets it.
    #[arg(long, value_name = "N", default_value_t = 115_200, requires = "serial",
          value_parser = clap::value_parser!(u32).range(9600..=4_000_000))]
    pub baud: u32,
}

/// A board at a serial line.
pub struct Station {
    /// The name of the board.
    pub board: String,
    line: Arc<Mutex<SerialLine>>,
    part: u16,
    /// How long a loader may take to answer, when no user is there to switch the board on.
    pub patience: Duration,
}

impl Station {
    /// Opens the line to the board of this name. `None` if the options have no serial port.
    pub fn open(board: &str, options: &Options) -> Result<Option<Self>> {
        let Some(path) = &options.serial else { return Ok(None) };
        let part = Board::load(board)?.sd()?.loader.cpu_part;
        let line = SerialLine::open(path, options.baud)?;
        Ok(Some(Self { board: board.into(), line: Arc::new(Mutex::new(line)), part, patience: PATIENCE }))
    }

    /// Loads `image`, and connects its console to this terminal until the person leaves.
    pub fn interact(&self, image: &[u8]) -> Result<()> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        visit::interact(&mut line, Some(&Load { package: &package(image)?, part: self.part, patience: None }))
    }

    /// Packs `image` to be started on the board.
    pub fn with(&self, image: &[u8]) -> Result<BoardImage<'_>> {
        Ok(BoardImage { station: self, package: package(image)? })
    }
}

impl Drop for Station {
    /// Waits until the last started image has given the board back.
    fn drop(&mut self) {
        drop(self.line.lock());
    }
}

/// A serial line to a board that runs a kernel already.
pub struct Connection(Arc<Mutex<SerialLine>>);

impl Connection {
    /// Opens the line. `None` if the options have no serial port.
    pub fn open(options: &Options) -> Result<Option<Self>> {
        let Some(path) = &options.serial else { return Ok(None) };
        Ok(Some(Self(Arc::new(Mutex::new(SerialLine::open(path, options.baud)?)))))
    }

    /// Connects the console of the kernel to this terminal until the person leaves.
    pub fn interact(&self) -> Result<()> {
        visit::interact(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner), None)
    }
}

impl Drop for Connection {
    /// Waits until all keys are sent, and gives the port back.
    fn drop(&mut self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).close();
    }
}

impl Start for Connection {
    fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>> {
        Ok(Box::new(Running::on(Arc::clone(&self.0), output, None)))
    }
}

/// Packs an image for a loader.
pub fn package(image: &[u8]) -> Result<Package> {
    Package::new(image).context("the image is longer than 4 GiB")
}

/// Returns the names of the boards whose CPU has this part number, for a message.
pub fn boards_with(part: u16) -> String {
    let boards = Board::all().unwrap_or_default();
    let is_meant = |board: &Board| board.sd().is_ok_and(|sd| sd.loader.cpu_part == part);
    let names: Vec<_> = boards.into_iter().filter(is_meant).map(|board| board.name).collect();
    if names.is_empty() { format!("a board with CPU {part:#x}") } else { names.join(" or ") }
}

/// An image, and the board that runs it.
pub struct BoardImage<'a> {
    station: &'a Station,
    package: Package,
}

impl Start for BoardImage<'_> {
    fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>> {
        let line = Arc::clone(&self.station.line);
        // The previous image has the line until it is dropped.
        let load = Load { package: &self.package, part: self.station.part, patience: Some(self.station.patience) };
        load.run(&mut line.lock().unwrap_or_else(PoisonError::into_inner))?;
        Ok(Box::new(Running::on(line, output, Some(give_back))))
    }
}

/// Makes the running kernel give the board back to the loader for the next image. This works at the kernel's prompt. A
/// kernel that does not come to one is stopped by keys that it takes in any state in which it takes interrupts.
/// Otherwise the next load would first have to find out what runs there.
fn give_back(line: &mut SerialLine) {
    line.send(load::RESET);
    if await_loader(line, |_| ()) {
        return;
    }
    eprintln!("the kernel reached no prompt and was stopped; its report:");
    line.send(QUIT);
    await_loader(line, |text| eprint!("{}", printable(text)));
}

/// Returns whether the loader announces itself in time. Other output before that goes to `heard`.
fn await_loader(line: &mut SerialLine, heard: impl Fn(&str)) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < RESET_TIMEOUT {
        match line.hear(TURN) {
            Some(Heard::Reply(Reply::Ready { .. })) => return true,
            Some(Heard::Text(text)) => heard(&String::from_utf8_lossy(&text)),
            Some(Heard::Reply(_)) | None => {}
        }
    }
    false
}

/// A running image, until it is dropped or the loader is back.
struct Running {
    keys: Sender<Vec<u8>>,
    goes_on: bool,
}

impl Running {
    /// Reads a line whose kernel runs, until the returned value is dropped or the loader is back. If it is dropped,
    /// `leave` is called.
    fn on(
        line: Arc<Mutex<SerialLine>>,
        output: Box<dyn Fn(Output) + Send>,
        leave: Option<fn(&mut SerialLine)>,
    ) -> Self {
        let (keys, typed) = mpsc::channel::<Vec<u8>>();
        thread::spawn(move || {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            loop {
                match line.hear(TURN) {
                    Some(Heard::Text(text)) => output(Output::Bytes(text)),
                    Some(Heard::Reply(Reply::Ready { .. })) => return output(Output::End),
                    Some(Heard::Reply(_)) | None => {}
                }
                match typed.try_recv() {
                    Ok(keys) => line.send(&keys),
                    Err(TryRecvError::Empty) => {}
                    Err(TryRecvError::Disconnected) => {
                        if let Some(leave) = leave {
                            leave(&mut line);
                        }
                        return;
                    }
                }
            }
        });
        Self { keys, goes_on: leave.is_none() }
    }
}

impl Uart for Running {
    fn type_keys(&self, keys: Vec<u8>) {
        // The receiver is gone if the board was reset. The output has reported that.
        let _ = self.keys.send(keys);
    }

    fn goes_on(&self) -> bool {
        self.goes_on
    }

    fn end(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}
