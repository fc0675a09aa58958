//! One command decides whether the project is sound: the style, the pure parts on the host, and everything
//! else where it is meant to run. What it prints is what libtest prints, so that whatever reads the one reads
//! the other.

mod boot;
mod capture;
pub mod dialogue;
mod differ;
mod flattened;
mod garbage;
mod host;
mod libtest;
mod normal;
mod protocol;
mod report;
mod session;
mod sessions;
mod target;

use std::process::ExitCode;

use anyhow::Result;
use report::Report;

use crate::{
    audit,
    board::{self, Board},
    setup,
};

/// What is tested.
#[derive(clap::Args)]
pub struct Options {
    /// The board, a directory of `boards/`.
    #[arg(long, value_name = "NAME", default_value = board::DEFAULT)]
    board: String,
    /// Only the on-target tests, in this configuration of the board.
    #[arg(long, value_name = "NAME")]
    configuration: Option<String>,
    /// How long an on-target test may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    timeout: u64,
    /// Only tests whose full name contains this. What cannot contain it is not even built.
    filter: Option<String>,
}

/// Runs the tests. Ends with a line that counts them, whatever happens.
pub fn test(options: &Options) -> Result<ExitCode> {
    let board = Board::load(&options.board)?;
    let configurations: Vec<_> = match &options.configuration {
        Some(name) => vec![board.configuration(name)?],
        None => board.configurations.iter().collect(),
    };
    let mut report = Report::new(options.filter.clone());
    let only = match (&options.configuration, &options.filter) {
        (Some(_), _) => Some(board.name.as_str()),
        (None, Some(filter)) => {
            ["check::", "host::", "audit::", &board.name].into_iter().find(|stage| filter.starts_with(stage))
        }
        (None, None) => None,
    };
    let is_wanted = |stage: &str| only.is_none_or(|only| only == stage);
    match setup::rust(&["clippy", "rustfmt"]).and_then(|()| setup::qemu(&[&board.machine])) {
        Err(error) => report.result("setup", Err(format!("{error:#}"))),
        Ok(()) => {
            if is_wanted("check::") {
                host::check(&mut report);
            }
            if is_wanted("host::") {
                host::test(&mut report);
            }
            if is_wanted("audit::") {
                audit_images(&mut report);
            }
            if is_wanted(&board.name) {
                target::test(&mut report, &board, &configurations, options.timeout);
            }
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
