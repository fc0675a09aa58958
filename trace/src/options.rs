//! How a trace is printed, and the clock of its records: Linux's `trace_options`, `options/` and `trace_clock`.
//!
//! Only options that have an effect here exist. Records always store the system counter: the clock decides how it is
//! printed.

use core::fmt::{self, Write};

use crate::tracer::Tracer;

/// An option of `trace_options`; each is also a file in `options/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Flag {
    /// Functions on a stack are printed with the offset in them.
    SymOffset,
    /// Functions are printed with their virtual address after them.
    SymAddr,
    /// After an overrun, a line says where the records of each CPU begin.
    Annotate,
    /// A record is printed with its task, CPU, state and time.
    ContextInfo,
    /// A full ring overwrites its oldest records; otherwise it drops new ones.
    Overwrite,
    /// Writing to `free_buffer` also turns tracing off.
    DisableOnFree,
    /// The state of the CPU is printed: the five characters after its number.
    IrqInfo,
    /// `trace_marker` can be written to.
    Markers,
    /// The children of the tasks in `set_event_pid` and `set_event_notrace_pid` inherit the restriction.
    EventFork,
    /// The children of the tasks in `set_ftrace_pid` and `set_ftrace_notrace_pid` inherit the restriction.
    FunctionFork,
    /// Each record of an event is followed by one of the stack.
    Stacktrace,
    /// Tracer `function`: each record of a call is followed by one of the stack.
    FunctionStackTrace,
    /// Tracer `function_graph`: the column of the CPU.
    GraphCpu,
    /// Tracer `function_graph`: a mark at long calls.
    GraphOverhead,
    /// Tracer `function_graph`: the column of the task.
    GraphTask,
    /// Tracer `function_graph`: the column of the duration.
    GraphDuration,
    /// Tracer `function_graph`: the column of the time.
    GraphTime,
    /// Tracer `function_graph`: the calls of interrupt handlers are shown.
    GraphInterrupts,
    /// Tracer `function_graph`: the name of the function after its closing brace.
    GraphTail,
    /// Tracer `function_graph`: the result of each function.
    GraphResult,
    /// Tracer `function_graph`: all results are printed in hexadecimal, even error numbers.
    GraphHexResult,
}

impl Flag {
    /// All options with their names, in the order of Linux.
    pub const ALL: [(Self, &str); 11] = [
        (Self::SymOffset, "sym-offset"),
        (Self::SymAddr, "sym-addr"),
        (Self::Annotate, "annotate"),
        (Self::ContextInfo, "context-info"),
        (Self::Overwrite, "overwrite"),
        (Self::DisableOnFree, "disable_on_free"),
        (Self::IrqInfo, "irq-info"),
        (Self::Markers, "markers"),
        (Self::EventFork, "event-fork"),
        (Self::FunctionFork, "function-fork"),
        (Self::Stacktrace, "stacktrace"),
    ];

    /// Returns the options of a tracer, in the order of Linux.
    #[must_use]
    pub const fn of(tracer: Tracer) -> &'static [(Self, &'static str)] {
        match tracer {
            Tracer::Nop => &[],
            Tracer::Function => &[(Self::FunctionStackTrace, "func_stack_trace")],
            Tracer::FunctionGraph => &[
                (Self::GraphCpu, "funcgraph-cpu"),
                (Self::GraphOverhead, "funcgraph-overhead"),
                (Self::GraphTask, "funcgraph-proc"),
                (Self::GraphDuration, "funcgraph-duration"),
                (Self::GraphTime, "funcgraph-abstime"),
                (Self::GraphInterrupts, "funcgraph-irqs"),
                (Self::GraphTail, "funcgraph-tail"),
                (Self::GraphResult, "funcgraph-retval"),
                (Self::GraphHexResult, "funcgraph-retval-hex"),
            ],
        }
    }

    /// Returns all options, including those of all tracers.
    pub fn every() -> impl Iterator<Item = (Self, &'static str)> {
        let of_tracers = Tracer::ALL.iter().flat_map(|(tracer, _)| Self::of(*tracer));
        Self::ALL.iter().chain(of_tracers).copied()
    }

    /// Whether `trace_options` has the option while this tracer is set.
    #[must_use]
    pub fn applies_to(self, tracer: Tracer) -> bool {
        Self::ALL.iter().chain(Self::of(tracer)).any(|(flag, _)| *flag == self)
    }

    /// Returns the option of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::every().find(|(_, other)| *other == name).map(|(flag, _)| flag)
    }

    /// Parses an option as written to `trace_options`, where a prefix `no` turns it off. Returns the option, and
    /// whether it is to be on.
    #[must_use]
    pub fn parse(text: &str) -> Option<(Self, bool)> {
        let text = text.trim_ascii();
        match text.strip_prefix("no") {
            Some(name) => Some((Self::find(name)?, false)),
            None => Some((Self::find(text)?, true)),
        }
    }
}

/// A clock of `trace_clock`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceClock {
    /// Time since the kernel started. All CPUs share one system counter, so `global` and `mono` are equal to this
    /// clock.
    Local,
    /// Equal to [`Local`](Self::Local).
    Global,
    /// The number of records before this one, on all CPUs.
    Counter,
    /// Equal to [`Local`](Self::Local).
    Mono,
}

