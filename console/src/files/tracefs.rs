//! The table of files, and the operations on a path: read, write, list.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write};

use fallible::OutOfMemory;
use kprobes_trace::definition;
use kprobes_trace::errno::Errno;
use kprobes_trace::options::Flag;
use kprobes_trace::text::ShowError;

use super::path::{self, Fit};
use super::{event, kprobes, ring, settings, synthetic, tracer};
use crate::command::is_narrow;
use crate::session::Session;
use crate::words::{Failure, Word};

/// A function that reads a file. Its second argument is the path, in parts.
type Read = fn(&Session, &[&str], &mut dyn Write) -> Result<(), Fault>;
/// A function that writes text to a file.
type WriteText = fn(&mut Session, &[&str], &str) -> Result<(), Errno>;

/// A function that empties a file, called when the file is opened for writing from its beginning.
type Empty = fn(&mut Session, &[&str]) -> Result<(), Errno>;

/// A file.
struct Node {
    /// The path of the file. `*` stands for the name of a group, an event, an option or a CPU.
    path: &'static str,
    read: Option<Read>,
    empty: Option<Empty>,
    write: Option<WriteText>,
}

const fn file(path: &'static str, read: Read, write: WriteText) -> Node {
    Node { path, read: Some(read), empty: None, write: Some(write) }
}

/// Creates a file that is emptied when it is opened for writing from its beginning.
const fn emptied(path: &'static str, read: Read, empty: Empty, write: WriteText) -> Node {
    Node { empty: Some(empty), ..file(path, read, write) }
}

const fn write_only(path: &'static str, empty: Option<Empty>, write: WriteText) -> Node {
    Node { path, read: None, empty, write: Some(write) }
}

const fn read_only(path: &'static str, read: Read) -> Node {
    Node { path, read: Some(read), empty: None, write: None }
}

static NODES: [Node; 59] = [
    read_only("README", settings::read_me),
    read_only("available_events", event::read_events),
    read_only("available_filter_functions", kprobes::read_functions),
    read_only("available_tracers", tracer::read_available),
    file("buffer_size_kb", ring::read_size, ring::write_size),
    read_only("buffer_total_size_kb", ring::read_total_size),
    file("current_tracer", tracer::read_current, tracer::write_current),
    emptied("dynamic_events", synthetic::read_all, synthetic::remove_all, synthetic::write_any),
    read_only("enabled_functions", tracer::read_enabled),
    emptied("error_log", ring::read_errors, ring::clear_errors, ring::pass_over),
    file("events/enable", event::read_all_enabled, event::write_all_enabled),
    read_only("events/ftrace/print/format", settings::read_print_format),
    read_only("events/ftrace/print/id", settings::read_print_number),
    read_only("events/header_event", settings::read_header_event),
    read_only("events/header_page", settings::read_header_page),
    file("events/*/enable", event::read_all_enabled, event::write_all_enabled),
    file("events/*/filter", event::read_group_filter, event::write_group_filter),
    file("events/*/*/enable", event::read_enabled, event::write_enabled),
    file("events/*/*/filter", event::read_filter, event::write_filter),
    read_only("events/*/*/format", event::read_format),
    read_only("events/*/*/hist", event::read_histograms),
    read_only("events/*/*/id", event::read_number),
    emptied("events/*/*/trigger", event::read_triggers, event::remove_histograms, event::write_trigger),
    emptied("kprobe_events", kprobes::read_definitions, kprobes::remove_kprobes, kprobes::write_definitions),
    read_only("kprobe_profile", kprobes::read_profile),
    read_only("kprobes/blacklist", kprobes::read_blacklist),
    file("kprobes/enabled", kprobes::read_armed, kprobes::write_armed),
    read_only("kprobes/list", kprobes::read_list),
    write_only("free_buffer", Some(settings::free), settings::free_more),
    file("function_profile_enabled", tracer::read_profiling, tracer::write_profiling),
    file("max_graph_depth", tracer::read_depth, tracer::write_depth),
    file("options/*", settings::read_option, settings::write_option),
    file("per_cpu/*/buffer_size_kb", ring::read_size, ring::write_size),
    read_only("per_cpu/*/stats", ring::read_stats),
    emptied("per_cpu/*/trace", ring::read_trace, ring::clear_trace, ring::pass_over),
    read_only("per_cpu/*/trace_pipe", ring::read_pipe),
    read_only("per_cpu/*/trace_pipe_raw", ring::read_raw),
    read_only("saved_cmdlines", settings::read_names),
    file("saved_cmdlines_size", settings::read_names_size, settings::write_names_size),
    emptied("set_event", event::read_set, event::disable_all, event::write_set),
    emptied("set_event_notrace_pid", settings::read_tasks, settings::clear_tasks, settings::write_tasks),
    emptied("set_event_pid", settings::read_tasks, settings::clear_tasks, settings::write_tasks),
    emptied("set_ftrace_filter", tracer::read_functions, tracer::clear_functions, tracer::write_functions),
    emptied("set_ftrace_notrace", tracer::read_functions, tracer::clear_functions, tracer::write_functions),
    emptied("set_ftrace_notrace_pid", settings::read_tasks, settings::clear_tasks, settings::write_tasks),
    emptied("set_ftrace_pid", settings::read_tasks, settings::clear_tasks, settings::write_tasks),
    emptied("set_graph_function", tracer::read_functions, tracer::clear_functions, tracer::write_functions),
    emptied("set_graph_notrace", tracer::read_functions, tracer::clear_functions, tracer::write_functions),
    file("snapshot", ring::read_snapshot, ring::write_snapshot),
    emptied("synthetic_events", synthetic::read, synthetic::remove_synthetic, synthetic::write),
    emptied("trace", ring::read_trace, ring::clear_trace, ring::pass_over),
    file("trace_clock", settings::read_clock, settings::write_clock),
    write_only("trace_marker", None, settings::mark),
    file("trace_options", settings::read_options, settings::write_options),
    read_only("trace_pipe", ring::read_pipe),
    read_only("trace_stat/events", event::read_profile),
    read_only("trace_stat/*", tracer::read_profile),
    file("tracing_cpumask", settings::read_cpus, settings::write_cpus),
    file("tracing_on", ring::read_on, ring::write_on),
];

