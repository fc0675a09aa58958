//! Prints results for people, CI systems and editors.

use std::{process::ExitCode, time::Duration};

use super::wanted::Wanted;

/// The outcome of a test that has not failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// The test does not apply, for this reason.
    Skipped(String),
}

/// The result of a test, or of a step on which tests depend.
pub struct Finished {
    pub name: String,
    /// The error is everything that helps to find the cause.
    pub outcome: Result<Outcome, String>,
    /// How long it took. `None` for a step, which cannot be repeated by its name, and for a skipped test.
    duration: Option<Duration>,
}

impl Finished {
    /// Creates the result of a test.
    pub fn test(name: impl Into<String>, outcome: Result<Outcome, String>, duration: Duration) -> Self {
        Self { name: name.into(), outcome, duration: Some(duration) }
    }

    /// Creates the result of a test that does not apply, for this reason.
    pub fn skipped(name: impl Into<String>, reason: String) -> Self {
        Self { name: name.into(), outcome: Ok(Outcome::Skipped(reason)), duration: None }
    }

    /// Creates the result of a step that failed with this sentence.
    pub fn failed_step(name: impl Into<String>, sentence: String) -> Self {
        Self { name: name.into(), outcome: Err(sentence), duration: None }
    }
}

/// The results so far.
pub struct Report {
    /// The command that repeats a test, if its name follows.
    command: String,
    passed: usize,
    ignored: usize,
    failed: Vec<String>,
    durations: Vec<(Duration, String)>,
}

impl Report {
    /// Creates a report. `command` is the command that repeats a test, if its name follows.
    pub fn new(command: String) -> Self {
        Self { command, passed: 0, ignored: 0, failed: Vec::new(), durations: Vec::new() }
    }

    /// Prints a result, and counts it.
    pub fn add(&mut self, Finished { name, outcome, duration }: Finished) {
        match outcome {
            Ok(Outcome::Passed) => {
                println!("test {name} ... ok");
                self.passed += 1;
            }
            Ok(Outcome::Skipped(reason)) => {
                let comma = if reason.is_empty() { "" } else { ", " };
                println!("test {name} ... ignored{comma}{reason}");
                self.ignored += 1;
            }
            Err(why) => {
                println!("test {name} ... FAILED\n---- {name} ----\n{}\n----", why.trim_end());
                if duration.is_some() {
                    println!("again: {} {name}", self.command);
                }
                self.failed.push(name.clone());
            }
        }
        self.durations.extend(duration.map(|duration| (duration, name)));
    }

    /// Whether nothing was reported.
    pub fn is_empty(&self) -> bool {
        self.passed + self.ignored + self.failed.len() == 0
    }

    /// Records the duration of something other than a test.
    pub fn took(&mut self, what: String, duration: Duration) {
        self.durations.push((duration, what));
    }

    /// Returns the `count` entries that took longest, a line each.
    fn slowest(&mut self, count: usize) -> Vec<String> {
        self.durations.sort_by(|one, other| other.cmp(one));
        let shown = self.durations.iter().take(count);
        shown.map(|(duration, name)| format!("{:8.1} s  {name}", duration.as_secs_f64())).collect()
    }

    /// Prints the last lines: the slowest tests if `durations` asks for them, the failed ones, and the counts.
    pub fn finish(mut self, wanted: &Wanted, durations: Option<usize>) -> ExitCode {
        if let Some(count) = durations {
            println!("\nslowest:\n{}\n", self.slowest(count).join("\n"));
        }
        if !self.failed.is_empty() {
            println!("\nfailures:\n    {}\n", self.failed.join("\n    "));
        }
        let nothing = self.is_empty();
        if nothing {
            eprintln!("xtask: {}", wanted.nothing());
        }
        if self.ignored > 0 {
            println!("{} ignored", self.ignored);
        }
        println!("{} passed, {} failed", self.passed, self.failed.len());
        if nothing || !self.failed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Report;

    #[test]
    fn the_slowest_come_first() {
        let mut report = Report::new(String::new());
        for (name, millis) in [("a", 1500), ("b", 70_000), ("c", 20)] {
            report.took(name.into(), Duration::from_millis(millis));
        }
        assert_eq!(report.slowest(2), ["    70.0 s  b", "     1.5 s  a"]);
        assert_eq!(report.slowest(9).len(), 3);
    }
}
