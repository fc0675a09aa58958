//! The host command: builds the images, boots them and reads their UART. `cargo xtask help` lists its subcommands.

/// Prints to standard error like the macro of `std`, but does not panic if it is gone, as after a terminal was closed:
/// the command still has to write its files and to give its machine back.
macro_rules! eprint {
    ($($argument:tt)*) => {
        drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!($($argument)*)))
    };
}

/// Prints a line to standard error, as `eprint` does.
macro_rules! eprintln {
    () => {
        eprint!("\n")
    };
    ($($argument:tt)*) => {
        eprint!("{}\n", format_args!($($argument)*))
    };
}

mod attach;
mod audit;
mod bench;
mod board;
mod boot;
mod console;
mod conversation;
mod detached;
mod dialogue;
mod disk;
mod flamegraph;
mod flash;
mod lines;
mod lock;
mod machine;
mod network;
mod record;
mod remote;
mod run;
mod script;
mod serial;
mod setup;
mod signals;
mod terminal;
mod test;
mod top;
mod trace;
mod workspace;

use std::{
    ffi::OsString,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::Result;
use cargo_kprobes::{image, is_closed_output};
use clap::{Parser, Subcommand};
use remote::Stopped;

/// The prefix of the file name under which Cargo builds the image of the on-target tests as a test; a hash follows.
const SUITE: &str = "tests-";

/// Builds, runs and tests the images.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Boots the kernel in QEMU, to a console on this terminal or to a script.
    Run(run::Options),
    /// Opens the console of a running machine: that of `run --detach`, or a board at a serial line.
    Attach(attach::Options),
    /// Runs a program on the kernel, and prints its output alone, as text or as JSON.
    Trace(trace::Options),
    /// Shows what a machine does while it does it: its functions, tasks and CPUs by their hits.
    Top(top::Options),
    /// Records events into a file for `trace-cmd report`, KernelShark or Perfetto.
    Record(record::Options),
    /// Draws the stacks that a program counted, from the JSON output of `trace`.
    Flamegraph(flamegraph::Options),
    /// Runs the tests: style checks, host tests, and on-target tests, each in a machine of its own.
    Test(test::Options),
    /// Shows for a linked image that the code that handles probes cannot be probed, panic, allocate, touch floating
    /// point, take a lock that is not declared, or use more stack than there is.
    Audit(audit::Options),
    /// Measures the cost of a hit in instructions, and compares it with Linux.
    Bench(bench::Options),
    /// Puts a kernel, or the loader for kernels, on the card of a Raspberry Pi.
    Flash(flash::Options),
    /// Installs what the other commands need: parts of the Rust toolchain, QEMU, device trees, firmware, and programs
    /// that tests use. The other commands install their own needs themselves.
    Setup,
    /// Makes the single file that a board boots.
    Image(ImageOptions),
    /// Shows the source lines of a function, the addresses of their instructions, and the text of the source.
    Lines(lines::Options),
    /// Prints the length of a kernel's table of types, part by part, and how many arguments have a known place.
    Types(TypesOptions),
    /// Cargo's runner: boots a kernel; for the image of the tests, runs every test.
    #[command(hide = true)]
    Runner(RunnerOptions),
}

#[derive(clap::Args)]
struct RunnerOptions {
    /// The program that Cargo built.
    program: PathBuf,
    /// The arguments after `--`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl RunnerOptions {
    /// Returns the subcommand that Cargo means: all tests for the image of the tests, a boot otherwise.
    fn command(self) -> Result<Command, clap::Error> {
        let is_suite = self.program.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SUITE));
        let own: [OsString; 3] = ["run".into(), "--elf".into(), self.program.into()];
        let words = if is_suite { vec!["test".into()] } else { own.to_vec() };
        let name = OsString::from("cargo xtask");
        Ok(Arguments::try_parse_from([name].into_iter().chain(words).chain(self.arguments))?.command)
    }
}

