//! The dialog of the console: a prompt, a line, an answer.

use alloc::string::String;
use core::mem;

use crate::input::{self, Foreground};
use crate::line_editor::{LineEditor, LineRefusal};
use crate::screen::Screen;
use crate::session::{PROMPT, Session};
use crate::words::{Failure, Words};
use crate::{command, files, output, probes};

/// Reads lines and runs them, forever, with the registered commands.
pub(crate) fn run() -> ! {
    let mut session = Session::new();
    println!("Type `help` to see what there is.");
    loop {
        session.converse(|_| false);
    }
}

/// Runs the command `console`.
pub(crate) fn lend(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    words.end()?;
    if mem::replace(&mut session.is_lent, true) {
        return Err(Failure::new("this is already a console within a command; `exit` leaves it"));
    }
    Foreground::lend(|| session.converse(|session| !session.is_lent));
    Ok(())
}

/// Runs the command `exit`.
pub(crate) fn exit(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    words.end()?;
    match mem::take(&mut session.is_lent) {
        true => Ok(()),
        false => Err(Failure::new("`exit` leaves a console that `console` began, and there is none")),
    }
}

fn show(failure: &Failure, line: &str) {
    // The screen returns errors only while a command runs, and none runs now.
    let _ = failure.write(line, &mut Screen::default());
}

impl Session {
    fn read_line(&mut self) -> Result<String, LineRefusal> {
        if !output::is_line_done() {
            println!();
        }
        // The editor is taken out of the session, which completes words for it.
        let mut editor = mem::replace(&mut self.editor, LineEditor::new(PROMPT));
        // The screen returns errors only while a command runs, and none runs now.
        let _ = editor.start(&mut Screen::default());
        loop {
            if let Ok(Some(line)) = editor.feed(input::read_byte(), self, &mut Screen::default()) {
                self.editor = editor;
                return line;
            }
        }
    }

    /// Reads lines from the UART and runs them, until `is_over` is true after a line.
    fn converse(&mut self, is_over: impl Fn(&Self) -> bool) {
        while !is_over(self) {
            let line = self.read_line();
            let now = input::lost();
            let lost = now - mem::replace(&mut self.lost, now);
            match line {
                _ if lost > 0 => self.refuse(&Failure::new(format_args!(
                    "input came faster than it was read (bytes lost: at least {lost}), so this line is not run"
                ))),
                Err(refusal) => self.refuse(&Failure::new(refusal)),
                Ok(line) => self.answer(&line),
            }
        }
    }

    /// Shows why a line is refused.
    fn refuse(&mut self, failure: &Failure) {
        self.was_refused = true;
        show(failure, "");
    }

    /// Runs a line, and shows its error.
    fn answer(&mut self, line: &str) {
        let foreground = Foreground::begin(line);
        let outcome = self.execute(line);
        let is_refused = mem::take(&mut self.is_refused) || outcome.is_err();
        // As in a shell, a line without a command does not change `$?`.
        if !line.trim().is_empty() && !line.trim_start().starts_with('#') {
            self.was_refused = is_refused;
        }
        if foreground.end() {
            println!("^C");
            // ^C has discarded the line whose bytes were lost, unless something came after it.
            if !input::is_available() {
                self.lost = input::lost();
            }
        } else if let Err(failure) = outcome {
            show(&failure, line);
        }
    }

    /// Runs a line as it would be typed.
    ///
    /// # Errors
    ///
    /// Returns the problem with the line. A problem that the command has shown itself is no error.
    pub fn execute(&mut self, line: &str) -> Result<(), Failure> {
        let mut words = Words::new(line);
        if kprobes_trace::definition::is_definition(line) {
            return probes::define(self, line);
        }
        match words.next() {
            Some(word) if word.text.starts_with('>') => files::truncate(self, line),
            Some(word) if !word.text.starts_with('#') => command::find(word)?.execute(self, &mut words),
            _ => Ok(()),
        }
    }
}
