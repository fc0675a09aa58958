//! The commands `ls`, `cat`, `echo`, `mkdir` and `rmdir`, with the error messages of a shell.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use kprobes_trace::errno::Errno;

use super::content::ReadError;
use super::echo::echoed;
use super::tracefs::{self, WriteError};
use crate::input;
use crate::screen::Screen;
use crate::session::Session;
use crate::shell::{CommandLine, Output};
use crate::words::{Failure, SCREEN_ONLY, Word, Words};

/// Parses the rest of a line as a shell does, with `$?` from the previous line.
fn shell_line(session: &Session, words: &Words<'_>) -> Result<CommandLine, Failure> {
    let Word { text, column } = words.rest();
    CommandLine::parse_after(text, session.was_refused).map_err(|error| error.failure(column))
}

/// Parses the rest of a line, and refuses a redirection.
fn to_screen(session: &Session, words: &Words<'_>) -> Result<Vec<String>, Failure> {
    let before = words.rest().column;
    match shell_line(session, words)? {
        CommandLine { output: Some(output), .. } => Err(Failure::at(before + output.column, SCREEN_ONLY)),
        CommandLine { words, output: None } => Ok(words),
    }
}

/// Runs the command `ls [PATH…]`.
pub(crate) fn ls(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let paths = to_screen(session, words)?;
    let here = [String::new()];
    for path in if paths.is_empty() { &here[..] } else { &paths } {
        match tracefs::list(session, path) {
            // ^C ends the list.
            Ok(names) => {
                if names.iter().try_for_each(|name| writeln!(Screen::default(), "{name}")).is_err() {
                    return Ok(());
                }
            }
            Err(errno) => {
                session.is_refused = true;
                println!("ls: cannot access '{path}': {errno}");
            }
        }
    }
    Ok(())
}

/// Runs the command `mkdir PATH…`.
pub(crate) fn mkdir(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    each_path(session, words, |session, path| {
        tracefs::make(session, path).inspect_err(|errno| println!("mkdir: cannot create directory '{path}': {errno}"))
    })
}

/// Runs the command `rmdir PATH…`.
pub(crate) fn rmdir(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    each_path(session, words, |session, path| {
        tracefs::remove(session, path).inspect_err(|errno| println!("rmdir: failed to remove '{path}': {errno}"))
    })
}

/// Calls `act`, which shows its errors, for each path in `words`.
fn each_path(
    session: &mut Session,
    words: &mut Words<'_>,
    act: impl Fn(&mut Session, &str) -> Result<(), Errno>,
) -> Result<(), Failure> {
    let paths = to_screen(session, words)?;
    if paths.is_empty() {
        words.expect("the name of a directory")?;
    }
    for path in &paths {
        session.is_refused |= act(session, path).is_err();
    }
    Ok(())
}

/// Runs the command `cat PATH…`, or `cat trace N` for the newest N records.
pub(crate) fn cat(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let paths = to_screen(session, words)?;
    if let [file, newest] = &paths[..]
        && let Ok(newest) = newest.parse()
    {
        match tracefs::read_newest(session, file, newest, &mut Screen::default()) {
            Ok(true) => return Ok(()),
            Err(ReadError::Screen) => return unless_interrupted(session, Errno::NoMemory, file),
            Err(ReadError::Errno(errno)) if errno != Errno::NotFound => {
                return unless_interrupted(session, errno, file);
            }
            // `N` is a path like the first one.
            Ok(false) | Err(ReadError::Errno(_)) => {}
        }
    }
    if paths.is_empty() {
        words.expect("the name of a file")?;
    }
    for path in &paths {
        match tracefs::read(session, path, &mut Screen::default()) {
            Ok(()) => {}
            Err(ReadError::Errno(errno)) => {
                session.is_refused = true;
                println!("cat: {path}: {errno}");
            }
            Err(ReadError::Screen) => return unless_interrupted(session, Errno::NoMemory, path),
        }
    }
    Ok(())
}

/// Shows the error of `cat`, unless ^C has ended it.
fn unless_interrupted(session: &mut Session, errno: Errno, path: &str) -> Result<(), Failure> {
    if !input::is_interrupted() {
        session.is_refused = true;
        println!("cat: {path}: {errno}");
    }
    Ok(())
}

/// Runs the command `echo [-neE] WORDS [> PATH]`.
pub(crate) fn echo(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let CommandLine { words, output } = shell_line(session, words)?;
    let bytes = echoed(&words)?;
    match output {
        None => match str::from_utf8(&bytes) {
            Ok(text) => print!("{text}"),
            Err(_) => return Err(Failure::new("these bytes are no text; they can be written to trace_marker_raw")),
        },
        Some(output) => write(session, &output, &bytes),
    }
    Ok(())
}

/// Runs a line that consists of `> PATH`, which empties a file. `$?` is replaced in the path.
pub(crate) fn truncate(session: &mut Session, line: &str) -> Result<(), Failure> {
    let CommandLine { words, output } =
        CommandLine::parse_after(line, session.was_refused).map_err(|error| error.failure(0))?;
    match (output, words.first()) {
        (_, Some(word)) => {
            return Err(Failure::new(format_args!(
                "the output of `{word}` cannot be redirected; only that of `echo` can"
            )));
        }
        (Some(output), None) => write(session, &output, b""),
        (None, None) => {}
    }
    Ok(())
}

fn write(session: &mut Session, Output { path, append, .. }: &Output, bytes: &[u8]) {
    let written = tracefs::write(session, path, bytes, *append);
    session.is_refused |= written.is_err();
    match written {
        Ok(()) => {}
        Err(WriteError::Open(errno)) => println!("{path}: {errno}"),
        Err(WriteError::Write(errno)) => println!("echo: write error: {errno}"),
    }
}
