//! The files about tracers: which one is set, the functions that it traces, and the profile of functions.

use alloc::vec::Vec;
use core::fmt::Write;

use kprobes_trace::definition::Family;
use kprobes_trace::errno::Errno;
use kprobes_trace::tracer::usage::Usage;
use kprobes_trace::tracer::{Tracer, profile};

use super::content::{ReadError, number};
use super::patterns::{self, Pattern};
use super::ring::cpu_number;
use crate::session::Session;
use crate::tracer::{self, Functions, Settings};
use crate::{symbol, time, tracing};

pub(super) fn read_available(_: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    for (at, (_, name)) in Tracer::ALL.iter().enumerate() {
        write!(out, "{}{name}", if at > 0 { " " } else { "" })?;
    }
    Ok(out.write_str("\n")?)
}

pub(super) fn read_current(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(writeln!(out, "{}", session.events.options().tracer.name())?)
}

pub(super) fn write_current(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    let tracer = Tracer::find(text).ok_or(Errno::Invalid)?;
    Ok(session.tracing.set(&mut session.events, tracer)?)
}

/// The content of a file that names no functions, and so stands for all functions.
const ALL: &str = "#### all functions enabled ####";

/// Returns the functions that a file names, and its content if there are none.
fn named<'a>(settings: &'a Settings, parts: &[&str]) -> (&'a Functions, &'static str) {
    const NONE: &str = "#### no functions disabled ####";
    match parts.last().copied() {
        Some("set_ftrace_filter") => (&settings.filter, ALL),
        Some("set_ftrace_notrace") => (&settings.notrace, NONE),
        Some("set_graph_function") => (&settings.graph, ALL),
        _ => (&settings.graph_notrace, NONE),
    }
}

fn named_mut<'a>(settings: &'a mut Settings, parts: &[&str]) -> &'a mut Functions {
    match parts.last().copied() {
        Some("set_ftrace_filter") => &mut settings.filter,
        Some("set_ftrace_notrace") => &mut settings.notrace,
        Some("set_graph_function") => &mut settings.graph,
        _ => &mut settings.graph_notrace,
    }
}

/// Writes the functions that can be traced. In `available_filter_functions_addrs`, the virtual address of its first
/// instruction precedes each function.
pub(super) fn read_traceable(_: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let has_addresses = parts.last() == Some(&"available_filter_functions_addrs");
    for function in tracer::traceable("*") {
        if has_addresses {
            write!(out, "{:x} ", function.address)?;
        }
        write_function(out, function.address as usize)?;
        out.write_str("\n")?;
    }
    Ok(())
}

pub(super) fn read_functions(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let (functions, none) = match parts.last().copied() {
        Some("stack_trace_filter") => (session.tracing.stacks.filter(), ALL),
        _ => named(&session.tracing.settings, parts),
    };
    if functions.addresses().is_empty() {
        writeln!(out, "{none}")?;
    }
    for &address in functions.addresses() {
        write_function(out, address as usize)?;
        out.write_str("\n")?;
    }
    if has_commands(parts) {
        for (function, command) in session.events.commands() {
            write_function(out, function as usize)?;
            writeln!(out, ":{command}")?;
        }
    }
    Ok(())
}

/// Returns whether the functions of a file can have commands.
fn has_commands(parts: &[&str]) -> bool {
    parts.last() == Some(&"set_ftrace_filter")
}

/// Writes the function in a form that files of functions accept.
fn write_function(out: &mut dyn Write, address: usize) -> Result<(), ReadError> {
    match symbol::lookup(address) {
        Some(function) => Ok(out.write_str(&symbol::path(&function).map_err(Errno::from)?)?),
        None => Ok(write!(out, "{address:#x}")?),
    }
}

pub(super) fn write_functions(session: &mut Session, parts: &[&str], text: &str) -> Result<(), Errno> {
    for Pattern { glob, command, is_removed } in patterns::of(text) {
        match command {
            Some(command) if has_commands(parts) => tracer::command(&mut session.events, glob, command, is_removed)?,
            Some(_) => return Err(refuse_command()),
            None => session.tracing.change(|settings| named_mut(settings, parts).change(glob, is_removed))?,
        }
    }
    Ok(())
}

/// Shows that the file takes no commands of functions, and returns the error number for it.
fn refuse_command() -> Errno {
    println!("only set_ftrace_filter takes commands of functions");
    Errno::Invalid
}

pub(super) fn clear_functions(session: &mut Session, parts: &[&str]) -> Result<(), Errno> {
    session.tracing.change(|settings| {
        *named_mut(settings, parts) = Functions::default();
        Ok(())
    })
}

pub(super) fn read_depth(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(writeln!(out, "{}", session.tracing.settings.max_depth)?)
}

