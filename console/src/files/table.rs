//! The table of files: their paths, the functions that read and write them, and their help.

use core::fmt::Write;

use kprobes_trace::errno::Errno;
use kprobes_trace::recorder::{PRINT_EVENT, RAW_EVENT};
use kprobes_trace::text;

use super::content::ReadError;
use super::{event, kprobes, ring, settings, synthetic, tracer};
use crate::command::is_narrow;
use crate::session::Session;

/// A function that reads a file. Its second argument is the path, in parts.
type Read = fn(&Session, &[&str], &mut dyn Write) -> Result<(), ReadError>;
/// A function that writes text to a file.
type WriteText = fn(&mut Session, &[&str], &str) -> Result<(), Errno>;
/// A function that writes bytes to a file, which need not be text.
type WriteBytes = fn(&mut Session, &[&str], &[u8]) -> Result<(), Errno>;
/// A function that empties a file, called when the file is opened for writing from its beginning.
type Empty = fn(&mut Session, &[&str]) -> Result<(), Errno>;

/// A file of the tracefs.
pub(super) struct Node {
    /// The path of the file. `*` stands for the name of a group, an event, an option, a CPU or an instance.
    pub path: &'static str,
    pub read: Option<Read>,
    pub empty: Option<Empty>,
    pub write: Option<WriteText>,
    /// The function that writes a file of bytes.
    pub write_bytes: Option<WriteBytes>,
    /// Whether the file is about the kernel as a whole. Instances do not have such a file.
    pub is_of_all: bool,
    /// The help: the content, and the text that can be written.
    pub help: &'static str,
}

impl Node {
    const fn of_all(self) -> Self {
        Self { is_of_all: true, ..self }
    }

    const fn help(self, help: &'static str) -> Self {
        assert!(is_narrow(help), "no line of help is longer than 80 columns");
        Self { help, ..self }
    }
}

/// Creates a directory whose files are found elsewhere.
const fn directory(path: &'static str) -> Node {
    Node { path, read: None, empty: None, write: None, write_bytes: None, is_of_all: false, help: "" }
}

const fn read_only(path: &'static str, read: Read) -> Node {
    Node { read: Some(read), ..directory(path) }
}

const fn file(path: &'static str, read: Read, write: WriteText) -> Node {
    Node { write: Some(write), ..read_only(path, read) }
}

/// Creates a file that is emptied when it is opened for writing from its beginning.
const fn emptied(path: &'static str, read: Read, empty: Empty, write: WriteText) -> Node {
    Node { empty: Some(empty), ..file(path, read, write) }
}

const fn write_only(path: &'static str, empty: Option<Empty>, write: WriteText) -> Node {
    Node { empty, write: Some(write), ..directory(path) }
}

