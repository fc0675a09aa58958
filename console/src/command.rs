//! A command: a name, a function that runs it, and its help. Registers and finds commands.

use core::fmt;

use spin::Once;

use crate::nearest::nearest;
use crate::session::Session;
use crate::words::{Failure, Word, Words};

/// A function that runs a command. The words are those after the command's name.
pub type Run = fn(&mut Session, &mut Words<'_>) -> Result<(), Failure>;

/// A command.
pub struct Command {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static str,
    pub(crate) help: &'static str,
    pub(crate) more: &'static str,
    /// A line that runs the command; empty if the name alone does.
    pub(crate) example: &'static str,
    /// The values of an argument, for completion.
    pub(crate) values: &'static [&'static str],
    /// The lines at the end of the help.
    pub(crate) options: Option<&'static (dyn fmt::Display + Sync)>,
    run: Run,
}

/// The column at which the second half of a line of help begins, and the maximum width of such a line.
pub(crate) const HELP_COLUMN: usize = 33;
const HELP_WIDTH: usize = 80;

/// Returns whether no line of `text` is wider than [`HELP_WIDTH`].
pub(crate) const fn is_narrow(text: &str) -> bool {
    let (mut at, mut length) = (0, 0);
    while at < text.len() {
        length = if text.as_bytes()[at] == b'\n' { 0 } else { length + 1 };
        if length > HELP_WIDTH {
            return false;
        }
        at += 1;
    }
    true
}

impl Command {
    /// Creates a command. `help` describes it in one line.
    ///
    /// # Panics
    ///
    /// Panics if the line of help does not fit into 80 columns, with 33 for the usage and 47 for the description. In a
    /// static, this is a compile-time error.
    #[must_use]
    pub const fn new(name: &'static str, arguments: &'static str, help: &'static str, run: Run) -> Self {
        assert!(
            name.len() + 1 + arguments.len() < HELP_COLUMN,
            "the arguments fit into the first half of a line of help"
        );
        assert!(
            HELP_COLUMN + help.len() <= HELP_WIDTH,
            "what a command does fits into the second half of a line of help"
        );
        Self { name, arguments, help, more: "", example: "", values: &[], options: None, run }
    }

    /// Adds the lines that `help NAME` shows after the usual ones, each of up to 80 columns.
    ///
    /// # Panics
    ///
    /// Panics if a line is wider.
    #[must_use]
    pub const fn more(self, more: &'static str) -> Self {
        assert!(is_narrow(more), "no line of help is longer than 80 columns");
        Self { more, ..self }
    }

    /// Adds a line that runs the command, for `help NAME`.
    ///
    /// # Panics
    ///
    /// Panics if the line has more than 80 columns.
    #[must_use]
    pub const fn example(self, example: &'static str) -> Self {
        assert!(is_narrow(example), "no line of help is longer than 80 columns");
        Self { example, ..self }
    }

    /// Adds the values that the tab key completes, for a first argument for which the console itself knows no names:
    /// see the module `completion`.
    #[must_use]
    pub const fn values(self, values: &'static [&'static str]) -> Self {
        Self { values, ..self }
    }

    /// Adds the text that `help NAME` shows last.
    #[must_use]
    pub(crate) const fn options(self, options: &'static (dyn fmt::Display + Sync)) -> Self {
        Self { options: Some(options), ..self }
    }
}

impl Command {
    /// Runs the command with the arguments in `words`.
    ///
    /// # Errors
    ///
    /// Returns the command's error.
    pub fn execute(&self, session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
        // These commands handle redirections themselves, or leave them to a command after `-c`.
        let reads_them = matches!(
            self.name,
            "trace" | "funccount" | "funclatency" | "stackcount" | "ls" | "cat" | "echo" | "mkdir" | "rmdir"
        );
        if !reads_them {
            words.no_redirection()?;
        }
        (self.run)(session, words)
    }
}

/// The commands of the console, and those of the kernel.
static COMMANDS: Once<[&[Command]; 2]> = Once::new();

/// Registers all commands. Later calls have no effect.
pub(crate) fn register(console: &'static [Command], kernel: &'static [Command]) {
    COMMANDS.call_once(|| [console, kernel]);
}

/// Returns the registered commands: those of the console, then those of the kernel.
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    COMMANDS.get().into_iter().flatten().copied().flatten()
}

/// Looks up the command named `word`.
///
/// # Errors
///
/// No command has this name. The error suggests a similar one.
pub(crate) fn find(word: Word<'_>) -> Result<&'static Command, Failure> {
    let names = || all().map(|command| command.name);
    let found = all().find(|command| command.name == word.text);
    found.ok_or_else(|| match nearest(word.text, names()) {
        Some(name) => word.failure(format_args!("there is no command `{}`; did you mean `{name}`?", word.text)),
        None => word.failure(format_args!("there is no command `{}`; `help` lists them", word.text)),
    })
}
