//! The command `help`: lists all commands, or describes one of them or a file.

use crate::command::{self, Command, HELP_COLUMN, is_narrow};
use crate::files;
use crate::host::host;
use crate::session::Session;
use crate::words::{Failure, Word, Words};

/// Each kind of definition: its usage, a line of help, and more help.
const DEFINITIONS: [(&str, &str, &str); 6] = [
    (
        "p[:NAME] PLACE [ARGS]",
        "probe an instruction",
        "PLACE: SYMBOL[+OFFSET], as `symbols` lists it, 0xADDRESS, FILE.rs:LINE, or\n\
         \x20      SYMBOL%return\n\
         ARGS:  [NAME=]EXPRESSION[:TYPE], up to 128\n\
         EXPRESSION: %REG @SYMBOL[+|-OFFSET] @ADDRESS $stack $stackN $argN $comm\n\
         \x20           +|-[u]OFFSET(EXPRESSION) \\NUMBER \\\"TEXT\" NAME[->FIELD]\n\
         \x20           $arg* for all arguments of the function\n\
         TYPE: u8 to u64, s8 to s64, x8 to x64, char, symbol, symstr, string, ustring,\n\
         \x20     bWIDTH@OFFSET/SIZE; an array with [N] after it",
    ),
    (
        "r[MAXACTIVE][:NAME] PLACE [ARGS]",
        "probe the returns of a function",
        "as p, on the entry of a function; $retval is the value that it returns\n\
         MAXACTIVE: the number of calls that can be followed at a time",
    ),
    (
        "f[:NAME] FUNCTION [ARGS]",
        "probe a function's entry, or with %return its return",
        "as p and r, without %REG; with $retval in ARGS it is on the return,\n\
         and fN limits it to N calls at a time",
    ),
    (
        "t[:NAME] EVENT [ARGS]",
        "probe a static event",
        "as p, without %REG; $argN and NAME are the fields of EVENT,\n\
         which `list-probes -v tracepoint:*` shows",
    ),
    (
        "e[:NAME] GROUP.EVENT [ARGS]",
        "probe an event",
        "as p, without %REG; $NAME is a field of GROUP.EVENT, which is static,\n\
         synthetic, or was defined with p, r or f and has one probe. After `if`\n\
         comes a filter that tests its fields, as in if prev_pid > 3",
    ),
    ("-:NAME", "remove an event", "-:[GROUP/]EVENT; -:GROUP/ removes all events of a group"),
];

const _: () = {
    let mut number = 0;
    while number < DEFINITIONS.len() {
        assert!(is_narrow(DEFINITIONS[number].2));
        number += 1;
    }
};

/// Returns the second word of the usage of the definition that begins with `letter`.
pub(crate) fn place(letter: char) -> Option<&'static str> {
    let (usage, ..) = DEFINITIONS.iter().find(|(usage, ..)| usage.starts_with(letter))?;
    usage.split(' ').nth(1)
}

/// Runs the command `help [NAME]`.
pub(crate) fn help(_: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let wanted = words.next();
    words.end()?;
    if let Some(word) = wanted {
        return describe(word);
    }
    for (usage, help, _) in DEFINITIONS {
        println!("{usage:<HELP_COLUMN$}{help}");
    }
    for Command { name, arguments, help, .. } in command::all() {
        let space = HELP_COLUMN - name.len() - 1;
        println!("{name} {arguments:<space$}{help}");
    }
    println!("`help p` explains PLACE and ARGS; `help NAME` also explains files.");
    println!("While a command runs, ^C ends it, and ^T shows its line.");
    let example = host().example();
    if !example.is_empty() {
        println!("An example:\n{example}");
    }
    Ok(())
}

/// Describes the definition, command or file called `word`.
pub(crate) fn describe(word: Word<'_>) -> Result<(), Failure> {
    let name = word.text;
    let definition = DEFINITIONS.iter().find(|(usage, ..)| name.len() == 1 && usage.starts_with(name));
    let command = command::all().find(|command| command.name == name);
    let more = match (definition, command) {
        (Some((usage, help, more)), _) => {
            println!("{usage}\n{help}");
            more
        }
        (None, Some(Command { arguments, help, more, .. })) => {
            let blank = if arguments.is_empty() { "" } else { " " };
            println!("{name}{blank}{arguments}\n{help}");
            more
        }
        (None, None) => return files::describe(word),
    };
    if !more.is_empty() {
        println!("{more}");
    }
    if let Some(example) = command.map(|command| command.example).filter(|example| !example.is_empty()) {
        println!("Example: {example}");
    }
    if let Some(options) = command.and_then(|command| command.options) {
        println!("{options}");
    }
    // A file may have the same name as a command. If there is no such file, the error is not shown.
    let _ = files::describe(word);
    Ok(())
}
