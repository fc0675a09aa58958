//! Writes text to the console, and tells whether its last line has ended.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::host::host;

/// Whether the last text that the console wrote ended with a newline.
static AT_LINE_START: AtomicBool = AtomicBool::new(true);

/// Returns whether the last text on the console ended with a newline: from any writer, if the kernel knows that.
pub(crate) fn is_line_done() -> bool {
    host().is_line_done().unwrap_or_else(|| AT_LINE_START.load(Ordering::Relaxed))
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
