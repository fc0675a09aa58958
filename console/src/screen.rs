//! What is shown to whoever is at the console.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

use kprobes_wire::mark::{Kind, Marked};

use crate::host::host;
use crate::input;

/// What the console has written last was the end of a line.
static WAS_LINE: AtomicBool = AtomicBool::new(true);

/// Whether it was.
pub(crate) fn was_line() -> bool {
    WAS_LINE.load(Ordering::Relaxed)
}

/// Text that is looked at while it is written.
struct Seen<'a>(fmt::Arguments<'a>);

impl fmt::Display for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        See(f).write_fmt(self.0)
    }
}

struct See<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for See<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some(last) = text.bytes().last() {
            WAS_LINE.store(last == b'\n', Ordering::Relaxed);
        }
        self.0.write_str(text)
    }
}

/// What [`print!`](crate::print) calls.
pub(crate) fn write(text: fmt::Arguments<'_>) {
    host().write(format_args!("{}", Seen(text)));
}

/// The console as a place to write text to.
#[derive(Default)]
pub struct Screen {
    /// What is written is marked as this, for a host that reads it.
    pub mark: Option<Kind>,
}

impl Write for Screen {
    /// An error, once ^C was pressed: it ends what is being written.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if input::is_interrupted() {
            return Err(fmt::Error);
        }
        match self.mark {
            None => print!("{text}"),
            Some(kind) => print!("{}", Marked(kind, text)),
        }
        Ok(())
    }
}
