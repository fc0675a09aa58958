//! Runs the tests on a board at a serial line, one after the other. As in QEMU, every test has a fresh machine: after
//! each test the board is reset, and its loader, which still has the image, starts it again.

use std::{fs, time::Instant};

use anyhow::Result;

use super::{
    protocol::{Listing, Trial},
    report::{Finished, Report},
    sessions,
    target::Dialogue,
    wanted::Wanted,
};
use crate::{board::Board, dialogue::converse, machine::Start, serial::Station, workspace};

/// The number of CPUs of every supported board.
const CPUS: u32 = 4;

/// Runs the wanted tests, in their long forms if `is_thorough`. There may be `seconds` between one line and the next.
pub fn test(report: &mut Report, wanted: &Wanted, station: &Station, seconds: u64, is_thorough: bool) {
    let mut run = SerialRun { report, wanted, station, seconds, is_thorough };
    for (what, tested) in [("list", run.listed()), ("console", run.console())] {
        if let Err(error) = tested {
            run.report.add(Finished::failed_step(run.name(what), format!("{error:#}")));
        }
    }
}

/// A run of tests on a board.
struct SerialRun<'a> {
    report: &'a mut Report,
    wanted: &'a Wanted,
    station: &'a Station,
    seconds: u64,
    is_thorough: bool,
}

impl SerialRun<'_> {
    fn name(&self, test: &str) -> String {
        format!("{}::{test}", self.station.board)
    }

    /// Runs every test that the tests image lists.
    fn listed(&mut self) -> Result<()> {
        let image = fs::read(workspace::image(&workspace::build_kernel("kprobes-tests")?)?)?;
        let image = self.station.with(&image)?;
        let tests = converse(&image, self.seconds, &mut Listing::default()).map_err(anyhow::Error::msg)?;
        let lacks = Board::load(&self.station.board)?.lacks(None);
        for test in tests {
            let name = self.name(&test.name);
            let trial = Trial::new(test, lacks.clone()).thorough(self.is_thorough);
            self.try_one(name, &image, Ok(Dialogue::Trial(trial)));
        }
        Ok(())
    }

    /// Runs every session with the kernel's console that is written for a machine with this number of CPUs.
    fn console(&mut self) -> Result<()> {
        let board = &self.station.board;
        let name = |session: &str| format!("{board}::console::{session}");
        let sessions: Vec<_> = sessions::all(board, CPUS, false)?
            .into_iter()
            .filter(|session| self.wanted.has(&name(&session.name)))
            .collect();
        let garbage = name("garbage");
        if sessions.is_empty() && !self.wanted.has(&garbage) {
            return Ok(());
        }
        let image = fs::read(workspace::image(&workspace::build_kernel("runtime")?)?)?;
        let image = self.station.with(&image)?;
        for session in sessions {
            // No user is there to switch the board on again.
            self.try_one(name(&session.name), &image, session.subject_that_stays().map(Dialogue::Other));
        }
        self.try_one(garbage, &image, sessions::garbage(self.is_thorough).map(Dialogue::Other));
        Ok(())
    }

    fn try_one(&mut self, name: String, start: &dyn Start, subject: Result<Dialogue, String>) {
        if self.wanted.has(&name) {
            let begin = Instant::now();
            let outcome = subject.and_then(|subject| subject.with(start, self.seconds));
            self.report.add(Finished::test(name, outcome, begin.elapsed()));
        }
    }
}
