//! The console as a writer of text, which ^C interrupts.

use core::fmt::{self, Write};

use kprobes_wire::mark::{Mark, Marked};

use crate::input;

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