/// The most parts of a path.
const DEPTH: usize = 4;
const _: () = {
    let mut number = 0;
    while number < NODES.len() {
        let (path, mut at, mut parts) = (NODES[number].path.as_bytes(), 0, 1);
        while at < path.len() {
            parts += (path[at] == b'/') as usize;
            at += 1;
        }
        assert!(parts <= DEPTH);
        number += 1;
    }
};

/// The reason why a read has failed.
pub(super) enum Fault {
    /// The file cannot be read.
    Errno(Errno),
    /// The output of the read has returned an error.
    Screen,
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<ShowError> for Fault {
    fn from(error: ShowError) -> Self {
        match error {
            ShowError::OutOfMemory => Self::Errno(Errno::NoMemory),
            ShowError::Write(_) => Self::Screen,
        }
    }
}

impl From<fmt::Error> for Fault {
    fn from(_: fmt::Error) -> Self {
        Self::Screen
    }
}

/// The reason why a write has failed.
pub(super) enum WriteFault {
    /// The file could not be opened.
    Open(Errno),
    /// The file was opened, but has refused the text.
    Write(Errno),
}

/// Returns the file that a path names.
fn find(session: &Session, parts: &[&str]) -> Result<&'static Node, Errno> {
    if !exists(session, parts) {
        return Err(Errno::NotFound);
    }
    let is = |fit: Fit| move |node: &&Node| path::fit(node.path, parts) == fit;
    match (NODES.iter().find(is(Fit::File)), NODES.iter().any(|node| is(Fit::Below)(&node))) {
        (Some(node), _) => Ok(node),
        (None, true) => Err(Errno::IsDirectory),
        (None, false) => Err(Errno::NotFound),
    }
}

