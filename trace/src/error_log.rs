//! The file `error_log`: the last refused lines, each with its problem and a caret under the cause, as in Linux
//! (Documentation/trace/ftrace.rst, "error_log").

use alloc::collections::VecDeque;
use alloc::string::String;
use core::fmt::{self, Write};

use fallible::OutOfMemory;

use crate::text::Time;

/// The number of errors that the log keeps; a further one replaces the oldest.
pub const KEPT: usize = 8;

const PREFIX: &str = "  Command: ";

/// The last errors, oldest first.
#[derive(Clone, Debug, Default)]
pub struct ErrorLog {
    errors: VecDeque<LoggedError>,
}

#[derive(Clone, Debug)]
struct LoggedError {
    microseconds: u64,
    place: String,
    problem: String,
    command: String,
    column: usize,
}

impl ErrorLog {
    /// Logs that `command`, written to `place`, was refused for `problem`, whose cause is `column` characters from the
    /// start of the command.
    ///
    /// If there is no memory for the error, the log stays as it is: the caller's error of the write is then the only
    /// report.
    pub fn add(&mut self, microseconds: u64, place: &str, problem: &dyn fmt::Display, command: &str, column: usize) {
        let _ = self.try_add(microseconds, place, problem, command, column);
    }

    fn try_add(
        &mut self,
        microseconds: u64,
        place: &str,
        problem: &dyn fmt::Display,
        command: &str,
        column: usize,
    ) -> Result<(), OutOfMemory> {
        let (place, command) = (fallible::copy(place)?, fallible::copy(command)?);
        let problem = fallible::format(format_args!("{problem}"))?;
        self.errors.try_reserve(1)?;
        if self.errors.len() == KEPT {
            self.errors.pop_front();
        }
        self.errors.push_back(LoggedError { microseconds, place, problem, command, column });
        Ok(())
    }

    /// Removes all errors.
    pub fn clear(&mut self) {
        self.errors.clear();
    }

    /// Writes the contents of the file.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write(&self, out: &mut dyn Write) -> fmt::Result {
        self.errors.iter().try_for_each(|LoggedError { microseconds, place, problem, command, column }| {
            writeln!(out, "[{}] {place}: error: {problem}", Time(*microseconds))?;
            writeln!(out, "{PREFIX}{command}\n{:width$}^", "", width = PREFIX.len() + column)
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_last_errors_are_shown_as_linux_shows_them() {
        let mut log = ErrorLog::default();
        for number in 0..KEPT as u64 {
            log.add(number, "x", &"gone", "", 0);
        }
        log.add(7_841_141, "trace_kprobe", &"Invalid register name", "p:x vfs_read %x99", 13);
        let mut text = String::new();
        log.write(&mut text).unwrap();
        assert_eq!(text.lines().count(), 3 * KEPT);
        assert!(text.starts_with("[    0.000001] x: error: gone\n  Command: \n           ^\n"), "{text}");
        assert!(text.ends_with(
            "[    7.841141] trace_kprobe: error: Invalid register name\n  Command: p:x vfs_read %x99\n                        ^\n"
        ));
        log.clear();
        text.clear();
        log.write(&mut text).unwrap();
        assert_eq!(text, "");
    }
}
