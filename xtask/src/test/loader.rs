//! Loads kernels over a serial line, as far as this can be tested without a board. QEMU is entered as the firmware
//! enters, with the loader as its kernel, at the end of a [`cable`]. The host side is the code that talks to a real
//! board.
//!
//! An emulated UART takes 16 bytes at a time, so kernels are run only where their work is tested, and are in the
//! board's memory already. QEMU puts them there at each reset. Elsewhere the image is a loader, which announces itself.
//! A thorough run always sends kernels, with all their tables, and they must survive resets.

pub mod cable;

use std::{
    ffi::OsString,
    fs, iter,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use cargo_kprobes::image;
use kprobes_random::Random;

use super::{
    pool::BuildContext,
    protocol::{Listing, Test, Trial},
    report::Outcome,
    select::{Demands, Trait},
    session::{Player, Session},
    target::{Candidate, Order, Targets},
};
use crate::{
    board::{self, BASE, Board, Overrides},
    console::Event,
    dialogue::{Reply, Subject, converse},
    flash,
    machine::{Start, load},
    serial::{Options, Station, boards_with, package},
    workspace,
};
use cable::{Cable, Faults};

/// A session with the same replies on every board.
const SESSION: &str = "kprobes> p:iteration runtime::workload::sha256::iterate\n\
    kprobes> run sha256 3 1\n...\n         3 calls of runtime::workload::sha256::iterate\n...\n\
    kprobes> -:iteration\n";

/// The most bytes that a host sends in messages and keys to start an image that is there, and to play the session.
const MESSAGES_MAX: usize = 10_000;
/// The physical address where the loader keeps packed images (loader/src/place.rs).
const PACKED: u64 = 0x410_0000;

/// A test with a board. The error says what went wrong.
type Try = fn(&Fixture) -> Result<()>;

/// Builds the loader, and adds its tests on the boards that have one.
pub fn add<'a>(context: &BuildContext<'_, 'a>, targets: &'a Targets<'a>) {
    let tests: [(&str, &[Trait], Try); 6] = [
        ("no_loader", &[], no_loader),
        ("another_board", &[Trait::Board], another_board),
        ("cut_cable", &[], cut_cable),
        ("noise", &[], noise),
        ("suite", &[], suite),
        ("console", &[Trait::Board], console),
    ];
    let mut candidates = Vec::new();
    for (index, named) in targets.configurations.iter().enumerate() {
        if !named.is_base() || !named.board.has_card() {
            continue;
        }
        let fixture = Fixture::new(named.board, targets).map(Arc::new);
        let fixture = fixture.map_err(|error| format!("{error:#}"));
        candidates.extend(tests.into_iter().map(|(name, depends, try_it)| {
            let fixture = fixture.clone();
            let run = move || try_it(&*fixture.map_err(anyhow::Error::msg)?).map(|()| Outcome::Passed);
            Candidate::try_new(index, format!("loader::{name}"), Demands::on(depends), run)
        }));
    }
    targets.begin(context, candidates, Order::First);
}

/// The files and arguments that the tests use.
struct Fixture<'a> {
    board: &'a Board,
    arguments: Vec<OsString>,
    loader: Vec<u8>,
    kernel: Vec<u8>,
    tests: Vec<u8>,
    directory: PathBuf,
    seconds: u64,
    is_thorough: bool,
}

impl<'a> Fixture<'a> {
    fn new(board: &'a Board, targets: &Targets<'_>) -> Result<Self> {
        let file = flash::loader()?;
        let loader = fs::read(&file).with_context(|| format!("{} cannot be read", file.display()))?;
        let arguments = board.arguments(board.configuration(BASE)?, &Overrides::default(), &file)?;
        // After a reset, the loader must come back.
        let mut arguments = board::with_reboot(arguments);
        // CPUs that wait for a kernel would otherwise take time from the CPU that loads it, and from QEMU's UART.
        arguments.extend(["-accel".into(), "tcg,thread=single".into()]);
        let built = |package: &str| -> Result<Vec<u8>> {
            let elf = workspace::build_kernel(package)?;
            if targets.is_thorough { image::whole(&elf) } else { image::without_copies(&elf) }
        };
        let (kernel, tests) = (built("runtime")?, built("kprobes-tests")?);
        Ok(Self {
            board,
            arguments,
            loader,
            kernel,
            tests,
            directory: file.with_extension("ports"),
            seconds: targets.seconds,
            is_thorough: targets.is_thorough,
        })
    }

