//! The operations on a path: read, write, list, make and remove directories.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;

use fallible::OutOfMemory;
use kprobes_symbols::distance::nearest;
use kprobes_trace::errno::Errno;
use kprobes_trace::options::Flag;

use super::content::ReadError;
use super::path::{self, Fit};
use super::table::{DEPTH, NODES, Node};
use super::{ring, tracer};
use crate::command;
use crate::line_editor::Candidates;
use crate::session::Session;
use crate::words::{Failure, Word};

/// The reason why a write has failed.
pub(super) enum WriteError {
    /// The file could not be opened.
    Open(Errno),
    /// The file was opened, but has refused the text.
    Write(Errno),
}

/// Returns the files of the trace that the session works on: the kernel's trace, or an instance.
fn nodes(session: &Session) -> impl Iterator<Item = &'static Node> + use<> {
    let is_instance = session.instances.is_inside();
    NODES.iter().filter(move |node| !(is_instance && node.is_of_all))
}

/// Returns the file that a path names.
fn find(session: &Session, parts: &[&str]) -> Result<&'static Node, Errno> {
    let fitting = |parts: &[&str], fit: Fit| {
        nodes(session).find(|node| path::fit(node.path, parts) == fit).filter(|_| exists(session, parts))
    };
    if let Some(node) = fitting(parts, Fit::File) {
        return Ok(node);
    }
    let is_below_file = || (1..parts.len()).take(DEPTH).any(|length| fitting(&parts[..length], Fit::File).is_some());
    Err(match fitting(parts, Fit::Below) {
        Some(_) => Errno::IsDirectory,
        None if is_below_file() => Errno::NotDirectory,
        None => Errno::NotFound,
    })
}

/// Returns whether a path exists: its group, event, option or CPU, for which patterns have a star.
fn exists(session: &Session, parts: &[&str]) -> bool {
    let events = &session.events;
    // A path that matches a pattern without stars exists, and so do the directories above it.
    let is_literal = |path: &str| !path.contains('*') && path::fit(path, parts) != Fit::None;
    let is_file = nodes(session).any(|node| is_literal(node.path));
    match parts {
        _ if is_file => true,
        ["options", name] => Flag::find(name).is_some(),
        ["per_cpu", cpu, ..] => ring::cpu_of(cpu).is_some(),
        ["trace_stat", name] => tracer::profile_cpu(name).is_some(),
        // The events of the group `ftrace` only fire triggers.
        ["events", "ftrace", "enable" | "filter"] | ["events", "ftrace", _, "enable" | "filter"] => false,
        ["events", group] | ["events", group, "enable" | "filter"] => {
            events.iter().any(|event| event.definition().group == *group)
        }
        ["events", group, event, ..] => {
            events.iter().any(|other| other.definition().group == *group && other.definition().event == *event)
        }
        _ => true,
    }
}

/// Runs `act` on the trace that a path names, the kernel's or an instance's, with the rest of the path.
fn within<T>(
    session: &mut Session,
    parts: &[&str],
    act: impl FnOnce(&mut Session, &[&str]) -> Result<T, Errno>,
) -> Result<T, Errno> {
    match parts {
        ["instances", name, parts @ ..] if !session.instances.is_inside() => {
            session.within_instance(name, |session| act(session, parts))?
        }
        parts => act(session, parts),
    }
}

/// Writes the content of the file to `out`.
pub(super) fn read(session: &mut Session, path: &str, out: &mut dyn Write) -> Result<(), ReadError> {
    let parts = path::parts(path).map_err(Errno::from)?;
    within(session, &parts, |session, parts| {
        let read = find(session, parts)?.read.ok_or(Errno::Invalid)?;
        Ok(read(session, parts, out))
    })?
}

/// Writes the newest `count` records to `out`, if the path is that of a file `trace`. Returns whether it is.
pub(super) fn read_newest(
    session: &mut Session,
    path: &str,
    count: usize,
    out: &mut dyn Write,
) -> Result<bool, ReadError> {
    let parts = path::parts(path).map_err(Errno::from)?;
    within(session, &parts, |session, parts| match parts {
        ["trace"] => Ok(ring::read_newest(session, count, out).map(|()| true)),
        _ => Ok(Ok(false)),
    })?
}

/// Opens the file for writing, at its end if `append`, and writes `bytes` unless there are none.
pub(super) fn write(session: &mut Session, path: &str, bytes: &[u8], append: bool) -> Result<(), WriteError> {
    let parts = path::parts(path).map_err(|error| WriteError::Open(error.into()))?;
    let write = |session: &mut Session, parts: &[&str]| {
        let written = write_open(session, parts, bytes, append);
        // Changed settings of tracers take effect when the file is closed.
        Ok(written.and(session.tracing.settle(&mut session.events).map_err(WriteError::Write)))
    };
    let written = within(session, &parts, write).map_err(WriteError::Open)?;
    // Instances have the same definitions, which may have changed.
    written.and(session.instances.copy_definitions(&session.events).map_err(WriteError::Write))
}

fn write_open(session: &mut Session, parts: &[&str], bytes: &[u8], append: bool) -> Result<(), WriteError> {
    let node = find(session, parts).map_err(WriteError::Open)?;
    if let (Some(empty), false) = (node.empty, append) {
        empty(session, parts).map_err(WriteError::Open)?;
    }
    if bytes.is_empty() {
        return Ok(());
    }
    let written = match (node.write, node.write_bytes) {
        (_, Some(write)) => write(session, parts, bytes),
        (Some(write), None) => {
            str::from_utf8(bytes).map_err(|_| Errno::Invalid).and_then(|text| write(session, parts, text))
        }
        // As in Linux, the superuser can open the file.
        (None, None) => Err(Errno::Invalid),
    };
    written.map_err(WriteError::Write)
}

