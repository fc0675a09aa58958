//! One command does everything that happens on the host: it builds the images, boots them and reads their
//! UART. `cargo xtask help` lists what it can do.

mod audit;
mod bench;
mod board;
mod console;
mod conversation;
mod disk;
mod flash;
mod image;
mod machine;
mod network;
mod run;
mod serial;
mod setup;
mod test;
mod workspace;

use std::{path::PathBuf, process::ExitCode};

use anyhow::Result;
use clap::{Parser, Subcommand};

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
    /// Runs the tests: style, host, and every test on the target in a machine of its own.
    Test(test::Options),
    /// Proves of a linked image that nothing that runs while a probe is handled can be probed, panic, allocate, or touch
    /// floating point.
    Audit(audit::Options),
    /// Measures what a hit costs, in instructions, beside what Linux needs for it.
    Bench(bench::Options),
    /// Puts a kernel, or the loader for kernels, on the card of a Raspberry Pi.
    Flash(flash::Options),
    /// Gets what the other commands need: the Rust target and QEMU. They do so themselves, for what they need.
    Setup,
    /// Makes the one file that a board boots.
    Image(ImageOptions),
}

#[derive(clap::Args)]
struct ImageOptions {
    /// The board, a directory of `boards/`. One image runs on all of them.
    #[arg(long, value_name = "NAME", default_value = board::DEFAULT)]
    board: String,
    /// A linked kernel; the runtime is built if none is given.
    #[arg(long, value_name = "FILE", conflicts_with = "tests")]
    elf: Option<PathBuf>,
    /// The image of the on-target tests.
    #[arg(long)]
    tests: bool,
    /// The chain-loader for the cards of boards.
    #[arg(long, conflicts_with_all = ["elf", "tests"])]
    loader: bool,
    /// Where the image goes.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

fn make_image(options: &ImageOptions) -> Result<()> {
    board::Board::load(&options.board)?;
    if options.elf.is_none() {
        setup::rust(&[])?;
    }
    let length = match &options.elf {
        Some(elf) => image::write(elf, &options.out)?,
        None if options.loader => {
            let bytes = std::fs::read(flash::loader()?)?;
            image::write_bytes(&bytes, &options.out)?;
            bytes.len()
        }
        None if options.tests => image::write(&workspace::build_kernel("kprobes-tests")?, &options.out)?,
        None => image::write(&workspace::build_kernel("runtime")?, &options.out)?,
    };
    println!("{}: {length} bytes", options.out.display());
    Ok(())
}

fn main() -> ExitCode {
    let success = |()| ExitCode::SUCCESS;
    let done = match Arguments::parse().command {
        Command::Run(options) => run::run(&options).map(success),
        Command::Test(options) => test::test(&options),
        Command::Audit(options) => audit::audit(&options),
        Command::Bench(options) => bench::bench(&options).map(success),
        Command::Flash(options) => flash::flash(&options).map(success),
        Command::Setup => setup::everything().map(success),
        Command::Image(options) => make_image(&options).map(success),
    };
    done.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}