/// Returns whether the names in the path that patterns have a star for exist: the group, event, option or CPU.
fn exists(session: &Session, parts: &[&str]) -> bool {
    let events = &session.events;
    // A path that matches a pattern without stars exists, and so do the directories above it.
    let is_literal = |path: &str| !path.contains('*') && path::fit(path, parts) != Fit::None;
    let is_file = NODES.iter().any(|node| is_literal(node.path));
    match parts {
        _ if is_file => true,
        ["options", name] => Flag::find(name).is_some(),
        ["per_cpu", cpu, ..] => ring::cpu_of(cpu).is_some(),
        ["trace_stat", name] => tracer::profile_cpu(name).is_some(),
        // Its events only fire triggers.
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

/// Writes the content of the file to `out`.
pub(super) fn read(session: &Session, path: &str, out: &mut dyn Write) -> Result<(), Fault> {
    let parts = path::parts(path).map_err(Errno::from)?;
    let read = find(session, &parts)?.read.ok_or(Errno::Invalid)?;
    read(session, &parts, out)
}

/// Opens the file for writing, at its end if `append`, and writes `text` unless it is empty.
pub(super) fn write(session: &mut Session, path: &str, text: &str, append: bool) -> Result<(), WriteFault> {
    let written = write_open(session, path, text, append);
    // Changed settings of tracers take effect when the file is closed.
    written.and(tracer::settle(session).map_err(|error| WriteFault::Write(error.into())))
}

fn write_open(session: &mut Session, path: &str, text: &str, append: bool) -> Result<(), WriteFault> {
    let parts = path::parts(path).map_err(|error| WriteFault::Open(error.into()))?;
    let node = find(session, &parts).map_err(WriteFault::Open)?;
    let write = node.write.ok_or(WriteFault::Open(Errno::NotPermitted))?;
    if let (Some(empty), false) = (node.empty, append) {
        empty(session, &parts).map_err(WriteFault::Open)?;
    }
    if text.is_empty() {
        return Ok(());
    }
    write(session, &parts, text).map_err(WriteFault::Write)
}

/// Returns the names in a directory, or the path itself for a file.
pub(super) fn list(session: &Session, path: &str) -> Result<Vec<String>, Errno> {
    let parts = path::parts(path)?;
    match find(session, &parts) {
        Ok(_) => Ok(fallible::collect_results([fallible::copy(path)])?),
        Err(Errno::IsDirectory) => {
            let mut names = path::list(NODES.iter().map(|node| node.path), &parts, stars(session, &parts)?)?;
            // A pattern fits more than there is: ftrace:print cannot be enabled.
            names.retain(|name| {
                let mut inner = [""; DEPTH];
                inner.iter_mut().zip(parts.iter().copied().chain([name.as_str()])).for_each(|(to, part)| *to = part);
                inner.get(..parts.len() + 1).is_some_and(|inner| exists(session, inner))
            });
            Ok(names)
        }
        Err(errno) => Err(errno),
    }
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
        ["events"] => fallible::collect_results(events.map(|event| fallible::copy(&event.group))),
        ["events", group] => {
            let of_group = events.filter(|event| event.group == *group);
            fallible::collect_results(of_group.map(|event| fallible::copy(&event.event)))
        }
        _ => Ok(Vec::new()),
    }
}

/// The help text for each file: its content, and what can be written to it.
const HELP: [(&str, &str); NODES.len()] = [
    ("README", "an overview, with the words that tools look for"),
    ("available_events", "all events, as GROUP:EVENT, which set_event accepts"),
    ("available_filter_functions", "the functions that can be probed"),
    ("available_tracers", "the tracers; nop records events only"),
    ("buffer_size_kb", "the size of each CPU's ring, X if they differ; written: a number of KiB"),
    ("buffer_total_size_kb", "the size of all rings"),
    (
        "current_tracer",
        "the tracer; written: nop, function, which records calls of functions,\n\
         or function_graph, which records their returns as well; empties trace",
    ),
    (
        "dynamic_events",
        "all definitions: of kprobes (p, r), fprobes (f), tracepoint probes (t),\n\
         event probes (e) and synthetic events (s)",
    ),
    ("enabled_functions", "the functions that are traced, with the hits that were missed"),
    ("error_log", "the last refused lines, with the reasons; `>` empties it"),
    ("events/enable", "whether all events are enabled; written: 0, 1"),
    ("events/ftrace/print/format", "the layout of a record that trace_marker writes"),
    ("events/ftrace/print/id", "the event number in a record that trace_marker writes"),
    ("events/header_event", "the encoding of records in the pages of trace_pipe_raw"),
    ("events/header_page", "the layout of the pages of trace_pipe_raw"),
    ("events/*/enable", "whether the events of a group are enabled; written: 0, 1"),
    ("events/*/*/enable", "whether an event is enabled; written: 0, 1"),
    (
        "events/*/filter",
        "written: a filter for all events of a group; 0 removes it;\n\
         the `filter` of an event that cannot have it holds the error",
    ),
    (
        "events/*/*/filter",
        "which hits are recorded; written: a filter; 0 removes it\n\
         FIELD OP VALUE, with == != < <= > >= & ~ for OP, && || ! and brackets",
    ),
    ("events/*/*/format", "the layout of the event's records"),
    ("events/*/*/hist", "the histograms of the event"),
    ("events/*/*/id", "the number of the event in its records"),
    (
        "events/*/*/trigger",
        "the triggers of the event; written: a trigger; a leading `!` removes it\n\
         traceon, traceoff, snapshot, stacktrace [:COUNT] [if FILTER]\n\
         enable_event:GROUP:EVENT, disable_event:GROUP:EVENT [:COUNT] [if FILTER]\n\
         hist:keys=FIELD[,FIELD][:vals=FIELD][:sort=FIELD][:size=N] [if FILTER]\n\
         in hist :VAR=EXPRESSION; :onmatch(GROUP.EVENT), :onmax($VAR), :onchange($VAR)\n\
         with .trace(SYNTHETIC,FIELD), .save(FIELD), .snapshot()",
    ),
    (
        "kprobe_events",
        "the definitions of events; written: p, r or - (see `help p`), one per line\n\
         `>>` adds; `>` removes all others",
    ),
    ("kprobe_profile", "each event with its hits and misses"),
    ("kprobes/blacklist", "the functions that run while a probe is handled"),
    ("kprobes/enabled", "whether events are armed; written: 0, 1, n, y"),
    ("kprobes/list", "all probes: address, k or r, place, [DISABLED], [OPTIMIZED]"),
    ("free_buffer", "written: anything; frees the rings as far as possible"),
    (
        "function_profile_enabled",
        "whether calls are counted and timed, as trace_stat/functionN shows;\n\
         written: 0, 1, which begins anew",
    ),
    (
        "max_graph_depth",
        "the depth of calls that function_graph records, from the outermost;\n\
         written: a number, 0 for all",
    ),
    (
        "options/*",
        "whether an option is on; written: 0, 1\n\
         sym-offset       stacks show offsets into functions\n\
         sym-addr         functions are followed by their addresses\n\
         context-info     records show their task, CPU, state and time\n\
         overwrite        a full ring overwrites its oldest records and drops no new ones\n\
         disable_on_free  free_buffer also turns tracing off\n\
         irq-info         records show five characters for the CPU state\n\
         markers          trace_marker can be written to\n\
         event-fork       children of tasks in set_event_pid and set_event_notrace_pid\n\
         \x20                follow them\n\
         function-fork    likewise in set_ftrace_pid and set_ftrace_notrace_pid\n\
         stacktrace       each record of an event is followed by the stack\n\
         func_stack_trace function records the stack after each call\n\
         funcgraph-X      function_graph shows X: cpu, overhead, proc, duration,\n\
         \x20                abstime, irqs, tail, retval, retval-hex",
    ),
    ("per_cpu/*/buffer_size_kb", "the size of the ring of one CPU; written: a number of KiB"),
    ("per_cpu/*/stats", "the numbers of records in the ring of one CPU, lost, and read"),
    ("per_cpu/*/trace", "the trace of one CPU; `>` empties its ring"),
    ("per_cpu/*/trace_pipe", "the records of one CPU as they are written, until ^C; reading removes them"),
    (
        "per_cpu/*/trace_pipe_raw",
        "trace_pipe as pages that events/header_page describes, until ^C; the console\n\
         shows bytes as `hexdump -C` does; `record` sends them",
    ),
    ("saved_cmdlines", "the numbers and names of the tasks in the trace"),
    ("saved_cmdlines_size", "the capacity of saved_cmdlines; written: 1 to 32768"),
    (
        "set_event",
        "the events that are enabled; written: GROUP:EVENT, GROUP:, :EVENT or NAME;\n\
         a leading `!` disables; `>` disables all others",
    ),
    ("set_event_notrace_pid", "tasks whose hits are not recorded; written: their numbers"),
    ("set_event_pid", "tasks whose hits alone are recorded (none: all); written: their numbers"),
    (
        "set_ftrace_filter",
        "the functions that are traced; written: names and patterns with * and ?;\n\
         a leading `!` removes; `>` removes all others; if empty, all are traced;\n\
         FUNCTION:COMMAND[:COUNT] has a function do something when it is called:\n\
         traceon, traceoff, snapshot, stacktrace, enable_event:GROUP:EVENT,\n\
         disable_event:GROUP:EVENT; a leading `!` takes it back",
    ),
    ("set_ftrace_notrace", "functions that are not traced; written as set_ftrace_filter"),
    ("set_ftrace_notrace_pid", "tasks whose calls the tracers do not record; written: their numbers"),
    ("set_ftrace_pid", "tasks whose calls alone the tracers record (none: all); written: numbers"),
    ("set_graph_function", "function_graph records calls in these; written as set_ftrace_filter"),
    ("set_graph_notrace", "function_graph records no calls in these; written as set_ftrace_filter"),
    ("snapshot", "a copy of the trace; written: 1 takes it, 0 frees it, 2 empties it"),
    (
        "synthetic_events",
        "events that triggers generate; written: NAME TYPE FIELD[; TYPE FIELD], !NAME\n\
         `>>` adds; `>` removes all others",
    ),
    ("trace", "the trace; `cat trace N`: its newest N records; `>` empties it"),
    (
        "trace_clock",
        "the clocks, the current one in brackets; written: one of them; empties trace\n\
         local, global and mono are the same clock; counter counts records",
    ),
    ("trace_marker", "written: a text for the trace"),
    ("trace_options", "all options; written: NAME turns one on, noNAME off"),
    ("trace_pipe", "the records as they are written, until ^C; reading removes them"),
    ("trace_stat/events", "the kernel's own events that have happened: the hits, and the missed hits"),
    (
        "trace_stat/*",
        "calls of functions on one CPU: how many, how long they took in all and on\n\
         average, and the variance",
    ),
    ("tracing_cpumask", "the CPUs whose hits are recorded; written: a hexadecimal mask"),
    ("tracing_on", "whether hits are recorded; written: 0, 1"),
];

const _: () = {
    let mut number = 0;
    while number < HELP.len() {
        assert!(is_narrow(HELP[number].1));
        number += 1;
    }
};

/// Shows help for the files that `word` names: by a path, otherwise by the last part of a path or of a pattern.
pub(in super::super) fn describe(word: Word<'_>) -> Result<(), Failure> {
    let parts = path::parts(word.text)?;
    let is_path = |pattern: &str| path::fit(pattern, &parts) == Fit::File;
    let is_option = |pattern: &str| pattern == "options/*" && Flag::find(word.text).is_some();
    let is_last = |pattern: &str| pattern.rsplit('/').next() == Some(word.text) || is_option(pattern);
    let is_any_path = HELP.iter().any(|(pattern, _)| is_path(pattern));
    let is_meant = |pattern: &str| if is_any_path { is_path(pattern) } else { is_last(pattern) };
    let mut found = HELP.iter().filter(|(pattern, _)| is_meant(pattern)).peekable();
    if found.peek().is_none() {
        return Err(word.failure("no command and no file has this name; `help` lists commands, `ls` files"));
    }
    found.for_each(|(pattern, help)| println!("{pattern}\n{help}"));
    Ok(())
}

/// Parses a number that is written to a file.
pub(super) fn number(text: &str) -> Result<u64, Errno> {
    definition::whole(text).ok_or(Errno::Invalid)
}

/// Parses the 0 or 1 that is written to a file of events.
pub(super) fn switch(text: &str) -> Result<bool, Errno> {
    match number(text)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::Invalid),
    }
}
