//! Commands about events, probes and records.

use aarch64_kprobes::probe::{self, Memory, ProbeInfo, ProbeKind};
use kprobes_symbols::distance::nearest;
use kprobes_trace::definition::{self, Command, synthetic};
use kprobes_trace::errno::Errno;
use kprobes_vm::counted::counted;

use crate::session::Session;
use crate::symbol::Symbolic;
use crate::tracing::{self, Event};
use crate::words::{Failure, Words};
use crate::{arguments, input};

/// Carries out a line in the grammar of `dynamic_events`.
pub(crate) fn define(session: &mut Session, line: &str) -> Result<(), Failure> {
    let fail = |error: definition::Error| Failure::at(error.column, error);
    if line.trim_ascii_start().starts_with("s:") {
        return define_synthetic(session, line);
    }
    match session.events.parse(&arguments::without_quotes(line)?, &tracing::Names).map_err(fail)? {
        None => Ok(()),
        Some(Command::Define(definition)) => {
            session.events.define(definition, &tracing::Names).map_err(fail)?;
            enable_newest(session)
        }
        Some(Command::Remove(removal)) => {
            let Session { events, instances, .. } = session;
            // The name begins after `-:`.
            let name = Words::new(line).rest().column + 2;
            if events.is_in_use(&removal, &|_| false) {
                return Err(Failure::at(name, "another event is on it; remove that first"));
            }
            let synthetic =
                || events.iter().filter(|event| event.is_synthetic() && removal.matches(event.definition()));
            if synthetic().any(|event| events.has_dependents(event)) {
                return Err(Failure::at(name, "another event is on it; remove that first"));
            }
            if synthetic().any(|event| events.is_recorded(event)) {
                return Err(Failure::at(name, "a trigger records it; remove that first"));
            }
            let is_in_instance = |event: &Event| instances.have_busy(event);
            if events.is_in_use(&removal, &is_in_instance) || synthetic().any(is_in_instance) {
                return Err(Failure::at(name, "an instance uses it; disable it there first"));
            }
            let probes = || events.iter().filter(|event| event.is_of_probe() && removal.matches(event.definition()));
            if probes().chain(synthetic()).any(|event| events.is_targeted(event)) {
                return Err(Failure::at(name, "a trigger of another event acts on it; remove that first"));
            }
            events.reset_settings(|definition| removal.matches(definition));
            let is_synthetic = removal.group.as_deref().is_none_or(|group| group == synthetic::GROUP);
            let removed = match (events.remove(&removal, &is_in_instance), &removal.event) {
                (Ok(0), Some(name)) if is_synthetic && removal.rest.is_empty() => {
                    events.remove_synthetic(Some(name), &is_in_instance)
                }
                (removed, _) => removed,
            };
            match removed {
                Ok(0) => Err(no_event(session, name, removal.event.as_deref().unwrap_or_default())),
                Ok(_) => instances.copy_definitions(events).map_err(Failure::new),
                Err(problem) => Err(Failure::at(name, problem)),
            }
        }
    }
}

/// Defines a synthetic event, in the grammar of `dynamic_events`.
fn define_synthetic(session: &mut Session, line: &str) -> Result<(), Failure> {
    let before = line.len() - line.trim_ascii_start().len();
    let fail = |error: synthetic::Error| Failure::at(before + error.column, error.problem);
    let exists = |name: &str| session.events.has_synthetic(name);
    let synthetic::Command::Define(definition) = synthetic::parse_dynamic(&line[before..], &exists).map_err(fail)?
    else {
        return Ok(());
    };
    session.events.define_synthetic(definition).map_err(|problem| Failure::at(before, problem))?;
    enable_newest(session)
}

/// Enables the event that was defined last, and copies its definition to the instances.
fn enable_newest(session: &mut Session) -> Result<(), Failure> {
    session.events.enable_newest().map_err(Failure::new)?;
    session.instances.copy_definitions(&session.events).map_err(Failure::new)
}

/// The minimum width of the column for the names of events.
const EVENT_WIDTH: usize = 16;

/// Runs the command `list`.
pub(crate) fn list(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    words.end()?;
    let listed = session.events.iter().filter(|event| event.probe().is_some());
    let longest = listed.map(|event| event.definition().event.len()).max().unwrap_or(0);
    let width = longest.max(EVENT_WIDTH);
    println!("address           kind  mode       state     hits        missed      {:<width$}  function", "event");
    for ProbeInfo { address, kind, mode, fallback, enabled, hits, missed, data } in probe::list()? {
        if input::is_interrupted() {
            return Ok(());
        }
        let kind = match kind {
            ProbeKind::Kprobe => "k",
            ProbeKind::Kretprobe => "r",
        };
        let state = if enabled { "enabled" } else { "disabled" };
        let event = session.event_of(data);
        // The counters of an event include the hits of the probes that its present probe has replaced.
        let (hits, missed) = event.map_or((hits, missed), |event| (event.hits(), event.missed()));
        let event = event.map_or("-", |event| &event.definition().event);
        let place = Symbolic(address);
        print!("{address:016x}  {kind:<4}  ");
        match mode {
            Some(mode) => print!("{mode:<9}"),
            None => print!("{:<9}", "-"),
        }
        println!("  {state:<8}  {hits:<10}  {missed:<10}  {event:<width$}  {place}");
        if let Some(reason) = fallback {
            println!("{:24}{reason}", "");
        }
    }
    let Memory { points, slots, slot_bytes, stubs, stub_bytes, table_bytes, counter_bytes } = probe::memory();
    println!(
        "memory: {}, {} and {} in {} KiB, table {} KiB, counts {} KiB",
        counted(points, "instruction", "instructions"),
        counted(slots, "slot", "slots"),
        counted(stubs, "stub", "stubs"),
        (slot_bytes + stub_bytes) >> 10,
        table_bytes >> 10,
        counter_bytes >> 10
    );
    Ok(())
}

/// Runs the command `clear trace`.
pub(crate) fn clear(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    let what = words.expect("`trace`")?;
    words.end()?;
    if what.text != "trace" {
        return Err(what.failure("only `trace` can be cleared"));
    }
    session.events.clear_trace();
    Ok(())
}

/// Runs the command `enable EVENT`.
pub(crate) fn enable(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    set_enabled(session, words, true)
}

/// Runs the command `disable EVENT`.
pub(crate) fn disable(session: &mut Session, words: &mut Words<'_>) -> Result<(), Failure> {
    set_enabled(session, words, false)
}

/// Returns the failure for `name`, which no suitable event has. `column` is its place in the line.
fn no_event(session: &Session, column: usize, name: &str) -> Failure {
    let known = session.events.iter().map(|event| event.definition().event.as_str());
    match nearest(name, known, 3).filter(|&meant| meant != name) {
        Some(meant) => Failure::at(column, format_args!("there is no such event; did you mean `{meant}`?")),
        None => Failure::at(column, "there is no such event; `list` shows them"),
    }
}

fn set_enabled(session: &mut Session, words: &mut Words<'_>, enabled: bool) -> Result<(), Failure> {
    let name = words.expect("the name of an event")?;
    words.end()?;
    let (group, event) = definition::parse_event_name(name.text)
        .map_err(|error| Failure::at(name.column + error.column, error.problem))?;
    session.events.set_enabled(group.as_deref(), Some(&event), enabled).map_err(|errno| match errno {
        Errno::NotFound => no_event(session, name.column, &event),
        _ => Failure::new(errno),
    })
}
