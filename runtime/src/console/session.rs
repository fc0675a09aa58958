//! The conversation: a prompt, a line, an answer.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};
use core::mem;

use aarch64_kprobes::Kprobe;
use kprobes_trace::engine::Probe;
use kprobes_trace::events::{self, Events};
use kprobes_trace::trigger::controls::Controls;
use kprobes_wire::mark::{Kind, Marked};

use super::line_editor::{LineEditor, Refusal};
use super::words::{Failure, Words};
use super::{command, files, probes};
use crate::recording::Recording;
use crate::uart::Foreground;
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
    /// What leaves the machine, if that goes on.
    pub recording: Option<Recording>,
    editor: LineEditor,
    /// A command has lent the console, until [`exit`].
    is_lent: bool,
    /// The line that is being carried out was refused, and the screen says why.
    pub is_refused: bool,
    /// The line before was refused: what `$?` is.
    pub was_refused: bool,
}

#[derive(Default)]
/// The UART as a place to write text to.
pub(super) struct Screen {
    /// What is written is marked as this, for a host that reads it.
    pub mark: Option<Kind>,
}

impl Write for Screen {
    /// An error, once ^C was pressed: it ends what is being written.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if uart::is_interrupted() {
            return Err(fmt::Error);
        }
        match self.mark {
            None => print!("{text}"),
            Some(kind) => print!("{}", Marked(kind, text)),
        }
        Ok(())
    }
}

/// Reads lines from the UART and carries them out, forever.
pub fn run() -> ! {
    let mut session = Session {
        events: Events::new(tracing::rings()),
        controls: tracing::controls(),
        everything: Vec::new(),
        recording: None,
        editor: LineEditor::new(PROMPT),
        is_lent: false,
        is_refused: false,
        was_refused: false,
    };
    println!("Type `help` to see what there is.");
    loop {
        session.converse(|_| false);
    }
}

/// `console`
pub(super) fn lend(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    words.end()?;
    if mem::replace(&mut session.is_lent, true) {
        return Err(Failure::new("this is a console within a command already; `exit` leaves it"));
    }
    Foreground::lend(|| session.converse(|session| !session.is_lent));
    Ok(())
}

/// `exit`
pub(super) fn exit(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    words.end()?;
    match mem::take(&mut session.is_lent) {
        true => Ok(()),
        false => Err(Failure::new("there is nothing to leave; `poweroff` switches the machine off")),
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

fn read_line(editor: &mut LineEditor) -> Result<String, Refusal> {
    if !uart::is_line_done() {
        println!();
    }
    // The screen gives no errors.
    let _ = editor.start(&mut Screen::default());
    loop {
        if let Ok(Some(line)) = editor.feed(uart::read_byte(), &mut Screen::default()) {
            return line;
        }
    }
}

fn show(failure: &Failure, line: &str) {
    // The screen gives no errors.
    let _ = failure.write(line, &mut Screen::default());
}

impl Session {
    /// Reads lines from the UART and carries them out, until `is_over` after one.
    fn converse(&mut self, is_over: impl Fn(&Self) -> bool) {
        let mut lost = uart::overruns();
        while !is_over(self) {
            let line = read_line(&mut self.editor);
            let now = uart::overruns();
            match line {
                _ if now != lost => self.refuse(&Failure::new(Lost(now - mem::replace(&mut lost, now)))),
                Err(refusal) => self.refuse(&Failure::new(refusal)),
                Ok(line) => self.answer(&line),
            }
        }
    }

    /// Says why a line is not carried out.
    fn refuse(&mut self, failure: &Failure) {
        self.was_refused = true;
        show(failure, "");
    }

    /// Carries a line out that was typed, and says what is wrong with it.
    fn answer(&mut self, line: &str) {
        let foreground = Foreground::begin();
        let outcome = self.execute(line);
        let is_refused = mem::take(&mut self.is_refused) || outcome.is_err();
        // A line without a command leaves this as it is, as in a shell.
        if !line.trim().is_empty() && !line.trim_start().starts_with('#') {
            self.was_refused = is_refused;
        }
        if foreground.end() {
            println!("^C");
        } else if let Err(failure) = outcome {
            show(&failure, line);
        }
    }

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
