//! The commands: their names, their usage and their help.

use core::fmt;

use crate::host::host;
use crate::nearest::nearest;
use crate::session::{self, Session};
use crate::words::{Failure, Word, Words};
use crate::{coverage, everything, files, help, probes, source, symbols, trace, why};

/// A function that runs a command. The words are those after the command's name.
pub type Run = fn(&mut Session, &mut Words<'_>) -> Result<(), Failure>;

/// A command.
pub struct Command {
    pub(crate) name: &'static str,
    pub(crate) arguments: &'static str,
    pub(crate) help: &'static str,
    pub(crate) more: &'static str,
    /// A line that runs the command; empty if its name is one.
    pub(crate) example: &'static str,
    /// The values of an argument, for completion.
    pub(crate) values: &'static [&'static str],
    /// The last lines of help.
    pub(crate) options: Option<&'static (dyn fmt::Display + Sync)>,
    run: Run,
}

/// The column at which the second half of a line of help begins, and the maximum width of such a line.
pub(crate) const HELP_COLUMN: usize = 33;
const HELP_WIDTH: usize = 80;

/// Returns whether no line of `text` is wider than a line of help may be.
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

    /// Adds the values that the tab key completes, for a first argument that is no name of the console's: see the
    /// module `completion`.
    #[must_use]
    pub const fn values(self, values: &'static [&'static str]) -> Self {
        Self { values, ..self }
    }

    /// Adds the text that `help NAME` shows last.
    #[must_use]
    const fn options(self, options: &'static (dyn fmt::Display + Sync)) -> Self {
        Self { options: Some(options), ..self }
    }
}

static COMMANDS: [Command; 22] = [
    Command::new("trace", "[OPTIONS] PROGRAM", "run a program until ^C or the end of a command", trace::trace)
        .example("trace 'kprobe:blk::* { @[func] = count(); }' -c console")
        .more(
            "PROGRAM: PROBE[, PROBE] [/PREDICATE/] { STATEMENTS } ...\n\
         PROBE: kprobe:GLOB kretprobe:GLOB return:GLOB kprobe:FUNC+OFFSET\n\
         \x20      kprobe:FILE.rs:LINE kprobe:FUNC:LINE insn:FUNC[:OFFSET] BEGIN END\n\
         \x20      inline:GLOB:entry|return tracepoint:GROUP:EVENT\n\
         \x20      interval:ms|s:N profile:hz:N software:cpu-clock:N hardware:EVENT:N\n\
         \x20      watchpoint:ADDRESS|SYMBOL[+OFFSET]:LENGTH:r|w|rw\n\
         STATEMENTS: @MAP[KEYS] = VALUE; $VARIABLE = VALUE; if (VALUE) { } else { }\n\
         \x20           unroll (N) { } return printf(\"FORMAT\", VALUES) print(@MAP)\n\
         \x20           clear(@MAP) zero(@MAP) delete(@MAP[KEYS]) exit()",
        )
        .options(&trace::Help),
    Command::new("funccount", "GLOB [-c COMMAND]", "how often each function is called", trace::count_functions)
        .example("funccount blk::*"),
    Command::new(
        "funclatency",
        "GLOB [-c COMMAND]",
        "how long calls of each function take, in ns",
        trace::time_function,
    )
    .example("funclatency blk::read"),
    Command::new(
        "stackcount",
        "FUNC [-c COMMAND]",
        "where a function is called from, and how often",
        trace::count_stacks,
    )
    .example("stackcount blk::read"),
    Command::new("list-probes", "[-v] PROBES", "what a probe matches, as in kprobe:blk::*", trace::list_probes)
        .example("list-probes -v kprobe:blk::*")
        .more("-v: with the arguments of each function, for use as args.NAME"),
    Command::new("list", "", "all probes, with their hits and misses", probes::list),
    Command::new("ls", "[PATH]", "the files of Linux's tracefs", files::ls).example("ls events"),
    Command::new("cat", "PATH", "print a file", files::cat).example("cat trace").more("cat trace N: the newest N hits"),
    Command::new("echo", "TEXT > PATH", "write a line to a file; `>>` appends", files::echo)
        .example("echo 'p:reads blk::read' >> kprobe_events")
        .more(
            "`>` overwrites, `>>` appends; quotes as in a shell; -n: without a newline;\n\
         -e: with escapes, as \\n, \\0101 and \\x41;\n\
         $?: 1 if the previous line was refused, otherwise 0",
        ),
    Command::new("mkdir", "PATH", "make instances/NAME, a trace of its own", files::mkdir)
        .example("mkdir instances/second")
        .more("it has rings, settings and a tracer; the definitions of events are shared"),
    Command::new("rmdir", "PATH", "remove instances/NAME", files::rmdir).example("rmdir instances/second"),
    Command::new("clear", "trace", "discard the recorded hits", probes::clear).example("clear trace"),
    Command::new("enable", "EVENT", "arm an event again", probes::enable).example("enable reads"),
    Command::new("disable", "EVENT", "disarm an event; its counts stay", probes::disable).example("disable reads"),
    Command::new("why", "SYMBOL[+OFFSET]", "how an instruction is probed, or why not", why::why)
        .example("why blk::read+8")
        .more("without OFFSET: a line for each instruction of the function"),
    Command::new("coverage", "[GLOB]", "how much of the image can be probed", coverage::coverage)
        .example("coverage blk::*")
        .more("GLOB: as for symbols; without it, the whole image"),
    Command::new("everything", "[on|off]", "probe every instruction that can be probed", everything::everything)
        .example("everything on")
        .more("on: probe all; off: remove these probes; no argument: their hits and misses"),
    Command::new("symbols", "[-v] GLOB", "functions and statics by their names", symbols::symbols)
        .example("symbols blk::*")
        .more(
            "GLOB: * matches any characters, ? one; without them: a part of the name\n\
         -v: with the arguments of each function, and their types",
        ),
    Command::new("lines", "FUNC|FILE.rs", "lines of source that can be probed", source::lines)
        .example("lines blk::read")
        .more(
            "FUNC: its lines, with offsets, and as :LINE counted from its declaration\n\
         FILE.rs: its lines, with functions and offsets",
        ),
    Command::new("console", "", "more commands until exit, while trace runs", session::lend)
        .more("as in trace PROGRAM -c console"),
    Command::new("exit", "", "leave the console that `console` began", session::exit),
    Command::new("help", "[NAME]", "this list, or help for a command or a file", help::help).example("help trace"),
];

/// Returns all commands: those of the console, then those of the kernel.
pub(crate) fn all() -> impl Iterator<Item = &'static Command> {
    COMMANDS.iter().chain(host().commands())
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
