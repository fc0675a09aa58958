//! A board on a serial line. What runs on it is sent over the line first, to the loader on its card; then the line is the
//! board's console, for a person or for the tests, until the loader is back and takes the next kernel.

mod line;
mod load;
mod port;
mod progress;
mod terminal;

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
use line::{Heard, Line};
use load::Load;
pub use load::QUIT;

/// How long a loader may take to answer by default.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a board takes at most from the order to reset until its loader says that it is there.
const TIME_TO_RESET: Duration = Duration::from_secs(10);
/// After this time without a byte, keys are looked for.
const TURN: Duration = Duration::from_millis(5);

/// The line that a board is on.
#[derive(clap::Args)]
pub struct Options {
    /// A serial port, such as /dev/ttyUSB0: the board there runs the image, and not QEMU. It has the chain-loader on its card
    /// (`cargo xtask flash --loader`).
    #[arg(long, value_name = "DEVICE")]
    pub serial: Option<PathBuf>,
    /// The speed of the port, as the card's config.txt has it.
    #[arg(long, value_name = "N", default_value_t = 115_200, requires = "serial",
          value_parser = clap::value_parser!(u32).range(9600..=4_000_000))]
    pub baud: u32,
}

/// A board on a serial line.
pub struct Station {
    /// The name of the board.
    pub board: String,
    line: Arc<Mutex<Line>>,
    part: u16,
    /// How long a loader may take to answer where no user is there to switch the board on.
    pub patience: Duration,
}

impl Station {
    /// The board of this name, on this line.
    pub fn open(board: &str, options: &Options) -> Result<Option<Self>> {
        let Some(path) = &options.serial else { return Ok(None) };
        let part = Board::load(board)?.sd()?.cpu_part;
        let line = Line::open(path, options.baud)?;
        Ok(Some(Self { board: board.into(), line: Arc::new(Mutex::new(line)), part, patience: PATIENCE }))
    }

    /// Loads `image`, and is its console on this terminal until the person there leaves.
    pub fn interact(&self, image: &[u8]) -> Result<()> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        terminal::interact(&mut line, &Load { package: &package(image)?, part: self.part, patience: None })
    }

    /// What starts `image` on the board.
    pub fn with(&self, image: &[u8]) -> Result<Image<'_>> {
        Ok(Image { station: self, package: package(image)? })
    }
}

impl Drop for Station {
    /// Waits until what was started last has given the board back.
    fn drop(&mut self) {
        drop(self.line.lock());
    }
}

fn package(image: &[u8]) -> Result<Package> {
    Package::new(image).context("the image is longer than 4 GiB")
}

/// The name of the board whose CPU has this part number.
fn board_with(part: u16) -> String {
    let boards = Board::all().unwrap_or_default();
    let board = boards.into_iter().find(|board| board.sd().is_ok_and(|sd| sd.cpu_part == part));
    board.map_or_else(|| format!("a board with CPU {part:#x}"), |board| board.name)
}

/// An image, and the board that is to run it.
pub struct Image<'a> {
    station: &'a Station,
    package: Package,
}

impl Start for Image<'_> {
    fn start(&self, output: Box<dyn Fn(Output) + Send>) -> Result<Box<dyn Uart>> {
        let line = Arc::clone(&self.station.line);
        // The one before has the line until it is dropped.
        let load = Load { package: &self.package, part: self.station.part, patience: Some(self.station.patience) };
        load.run(&mut line.lock().unwrap_or_else(PoisonError::into_inner))?;
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
                    Err(TryRecvError::Disconnected) => return give_back(&mut line),
                }
            }
        });
        Ok(Box::new(Running { keys }))
    }
}

/// Has the kernel that was started give the board back to the loader, for the next one, which else would have to find out who is
/// there: at its prompt, and if it does not come to one, by what it takes in any state in which it takes interrupts.
fn give_back(line: &mut Line) {
    line.send(load::RESET);
    if await_loader(line, |_| ()) {
        return;
    }
    eprintln!("the kernel comes to no prompt, and is stopped; it says:");
    line.send(QUIT);
    await_loader(line, |text| eprint!("{}", printable(text)));
}

/// Whether the loader says in time that it is there. Other output before that goes to `heard`.
fn await_loader(line: &mut Line, heard: impl Fn(&str)) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < TIME_TO_RESET {
        match line.hear(TURN) {
            Some(Heard::Reply(Reply::Ready { .. })) => return true,
            Some(Heard::Text(text)) => heard(&String::from_utf8_lossy(&text)),
            Some(Heard::Reply(_)) | None => {}
        }
    }
    false
}

/// What was started, until it is dropped or the loader is back.
struct Running {
    keys: Sender<Vec<u8>>,
}

impl Uart for Running {
    fn type_keys(&self, keys: Vec<u8>) {
        // The receiver is gone when the board was reset, which the output has said.
        let _ = self.keys.send(keys);
    }

    fn end(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}
