//! The console's own commands.

use crate::command::Command;
use crate::{coverage, dialog, everything, files, help, probes, source, symbols, trace, why};

/// The commands, in the order of `help`.
pub(crate) static COMMANDS: [Command; 22] = [
    Command::new("trace", "[OPTIONS] PROGRAM", "run a program until ^C or the end of a command", trace::trace)
        .example("trace 'kprobe:blk::* { @[func] = count(); }' -c console")
        .more(
            "PROGRAM: PROBE[, PROBE] [/PREDICATE/] { STATEMENTS } ...\n\
         PROBE: kprobe:GLOB kretprobe:GLOB return:GLOB kprobe:FUNC+OFFSET\n\
         \x20      kprobe:FILE.rs:LINE kprobe:FUNC:LINE insn:FUNC:OFFSET|* BEGIN END\n\
         \x20      inline:GLOB:entry|return tracepoint:GROUP:EVENT\n\
         \x20      interval:ms|s:N profile:hz:N software:cpu-clock:N hardware:EVENT:N\n\
         \x20      watchpoint:ADDRESS|SYMBOL[+OFFSET]:LENGTH:r|w|rw\n\
         STATEMENTS: @MAP[KEYS] = VALUE; $VARIABLE = VALUE; if (VALUE) { } else { }\n\
         \x20           unroll (N) { } return printf(\"FORMAT\", VALUES) print(@MAP)\n\
         \x20           clear(@MAP) zero(@MAP) delete(@MAP[KEYS]) exit()",
        )
        .options(&trace::Help),
    Command::new("funccount", "GLOB [-c COMMAND]", "how often each function is called", trace::count_functions)
        .example("funccount blk::*"),
    Command::new(
        "funclatency",
        "GLOB [-c COMMAND]",
        "how long calls of each function take, in ns",
        trace::time_function,
    )
    .example("funclatency blk::read"),
    Command::new(
        "stackcount",
        "FUNC [-c COMMAND]",
        "where a function is called from, and how often",
        trace::count_stacks,
    )
    .example("stackcount blk::read"),
    Command::new("list-probes", "[-v] PROBES", "what a probe matches, as in kprobe:blk::*", trace::list_probes)
        .example("list-probes -v kprobe:blk::*")
        .more("-v: with the arguments of each function, for use as args.NAME"),
    Command::new("list", "", "all probes, with their hits and misses", probes::list),
    Command::new("ls", "[PATH]", "the files of Linux's tracefs", files::ls).example("ls events"),
    Command::new("cat", "PATH", "print a file", files::cat)
        .example("cat trace")
        .more("cat trace N: the newest N records"),
    Command::new("echo", "TEXT > PATH", "write a line to a file; `>>` appends", files::echo)
        .example("echo 'p:reads blk::read' >> kprobe_events")
        .more(
            "`>` overwrites, `>>` appends; quotes as in a shell; -n: without a newline;\n\
         -e: with escapes, as \\n, \\0101 and \\x41;\n\
         $?: 1 if the previous line was refused, otherwise 0",
        ),
    Command::new("mkdir", "PATH", "make instances/NAME, a trace of its own", files::mkdir)
        .example("mkdir instances/second")
        .more("it has rings, settings and a tracer; the definitions of events are shared"),
    Command::new("rmdir", "PATH", "remove instances/NAME", files::rmdir).example("rmdir instances/second"),
    Command::new("clear", "trace", "discard all records", probes::clear).example("clear trace"),
    Command::new("enable", "EVENT", "arm an event again", probes::enable).example("enable reads"),
    Command::new("disable", "EVENT", "disarm an event; its counts stay", probes::disable).example("disable reads"),
    Command::new("why", "SYMBOL[+OFFSET]", "how an instruction is probed, or why not", why::why)
        .example("why blk::read+8")
        .more("without OFFSET: a line for each instruction of the function"),
    Command::new("coverage", "[GLOB]", "how much of the image can be probed", coverage::coverage)
        .example("coverage blk::*")
        .more("GLOB: as for symbols; without it, the whole image"),
    Command::new("everything", "[on|off]", "probe every instruction that can be probed", everything::everything)
        .example("everything on")
        .more("on: probe all; off: remove these probes; no argument: their hits and misses"),
    Command::new("symbols", "[-v] GLOB", "functions and statics by their names", symbols::symbols)
        .example("symbols blk::*")
        .more(
            "GLOB: * matches any characters, ? one; without them: a part of the name\n\
         -v: with the arguments of each function, and their types",
        ),
    Command::new("lines", "FUNC|FILE.rs", "lines of source that can be probed", source::lines)
        .example("lines blk::read")
        .more(
            "FUNC: its lines, with offsets, and as :LINE counted from its declaration\n\
         FILE.rs: its lines, with functions and offsets",
        ),
    Command::new("console", "", "more commands until exit, while trace runs", dialog::lend)
        .more("as in trace PROGRAM -c console"),
    Command::new("exit", "", "leave the console that `console` began", dialog::exit),
    Command::new("help", "[NAME]", "this list, or help for a command or a file", help::help).example("help trace"),
];
