//! Measures the cost of a hit in instructions, and compares it with Linux in the same emulator.
//!
//! The image of `benches/` measures. QEMU is started so that it counts instructions, and nothing else makes time pass:
//! the figures are the same on every host and in every run. The instructions of one hit are also logged. The log gives
//! the number of exceptions, checks the figure, and is the profile.

mod channels;
mod comparison;
mod live;
mod monitor;
mod page;
mod protocol;
mod rehearsal;
mod session;
mod table;
mod throughput;
mod trace;

use std::{
    ffi::OsString,
    fs,
    io::{self, Write},
    path::PathBuf,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use cargo_kprobes::image;
use kprobes_symbols::SymbolTable;

use crate::{
    board::{self, Board, Overrides},
    dialogue::converse,
    machine::{QEMU, shell_line},
    setup, workspace,
};
use comparison::Comparison;
use monitor::Monitor;
use protocol::Throughput;
pub use rehearsal::Rehearsal;
use session::{Figure, Session};

/// The package of the image.
pub const PACKAGE: &str = "kprobes-benches";

/// An instruction takes a nanosecond, and nothing else takes time.
pub const COUNT_INSTRUCTIONS: [&str; 2] = ["-icount", "shift=0,sleep=off"];

/// The cases to measure, and how.
#[derive(clap::Args)]
pub struct Options {
    /// The board, a directory of `boards/`.
    #[arg(long, value_name = "NAME", default_value = board::DEFAULT)]
    board: String,
    /// The configuration, one of those in the board's `board.toml`.
    #[arg(long, value_name = "NAME", default_value = board::BASE)]
    configuration: String,
    /// QEMU's name of the CPU.
    #[arg(long, value_name = "NAME")]
    cpu: Option<String>,
    /// How many seconds a case may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    timeout: u64,
    /// Prints a line of JSON for each case instead of a table.
    #[arg(long)]
    json: bool,
    /// Shows in which functions the instructions of this case are, for one hit or for the whole change.
    #[arg(long, value_name = "CASE", conflicts_with_all = ["json", "filter"])]
    profile: Option<String>,
    /// Measures the hits per second of several CPUs at once, by the clock of the host.
    #[arg(long, conflicts_with = "profile")]
    throughput: bool,
    /// Measures how many events a second each channel of a recording carries, by the clock of the host.
    #[arg(long, conflicts_with_all = ["filter", "json", "profile", "throughput"])]
    channels: bool,
    /// Measures what a live view of all functions costs workloads.
    #[arg(long, conflicts_with_all = ["filter", "json", "profile", "throughput", "channels"])]
    live: bool,
    /// Writes all figures into docs/benchmarks.md, in place of the old ones.
    #[arg(long, conflicts_with_all = ["filter", "json", "profile", "throughput", "channels", "live", "board", "configuration", "cpu"])]
    update_page: bool,
    /// Only cases whose name contains this.
    filter: Option<String>,
}

/// Measures, and prints the results.
pub fn bench(options: &Options) -> Result<()> {
    let bench = Bench::new(options)?;
    let mut out = io::stdout();
    if let Some(case) = &options.profile {
        let figures = bench.measure(options.timeout, true, &|name| name == case)?;
        let [figure] = &figures[..] else { bail!("there is no case {case:?}; `cargo xtask bench` lists the cases") };
        write!(out, "{}", table::profile(figure)?)?;
        return Ok(());
    }
    if options.channels || options.live {
        let table = match options.live {
            true => live::measure(&bench.arguments, options.timeout)?,
            false => channels::measure(&bench.arguments, options.timeout)?,
        };
        write!(out, "{table}{}", bench.how()?)?;
        return Ok(());
    }
    let filter = options.filter.as_deref().unwrap_or_default();
    if options.throughput {
        let results = bench.measure_throughput(options.timeout, &|name| name.contains(filter))?;
        if options.json {
            results.iter().try_for_each(|result| writeln!(out, "{}", result.json()))?;
        } else {
            write!(out, "{}{}", throughput::table(&results), bench.how()?)?;
        }
        return Ok(());
    }
    let figures = bench.measure(options.timeout, false, &|name| name.contains(filter))?;
    ensure!(!figures.is_empty(), "no case has {filter:?} in its name");
    for sentence in figures.iter().filter_map(Figure::doubt) {
        eprintln!("xtask: {sentence}");
    }
    if options.json {
        figures.iter().try_for_each(|figure| writeln!(out, "{}", figure.json()))?;
    } else {
        let text = format!("{}{}", table::table(&figures, &Comparison::load()?), bench.how()?);
        write!(out, "{text}")?;
        if options.update_page {
            page::Page::load()?.update(&text)?;
        }
    }
    Ok(())
}

/// A machine to start, and its program.
struct Bench {
    elf: PathBuf,
    image: PathBuf,
    arguments: Vec<OsString>,
    /// The arguments as a user would type them.
    command: String,
}

impl Bench {
    fn new(options: &Options) -> Result<Self> {
        let board = Board::load(&options.board)?;
        let configuration = board.configuration(&options.configuration)?;
        setup::rust(&[])?;
        setup::board(&board)?;
        // The kernel itself records and is watched.
        let package = if options.channels || options.live { "runtime" } else { PACKAGE };
        let elf = workspace::build_kernel(package)?;
        let image = workspace::image(&elf)?;
        let cpus = match (options.throughput, options.channels) {
            (true, _) => throughput::CPUS,
            (_, true) => channels::CPUS,
            _ => 1,
        };
        let mut arguments = board.arguments(configuration, &Overrides::cpus(cpus, options.cpu.clone()), &image)?;
        if cpus == 1 {
            arguments.extend(COUNT_INSTRUCTIONS.map(OsString::from));
        }
        // Relative to the root, so that the line means the same on another machine. The image is in a directory for its
        // profile, in one for its target, in Cargo's directory, which can be elsewhere and have another name.
        let mut command = shell_line(&arguments);
        if let Some(target) = elf.ancestors().nth(3) {
            command = command.replace(&format!("{}/", target.display()), "target/");
        }
        command = command.replace(&format!("{}/", workspace::root().display()), "");
        Ok(Self { elf, image, arguments, command })
    }

    /// Returns the figures of the wanted cases, measured in one machine, with the traces of hits, and of changes if
    /// `traces_changes`.
    fn measure(&self, seconds: u64, traces_changes: bool, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Figure>> {
        let monitor = Monitor::new()?;
        let mut arguments = self.arguments.clone();
        arguments.extend(monitor.arguments());
        let bytes = fs::read(&self.image).with_context(|| format!("{} cannot be read", self.image.display()))?;
        let symbols = SymbolTable::parse(&bytes[image::symbols_at(&self.elf)?..])?;
        let mut session = Session::new(wanted, traces_changes, monitor, symbols);
        let outcome = converse(&arguments, seconds, &mut session).map_err(anyhow::Error::msg)?;
        outcome.map_err(|sentence| anyhow!("the image failed to measure: {sentence}"))
    }

    /// Returns how many calls the CPUs of a machine make per second in the wanted cases.
    fn measure_throughput(&self, seconds: u64, wanted: &dyn Fn(&str) -> bool) -> Result<Vec<Throughput>> {
        converse(&self.arguments, seconds, &mut throughput::Session::new(wanted)).map_err(anyhow::Error::msg)
    }

    /// Returns when, by which command, and with which QEMU the figures were measured.
    fn how(&self) -> Result<String> {
        let (date, typed, version) = (table::today()?, table::own_command(), self.version()?);
        Ok(format!("\nMeasured on {date} by `{typed}`\nwith {version}:\n{}\n", self.command))
    }

    /// Returns the version line of QEMU.
    fn version(&self) -> Result<String> {
        let text = setup::output_of(workspace::command(QEMU).arg("--version"))?;
        Ok(text.lines().next().unwrap_or_default().trim().into())
    }
}
