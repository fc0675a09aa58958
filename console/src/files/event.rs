//! The files of an event, `events/GROUP/EVENT/…`, and the files that enable all events, or the events of a group.

use core::fmt::Write;

use kprobes_trace::errno::Errno;

use super::content::{ReadError, switch};
use crate::session::Session;
use crate::tracing::{self, Event};

/// Returns the group and the name of the event in a path.
fn name<'a>(parts: &[&'a str]) -> (&'a str, &'a str) {
    match *parts {
        [_, group, event, ..] => (group, event),
        _ => ("", ""),
    }
}

fn find<'a>(session: &'a Session, parts: &[&str]) -> Result<&'a Event, Errno> {
    let (group, event) = name(parts);
    let is = |other: &&Event| other.definition().group == group && other.definition().event == event;
    session.events.iter().find(is).ok_or(Errno::NotFound)
}

pub(super) fn read_enabled(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let text = session.events.settings(name(parts)).map_or("0", |control| control.enabled_text());
    Ok(writeln!(out, "{text}")?)
}

pub(super) fn write_enabled(session: &mut Session, parts: &[&str], text: &str) -> Result<(), Errno> {
    let (group, event) = name(parts);
    session.events.set_enabled(Some(group), Some(event), switch(text)?)
}

/// Returns the group in `events/GROUP/enable` and `events/GROUP/filter`; `None` for `events/enable`.
fn group<'a>(parts: &[&'a str]) -> Option<&'a str> {
    if let [_, group, _] = *parts { Some(group) } else { None }
}

/// Reads `trace_stat/events`.
pub(super) fn read_profile(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.write_static_profile(out)?)
}

pub(super) fn read_all_enabled(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(writeln!(out, "{}", session.events.enabled_text(group(parts)))?)
}

pub(super) fn write_all_enabled(session: &mut Session, parts: &[&str], text: &str) -> Result<(), Errno> {
    session.events.set_enabled(group(parts), None, switch(text)?)
}

/// The constant content of `events/GROUP/filter`, as in Linux.
pub(super) const GROUP_FILTER: &str = "\
### global filter ###
# Use this to set filters for multiple events.
# Only events with the given fields will be affected.
# If no events are modified, an error message will be displayed here
";

pub(super) fn write_group_filter(session: &mut Session, parts: &[&str], text: &str) -> Result<(), Errno> {
    session.events.set_group_filter(group(parts).unwrap_or(""), text)
}

pub(super) fn read_events(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.write_events(false, out)?)
}

pub(super) fn read_set(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.write_events(true, out)?)
}

pub(super) fn read_all_filters(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.write_filters(out)?)
}

pub(super) fn read_all_triggers(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(session.events.write_all_triggers(out)?)
}

/// Disables all events.
pub(super) fn disable_all(session: &mut Session, _: &[&str]) -> Result<(), Errno> {
    session.events.set_enabled(None, None, false)
}

pub(super) fn write_set(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    session.events.set_events(text)
}

pub(super) fn read_filter(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    match session.events.settings(name(parts)) {
        Some(control) => Ok(control.write_filter(out)?),
        None => Ok(out.write_str("none\n")?),
    }
}

pub(super) fn write_filter(session: &mut Session, parts: &[&str], text: &str) -> Result<(), Errno> {
    session.events.set_filter(name(parts), text)
}

pub(super) fn read_triggers(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    match session.events.settings(name(parts)) {
        Some(control) => Ok(control.write_triggers(out)?),
        None => Ok(out.write_str(kprobes_trace::trigger::AVAILABLE)?),
    }
}

/// Removes the histograms of an event, and its triggers `enable_hist` and `disable_hist`. Others stay, as in Linux.
pub(super) fn remove_histograms(session: &mut Session, parts: &[&str]) -> Result<(), Errno> {
    session.events.remove_histograms(name(parts))
}

pub(super) fn write_trigger(session: &mut Session, parts: &[&str], text: &str) -> Result<(), Errno> {
    // As in Linux, an empty line is no trigger.
    if text.trim().is_empty() {
        return Err(Errno::Invalid);
    }
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.try_for_each(|line| session.events.set_trigger(name(parts), line))
}

pub(super) fn read_histograms(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let triggers = session.events.settings(name(parts)).map_or(&[][..], |control| control.triggers());
    let histograms = triggers.iter().filter_map(|trigger| Some((trigger, trigger.histogram()?)));
    for (number, (trigger, histogram)) in histograms.enumerate() {
        if number > 0 {
            out.write_str("\n\n")?;
        }
        histogram.write(out, trigger, &tracing::Names)?;
    }
    Ok(session.events.write_refused(name(parts), out)?)
}

pub(super) fn read_format(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let event = find(session, parts)?;
    Ok(event.format().write(out, &event.definition().event, event.number())?)
}

pub(super) fn read_number(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(writeln!(out, "{}", find(session, parts)?.number())?)
}
