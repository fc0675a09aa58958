//! The lines that a person, a CI system or an editor reads.

use std::process::ExitCode;

/// What came out so far.
pub struct Report {
    filter: Option<String>,
    passed: usize,
    failed: Vec<String>,
}

impl Report {
    /// A report on the tests whose name contains `filter`.
    pub fn new(filter: Option<String>) -> Self {
        Self { filter, passed: 0, failed: Vec::new() }
    }

    /// Whether this test is asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.filter.as_deref().is_none_or(|filter| name.contains(filter))
    }

    /// Reports a result. The error is everything that helps to find the cause.
    pub fn result(&mut self, name: &str, result: Result<(), String>) {
        match result {
            Ok(()) => {
                println!("test {name} ... ok");
                self.passed += 1;
            }
            Err(why) => {
                println!("test {name} ... FAILED\n---- {name} ----\n{}\n----", why.trim_end());
                self.failed.push(name.into());
            }
        }
    }

    /// Reports a test that says itself that it is not to be run.
    pub fn ignored(&self, name: &str) {
        println!("test {name} ... ignored");
    }

    /// Prints the last line.
    pub fn finish(self) -> ExitCode {
        if !self.failed.is_empty() {
            println!("\nfailures:\n    {}\n", self.failed.join("\n    "));
        }
        let nothing = self.passed + self.failed.len() == 0;
        if nothing {
            let filter = self.filter.unwrap_or_default();
            eprintln!("xtask: no test has {filter:?} in its name");
        }
        println!("{} passed, {} failed", self.passed, self.failed.len());
        if nothing || !self.failed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
