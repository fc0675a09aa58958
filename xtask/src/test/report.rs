//! The lines that a person, a CI system or an editor reads.

use std::process::ExitCode;

/// What comes of a test that does not fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// It does not apply, for this reason.
    Skipped(String),
}

/// What came out so far.
pub struct Report {
    filter: Option<String>,
    passed: usize,
    ignored: usize,
    failed: Vec<String>,
}

impl Report {
    /// A report on the tests whose name contains `filter`.
    pub fn new(filter: Option<String>) -> Self {
        Self { filter, passed: 0, ignored: 0, failed: Vec::new() }
    }

    /// Whether this test is asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.filter.as_deref().is_none_or(|filter| name.contains(filter))
    }

    /// Reports the result of what always applies. The error is everything that helps to find the cause.
    pub fn result(&mut self, name: &str, result: Result<(), String>) {
        self.outcome(name, result.map(|()| Outcome::Passed));
    }

    /// The same of what may not apply.
    pub fn outcome(&mut self, name: &str, outcome: Result<Outcome, String>) {
        match outcome {
            Ok(Outcome::Passed) => {
                println!("test {name} ... ok");
                self.passed += 1;
            }
            Ok(Outcome::Skipped(reason)) => self.ignored(name, &format!(", {reason}")),
            Err(why) => {
                println!("test {name} ... FAILED\n---- {name} ----\n{}\n----", why.trim_end());
                self.failed.push(name.into());
            }
        }
    }

    /// Reports a test that says itself that it is not to be run; `why` may be empty, or a comma and a reason.
    pub fn ignored(&mut self, name: &str, why: &str) {
        println!("test {name} ... ignored{why}");
        self.ignored += 1;
    }

    /// Prints the last lines: those that were ignored, if any were, have one of their own.
    pub fn finish(self) -> ExitCode {
        if !self.failed.is_empty() {
            println!("\nfailures:\n    {}\n", self.failed.join("\n    "));
        }
        let nothing = self.passed + self.ignored + self.failed.len() == 0;
        if nothing {
            let filter = self.filter.unwrap_or_default();
            eprintln!("xtask: no test has {filter:?} in its name");
        }
        if self.ignored > 0 {
            println!("{} ignored", self.ignored);
        }
        println!("{} passed, {} failed", self.passed, self.failed.len());
        if nothing || !self.failed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
