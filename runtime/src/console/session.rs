//! The conversation: a prompt, a line, an answer.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::mem;

use aarch64_kprobes::Kprobe;
use kprobes_trace::engine::Probe;
use kprobes_trace::events::{self, Events};
use kprobes_trace::trigger::controls::Controls;

use super::line_editor::LineEditor;
use super::words::{Failure, Words};
use super::{command, files, probes};
use crate::{print, println, tracing, uart};

const PROMPT: &str = "kprobes> ";

/// A probe of an event.
pub(super) type Event = events::Event<Probe>;

/// What commands work on.
pub(super) struct Session {
    /// The events that were defined here.
    pub events: Events<Probe>,
    /// What is set about them.
    pub controls: Controls,
    /// The probes on every instruction, if there are any.
    pub everything: Vec<Kprobe>,
}

/// The UART as a place to write text to.
pub(super) struct Screen;

impl Write for Screen {
    /// An error, once ^C was pressed: it ends what is being written.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if uart::is_interrupted() {
            return Err(fmt::Error);
        }
        print!("{text}");
        Ok(())
    }
}

/// Reads lines from the UART and carries them out, for ever.
pub fn run() -> ! {
    let mut session =
        Session { events: Events::new(tracing::rings()), controls: tracing::controls(), everything: Vec::new() };
    let mut editor = LineEditor::new(PROMPT);
    println!("Type `help` to see what there is.");
    let mut lost = uart::overruns();
    loop {
        let line = read_line(&mut editor);
        let outcome = match uart::overruns() {
            before if before == lost => {
                let foreground = uart::Foreground::begin();
                let outcome = session.execute(&line);
                if foreground.end() {
                    println!("^C");
                    continue;
                }
                outcome
            }
            now => Err(Failure::new(Lost(now - mem::replace(&mut lost, now)))),
        };
        if let Err(failure) = outcome {
            // The screen gives no errors.
            let _ = failure.write(&line, &mut Screen);
        }
    }
}

/// Why a line is not carried out that may not be the one that was sent.
struct Lost(u64);

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(least) = self;
        write!(f, "input came faster than it was read (bytes lost: at least {least}), so this line is not carried out")
    }
}

fn read_line(editor: &mut LineEditor) -> String {
    // The screen gives no errors.
    let _ = editor.start(&mut Screen);
    loop {
        if let Ok(Some(line)) = editor.feed(uart::read_byte(), &mut Screen) {
            return line;
        }
    }
}

impl Session {
    /// Carries a line out.
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
