//! The files `synthetic_events`, for synthetic events, and `dynamic_events`, for all defined events.

use core::fmt::Write;

use kprobes_trace::definition::synthetic::{self, Command, GROUP};
use kprobes_trace::definition::{self, Problem};
use kprobes_trace::errno::Errno;

use super::content::ReadError;
use super::kprobes;
use crate::session::Session;

pub(super) fn read(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.write_synthetic(out)?)
}

pub(super) fn read_all(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.write_all_definitions(out)?)
}

/// Removes all synthetic events, unless one is in use.
pub(super) fn remove_synthetic(session: &mut Session, _: &[&str]) -> Result<(), Errno> {
    remove(session, None).map(|_| ())
}

/// Removes all events, unless one is in use.
pub(super) fn remove_all(session: &mut Session, parts: &[&str]) -> Result<(), Errno> {
    if session.events.iter().any(|event| !event.is_static() && session.is_busy(event)) {
        return Err(Errno::Busy);
    }
    // Events on synthetic events are removed before the synthetic events.
    kprobes::remove_all(session, None)?;
    remove_synthetic(session, parts)
}

/// Removes the synthetic event `name`, or all if `name` is `None`. Returns the number of removed events.
fn remove(session: &mut Session, name: Option<&str>) -> Result<usize, Errno> {
    let Session { events, instances, .. } = session;
    events.remove_synthetic(name, &|event| instances.have_busy(event)).map_err(Problem::errno)
}

/// Returns the definition of a synthetic event without its comment, which any `#` begins.
fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or(line)
}

/// Carries out each line of a text as a definition of a synthetic event.
pub(super) fn write(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    for line in text.lines().map(|line| without_comment(line).trim_ascii_start()) {
        match synthetic::parse(line, &|name| session.events.has_synthetic(name)) {
            Ok(None) => {}
            Ok(Some(command)) => carry_out(session, line, command)?,
            Err(error) => return Err(refuse(session, line, error)),
        }
    }
    Ok(())
}

/// Carries out each line of a text as a definition of an event of any kind. A definition after `!` removes its event,
/// as `-:` does.
pub(super) fn write_any(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    for line in text.lines().map(str::trim_ascii_start) {
        let removal = line.strip_prefix('!').map(|definition| match definition.split_once(':') {
            Some((kind, event)) if !kind.contains([' ', '\t']) => Ok(fallible::format(format_args!("-:{event}"))?),
            _ => Err(Errno::Invalid),
        });
        let removal = removal.transpose()?;
        let line = removal.as_deref().unwrap_or(line);
        if line.starts_with("s:") {
            let line = without_comment(line);
            match synthetic::parse_dynamic(line, &|name| session.events.has_synthetic(name)) {
                Ok(command) => carry_out(session, line, command)?,
                Err(error) => return Err(refuse(session, line, error)),
            }
        } else if let Ok(Some(definition::Command::Remove(removal))) = definition::parse(line) {
            let is_meant = removal.group.as_deref().is_none_or(|group| group == GROUP);
            // The text after the name is only meaningful for probes.
            let name = removal.event.as_deref().filter(|_| is_meant);
            let removed = name.map_or(Ok(0), |name| remove(session, Some(name)))?;
            match kprobes::define(session, line, None) {
                Err(Errno::NotFound) if removed > 0 => {}
                outcome => outcome?,
            }
        } else {
            kprobes::define(session, line, None)?;
        }
    }
    Ok(())
}

fn carry_out(session: &mut Session, line: &str, command: Command) -> Result<(), Errno> {
    match command {
        Command::Remove(name) => match remove(session, Some(&name))? {
            0 => Err(Errno::NotFound),
            _ => Ok(()),
        },
        Command::Define(definition) => session
            .events
            .define_synthetic(definition)
            .map_err(|problem| refuse(session, line, synthetic::Error { problem, column: 0 })),
    }
}

/// Logs the error of a line.
fn refuse(session: &mut Session, line: &str, synthetic::Error { problem, column }: synthetic::Error) -> Errno {
    if problem != synthetic::Problem::OutOfMemory {
        session.events.log_problem("synthetic_events", &problem, line, column);
    }
    problem.errno()
}
