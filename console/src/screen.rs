//! Writes text to the console.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use kprobes_wire::mark::{Mark, Marked};

use crate::host::host;
use crate::input;

/// Whether the last text that the console wrote ended with a newline.
static AT_LINE_START: AtomicBool = AtomicBool::new(true);

/// Returns whether the last text that the console wrote ended with a newline.
pub(crate) fn at_line_start() -> bool {
    AT_LINE_START.load(Ordering::Relaxed)
}

/// Text that updates [`AT_LINE_START`] while it is written.
struct Tracked<'a>(fmt::Arguments<'a>);

impl fmt::Display for Tracked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        LineTracker(f).write_fmt(self.0)
    }
}

struct LineTracker<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for LineTracker<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some(last) = text.bytes().last() {
            AT_LINE_START.store(last == b'\n', Ordering::Relaxed);
        }
        self.0.write_str(text)
    }
}

/// Writes text to the console, for [`print!`](crate::print).
pub(crate) fn write(text: fmt::Arguments<'_>) {
    host().write(format_args!("{}", Tracked(text)));
}

/// The console as a writer of text.
#[derive(Default)]
pub struct Screen {
    /// The mark to put around the text, for a program on the host that reads it.
    pub mark: Option<Mark>,
}

impl Write for Screen {
    /// Returns an error once ^C was pressed, which ends the text that is being written.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if input::is_interrupted() {
            return Err(fmt::Error);
        }
        match self.mark {
            None => print!("{text}"),
            Some(mark) => print!("{}", Marked(mark, text)),
        }
        Ok(())
    }
}