pub(super) fn write_depth(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    let depth = u32::try_from(number(text)?).map_err(|_| Errno::Invalid)?;
    session.tracing.change(|settings| {
        settings.max_depth = depth;
        Ok(())
    })
}

/// Writes the functions that are traced, or that have an armed fprobe or a command, in any trace. The number of its
/// users follows each function, and the number of calls and returns that tracers have missed, if it is not 0. The last
/// line has the number of calls and returns that were lost when the probes of the tracer were replaced.
pub(super) fn read_enabled(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let main = (&session.events, &session.tracing);
    let mut users = Vec::new();
    for (events, tracing) in session.instances.traces().chain([main]) {
        let fprobes = events.probes_of(Some(Family::Fprobe)).filter(|event| event.is_armed());
        let fprobes = fprobes.map(|event| event.address());
        let mut commands = fallible::collect(events.commands().map(|(function, _)| function)).map_err(Errno::from)?;
        commands.dedup();
        let without_misses = fprobes.chain(commands).map(|address| (address as usize, 0));
        fallible::extend(&mut users, tracing.enabled().chain(without_misses)).map_err(Errno::from)?;
    }
    users.sort_unstable();
    for users in users.chunk_by(|(one, _), (other, _)| one == other) {
        let Some(&(address, _)) = users.first() else { continue };
        write_function(out, address)?;
        write_users(out, users.len(), users.iter().map(|(_, missed)| missed).sum())?;
    }
    match session.tracing.lost {
        0 => Ok(()),
        lost => Ok(writeln!(out, "# lost by earlier probes: {lost}")?),
    }
}

/// Writes what follows a function in `enabled_functions`: the number of its users, a blank for each column that Linux
/// has for flags, and the number of calls and returns that were missed, if it is not 0.
fn write_users(out: &mut dyn Write, users: usize, missed: u64) -> core::fmt::Result {
    // The flags are those of ftrace's own ways to call a tracer: R, I, D, O and M.
    const NO_FLAGS: &str = "           ";
    write!(out, " ({users}){NO_FLAGS}")?;
    if missed > 0 {
        write!(out, "\tmissed: {missed}")?;
    }
    out.write_str("\n")
}

pub(super) fn read_profiling(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(writeln!(out, "{}", u8::from(session.tracing.is_profiling()))?)
}

pub(super) fn write_profiling(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    Ok(session.tracing.set_profiling(number(text)? != 0)?)
}

/// Returns the CPU of `trace_stat/functionN`.
pub(super) fn profile_cpu(name: &str) -> Option<usize> {
    cpu_number(name.strip_prefix("function")?)
}

pub(super) fn read_profile(session: &Session, parts: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let cpu = parts.last().and_then(|name| profile_cpu(name)).ok_or(Errno::NotFound)?;
    Ok(profile::write(out, session.tracing.counts(), cpu, &tracing::Names, time::clock())?)
}

pub(super) fn read_stacks_on(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(writeln!(out, "{}", u8::from(session.tracing.stacks.is_on()))?)
}

pub(super) fn write_stacks_on(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    session.tracing.stacks.set(number(text)? != 0)
}

pub(super) fn read_stack(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    let stacks = &session.tracing.stacks;
    match stacks.usage() {
        Some(usage) => Ok(usage.write(out, stacks.is_on(), &tracing::Names)?),
        None => Ok(Usage::new(0).map_err(Errno::from)?.write(out, false, &tracing::Names)?),
    }
}

pub(super) fn read_stack_size(session: &Session, _: &[&str], out: &mut dyn Write) -> Result<(), ReadError> {
    Ok(writeln!(out, "{}", session.tracing.stacks.usage().map_or(0, Usage::depth))?)
}

pub(super) fn write_stack_size(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    let depth = number(text)?;
    session.tracing.stacks.usage_mut()?.set_depth(depth);
    Ok(())
}

pub(super) fn write_stack_filter(session: &mut Session, _: &[&str], text: &str) -> Result<(), Errno> {
    session.tracing.stacks.change_filter(|filter| {
        patterns::of(text).try_for_each(|Pattern { glob, command, is_removed }| match command {
            Some(_) => Err(refuse_command()),
            None => filter.change(glob, is_removed),
        })
    })
}

pub(super) fn clear_stack_filter(session: &mut Session, _: &[&str]) -> Result<(), Errno> {
    session.tracing.stacks.change_filter(|filter| {
        *filter = Functions::default();
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    /// Linux 6.12 writes eleven characters for five flags.
    #[test]
    fn blanks_stand_for_the_flags_of_an_enabled_function() {
        let mut text = String::new();
        write_users(&mut text, 2, 0).unwrap();
        write_users(&mut text, 1, 3).unwrap();
        assert_eq!(text, " (2)           \n (1)           \tmissed: 3\n");
    }
}
