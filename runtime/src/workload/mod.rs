//! Programs to probe. They know nothing of probes, compute something with a known answer, and do so in several tasks at
//! once.
//!
//! The algorithms and the disk driver are third-party crates, compiled as any other program compiles them. An iteration
//! is a plain function that returns whether its answer was right. Functions that it calls a fixed number of times are
//! listed with it, so that hits can be compared with calls.

mod deflate;
pub mod disk;
mod random;
mod runner;
mod sha256;

use core::fmt;
use core::time::Duration;

use kprobes_vm::counted::counted;

pub use runner::run;

/// A program that runs in iterations.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// The name in the console's `run` command.
    pub name: &'static str,
    /// Returns what the machine lacks if it cannot run the workload.
    pub lacks: fn() -> Option<&'static str>,
    /// Runs one iteration. Returns whether its answer was right.
    pub iterate: fn() -> bool,
    /// Functions by their symbols, and how often one iteration calls each.
    pub calls: &'static [(&'static str, u64)],
}

/// The names of all workloads.
pub static NAMES: [&str; WORKLOADS.len()] = {
    let mut names = [""; WORKLOADS.len()];
    let mut number = 0;
    while number < names.len() {
        names[number] = WORKLOADS[number].name;
        number += 1;
    }
    names
};

/// All workloads.
pub static WORKLOADS: [Workload; 3] = [
    Workload {
        name: "sha256",
        lacks: || None,
        iterate: sha256::iterate,
        calls: &[("runtime::workload::sha256::iterate", 1), ("sha2::sha256::compress256", 2)],
    },
    Workload {
        name: "deflate",
        lacks: || None,
        iterate: deflate::iterate,
        calls: &[
            ("runtime::workload::deflate::iterate", 1),
            ("miniz_oxide::deflate::core::compress", 1),
            ("miniz_oxide::inflate::core::decompress", 1),
            ("miniz_oxide::inflate::core::decompress_fast", 1),
            ("miniz_oxide::inflate::core::init_tree", 2),
            ("adler2::adler32_slice", 1),
        ],
    },
    Workload {
        name: "disk",
        lacks: disk::lacks,
        iterate: disk::iterate,
        calls: &[
            ("runtime::workload::disk::iterate", 1),
            ("runtime::block::request::update_request", 2),
            ("runtime::block::request::end_request", 1),
        ],
    },
];

/// Returns the workload with this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name)
}

/// The result of a run.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// The workload that ran.
    pub workload: &'static Workload,
    /// The number of tasks it ran in.
    pub tasks: u64,
    /// Iterations with the right answer.
    pub right: u64,
    /// Iterations with a wrong answer.
    pub wrong: u64,
    /// The time from the start of the first task to the end of the last.
    pub elapsed: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let iterations = self.right + self.wrong;
        let (done, tasks) = (counted(iterations, "iteration", "iterations"), counted(self.tasks, "task", "tasks"));
        write!(f, "{}: {done} in {tasks}: ", self.workload.name)?;
        write!(f, "{} right, {} wrong, {} ms", self.right, self.wrong, self.elapsed.as_millis())?;
        for (function, calls) in self.workload.calls {
            let calls = calls * iterations;
            write!(f, "\n  {calls:>8} {} of {function}", if calls == 1 { "call" } else { "calls" })?;
        }
        Ok(())
    }
}

/// Returns how many of `iterations` the task numbered `index` of `tasks` does. Shares differ by at most one.
#[must_use]
pub fn share(iterations: u64, tasks: u64, index: u64) -> u64 {
    iterations / tasks + u64::from(index < iterations % tasks)
}