/// Makes the directory of a new instance.
pub(super) fn make(session: &mut Session, path: &str) -> Result<(), Errno> {
    let parts = path::parts(path)?;
    if let ["instances", name] = parts[..] {
        return session.instances.make(&session.events, name);
    }
    if look_for(session, &parts).is_ok() {
        return Err(Errno::Exists);
    }
    let above = parts.split_last().map_or(&[][..], |(_, above)| above);
    Err(refusal(look_for(session, above)?))
}

/// Removes the directory of an instance, and with it the instance.
pub(super) fn remove(session: &mut Session, path: &str) -> Result<(), Errno> {
    let parts = path::parts(path)?;
    if let ["instances", name] = parts[..] {
        return session.instances.remove(name);
    }
    Err(refusal(look_for(session, &parts)?))
}

/// Returns why a path is neither made nor removed, although the file or directory that has to be there is.
fn refusal(is_directory: bool) -> Errno {
    if is_directory { Errno::NotAllowed } else { Errno::NotDirectory }
}

/// Returns whether a path names a directory.
fn look_for(session: &mut Session, parts: &[&str]) -> Result<bool, Errno> {
    within(session, parts, |session, parts| match find(session, parts) {
        Ok(_) => Ok(false),
        Err(Errno::IsDirectory) => Ok(true),
        Err(errno) => Err(errno),
    })
}

/// Returns the names in a directory, or the path itself for a file.
pub(super) fn list(session: &mut Session, path: &str) -> Result<Vec<String>, Errno> {
    let parts = path::parts(path)?;
    within(session, &parts, |session, parts| match find(session, parts) {
        Ok(_) => Ok(fallible::collect_results([fallible::copy(path)])?),
        Err(Errno::IsDirectory) => {
            let mut names = path::list(nodes(session).map(|node| node.path), parts, stars(session, parts)?)?;
            // A pattern matches more files than exist: `ftrace:print` cannot be enabled.
            names.retain(|name| {
                let mut inner = [""; DEPTH];
                inner.iter_mut().zip(parts.iter().copied().chain([name.as_str()])).for_each(|(to, part)| *to = part);
                inner.get(..parts.len() + 1).is_some_and(|inner| exists(session, inner))
            });
            Ok(names)
        }
        Err(errno) => Err(errno),
    })
}

/// Offers the files and directories whose paths begin with the word.
pub(in super::super) fn complete(session: &mut Session, found: &mut Candidates) -> Result<(), OutOfMemory> {
    let directory = found.word().rfind('/').map_or("", |end| &found.word()[..=end]);
    let directory = fallible::copy(directory)?;
    if look_for(session, &path::parts(&directory)?) != Ok(true) {
        return Ok(());
    }
    let Ok(names) = list(session, &directory) else { return Err(OutOfMemory) };
    for name in &names {
        let path = fallible::format(format_args!("{directory}{name}"))?;
        let is_directory = look_for(session, &path::parts(&path)?) == Ok(true);
        found.offer(&path, if is_directory { "/" } else { " " })?;
    }
    Ok(())
}

/// Returns the names that a star stands for in the directory `parts`.
fn stars(session: &Session, parts: &[&str]) -> Result<Vec<String>, OutOfMemory> {
    let events = session.events.iter().map(|event| event.definition());
    match parts {
        ["options"] => fallible::collect_results(Flag::every().map(|(_, name)| fallible::copy(name))),
        ["trace_stat"] => {
            let cpus = 0..session.events.rings().cpus();
            fallible::collect_results(cpus.map(|cpu| fallible::format(format_args!("function{cpu}"))))
        }
        ["per_cpu"] => {
            let cpus = 0..session.events.rings().cpus();
            fallible::collect_results(cpus.map(|cpu| fallible::format(format_args!("cpu{cpu}"))))
        }
        ["instances"] => fallible::collect_results(session.instances.names().map(fallible::copy)),
        ["events"] => fallible::collect_results(events.map(|event| fallible::copy(&event.group))),
        ["events", group] => {
            let of_group = events.filter(|event| event.group == *group);
            fallible::collect_results(of_group.map(|event| fallible::copy(&event.event)))
        }
        _ => Ok(Vec::new()),
    }
}

/// Shows help for the files that `word` names by a path, otherwise by the last part of a path or pattern.
pub(in super::super) fn describe(word: Word<'_>) -> Result<(), Failure> {
    let parts = path::parts(word.text)?;
    let is_path = |pattern: &str| path::fit(pattern, &parts) == Fit::File;
    let is_option = |pattern: &str| pattern == "options/*" && Flag::find(word.text).is_some();
    let is_last = |pattern: &str| pattern.rsplit('/').next() == Some(word.text) || is_option(pattern);
    let is_any_path = NODES.iter().any(|node| is_path(node.path));
    let is_meant = |pattern: &str| if is_any_path { is_path(pattern) } else { is_last(pattern) };
    let mut found = NODES.iter().filter(|node| is_meant(node.path)).peekable();
    if found.peek().is_none() {
        let names = NODES.iter().filter_map(|node| node.path.rsplit('/').find(|part| *part != "*"));
        let known = names.chain(command::all().map(|command| command.name));
        return Err(match nearest(word.text, known, 3) {
            Some(meant) => word.failure(format_args!("no command and no file has this name; did you mean `{meant}`?")),
            None => word.failure("no command and no file has this name; `help` lists commands, `ls` files"),
        });
    }
    found.for_each(|Node { path, help, .. }| println!("{path}\n{help}"));
    Ok(())
}