#[derive(clap::Args)]
struct ImageOptions {
    /// The board, a directory of `boards/`. One image runs on all of them.
    #[arg(long, value_name = "NAME", default_value = board::DEFAULT)]
    board: String,
    /// A kernel that was linked by `linker.ld`; the runtime is built if none is given.
    #[arg(long, value_name = "FILE", conflicts_with = "tests")]
    elf: Option<PathBuf>,
    /// The image of the on-target tests.
    #[arg(long)]
    tests: bool,
    /// The chain-loader for the cards of boards.
    #[arg(long, conflicts_with_all = ["elf", "tests"])]
    loader: bool,
    /// The path of the new image.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

#[derive(clap::Args)]
struct TypesOptions {
    /// A linked kernel; the runtime is built if none is given.
    #[arg(long, value_name = "FILE")]
    elf: Option<PathBuf>,
}

fn describe_types(options: &TypesOptions) -> Result<()> {
    let elf = boot::kernel(options.elf.as_deref())?;
    Ok(writeln!(io::stdout(), "{}", image::describe_types(&elf)?)?)
}

fn make_image(options: &ImageOptions) -> Result<()> {
    board::Board::load(&options.board)?;
    if options.elf.is_none() {
        setup::rust(&[])?;
    }
    let length = match &options.elf {
        Some(elf) => image::write(elf, &options.out)?,
        None if options.loader => image::write_plain(&workspace::build_kernel("kprobes-loader")?, &options.out)?,
        None if options.tests => image::write(&workspace::build_kernel("kprobes-tests")?, &options.out)?,
        None => image::write(&workspace::build_kernel("runtime")?, &options.out)?,
    };
    Ok(writeln!(io::stdout(), "{}: {length} bytes", options.out.display())?)
}

fn main() -> ExitCode {
    let done = execute(Arguments::parse().command);
    let status = done.unwrap_or_else(|error| {
        if !is_closed_output(&error) {
            eprintln!("xtask: {error:#}");
        }
        failure_status(&error).into()
    });
    signals::ended_by().map_or(status, |signal| {
        eprintln!("xtask: ended by {signal}");
        signal.status().into()
    })
}

/// Returns the exit status of a command that has failed.
fn failure_status(error: &anyhow::Error) -> u8 {
    if error.is::<Stopped>() { trace::STOPPED } else { 1 }
}

fn execute(command: Command) -> Result<ExitCode> {
    let success = |()| ExitCode::SUCCESS;
    match command {
        Command::Run(options) => run::run(&options),
        Command::Attach(options) => attach::attach(&options).map(success),
        Command::Trace(options) => trace::trace(&options),
        Command::Top(options) => top::top(&options),
        Command::Record(options) => record::record(&options),
        Command::Flamegraph(options) => flamegraph::flamegraph(&options).map(success),
        Command::Test(options) => test::test(&options),
        Command::Audit(options) => audit::audit(&options),
        Command::Bench(options) => bench::bench(&options).map(success),
        Command::Flash(options) => flash::flash(&options).map(success),
        Command::Setup => setup::everything().map(success),
        Command::Image(options) => make_image(&options).map(success),
        Command::Lines(options) => lines::lines(&options).map(success),
        Command::Types(options) => describe_types(&options).map(success),
        Command::Runner(options) => match options.command() {
            Ok(command) => execute(command),
            Err(error) => error.exit(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::{Command, RunnerOptions, Stopped, failure_status, trace::STOPPED};

    fn command(program: &str, arguments: &[&str]) -> Result<Command, clap::Error> {
        let arguments = arguments.iter().map(Into::into).collect();
        RunnerOptions { program: program.into(), arguments }.command()
    }

    #[test]
    fn the_runner_boots_kernels_and_takes_the_suite_for_every_test() {
        assert!(matches!(command("/t/release/kernel", &["--smp", "4"]), Ok(Command::Run(_))));
        assert!(matches!(command("/t/release/deps/tests-0123456789abcdef", &["kprobe::a"]), Ok(Command::Test(_))));
        assert!(command("/t/release/deps/tests-0123456789abcdef", &["--smp", "4"]).is_err());
    }

    #[test]
    fn a_machine_that_has_stopped_has_a_status_of_its_own() {
        let stopped = || anyhow::Error::from(Stopped("the machine has powered off".into()));
        assert_eq!(failure_status(&stopped()), STOPPED);
        assert_eq!(failure_status(&stopped().context("it cannot be measured")), STOPPED);
        assert_eq!(failure_status(&anyhow::anyhow!("there is no such board")), 1);
    }
}
