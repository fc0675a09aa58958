//! The tests on the target: every one has a machine of its own, so that none can spoil another and a machine
//! that hangs is one result. All is decided from the UART.

use std::{
    ffi::OsString,
    iter,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        mpsc::{self, Sender},
    },
    thread,
};

use anyhow::Result;

use super::{
    boot,
    dialogue::{Subject, converse},
    network,
    protocol::{Listing, Trial},
    report::{Outcome, Report},
    sessions,
};
use crate::{
    bench,
    board::{BASE, Board, Configuration, Overrides},
    image,
    machine::Start,
    workspace,
};

/// Machines that run at once.
const MACHINES: usize = 2;

/// One test in one configuration.
struct Job {
    name: String,
    machine: Box<dyn Start + Send>,
    /// The error says why there is nothing to talk about.
    subject: Result<Talk, String>,
}

/// What is talked about.
pub enum Talk {
    Trial(Trial),
    Other(Box<dyn Subject<()> + Send>),
}

impl Talk {
    /// Has the talk, for `seconds` at most from one line to the next.
    pub fn with(self, start: &dyn Start, seconds: u64) -> Result<Outcome, String> {
        match self {
            Self::Trial(mut trial) => converse(start, seconds, &mut trial),
            Self::Other(mut subject) => converse(start, seconds, &mut *subject).map(|()| Outcome::Passed),
        }
    }
}

/// A board, and how it is tested.
struct Bench<'a> {
    board: &'a Board,
    configurations: &'a [Configuration],
    seconds: u64,
}

/// Runs the wanted tests in these configurations of the board.
pub fn test(report: &mut Report, board: &Board, configurations: &[Configuration], seconds: u64) {
    let bench = Bench { board, configurations, seconds };
    let mut all = Vec::new();
    for (what, jobs) in [("list", bench.listed()), ("console", bench.kernel()), ("bench", bench.benchmark())] {
        match jobs {
            Ok(jobs) => all.extend(jobs),
            Err(error) => report.result(&format!("{}::{what}", board.name), Err(format!("{error:#}"))),
        }
    }
    all.retain(|job| report.wants(&job.name));
    let jobs = &Mutex::new(all.into_iter());
    let (results, reported) = mpsc::channel();
    thread::scope(|scope| {
        for results in iter::repeat_n(results, MACHINES) {
            scope.spawn(move || work(jobs, seconds, &results));
        }
        for (name, result) in reported {
            report.outcome(&name, result);
        }
    });
}

/// Does jobs as long as there are any.
fn work(jobs: &Mutex<impl Iterator<Item = Job>>, seconds: u64, results: &Sender<(String, Result<Outcome, String>)>) {
    let next = || jobs.lock().ok()?.next();
    while let Some(job) = next() {
        let result = job.subject.and_then(|subject| subject.with(&*job.machine, seconds));
        if results.send((job.name, result)).is_err() {
            return;
        }
    }
}

impl Bench<'_> {
    fn arguments(&self, configuration: &Configuration, image: &Path) -> Result<Vec<OsString>> {
        self.board.arguments(configuration, &Overrides::default(), image)
    }

    /// Every test that the tests image lists, in every configuration.
    fn listed(&self) -> Result<Vec<Job>> {
        let image = image::write_beside(&workspace::build_kernel("kprobes-tests")?)?;
        let Some(first) = self.configurations.first() else { return Ok(Vec::new()) };
        let tests = converse(&self.arguments(first, &image)?, self.seconds, &mut Listing::default())
            .map_err(anyhow::Error::msg)?;
        let mut jobs = Vec::new();
        for configuration in self.configurations {
            let place = self.place(configuration);
            let arguments = self.arguments(configuration, &image)?;
            jobs.extend(tests.iter().map(|test| Job {
                name: format!("{place}::{}", test.name),
                machine: Box::new(arguments.clone()),
                subject: Ok(Talk::Trial(Trial::new(test.clone(), self.board.lacks(Some(configuration))))),
            }));
        }
        Ok(jobs)
    }

    /// Everything that is tried on the kernel itself, in every configuration.
    fn kernel(&self) -> Result<Vec<Job>> {
        let elf = workspace::build_kernel("runtime")?;
        let image: PathBuf = image::write_beside(&elf)?;
        let plain = self.board.cpus(self.board.configuration(BASE)?);
        let mut jobs = Vec::new();
        for configuration in self.configurations {
            let place = self.place(configuration);
            let arguments = self.arguments(configuration, &image)?;
            let mut console = |name: &str, subject: Result<_, String>| {
                let name = format!("{place}::console::{name}");
                jobs.push(Job { name, machine: Box::new(arguments.clone()), subject: subject.map(Talk::Other) });
            };
            let cpus = self.board.cpus(configuration);
            for session in sessions::all(&self.board.name, cpus, cpus == plain)? {
                console(&session.name, session.subject());
            }
            console("garbage", sessions::garbage());
            jobs.extend(boot::all(self.board, configuration, &elf, &image)?.into_iter().map(|boot| Job {
                name: format!("{place}::boot::{}", boot.name),
                machine: Box::new(boot.arguments),
                subject: boot.subject.map(Talk::Other),
            }));
            let mut captures = image.as_os_str().to_owned();
            captures.push(format!(".captures/{}-{}", self.board.name, configuration.name));
            jobs.extend(network::all(self.board, configuration, &arguments, captures.as_ref())?.into_iter().map(
                |trial| Job {
                    name: format!("{place}::network::{}", trial.name),
                    machine: Box::new(trial.machine),
                    subject: trial.subject.map(Talk::Other),
                },
            ));
        }
        Ok(jobs)
    }

    /// Every case of the benchmark once, in every configuration.
    fn benchmark(&self) -> Result<Vec<Job>> {
        let image = image::write_beside(&workspace::build_kernel(bench::PACKAGE)?)?;
        let job = |configuration: &Configuration| {
            Ok(Job {
                name: format!("{}::bench::cases", self.place(configuration)),
                machine: Box::new(self.arguments(configuration, &image)?),
                subject: Ok(Talk::Other(Box::new(bench::Rehearsal::default()))),
            })
        };
        self.configurations.iter().map(job).collect()
    }

    /// What the names of the tests in this configuration begin with.
    fn place(&self, configuration: &Configuration) -> String {
        match configuration.name.as_str() {
            BASE => self.board.name.clone(),
            other => format!("{}/{other}", self.board.name),
        }
    }
}