pub(super) static NODES: [Node; 72] = [
    read_only("README", |_, _, out| Ok(out.write_str(settings::README)?))
        .of_all()
        .help("an overview, with the words that tools look for"),
    read_only("available_events", event::read_events)
        .of_all()
        .help("all events, as GROUP:EVENT, which set_event accepts"),
    read_only("available_filter_functions", tracer::read_traceable).of_all().help("the functions that can be traced"),
    read_only("available_filter_functions_addrs", tracer::read_traceable)
        .of_all()
        .help("available_filter_functions with the address of each function"),
    read_only("available_tracers", tracer::read_available).help("the tracers; nop records events only"),
    file("buffer_size_kb", ring::read_size, ring::write_size)
        .help("the size of each CPU's ring, X if they differ; written: a number of KiB"),
    file("buffer_subbuf_size_kb", ring::read_page_size, ring::write_page_size)
        .help("the size of a page of a ring, 4 KiB; written: up to 4, which changes nothing"),
    read_only("buffer_total_size_kb", ring::read_total_size).help("the size of all rings"),
    file("current_tracer", tracer::read_current, tracer::write_current).help(
        "the tracer; written: nop, function, which records calls of functions,\n\
         or function_graph, which records their returns as well; empties trace",
    ),
    emptied("dynamic_events", synthetic::read_all, synthetic::remove_all, synthetic::write_any).of_all().help(
        "all definitions: of kprobes (p, r), fprobes (f), tracepoint probes (t),\n\
         event probes (e) and synthetic events (s)",
    ),
    read_only("enabled_functions", tracer::read_enabled)
        .of_all()
        .help("the functions that are traced, with the hits that were missed"),
    emptied("error_log", ring::read_errors, ring::clear_errors, ring::pass_over)
        .help("the last refused lines, with the reasons; `>` empties it"),
    file("events/enable", event::read_all_enabled, event::write_all_enabled)
        .help("whether all events are enabled; written: 0, 1"),
    read_only("events/ftrace/print/format", |_, _, out| Ok(out.write_str(text::PRINT_FORMAT)?))
        .help("the layout of a record that trace_marker writes"),
    read_only("events/ftrace/print/id", |_, _, out| Ok(writeln!(out, "{PRINT_EVENT}")?))
        .help("the event number in a record that trace_marker writes"),
    read_only("events/ftrace/raw_data/format", |_, _, out| Ok(out.write_str(text::RAW_FORMAT)?))
        .help("the layout of a record that trace_marker_raw writes"),
    read_only("events/ftrace/raw_data/id", |_, _, out| Ok(writeln!(out, "{RAW_EVENT}")?))
        .help("the event number in a record that trace_marker_raw writes"),
    read_only("events/header_event", |_, _, out| Ok(out.write_str(settings::HEADER_EVENT)?))
        .help("the encoding of records in the pages of trace_pipe_raw"),
    read_only("events/header_page", |_, _, out| Ok(out.write_str(settings::HEADER_PAGE)?))
        .help("the layout of the pages of trace_pipe_raw"),
    file("events/*/enable", event::read_all_enabled, event::write_all_enabled)
        .help("whether the events of a group are enabled; written: 0, 1"),
    file("events/*/filter", |_, _, out| Ok(out.write_str(event::GROUP_FILTER)?), event::write_group_filter).help(
        "written: a filter for all events of a group; 0 removes it;\n\
         the `filter` of an event that cannot have it holds the error",
    ),
    file("events/*/*/enable", event::read_enabled, event::write_enabled)
        .help("whether an event is enabled; written: 0, 1"),
    file("events/*/*/filter", event::read_filter, event::write_filter).help(
        "which hits are recorded; written: a filter; 0 removes it\n\
         FIELD OP VALUE, with == != < <= > >= & ~ for OP, && || ! and brackets;\n\
         FIELD.function == FUNCTION, !=: whether an address is in a function",
    ),
    read_only("events/*/*/format", event::read_format).help("the layout of the event's records"),
    read_only("events/*/*/hist", event::read_histograms).help("the histograms of the event"),
    read_only("events/*/*/id", event::read_number).help("the number of the event in its records"),
    emptied("events/*/*/trigger", event::read_triggers, event::remove_histograms, event::write_trigger).help(
        "the triggers of the event; written: a trigger; a leading `!` removes it\n\
         traceon, traceoff, snapshot, stacktrace [:COUNT] [if FILTER]\n\
         enable_event:GROUP:EVENT, disable_event:GROUP:EVENT [:COUNT] [if FILTER]\n\
         enable_hist:GROUP:EVENT, disable_hist:GROUP:EVENT [:COUNT] [if FILTER]\n\
         hist:keys=FIELD[,FIELD][:vals=FIELD][:sort=FIELD][:size=N] [if FILTER]\n\
         in hist :VAR=EXPRESSION; :onmatch(GROUP.EVENT), :onmax($VAR), :onchange($VAR)\n\
         with .trace(SYNTHETIC,FIELD), .save(FIELD), .snapshot()",
    ),
    directory("instances/*").of_all().help("traces of their own; `mkdir` makes one, `rmdir` removes it"),
    emptied("kprobe_events", kprobes::read_definitions, kprobes::remove_kprobes, kprobes::write_definitions)
        .of_all()
        .help(
            "the definitions of events; written: p, r or - (see `help p`), one per line\n\
         `>>` adds; `>` removes all others",
        ),
    read_only("kprobe_profile", kprobes::read_profile).of_all().help("each event with its hits and misses"),
    read_only("kprobes/blacklist", kprobes::read_blacklist)
        .of_all()
        .help("the functions that run while a probe is handled"),
    file("kprobes/enabled", kprobes::read_may_be_armed, kprobes::write_may_be_armed)
        .of_all()
        .help("whether p, r, and e on them, are armed; written: 0, 1, n, y"),
    read_only("kprobes/list", kprobes::read_list)
        .of_all()
        .help("all probes: address, k or r, place, [DISABLED], [OPTIMIZED]"),
    write_only("free_buffer", Some(settings::free), settings::free_more)
        .help("written: anything; frees the rings as far as possible"),
    file("function_profile_enabled", tracer::read_profiling, tracer::write_profiling).of_all().help(
        "whether calls are counted and timed, as trace_stat/functionN shows;\n\
         written: 0, 1, which begins anew",
    ),
    file("max_graph_depth", tracer::read_depth, tracer::write_depth).of_all().help(
        "the depth of calls that function_graph records, from the outermost;\n\
         written: a number, 0 for all",
    ),
    file("options/*", settings::read_option, settings::write_option).help(
        "whether an option is on; written: 0, 1\n\
         sym-offset       stacks show offsets into functions\n\
         sym-addr         functions are followed by their addresses\n\
         annotate         after an overrun, a line precedes the first record of a CPU\n\
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
    file("per_cpu/*/buffer_size_kb", ring::read_size, ring::write_size)
        .help("the size of the ring of one CPU; written: a number of KiB"),
    file("per_cpu/*/snapshot", ring::read_snapshot, ring::write_snapshot)
        .help("the records of one CPU in the snapshot; written: 2 removes them"),
    read_only("per_cpu/*/stats", ring::read_stats)
        .help("the numbers of records in the ring of one CPU, lost, and read"),
    emptied("per_cpu/*/trace", ring::read_trace, ring::clear_trace, ring::pass_over)
        .help("the trace of one CPU; `>` empties its ring"),
    read_only("per_cpu/*/trace_pipe", ring::read_pipe)
        .help("the records of one CPU as they are written, until ^C; reading removes them"),
    read_only("per_cpu/*/trace_pipe_raw", ring::read_raw).help(
        "trace_pipe as pages that events/header_page describes, until ^C; the console\n\
         shows bytes as `hexdump -C` does; `record` sends them",
    ),
    read_only("saved_cmdlines", settings::read_names).of_all().help("the numbers and names of the tasks in the trace"),
    file("saved_cmdlines_size", settings::read_names_size, settings::write_names_size)
        .of_all()
        .help("the capacity of saved_cmdlines; written: 1 to 32768"),
    emptied("set_event", event::read_set, event::disable_all, event::write_set).help(
        "the events that are enabled; written: GROUP:EVENT, GROUP:, :EVENT or NAME;\n\
         a leading `!` disables; `>` disables all others",
    ),
    emptied("set_event_notrace_pid", settings::read_tasks, settings::clear_tasks, settings::write_tasks)
        .help("tasks whose hits are not recorded; written: their numbers"),
    emptied("set_event_pid", settings::read_tasks, settings::clear_tasks, settings::write_tasks)
        .help("tasks whose hits alone are recorded (none: all); written: their numbers"),
    emptied("set_ftrace_filter", tracer::read_functions, tracer::clear_functions, tracer::write_functions).help(
        "the functions that are traced; written: names, patterns with * ? and [a-z];\n\
         a leading `!` removes; `>` removes all others; if empty, all are traced;\n\
         FUNCTION:COMMAND[:COUNT] has a function do something when it is called:\n\
         traceon, traceoff, snapshot, stacktrace, enable_event:GROUP:EVENT,\n\
         disable_event:GROUP:EVENT; a leading `!` takes it back",
    ),
    emptied("set_ftrace_notrace", tracer::read_functions, tracer::clear_functions, tracer::write_functions)
        .help("functions that are not traced; written as set_ftrace_filter"),
    emptied("set_ftrace_notrace_pid", settings::read_tasks, settings::clear_tasks, settings::write_tasks)
        .help("tasks whose calls the tracers do not record; written: their numbers"),
    emptied("set_ftrace_pid", settings::read_tasks, settings::clear_tasks, settings::write_tasks)
        .help("tasks whose calls alone the tracers record (none: all); written: numbers"),
    emptied("set_graph_function", tracer::read_functions, tracer::clear_functions, tracer::write_functions)
        .of_all()
        .help("function_graph records calls in these; written as set_ftrace_filter"),
    emptied("set_graph_notrace", tracer::read_functions, tracer::clear_functions, tracer::write_functions)
        .of_all()
        .help("function_graph records no calls in these; written as set_ftrace_filter"),
    read_only("show_event_filters", event::read_all_filters).help("the filters of all events, each after its event"),
    read_only("show_event_triggers", event::read_all_triggers).help("the triggers of all events, each after its event"),
    file("snapshot", ring::read_snapshot, ring::write_snapshot)
        .help("a copy of the trace; written: 1 takes it, 0 frees it, 2 empties it"),
    file("stack_max_size", tracer::read_stack_size, tracer::write_stack_size)
        .of_all()
        .help("the deepest stack, in bytes; written: the depth above which stacks are kept"),
    read_only("stack_trace", tracer::read_stack)
        .of_all()
        .help("the deepest stack: the depth and the size of each frame"),
    emptied("stack_trace_filter", tracer::read_functions, tracer::clear_stack_filter, tracer::write_stack_filter)
        .of_all()
        .help("the functions at whose calls stacks are looked at; written as set_ftrace_filter"),
    file("stack_tracer_enabled", tracer::read_stacks_on, tracer::write_stacks_on).of_all().help(
        "whether the deepest stack is looked for; written: 0, 1\n\
               (in Linux it is /proc/sys/kernel/stack_tracer_enabled)",
    ),
    emptied("synthetic_events", synthetic::read, synthetic::remove_synthetic, synthetic::write).of_all().help(
        "events that triggers generate; written: NAME TYPE FIELD[; TYPE FIELD], !NAME\n\
         `>>` adds; `>` removes all others",
    ),
    emptied("trace", ring::read_trace, ring::clear_trace, ring::pass_over)
        .help("the trace; `cat trace N`: its newest N records; `>` empties it"),
    file("trace_clock", settings::read_clock, settings::write_clock).help(
        "the clocks, the current one in brackets; written: one of them; empties trace\n\
         local, global and mono are the same clock; counter counts records",
    ),
    write_only("trace_marker", None, settings::mark).help("written: a text for the trace"),
    Node { write_bytes: Some(settings::mark_raw), ..directory("trace_marker_raw") }.help(
        "written: a number of four bytes, the lowest first, and data for the trace, as in\n\
         echo -n -e '\\x01\\x00\\x00\\x00data' > trace_marker_raw",
    ),
    file("trace_options", settings::read_options, settings::write_options)
        .help("all options; written: NAME turns one on, noNAME off"),
    read_only("trace_pipe", ring::read_pipe).help("the records as they are written, until ^C; reading removes them"),
    read_only("trace_stat/events", event::read_profile)
        .of_all()
        .help("the kernel's own events that have happened: the hits, and the missed hits"),
    read_only("trace_stat/*", tracer::read_profile).of_all().help(
        "calls of functions on one CPU: how many, how long they took in all and on\n\
         average, and the variance",
    ),
    file("tracing_cpumask", settings::read_cpus, settings::write_cpus)
        .help("the CPUs whose hits are recorded; written: a hexadecimal mask"),
    file("tracing_on", ring::read_on, ring::write_on).help("whether hits are recorded; written: 0, 1"),
];

/// The maximum number of parts of a path.
pub(super) const DEPTH: usize = 4;
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
