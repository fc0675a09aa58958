//! `help`: the commands in a line each, and more about one of them or about a file.

use super::command::{COMMANDS, Command};
use super::files;
use super::session::Session;
use super::words::{Failure, Word, Words};
use crate::println;

const DEFINITIONS: [(&str, &str); 3] = [
    ("p[:NAME] PLACE [ARGS]", "probe an instruction"),
    ("r[MAXACTIVE][:NAME] PLACE [ARGS]", "probe the returns of a function"),
    ("-:NAME", "remove an event"),
];

/// The column at which the second half of a line of help begins, and how long the line may be.
const HELP_COLUMN: usize = 33;
const HELP_WIDTH: usize = 80;

const _: () = {
    let mut number = 0;
    while number < COMMANDS.len() {
        let Command { name, arguments, help, .. } = COMMANDS[number];
        assert!(name.len() + 1 + arguments.len() < HELP_COLUMN && HELP_COLUMN + help.len() <= HELP_WIDTH);
        number += 1;
    }
    number = 0;
    while number < MORE.len() {
        assert!(is_narrow(MORE[number].1));
        number += 1;
    }
};

/// Whether no line of `text` is longer than a line of help may be.
pub(super) const fn is_narrow(text: &str) -> bool {
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

/// What `help NAME` says besides, by name.
const MORE: [(&str, &str); 16] = [
    (
        "p",
        "PLACE: SYMBOL[+OFFSET], as `symbols` lists it, 0xADDRESS, FILE.rs:LINE, or\n\
         \x20      SYMBOL%return\n\
         ARGS:  [NAME=]EXPRESSION[:TYPE], up to 128\n\
         EXPRESSION: %REG @SYMBOL[+|-OFFSET] @ADDRESS $stack $stackN $argN $comm\n\
         \x20           +|-[u]OFFSET(EXPRESSION) \\NUMBER \\\"TEXT\" NAME[->FIELD]\n\
         \x20           $arg* for all arguments of the function\n\
         TYPE: u8 to u64, s8 to s64, x8 to x64, char, symbol, symstr, string, ustring,\n\
         \x20     bWIDTH@OFFSET/SIZE; an array with [N] after it",
    ),
    ("r", "as p, at the entry of a function; $retval is what it returns\nMAXACTIVE: how many calls may be in progress"),
    ("-", "-:[GROUP/]EVENT; -:GROUP/ removes all events of a group"),
    (
        "trace",
        "PROGRAM: PROBE[, PROBE] [/PREDICATE/] { STATEMENTS } ...\n\
         PROBE: kprobe:GLOB kretprobe:GLOB return:GLOB kprobe:FUNC+OFFSET\n\
         \x20      kprobe:FILE.rs:LINE\n\
         \x20      insn:FUNC[:OFFSET] inline:GLOB:entry|return interval:ms|s:N BEGIN END\n\
         STATEMENTS: @MAP[KEYS] = VALUE; $VARIABLE = VALUE; if (VALUE) { } else { }\n\
         \x20           unroll (N) { } return printf(\"FORMAT\", VALUES) print(@MAP)\n\
         \x20           clear(@MAP) zero(@MAP) delete(@MAP[KEYS]) exit()\n\
         OPTIONS: -c COMMAND: run this meanwhile, and end with it; it comes last;\n\
         \x20        -k KEYS: have room for so many keys and stacks; -i: interpret;\n\
         \x20        -f json: put out JSON; -m: mark what a host is to read",
    ),
    (
        "symbols",
        "GLOB: * stands for any characters, ? for one; without them, a part of the name\n\
         -v: with the arguments of each function, and their types",
    ),
    ("list-probes", "-v: with the arguments of each function, as args.NAME has them"),
    ("lines", "FUNC: its lines, with offsets; FILE.rs: its lines, with functions and offsets"),
    ("backtrace", "-v: with the lines of source"),
    ("coverage", "GLOB: as for symbols; without it, all of the image"),
    ("why", "without OFFSET, each instruction of the function in a line"),
    ("everything", "on: probe all; off: remove these probes; nothing: how often they were hit"),
    (
        "echo",
        "`>` writes, `>>` appends; quotes are those of a shell; -n: without a line end;\n\
         $?: 1 if the line before was refused, or else 0",
    ),
    (
        "record",
        "on: send pages of the rings to the host as they fill, and what is there now;\n\
         off: send the rest, and end",
    ),
    ("cat", "cat trace N: the newest N hits"),
    ("run", "WORKLOAD: sha256, deflate or disk; N: iterations, 100; TASKS: 1 to 64, 4"),
    ("console", "as in trace PROGRAM -c console"),
];

const EXAMPLE: &str = "\
    `help p` tells what PLACE and ARGS are; `help NAME` works for files, too.\n\
    An example:\n\
    \x20 symbols sha2::*\n\
    \x20 p:blocks sha2::sha256::compress256 count=%x2:u64\n\
    \x20 r:status miniz_oxide::inflate::core::decompress_fast $retval:s8\n\
    \x20 run sha256 100\n\
    \x20 run deflate 10\n\
    \x20 list\n\
    \x20 cat trace 10\n\
    \x20 -:blocks";

/// `help [NAME]`
pub(super) fn help(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let wanted = words.next();
    words.end()?;
    if let Some(word) = wanted {
        return describe(word);
    }
    for (usage, help) in DEFINITIONS {
        println!("{usage:<HELP_COLUMN$}{help}");
    }
    for Command { name, arguments, help, .. } in &COMMANDS {
        let space = HELP_COLUMN - name.len() - 1;
        println!("{name} {arguments:<space$}{help}");
    }
    println!("{EXAMPLE}");
    Ok(())
}

/// `help NAME`
fn describe(word: Word<'_>) -> Result<(), Failure> {
    let name = word.text;
    let definition = DEFINITIONS.iter().find(|(usage, _)| name.len() == 1 && usage.starts_with(name));
    let command = COMMANDS.iter().find(|command| command.name == name);
    match (definition, command) {
        (Some((usage, help)), _) => println!("{usage}\n{help}"),
        (None, Some(Command { arguments, help, .. })) => {
            let blank = if arguments.is_empty() { "" } else { " " };
            println!("{name}{blank}{arguments}\n{help}");
        }
        (None, None) => return files::describe(word),
    }
    if let Some((_, more)) = MORE.iter().find(|(about, _)| *about == name) {
        println!("{more}");
    }
    // A file may have the same name as a command, but need not.
    let _ = files::describe(word);
    Ok(())
}
