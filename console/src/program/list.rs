//! Lists what probes match in this image, without probing it.

use alloc::string::String;
use alloc::vec::Vec;

use aarch64_kprobes::event::{self, Event, Field, FieldKind};
use fallible::OutOfMemory;
use kprobes_program::error::{Error, Problem, Span};
use kprobes_program::syntax::{self, Parameters, Probe, Spanned};
use kprobes_symbols::names::matches;
use kprobes_vm::ir::Routine;

use super::inlined::CopyTable;
use super::load::parse;
use super::refusal::ProgramRefusal;
use super::resolve::ResolvedProbes;
use crate::types;

/// Returns a line for each probe that `text`, a list of probes separated by commas, means in this image. With
/// `has_signatures`, lines about the arguments follow each.
///
/// # Errors
///
/// Returns the problem with `text`, or that one of its probes means nothing.
pub fn list(text: &str, has_signatures: bool) -> Result<Vec<String>, ProgramRefusal> {
    let (mut lines, table) = (Vec::new(), CopyTable::default());
    for probe in syntax::parse_probes(text)? {
        add(&probe, has_signatures, &table, &mut lines)?;
    }
    Ok(lines)
}

/// Returns the lines of [`list`] for the probes of the program `text`, which these parameters follow.
///
/// # Errors
///
/// Returns the problem with `text`, or that one of its probes means nothing. Only the syntax of the program is checked.
pub fn list_of_program(
    text: &str,
    parameters: Parameters<'_>,
    has_signatures: bool,
) -> Result<Vec<String>, ProgramRefusal> {
    let (mut lines, table) = (Vec::new(), CopyTable::default());
    for clause in parse(text, parameters)?.clauses {
        for probe in &clause.probes {
            add(probe, has_signatures, &table, &mut lines)?;
        }
    }
    Ok(lines)
}

/// Returns the lines of [`list`] for the functions, the inlined functions and the static events that `pattern`, a glob,
/// matches. The glob is compared with the name of an event alone, and with its group before it.
///
/// # Errors
///
/// Nothing matches, the table of inlined functions is damaged, or there is no memory for the lines.
pub fn search(pattern: &str, has_signatures: bool) -> Result<Vec<String>, ProgramRefusal> {
    let (mut lines, table) = (Vec::new(), CopyTable::default());
    let span = Span { start: 0, end: pattern.len() };
    let mut add = |node: Probe| match add(&Spanned { node, span }, has_signatures, &table, &mut lines) {
        Err(Error { problem: Problem::NoMatch | Problem::NoMatchBut { .. } | Problem::NoInlined, .. }) => Ok(()),
        outcome => outcome,
    };
    add(Probe::Kprobe { glob: fallible::copy(pattern)? })?;
    add(Probe::Inline { function: fallible::copy(pattern)?, exit: false })?;
    let mut events = fallible::collect(event::all())?;
    fallible::sort_by_key(&mut events, |event| (event.group(), event.name()));
    for event in events {
        let (group, name) = (event.group(), event.name());
        if matches(pattern, name) || matches(pattern, &fallible::format(format_args!("{group}:{name}"))?) {
            add(Probe::Tracepoint { group: fallible::copy(group)?, event: fallible::copy(name)? })?;
        }
    }
    match lines.is_empty() {
        true => Err(ProgramRefusal::at("no function, inlined function or static event matches this", span)),
        false => Ok(lines),
    }
}

/// Adds the lines for one probe.
fn add(probe: &Spanned<Probe>, has_signatures: bool, table: &CopyTable, lines: &mut Vec<String>) -> Result<(), Error> {
    if let Probe::Inline { function, exit } = &probe.node {
        let copies = table.list(function, *exit).map_err(|problem| probe.span.error(problem))?;
        return Ok(fallible::extend(lines, copies)?);
    }
    let routine = Routine { ops: Vec::new(), runs_after_exit: false };
    let mut all = ResolvedProbes::default();
    all.add(0, &routine, probe, table)?;
    if let Probe::Tracepoint { .. } = probe.node {
        for (name, place) in all.names.iter().zip(&all.places) {
            fallible::push(lines, fallible::format(format_args!("{name}"))?)?;
            let known = if has_signatures { event::of_function(place.address) } else { None };
            for field in known.map_or(&[][..], Event::fields) {
                fallible::push(lines, field_line(field)?)?;
            }
        }
        return Ok(());
    }
    for (number, name) in (1..).zip(&all.names) {
        fallible::push(lines, fallible::format(format_args!("{name}"))?)?;
        let place = all.places.iter().find(|place| has_signatures && place.name == number);
        if let Some(place) = place {
            fallible::extend(lines, types::describe(place.function.start as u64)?)?;
        }
    }
    Ok(())
}

/// Returns the line about a field of a static event, as bpftrace shows it.
fn field_line(field: &Field) -> Result<String, OutOfMemory> {
    let Field { name, c_type, kind, size, .. } = field;
    match kind {
        FieldKind::Characters => fallible::format(format_args!("    {c_type} {name}[{size}]")),
        FieldKind::Text => fallible::format(format_args!("    __data_loc {c_type} {name}")),
        _ => fallible::format(format_args!("    {c_type} {name}")),
    }
}
