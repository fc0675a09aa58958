//! The commands: what each is called by, and what it says of itself in a line.

use super::session::{self, Session};
use super::words::{Failure, Word, Words};
use super::{coverage, everything, files, help, network, probes, program, source, system, why};
use crate::nearest::nearest;

/// A command.
pub(super) struct Command {
    pub name: &'static str,
    pub arguments: &'static str,
    pub help: &'static str,
    run: fn(&mut Session, &mut Words<'_>) -> Result<(), Failure>,
}

pub(super) static COMMANDS: [Command; 28] = [
    Command {
        name: "trace",
        arguments: "[OPTIONS] PROGRAM",
        help: "run a program until ^C, or with a command",
        run: program::trace,
    },
    Command {
        name: "funccount",
        arguments: "GLOB [-c COMMAND]",
        help: "how often each function is called",
        run: program::count_functions,
    },
    Command {
        name: "funclatency",
        arguments: "GLOB [-c COMMAND]",
        help: "how long calls of each function take, in ns",
        run: program::time_function,
    },
    Command {
        name: "stackcount",
        arguments: "FUNC [-c COMMAND]",
        help: "where a function is called from, and how often",
        run: program::count_stacks,
    },
    Command {
        name: "list-probes",
        arguments: "[-v] PROBES",
        help: "what a probe matches, as in kprobe:blk::*",
        run: program::list,
    },
    Command { name: "list", arguments: "", help: "all probes, with their hits and misses", run: probes::list },
    Command { name: "ls", arguments: "[PATH]", help: "the files of Linux's tracefs", run: files::ls },
    Command { name: "cat", arguments: "PATH", help: "what is in a file", run: files::cat },
    Command { name: "echo", arguments: "TEXT > PATH", help: "write a line to a file; `>>` appends", run: files::echo },
    Command { name: "clear", arguments: "trace", help: "forget the hits that were recorded", run: probes::clear },
    Command { name: "record", arguments: "[on|off]", help: "send what is recorded to the host", run: probes::record },
    Command { name: "enable", arguments: "NAME", help: "arm an event again", run: probes::enable },
    Command { name: "disable", arguments: "NAME", help: "disarm an event, and keep its counts", run: probes::disable },
    Command {
        name: "why",
        arguments: "SYMBOL[+OFFSET]",
        help: "how an instruction is probed, or why not",
        run: why::why,
    },
    Command {
        name: "coverage",
        arguments: "[GLOB]",
        help: "how much of the image can be probed",
        run: coverage::coverage,
    },
    Command {
        name: "everything",
        arguments: "[on|off]",
        help: "probe every instruction that can be probed",
        run: everything::everything,
    },
    Command {
        name: "symbols",
        arguments: "[-v] GLOB",
        help: "functions and statics by their names",
        run: system::symbols,
    },
    Command {
        name: "lines",
        arguments: "FUNC|FILE.rs",
        help: "lines of source that can be probed",
        run: source::lines,
    },
    Command {
        name: "run",
        arguments: "WORKLOAD [N] [TASKS]",
        help: "N iterations of sha256, deflate or disk",
        run: system::run,
    },
    Command {
        name: "network",
        arguments: "",
        help: "all network interfaces, and what went through",
        run: network::network,
    },
    Command { name: "tasks", arguments: "", help: "all tasks", run: system::tasks },
    Command { name: "cpus", arguments: "", help: "all CPUs, and why one does not run", run: system::cpus },
    Command {
        name: "backtrace",
        arguments: "[-v] TASK",
        help: "where a task is, given by its number or name",
        run: system::backtrace,
    },
    Command { name: "console", arguments: "", help: "more commands until exit, while trace runs", run: session::lend },
    Command { name: "exit", arguments: "", help: "leave what console has begun", run: session::exit },
    Command { name: "help", arguments: "[NAME]", help: "this, or more about a command or a file", run: help::help },
    Command { name: "poweroff", arguments: "", help: "switch the machine off", run: system::power_off },
    Command { name: "reboot", arguments: "", help: "reset the machine, which boots again", run: system::reboot },
];

/// The command that `word` names.
///
/// # Errors
///
/// There is none; the answer says which one may be meant.
pub(super) fn find(word: Word<'_>) -> Result<&'static Command, Failure> {
    let names = || COMMANDS.iter().map(|command| command.name);
    let found = COMMANDS.iter().find(|command| command.name == word.text);
    found.ok_or_else(|| match nearest(word.text, names()) {
        Some(name) => word.failure(format_args!("there is no command `{}`; did you mean `{name}`?", word.text)),
        None => word.failure(format_args!("there is no command `{}`; `help` lists them", word.text)),
    })
}

impl Command {
    /// Carries the command out with the arguments in `words`.
    ///
    /// # Errors
    ///
    /// What the command says.
    pub fn execute(&self, session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
        // These read the signs of a shell themselves, or leave them to a command after `-c`.
        let reads_them =
            matches!(self.name, "trace" | "funccount" | "funclatency" | "stackcount" | "ls" | "cat" | "echo");
        if !reads_them {
            words.no_redirection()?;
        }
        (self.run)(session, words)
    }
}
