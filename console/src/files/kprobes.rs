//! The files about probes: `kprobe_events`, `kprobe_profile`, and the files of Linux's debugfs directory `kprobes`.

use core::fmt::Write;

use aarch64_kprobes::probe::{self, Mode, ProbeInfo, ProbeKind};
use kprobes_symbols::Symbol;
use kprobes_trace::definition::{self, Command, Family, Problem, Removal};
use kprobes_trace::errno::Errno;
use kprobes_trace::filter::FILTER_LOG;

use super::content::ReadError;
use crate::session::Session;
use crate::{symbol, tracing};

pub(super) fn read_definitions(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.write_definitions(out)?)
}

/// Removes all kprobe events, unless one is in use.
pub(super) fn remove_kprobes(session: &mut Session, _: &[&str]) -> Result<(), Errno> {
    remove_all(session, Some(Family::Kprobe))
}

/// Removes all events of a family, or all events that are not synthetic, unless one is in use.
pub(super) fn remove_all(session: &mut Session, family: Option<Family>) -> Result<(), Errno> {
    if session.events.probes_of(family).any(|event| session.is_busy(event)) {
        return Err(Errno::Busy);
    }
    remove(session, &Removal::of_all(family)).map(|_| ())
}

/// Removes the probes that `removal` matches, unless an event that is in use would lose its last probe. Returns their
/// number.
fn remove(session: &mut Session, removal: &Removal) -> Result<usize, Errno> {
    let Session { events, instances, .. } = session;
    events.remove(removal, &|event| instances.have_busy(event)).map_err(Problem::errno)
}

/// Carries out each line of a text as the definition of a kprobe.
pub(super) fn write_definitions(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    text.lines().try_for_each(|line| define(session, line, Some(Family::Kprobe)))
}

/// Carries out a definition. With a `family`, only a definition of the family is accepted. Linux's errors are logged
/// where Linux logs them.
pub(super) fn define(session: &mut Session, line: &str, family: Option<Family>) -> Result<(), Errno> {
    if family.is_some_and(|family| family != Family::of_line(line)) {
        return Err(Errno::Invalid);
    }
    let parsed = session.events.parse(line, &tracing::Names);
    match parsed.map_err(|error| refuse(session, line, &error))? {
        None => Ok(()),
        Some(Command::Define(definition)) => {
            let outcome = session.events.define(definition, &tracing::Names);
            outcome.map_err(|error| refuse(session, line, &error))
        }
        Some(Command::Remove(removal)) => match remove(session, &Removal { family, ..removal })? {
            0 => Err(Errno::NotFound),
            _ => Ok(()),
        },
    }
}

/// Logs the error of a line, unless Linux only returns an errno for it.
fn refuse(session: &mut Session, line: &str, error: &definition::Error) -> Errno {
    // If there is no memory for the line, the error is not logged.
    let logged = error.problem.is_logged().then(|| definition::logged(line).ok()).flatten();
    match (logged, error.problem, &error.reason) {
        // Linux logs the filter without the rest of the line.
        (Some(line), Problem::Filter, Some(problem)) => {
            const WORD: &str = " if ";
            let start = line.find(WORD).map_or(0, |at| at + WORD.len());
            let column = error.position.saturating_sub(line[..start].chars().count());
            session.events.log_problem(FILTER_LOG, problem, &line[start..], column);
        }
        (Some(line), problem, _) => {
            for problem in core::iter::successors(Some(problem), |problem| problem.next()) {
                session.events.log_problem(Family::of_line(&line).log(), &problem.text(), &line, error.position);
            }
        }
        (None, ..) => {}
    }
    error.problem.errno()
}

pub(super) fn read_profile(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.write_profile(out)?)
}

pub(super) fn read_list(_: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    for probe in probe::list().map_err(Errno::from)? {
        write_row(out, &probe, symbol::lookup(probe.address))?;
    }
    Ok(())
}

/// Writes the row of a probe, whose address is in `function`, if a function contains it. As in Linux, there is room for
/// the name of the function's module.
fn write_row(out: &mut dyn Write, probe: &ProbeInfo, function: Option<Symbol<'_>>) -> core::fmt::Result {
    let &ProbeInfo { address, kind, mode, enabled, .. } = probe;
    let kind = match kind {
        ProbeKind::Kprobe => "k",
        ProbeKind::Kretprobe => "r",
    };
    write!(out, "{address:016x}  {kind}  ")?;
    match function {
        Some(function) => write!(out, "{}+{:#x}    ", function.name, address as u64 - function.address)?,
        None => write!(out, "{address:#x} ")?,
    }
    let disabled = if enabled { "" } else { "[DISABLED]" };
    let optimized =
        if matches!(mode, Some(Mode::Optimized | Mode::Lean | Mode::Compiled)) { "[OPTIMIZED]" } else { "" };
    writeln!(out, "{disabled}{optimized}")
}

pub(super) fn read_blacklist(_: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let range = probe::blacklist();
    let range = range.start as u64..range.end as u64;
    for function in symbol::table().into_iter().flat_map(|table| table.iter()) {
        if range.contains(&function.address) {
            let end = function.address + function.size;
            writeln!(out, "{:#018x}-{end:#018x}\t{}", function.address, function.name)?;
        }
    }
    Ok(())
}

pub(super) fn read_may_be_armed(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(writeln!(out, "{}", u8::from(session.events.may_be_armed()))?)
}

pub(super) fn write_may_be_armed(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    let armed = definition::boolean(text).ok_or(Errno::Invalid)?;
    let before = session.events.may_be_armed();
    session.events.set_may_be_armed(armed)?;
    session.instances.set_may_be_armed(armed).inspect_err(|_| {
        // This fails only for lack of memory, and there was memory for this setting before.
        let _ = session.events.set_may_be_armed(before);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn the_state_of_a_probe_follows_its_place_as_in_linux() {
        let row = |probe: &ProbeInfo, function: Option<Symbol<'_>>| {
            let mut text = String::new();
            write_row(&mut text, probe, function).unwrap();
            text
        };
        let function = Symbol { name: "f", address: 0x1000, size: 0x10 };
        let kprobe = ProbeInfo {
            address: 0x1004,
            kind: ProbeKind::Kprobe,
            mode: Some(Mode::Optimized),
            fallback: None,
            enabled: true,
            hits: 0,
            missed: 0,
            data: 0,
        };
        assert_eq!(row(&kprobe, Some(function)), "0000000000001004  k  f+0x4    [OPTIMIZED]\n");
        assert_eq!(row(&kprobe, None), "0000000000001004  k  0x1004 [OPTIMIZED]\n");
        let kretprobe = ProbeInfo { kind: ProbeKind::Kretprobe, mode: None, enabled: false, ..kprobe };
        assert_eq!(row(&kretprobe, Some(function)), "0000000000001004  r  f+0x4    [DISABLED]\n");
    }
}
