//! The tests on the target: every one has a machine of its own, so that none can spoil another and a machine
//! that hangs is one result. All is decided from the UART.

use std::{
    ffi::OsString,
    iter,
    path::Path,
    sync::{
        Mutex,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    protocol::{Listing, PROMPT, Reply, Test, Trial},
    report::Report,
};
use crate::{
    board::{BASE, Board, Configuration, Overrides},
    console::{Console, Event},
    image,
    machine::{Machine, Output},
    workspace,
};

/// Machines that run at once.
const MACHINES: usize = 2;

/// As much of the end of a UART's output is kept.
const KEPT_OUTPUT: usize = 64 * 1024;

/// One test in one configuration.
struct Job {
    name: String,
    arguments: Vec<OsString>,
    test: Test,
}

/// Runs the wanted tests in these configurations of the board.
pub fn test(report: &mut Report, board: &Board, configurations: &[&Configuration], seconds: u64) {
    let mut jobs = match jobs(board, configurations, seconds) {
        Ok(jobs) => jobs,
        Err(error) => return report.result(&format!("{}::list", board.name), Err(format!("{error:#}"))),
    };
    jobs.retain(|job| report.wants(&job.name));
    let jobs = &Mutex::new(jobs.into_iter());
    let (results, reported) = mpsc::channel();
    thread::scope(|scope| {
        for results in iter::repeat_n(results, MACHINES) {
            scope.spawn(move || work(jobs, seconds, &results));
        }
        for (name, result) in reported {
            report.result(&name, result);
        }
    });
}

/// Does jobs as long as there are any.
fn work(jobs: &Mutex<impl Iterator<Item = Job>>, seconds: u64, results: &Sender<(String, Result<(), String>)>) {
    let next = || jobs.lock().ok()?.next();
    while let Some(job) = next() {
        let mut trial = Trial::new(job.test);
        let result = converse(&job.arguments, seconds, |event| trial.event(event));
        if results.send((job.name, result)).is_err() {
            return;
        }
    }
}

/// Every test that the image lists, in every configuration.
fn jobs(board: &Board, configurations: &[&Configuration], seconds: u64) -> Result<Vec<Job>> {
    let image = image::write_beside(&workspace::build_kernel("kprobes-tests")?)?;
    let arguments = |configuration, image: &Path| board.arguments(configuration, &Overrides::default(), image);
    let mut tests = Vec::new();
    if let Some(first) = configurations.first() {
        let mut listing = Listing::default();
        tests =
            converse(&arguments(first, &image)?, seconds, |event| listing.event(event)).map_err(anyhow::Error::msg)?;
    }
    let mut jobs = Vec::new();
    for configuration in configurations {
        let place = match configuration.name.as_str() {
            BASE => board.name.clone(),
            other => format!("{}/{other}", board.name),
        };
        let arguments = arguments(configuration, &image)?;
        jobs.extend(tests.iter().map(|test| Job {
            name: format!("{place}::{}", test.name),
            arguments: arguments.clone(),
            test: test.clone(),
        }));
    }
    Ok(jobs)
}

/// Talks to a fresh machine until it is decided. The error ends with what the UART sent.
fn converse<T>(arguments: &[OsString], seconds: u64, event: impl FnMut(Event) -> Reply<T>) -> Result<T, String> {
    let mut log = Vec::new();
    talk(arguments, seconds, event, &mut log).map_err(|sentence| {
        let text: String = String::from_utf8_lossy(&log).chars().filter(|character| *character != '\r').collect();
        format!("{}\n{sentence}", text.trim_end())
    })
}

fn talk<T>(
    arguments: &[OsString],
    seconds: u64,
    mut event: impl FnMut(Event) -> Reply<T>,
    log: &mut Vec<u8>,
) -> Result<T, String> {
    let (sender, outputs) = mpsc::channel();
    // Nobody listens any more when it is decided.
    let machine =
        Machine::start(arguments, move |output| drop(sender.send(output))).map_err(|error| format!("{error:#}"))?;
    let mut console = Console::new(PROMPT);
    let timeout = Duration::from_secs(seconds);
    let mut deadline = Instant::now() + timeout;
    loop {
        match outputs.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Output::Bytes(bytes)) => {
                log.extend(&bytes);
                log.drain(..log.len().saturating_sub(KEPT_OUTPUT));
                for happening in console.feed(&bytes) {
                    match event(happening) {
                        Reply::Wait => {}
                        Reply::Type(line) => {
                            machine.type_line(&line);
                            deadline = Instant::now() + timeout;
                        }
                        Reply::Done(result) => return result,
                    }
                }
            }
            Ok(Output::End) => {
                return Err(match machine.end() {
                    Ok(()) => "the machine powered off without a result".into(),
                    Err(how) => format!("QEMU ended without a result: {how}"),
                });
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Err(format!("there is no result within {seconds} s"));
            }
        }
    }
}
