//! The commands: what each is called by, and what it says of itself.

use super::session::{self, Session};
use super::words::{Failure, Word, Words};
use super::{coverage, everything, files, network, probes, program, system, why};
use crate::nearest::nearest;
use crate::println;

/// A command.
pub(super) struct Command {
    name: &'static str,
    arguments: &'static str,
    help: &'static str,
    run: fn(&mut Session, &mut Words<'_>) -> Result<(), Failure>,
}

static COMMANDS: [Command; 26] = [
    Command {
        name: "trace",
        arguments: "[-i] PROGRAM [-c COMMAND]",
        help: "run a program until ^C, its exit(), or the end of the command; -i: by the interpreter",
        run: program::trace,
    },
    Command {
        name: "funccount",
        arguments: "GLOB [-c COMMAND]",
        help: "how often each function that matches is called",
        run: program::count_functions,
    },
    Command {
        name: "funclatency",
        arguments: "GLOB [-c COMMAND]",
        help: "how long calls of each function that matches take, in nanoseconds",
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
        arguments: "PROBES",
        help: "what a probe of a program matches, as in list-probes kprobe:blk::*",
        run: program::list,
    },
    Command { name: "list", arguments: "", help: "all probes, with their hits and misses", run: probes::list },
    Command {
        name: "ls",
        arguments: "[PATH]",
        help: "the files of the tracefs, as below /sys/kernel/tracing",
        run: files::ls,
    },
    Command {
        name: "cat",
        arguments: "PATH",
        help: "what is in a file; `cat trace N`: the newest N hits",
        run: files::cat,
    },
    Command { name: "echo", arguments: "TEXT > PATH", help: "write a line to a file; `>>` appends", run: files::echo },
    Command { name: "clear", arguments: "trace", help: "forget the hits that were recorded", run: probes::clear },
    Command { name: "enable", arguments: "NAME", help: "arm an event again", run: probes::enable },
    Command { name: "disable", arguments: "NAME", help: "disarm an event, and keep its counts", run: probes::disable },
    Command {
        name: "why",
        arguments: "SYMBOL[+OFFSET]",
        help: "how an instruction is probed, or why not; without OFFSET, each of the function",
        run: why::why,
    },
    Command {
        name: "coverage",
        arguments: "[GLOB]",
        help: "how much of the image, or of the functions that match, can be probed",
        run: coverage::coverage,
    },
    Command {
        name: "everything",
        arguments: "[on|off]",
        help: "probe every instruction that can be probed; without argument, count the hits",
        run: everything::everything,
    },
    Command {
        name: "symbols",
        arguments: "GLOB",
        help: "functions whose names match, or contain what has neither * nor ?",
        run: system::symbols,
    },
    Command {
        name: "run",
        arguments: "WORKLOAD [N] [TASKS]",
        help: "N iterations of sha256, deflate or disk, in several tasks at once",
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
        arguments: "TASK",
        help: "where a task is, given by its number or name",
        run: system::backtrace,
    },
    Command {
        name: "console",
        arguments: "",
        help: "more commands, until exit: as the command of trace, to run meanwhile",
        run: session::lend,
    },
    Command { name: "exit", arguments: "", help: "leave what console has begun", run: session::exit },
    Command { name: "help", arguments: "", help: "this", run: help },
    Command { name: "poweroff", arguments: "", help: "switch the machine off", run: system::power_off },
    Command { name: "reboot", arguments: "", help: "reset the machine, which boots again", run: system::reboot },
];

const DEFINITIONS: [(&str, &str); 3] = [
    ("p[:NAME] SYMBOL[+OFFSET]|0xADDRESS [ARGS]", "probe an instruction"),
    ("r[MAXACTIVE][:NAME] SYMBOL [ARGS]", "probe the returns of a function"),
    ("-:NAME", "remove an event"),
];

const EXAMPLE: &str = "\
    ARGS: [NAME=]%x0[:u8], with any register and u, s or x of 8 to 64 bits; $arg1 to $arg8; $retval (r only).\n\
    An example:\n\
    \x20 symbols sha2::*\n\
    \x20 p:blocks sha2::sha256::compress256 count=%x2:u64\n\
    \x20 r:status miniz_oxide::inflate::core::decompress_fast $retval:s8\n\
    \x20 run sha256 100\n\
    \x20 run deflate 10\n\
    \x20 list\n\
    \x20 cat trace 10\n\
    \x20 -:blocks";

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
        (self.run)(session, words)
    }
}

fn help(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    words.end()?;
    for (usage, help) in DEFINITIONS {
        println!("{usage:<44}{help}");
    }
    for Command { name, arguments, help, .. } in &COMMANDS {
        let space = 44 - name.len() - 1;
        println!("{name} {arguments:<space$}{help}");
    }
    println!("{EXAMPLE}");
    Ok(())
}
