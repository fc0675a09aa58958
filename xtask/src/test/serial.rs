//! The tests on a board that is on a serial line, one after the other. As in QEMU, every one has the machine fresh: when one is
//! over, the board is reset, and its loader, which still has the image, starts it again.

use std::fs;

use anyhow::Result;

use super::{
    dialogue::converse,
    protocol::{Listing, Trial},
    report::Report,
    sessions,
    target::Talk,
};
use crate::{board::Board, image, machine::Start, serial::Station, workspace};

/// The CPUs of every board that there is.
const CPUS: u32 = 4;

/// Runs the wanted tests. One may take `seconds` from one line to the next.
pub fn test(report: &mut Report, station: &Station, seconds: u64) {
    for (what, tested) in [("list", listed(report, station, seconds)), ("console", console(report, station, seconds))] {
        if let Err(error) = tested {
            report.result(&format!("{}::{what}", station.board), Err(format!("{error:#}")));
        }
    }
}

/// Every test that the tests image lists.
fn listed(report: &mut Report, station: &Station, seconds: u64) -> Result<()> {
    let image = fs::read(image::write_beside(&workspace::build_kernel("kprobes-tests")?)?)?;
    let image = station.with(&image)?;
    let tests = converse(&image, seconds, &mut Listing::default()).map_err(anyhow::Error::msg)?;
    let lacks = Board::load(station.board)?.lacks(None);
    for test in tests {
        let name = format!("{}::{}", station.board, test.name);
        try_one(report, &name, &image, seconds, Ok(Talk::Trial(Trial::new(test, lacks.clone()))));
    }
    Ok(())
}

/// Every session with the kernel's console that is written down for a machine with as many CPUs.
fn console(report: &mut Report, station: &Station, seconds: u64) -> Result<()> {
    let name = |session: &str| format!("{}::console::{session}", station.board);
    let sessions: Vec<_> = sessions::all(station.board, CPUS, false)?
        .into_iter()
        .filter(|session| report.wants(&name(&session.name)))
        .collect();
    let wants_garbage = report.wants(&name("garbage"));
    if sessions.is_empty() && !wants_garbage {
        return Ok(());
    }
    let image = fs::read(image::write_beside(&workspace::build_kernel("runtime")?)?)?;
    let image = station.with(&image)?;
    for session in sessions {
        // Nobody is there who would switch the board on again.
        try_one(report, &name(&session.name), &image, seconds, session.subject_that_stays().map(Talk::Other));
    }
    try_one(report, &name("garbage"), &image, seconds, sessions::garbage().map(Talk::Other));
    Ok(())
}

fn try_one(report: &mut Report, name: &str, start: &dyn Start, seconds: u64, subject: Result<Talk, String>) {
    if report.wants(name) {
        report.outcome(name, subject.and_then(|subject| subject.with(start, seconds)));
    }
}