    /// Returns a board with these faults on its cable, and the means to reach it.
    fn station(&self, test: &str, faults: Faults) -> Result<(Cable, Station)> {
        self.station_with(test, faults, &self.arguments)
    }

    /// Returns a board that has `image` in its memory, unless this is a thorough run, on a faultless cable.
    fn station_that_has(&self, test: &str, image: &[u8]) -> Result<(Cable, Station)> {
        let mut arguments = self.arguments.clone();
        if !self.is_thorough {
            let file = self.directory.join(format!("{}-{test}.packed", self.board.name));
            fs::create_dir_all(&self.directory)?;
            fs::write(&file, package(image)?.packed).with_context(|| format!("{} is not written", file.display()))?;
            arguments.extend(load(&file, PACKED));
        }
        self.station_with(test, Faults::default(), &arguments)
    }

    fn station_with(&self, test: &str, faults: Faults, arguments: &[OsString]) -> Result<(Cable, Station)> {
        let cable = Cable::new(arguments, faults, &self.directory, &format!("{}-{test}", self.board.name))?;
        let station = self.open(&self.board.name, &cable.port)?;
        Ok((cable, station))
    }

    fn open(&self, board: &str, port: &Path) -> Result<Station> {
        let options = Options { serial: Some(port.into()), baud: 115_200 };
        Station::open(board, &options)?.context("no port was named")
    }

    fn talk<T>(&self, start: &dyn Start, subject: &mut dyn Subject<T>) -> Result<T> {
        converse(start, self.seconds, subject).map_err(anyhow::Error::msg)
    }

    /// Loads an image that takes more than `length` bytes on the line, and waits until it announces itself. A thorough
    /// run loads a kernel instead, and plays the session.
    fn load_other(&self, station: &Station, length: usize) -> Result<()> {
        if self.is_thorough {
            return self.have_session(station);
        }
        // Random numbers cannot be packed.
        let mut random = Random::new(0);
        let numbers = iter::repeat_with(|| random.next() as u8);
        let image: Vec<u8> = self.loader.iter().copied().chain(numbers.take(length)).collect();
        self.talk(&station.with(&image)?, &mut Announcement)
    }

    /// Loads a kernel, plays the session with it, and leaves it busy.
    fn have_session(&self, station: &Station) -> Result<()> {
        let player = Player::new(Session::parse(SESSION).map_err(anyhow::Error::msg)?);
        self.talk(&station.with(&self.kernel)?, &mut Busy { player: Some(player) })
    }
}

/// A kernel is loaded and replies. It gives the board back for the next one though it no longer prompts; in `suite`,
/// kernels at a prompt do.
fn console(fixture: &Fixture) -> Result<()> {
    let (cable, station) = fixture.station_that_has("console", &fixture.kernel)?;
    fixture.have_session(&station)?;
    let sent = cable.sent() as usize;
    ensure!(fixture.is_thorough || sent < MESSAGES_MAX, "{sent} bytes were sent, though the image was there");
    fixture.load_other(&station, 0)
}

/// The line changes and loses bytes while the kernel is sent.
fn noise(fixture: &Fixture) -> Result<()> {
    let until = 250_000;
    let (_cable, station) = fixture.station("noise", Faults { noise: 10_000, until, ..Faults::default() })?;
    fixture.load_other(&station, until as usize)
}

/// The cable is pulled and put in again, twice while the kernel is sent.
fn cut_cable(fixture: &Fixture) -> Result<()> {
    let pulls = vec![50_000, 130_000];
    let (_cable, station) = fixture.station("cut", Faults { pulls, ..Faults::default() })?;
    fixture.load_other(&station, 150_000)
}

