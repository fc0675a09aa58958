//! One command decides whether the project is sound: the style, the pure parts on the host, and everything
//! else where it is meant to run. What it prints is what libtest prints, so that whatever reads the one reads
//! the other.

mod boot;
mod capture;
mod card;
pub mod dialogue;
mod differ;
mod flattened;
mod garbage;
mod host;
mod libtest;
mod loader;
mod network;
mod normal;
pub mod protocol;
mod report;
mod serial;
mod session;
mod sessions;
mod target;

use std::process::ExitCode;

use anyhow::Result;
use report::Report;

use crate::{
    audit,
    board::{self, Board},
    serial::Station,
    setup,
};

/// What is tested.
#[derive(clap::Args)]
pub struct Options {
    /// The board, a directory of `boards/`; all that QEMU has a machine for, if none is given.
    #[arg(long, value_name = "NAME")]
    board: Option<String>,
    /// Only the on-target tests, in this configuration of the board, which is qemu-virt if none is given.
    #[arg(long, value_name = "NAME")]
    configuration: Option<String>,
    #[command(flatten)]
    serial: crate::serial::Options,
    /// How long an on-target test may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    timeout: u64,
    /// Only tests whose full name contains this. What cannot contain it is not even built.
    filter: Option<String>,
}

/// Runs the tests. Ends with a line that counts them, whatever happens.
pub fn test(options: &Options) -> Result<ExitCode> {
    if let Some(station) = Station::open(options.board.as_deref().unwrap_or(board::DEFAULT), &options.serial)? {
        setup::rust(&[])?;
        let mut report = Report::new(options.filter.clone());
        serial::test(&mut report, &station, options.timeout);
        return Ok(report.finish());
    }
    let name = options.board.as_deref().or(options.configuration.as_deref().map(|_| board::DEFAULT));
    let boards = match name {
        Some(name) => vec![Board::load(name)?],
        None => Board::emulated()?,
    };
    let configurations = |board: &Board| match &options.configuration {
        Some(name) => Ok(vec![board.configuration(name)?.clone()]),
        None => anyhow::Ok(board.configurations.clone()),
    };
    let boards: Vec<_> = boards.iter().map(|board| Ok((board, configurations(board)?))).collect::<Result<_>>()?;
    let mut report = Report::new(options.filter.clone());
    let stages = ["check", "host", "audit"].into_iter().chain(boards.iter().map(|(board, _)| board.name.as_str()));
    let begins = |filter: &str, stage: &str| {
        filter.strip_prefix(stage).is_some_and(|rest| rest.starts_with("::") || rest.starts_with('/'))
    };
    let only = options.filter.as_deref().and_then(|filter| stages.into_iter().find(|stage| begins(filter, stage)));
    let is_wanted = |stage: &str| only.is_none_or(|only| only == stage);
    let is_for_all = |stage: &str| options.configuration.is_none() && is_wanted(stage);
    if let Err(error) = setup::rust(&["clippy", "rustfmt"]) {
        report.result("setup", Err(format!("{error:#}")));
        return Ok(report.finish());
    }
    if is_for_all("check") {
        host::check(&mut report);
    }
    if is_for_all("host") {
        match setup::trees::get() {
            Ok(()) => host::test(&mut report),
            Err(error) => report.result("host::setup", Err(format!("{error:#}"))),
        }
    }
    if is_for_all("audit") {
        audit_images(&mut report);
    }
    for (board, configurations) in boards.iter().filter(|(board, _)| is_wanted(&board.name)) {
        match setup::board(board) {
            Ok(()) => {
                target::test(&mut report, board, configurations, options.timeout);
                if options.configuration.is_none() {
                    loader::test(&mut report, board, options.timeout);
                    card::test(&mut report, board, options.timeout);
                }
            }
            Err(error) => report.result(&format!("{}::setup", board.name), Err(format!("{error:#}"))),
        }
    }
    Ok(report.finish())
}

/// Audits the images that the repository builds.
fn audit_images(report: &mut Report) {
    for (name, image) in [("audit::kernel", audit::Image::Kernel), ("audit::tests", audit::Image::Tests)] {
        if report.wants(name) {
            report.result(name, audit::check(image));
        }
    }
}