impl TraceClock {
    const ALL: [(Self, &str); 4] =
        [(Self::Local, "local"), (Self::Global, "global"), (Self::Counter, "counter"), (Self::Mono, "mono")];

    /// Returns the clock of this name; white space around the name is ignored.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, other)| *other == name.trim_ascii()).map(|(clock, _)| *clock)
    }

    /// Returns the name in `trace_clock`.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(clock, _)| *clock == self).map_or("", |(_, name)| name)
    }

    /// Writes the contents of the file `trace_clock`: all clocks, this one in brackets.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write(self, out: &mut dyn Write) -> fmt::Result {
        for (number, (clock, name)) in Self::ALL.into_iter().enumerate() {
            let (open, close) = if clock == self { ("[", "]") } else { ("", "") };
            write!(out, "{}{open}{name}{close}", if number > 0 { " " } else { "" })?;
        }
        out.write_char('\n')
    }
}

/// The settings of a trace: its options, its clock, and the size of `saved_cmdlines`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    bits: u32,
    /// The tracer that is set.
    pub tracer: Tracer,
    /// The clock that times are printed by.
    pub clock: TraceClock,
    /// The number of tasks that `saved_cmdlines` names.
    pub names: usize,
}

/// The defaults of Linux.
impl Default for Options {
    fn default() -> Self {
        let mut options = Self { bits: 0, tracer: Tracer::Nop, clock: TraceClock::Local, names: 128 };
        for flag in [Flag::Annotate, Flag::ContextInfo, Flag::Overwrite, Flag::IrqInfo, Flag::Markers] {
            options.set(flag, true);
        }
        for flag in [Flag::GraphCpu, Flag::GraphOverhead, Flag::GraphDuration, Flag::GraphInterrupts] {
            options.set(flag, true);
        }
        options
    }
}

impl Options {
    /// Returns whether an option is on.
    #[must_use]
    pub fn is(self, flag: Flag) -> bool {
        self.bits & 1 << flag as u8 != 0
    }

    /// Turns an option on or off.
    pub fn set(&mut self, flag: Flag, on: bool) {
        self.bits = self.bits & !(1 << flag as u8) | u32::from(on) << flag as u8;
    }

    /// Writes the contents of the file `trace_options`: the options that apply to the tracer that is set.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`.
    pub fn write(self, out: &mut dyn Write) -> fmt::Result {
        Flag::ALL
            .iter()
            .chain(Flag::of(self.tracer))
            .try_for_each(|&(flag, name)| writeln!(out, "{}{name}", if self.is(flag) { "" } else { "no" }))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use alloc::string::String;

    #[test]
    fn every_option_can_be_turned_on_and_off_by_its_name() {
        let mut options = Options::default();
        for (flag, name) in Flag::every() {
            assert_eq!(Flag::parse(&alloc::format!(" {name}\n")), Some((flag, true)));
            assert_eq!(Flag::parse(&alloc::format!("no{name}")), Some((flag, false)));
            let others =
                |options: Options| Flag::every().filter(|(other, _)| *other != flag && options.is(*other)).count();
            let before = others(options);
            for on in [true, false, true] {
                options.set(flag, on);
                assert_eq!((options.is(flag), others(options)), (on, before));
            }
        }
        for (flag, tracer, applies) in [
            (Flag::Markers, Tracer::Nop, true),
            (Flag::GraphTail, Tracer::Nop, false),
            (Flag::GraphTail, Tracer::Function, false),
            (Flag::GraphTail, Tracer::FunctionGraph, true),
        ] {
            assert_eq!(flag.applies_to(tracer), applies, "{flag:?}, {tracer:?}");
        }
        for text in ["", "no", "nono", "print-parent", "nonomarkers", "Markers", "markers irq-info"] {
            assert_eq!(Flag::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_files_are_those_of_linux() {
        let mut text = String::new();
        Options::default().write(&mut text).unwrap();
        let general = "nosym-offset\nnosym-addr\nannotate\ncontext-info\noverwrite\nnodisable_on_free\nirq-info\nmarkers\n\
            noevent-fork\nnofunction-fork\nnostacktrace\n";
        assert_eq!(text, general);
        text.clear();
        Options { tracer: Tracer::FunctionGraph, ..Options::default() }.write(&mut text).unwrap();
        let graph = "funcgraph-cpu\nfuncgraph-overhead\nnofuncgraph-proc\nfuncgraph-duration\nnofuncgraph-abstime\n\
            funcgraph-irqs\nnofuncgraph-tail\nnofuncgraph-retval\nnofuncgraph-retval-hex\n";
        assert_eq!(text.strip_prefix(general), Some(graph));
        for (name, expected) in
            [("local", "[local] global counter mono\n"), (" counter\n", "local global [counter] mono\n")]
        {
            text.clear();
            TraceClock::find(name).unwrap().write(&mut text).unwrap();
            assert_eq!(text, expected);
        }
        assert_eq!(TraceClock::find("x86-tsc"), None);
    }
}