/// A part of the suite with every kind of test: some pass, some end the machine so that the loader goes on, and one
/// does not apply.
fn suite(fixture: &Fixture) -> Result<()> {
    let (_cable, station) = fixture.station_that_has("suite", &fixture.tests)?;
    let image = station.with(&fixture.tests)?;
    let tests = fixture.talk(&image, &mut Listing::default())?;
    let lacks = fixture.board.lacks(None);
    for (module, stops) in [
        ("kprobe", false),
        ("machine", true),
        ("kretprobe", false),
        ("block", false),
        ("fault", true),
        ("fault", false),
    ] {
        let is_wanted = |test: &&Test| test.name.split("::").next() == Some(module) && test.stops.is_some() == stops;
        let test = tests.iter().find(is_wanted).with_context(|| format!("there is no such test of {module}"))?;
        let outcome = fixture.talk(&image, &mut Trial::new(test.clone(), lacks.clone()))?;
        let applies = outcome == Outcome::Passed;
        ensure!(applies == (module != "block"), "{} has the outcome {outcome:?}", test.name);
    }
    Ok(())
}

/// Waits until a loader announces itself.
struct Announcement;

impl Subject<()> for Announcement {
    fn event(&mut self, event: Event) -> Reply<()> {
        match event {
            Event::Line(line) if line.starts_with("loader: ") => Reply::Done(Ok(())),
            _ => Reply::Wait,
        }
    }
}

/// A session, and then a command that does not end.
struct Busy {
    /// The session; `None` after its end.
    player: Option<Player>,
}

impl Busy {
    const COMMAND: &str = "run sha256 1000000000";
}

impl Subject<()> for Busy {
    fn event(&mut self, event: Event) -> Reply<()> {
        let Some(player) = &mut self.player else {
            return match event {
                Event::Line(line) if line.ends_with(Self::COMMAND) => Reply::Done(Ok(())),
                _ => Reply::Wait,
            };
        };
        match player.event(event) {
            Reply::Done(Ok(())) => {
                self.player = None;
                Reply::Type(Self::COMMAND.into())
            }
            reply => reply,
        }
    }

    fn silence(&mut self) -> Reply<()> {
        self.player.as_mut().map_or(Reply::Wait, Player::silence)
    }
}

/// A user who names another board than the connected one is told which it is.
fn another_board(fixture: &Fixture) -> Result<()> {
    let boards = Board::all()?;
    let part = fixture.board.sd()?.loader.cpu_part;
    let others = boards.iter().filter_map(|board| Some((board, board.sd().ok()?.loader.cpu_part)));
    let other = others.into_iter().find(|(_, other)| *other != part);
    let (other, other_part) = other.context("all boards have the same CPU")?;
    let (cable, station) = fixture.station("other", Faults::default())?;
    drop(station);
    let station = fixture.open(&other.name, &cable.port)?;
    let failure = station.with(&fixture.loader)?.start(Box::new(|_| ())).err().context("it was loaded")?.to_string();
    let expected = format!("is {}, not {}", boards_with(part), boards_with(other_part));
    ensure!(expected.contains(&fixture.board.name) && expected.contains(&other.name), "{expected:?} lacks a board");
    ensure!(failure.ends_with(&expected), "it says {failure:?}");
    Ok(())
}

/// If no loader answers, the error says so, with the bytes that came instead.
fn no_loader(fixture: &Fixture) -> Result<()> {
    let (_cable, mut station) = fixture.station("none", Faults { noise: 1, until: u64::MAX, ..Faults::default() })?;
    station.patience = Duration::from_secs(2);
    let failure = station.with(&fixture.loader)?.start(Box::new(|_| ())).err().context("it was loaded")?.to_string();
    ensure!(failure.contains("no loader answered") && failure.contains("nothing was received"), "it says {failure:?}");
    Ok(())
}
