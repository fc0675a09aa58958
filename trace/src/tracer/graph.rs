//! The text of the tracer `function_graph`, as Linux's `kernel/trace/trace_functions_graph.c` prints it.
//!
//! The text of a record depends on the records before it: the calls that its task is in, whether one of these is the
//! entry of an interrupt, and the task that the CPU ran. A [`Printer`] keeps this from one record to the next.

use alloc::vec::Vec;
use core::fmt::{self, Write};

use fallible::OutOfMemory;

use super::calls::{self, CallEntry, CallRecord, Calls, Transition};
use super::{PARENT, RESULT};
use crate::clock::Clock;
use crate::options::{Flag, Options};
use crate::recorder::{FUNCTION_EVENT, GRAPH_ENTRY_EVENT, GRAPH_RETURN_EVENT, STACK_EVENT};
use crate::ring::Record;
use crate::symbols::{Symbols, write_name};
use crate::text::{self, Described, ShowError};

/// The state that the written records have left.
#[derive(Clone, Debug, Default)]
pub(crate) struct Printer {
    calls: Calls,
    cpus: Vec<Cpu>,
}

/// The state of a CPU.
#[derive(Clone, Debug, Default)]
struct Cpu {
    /// The number and the name of the task of its last record.
    task: Option<(u32, [u8; 16])>,
    /// The indentation of comments, in steps.
    comment: usize,
    /// Whether its next record is a return that was written with its call, on one line.
    skip: bool,
}

/// The parameters of all lines.
#[derive(Clone, Copy)]
pub(crate) struct Style<'a> {
    pub symbols: &'a dyn Symbols,
    pub clock: Clock,
    pub options: Options,
    /// The number of CPUs.
    pub cpus: usize,
}

/// The first columns of the header, and what stands below them: the time, the CPU, the task, the duration.
const COLUMNS: [(Flag, &str, &str); 4] = [
    (Flag::GraphTime, "     TIME       ", "      |         "),
    (Flag::GraphCpu, " CPU", " |  "),
    (Flag::GraphTask, "  TASK/PID       ", "   |    |        "),
    (Flag::GraphDuration, "  DURATION   ", "   |   |      "),
];

/// Writes the column headings of `trace`.
pub(crate) fn write_columns(out: &mut dyn Write, options: Options) -> fmt::Result {
    let line = |out: &mut dyn Write, of: &dyn Fn(&(Flag, &'static str, &'static str)) -> &'static str, last: &str| {
        out.write_char('#')?;
        COLUMNS.iter().filter(|(flag, ..)| options.is(*flag)).try_for_each(|column| out.write_str(of(column)))?;
        writeln!(out, "{last}")
    };
    line(out, &|column| column.1, "               FUNCTION CALLS")?;
    line(out, &|column| column.2, "               |   |   |   |")
}

/// Returns the call or the return that `record` is of. A call whose return address is a trampoline's is a tail call of
/// a function that is followed to its return.
pub(super) fn call_record(record: &Record<'_>, symbols: &dyn Symbols) -> Option<CallRecord> {
    match record.event() {
        GRAPH_ENTRY_EVENT => Some(CallRecord::Entry(CallEntry {
            is_tail: symbols.is_trampoline(record.word(PARENT)),
            is_interrupt: symbols.is_interrupt_entry(record.word(8)),
        })),
        GRAPH_RETURN_EVENT => Some(CallRecord::Return),
        _ => None,
    }
}

impl Printer {
    /// Creates a printer of `records`, which knows the calls that contain the first of them.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn of<'a>(records: impl Iterator<Item = Record<'a>>, symbols: &dyn Symbols) -> Result<Self, OutOfMemory> {
        Ok(Self { calls: Calls::before(records, |record| call_record(record, symbols))?, cpus: Vec::new() })
    }

    /// Follows a record that is not written.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn pass_over(&mut self, record: &Record<'_>, symbols: &dyn Symbols) -> Result<(), OutOfMemory> {
        self.calls.reach(record)?;
        match call_record(record, symbols) {
            Some(CallRecord::Entry(entry)) => {
                let transition = self.calls.enter(record, entry);
                self.calls.has_entered(record, entry, transition)
            }
            Some(CallRecord::Return) => {
                let transition = self.calls.leave(record);
                self.calls.has_left(record, transition)
            }
            None => Ok(()),
        }
    }

    /// Writes the lines of `record`, which `next` follows on its CPU. After an error the record can be written again.
    ///
    /// # Errors
    ///
    /// Returns the error of `out`, or that there is no memory.
    pub fn write(
        &mut self,
        out: &mut dyn Write,
        record: &Record<'_>,
        next: Option<&Record<'_>>,
        event: Described<'_>,
        style: Style<'_>,
    ) -> Result<(), ShowError> {
        let mut cpu = self.cpu(record.cpu)?.clone();
        if core::mem::take(&mut cpu.skip) {
            self.pass_over(record, style.symbols)?;
            self.keep(record.cpu, cpu);
            return Ok(());
        }
        self.calls.reach(record)?;
        if record.lost > 0 {
            text::write_lost(out, record.cpu, record.lost)?;
        }
        let is_hidden =
            |transition: Transition| transition.interrupt.is_some() && !style.options.is(Flag::GraphInterrupts);
        match call_record(record, style.symbols) {
            Some(CallRecord::Entry(entry)) => {
                let transition = self.calls.enter(record, entry);
                let back = next.filter(|next| next.event() == GRAPH_RETURN_EVENT && next.task() == record.task());
                let back = back.filter(|next| next.lost == 0 && calls::is_return_of(next, record, entry.is_tail));
                if !is_hidden(transition) {
                    cpu.write_entry(out, record, back, transition, style)?;
                }
                cpu.skip = back.is_some();
                self.calls.has_entered(record, entry, transition)?;
            }
            Some(CallRecord::Return) => {
                let transition = self.calls.leave(record);
                if !is_hidden(transition) {
                    cpu.write_return(out, record, transition, style)?;
                }
                self.calls.has_left(record, transition)?;
            }
            // As in Linux, these are no comments.
            None if matches!(record.event(), STACK_EVENT | FUNCTION_EVENT) => {
                let Style { symbols, clock, options, .. } = style;
                text::write_record(out, &Record { lost: 0, ..*record }, event, symbols, clock, options)?;
            }
            None => cpu.write_comment(out, record, event, style)?,
        }
        self.keep(record.cpu, cpu);
        Ok(())
    }

    fn cpu(&mut self, number: usize) -> Result<&Cpu, OutOfMemory> {
        while self.cpus.len() <= number {
            fallible::push(&mut self.cpus, Cpu::default())?;
        }
        self.cpus.get(number).ok_or(OutOfMemory)
    }

    fn keep(&mut self, number: usize, cpu: Cpu) {
        if let Some(place) = self.cpus.get_mut(number) {
            *place = cpu;
        }
    }
}

impl Cpu {
    /// Writes the lines of a call, and of its return `back` if that is the next record.
    fn write_entry(
        &mut self,
        out: &mut dyn Write,
        record: &Record<'_>,
        back: Option<&Record<'_>>,
        transition: Transition,
        style: Style<'_>,
    ) -> fmt::Result {
        let function = record.word(8);
        let is_interrupt = style.symbols.is_interrupt_entry(function);
        self.write_switch(out, record, style)?;
        if is_interrupt {
            write_interrupt(out, record, "==========>", style)?;
        }
        write_context(out, record, style)?;
        match back {
            Some(back) => {
                let clock = style.clock;
                let nanoseconds = clock.nanoseconds(back.time).saturating_sub(clock.nanoseconds(record.time));
                write_duration(out, Some(nanoseconds), style.options)?;
                indent(out, transition.depth)?;
                write_name(out, function, style.symbols)?;
                out.write_str("();")?;
                if let Some(result) = Outcome::of(back, style.options) {
                    write!(out, " /*{result} */")?;
                }
                out.write_char('\n')?;
                if is_interrupt {
                    write_interrupt(out, back, "<==========", style)?;
                }
                self.comment = transition.depth;
            }
            None => {
                write_duration(out, None, style.options)?;
                indent(out, transition.depth)?;
                write_name(out, function, style.symbols)?;
                out.write_str("() {\n")?;
                self.comment = transition.depth + 1;
            }
        }
        Ok(())
    }

    /// Writes the lines of a return.
    fn write_return(
        &mut self,
        out: &mut dyn Write,
        record: &Record<'_>,
        transition: Transition,
        style: Style<'_>,
    ) -> fmt::Result {
        let function = record.word(8);
        self.write_switch(out, record, style)?;
        write_context(out, record, style)?;
        let since = |began| style.clock.nanoseconds(record.time).saturating_sub(style.clock.nanoseconds(began));
        write_duration(out, transition.began.map(since), style.options)?;
        indent(out, transition.depth)?;
        out.write_char('}')?;
        let result = Outcome::of(record, style.options);
        // A brace does not tell what it closes where the call was not recorded.
        if transition.began.is_none() || style.options.is(Flag::GraphTail) || result.is_some() {
            out.write_str(" /* ")?;
            write_name(out, function, style.symbols)?;
            result.map_or(Ok(()), |result| write!(out, "{result}"))?;
            out.write_str(" */")?;
        }
        out.write_char('\n')?;
        self.comment = transition.depth;
        if style.symbols.is_interrupt_entry(function) {
            write_interrupt(out, record, "<==========", style)?;
        }
        Ok(())
    }

    /// Writes a record of another kind as a comment.
    fn write_comment(
        &mut self,
        out: &mut dyn Write,
        record: &Record<'_>,
        event: Described<'_>,
        style: Style<'_>,
    ) -> fmt::Result {
        self.write_switch(out, record, style)?;
        write_context(out, record, style)?;
        write_duration(out, None, style.options)?;
        // As in Linux, a comment in an outermost call is not indented.
        indent(out, if self.comment > 1 { self.comment } else { 0 })?;
        out.write_str("/* ")?;
        let mut line = UnendedLine { out, is_ended: false };
        text::write_message(&mut line, record, event, style.symbols, style.options)?;
        out.write_str(" */\n")
    }

    /// Writes that the CPU has switched to another task, if it has since its last record.
    fn write_switch(&mut self, out: &mut dyn Write, record: &Record<'_>, style: Style<'_>) -> fmt::Result {
        const RULE: &str = " ------------------------------------------\n";
        let now = (record.task(), record.name);
        let before = self.task.replace(now);
        match before {
            Some(before) if before.0 != now.0 => {
                out.write_str(RULE)?;
                write_cpu(out, record.cpu, style)?;
                write_task(out, before)?;
                out.write_str(" => ")?;
                write_task(out, now)?;
                writeln!(out, "\n{RULE}")
            }
            _ => Ok(()),
        }
    }
}

/// The result of a function, displayed as Linux's `print_graph_retval` does: an error number in decimal, whatever its
/// width is, and any other in hexadecimal.
#[derive(Clone, Copy)]
struct Outcome {
    result: u64,
    is_hexadecimal: bool,
}

impl Outcome {
    /// Returns the result in the record of a return; `None` if the record has none, or if results are not to be shown.
    fn of(record: &Record<'_>, options: Options) -> Option<Self> {
        let result = record.bytes.get(RESULT..)?.first_chunk().filter(|_| options.is(Flag::GraphResult))?;
        Some(Self { result: u64::from_le_bytes(*result), is_hexadecimal: options.is(Flag::GraphHexResult) })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ERRNO_MAX: i64 = 4095;
        let result = self.result;
        // A function that returns 32 bits leaves the upper half as it is, mostly 0.
        let signed = if result >> 32 == 0 { i64::from(result as u32 as i32) } else { result as i64 };
        match (-ERRNO_MAX..0).contains(&signed) && !self.is_hexadecimal {
            true => write!(f, " ret={signed}"),
            false => write!(f, " ret={result:#x}"),
        }
    }
}

/// Text without its last end of line.
struct UnendedLine<'a> {
    out: &'a mut dyn Write,
    is_ended: bool,
}

impl Write for UnendedLine<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.is_empty() {
            return Ok(());
        }
        if core::mem::take(&mut self.is_ended) {
            self.out.write_char('\n')?;
        }
        let (text, is_ended) = text.strip_suffix('\n').map_or((text, false), |text| (text, true));
        self.is_ended = is_ended;
        self.out.write_str(text)
    }
}

fn indent(out: &mut dyn Write, depth: usize) -> fmt::Result {
    write!(out, "{:1$}", "", 2 * depth)
}

fn write_cpu(out: &mut dyn Write, cpu: usize, style: Style<'_>) -> fmt::Result {
    let width = style.cpus.saturating_sub(1).checked_ilog10().unwrap_or(0) as usize + 1;
    write!(out, " {cpu:width$}) ")
}

/// Writes a task in the middle of its column.
fn write_task(out: &mut dyn Write, (number, name): (u32, [u8; 16])) -> fmt::Result {
    const WIDTH: usize = 14;
    const NAME: usize = 7;
    let name = text::task_name(name.get(..NAME).unwrap_or(&name));
    let length = name.chars().count() + 1 + number.checked_ilog10().unwrap_or(0) as usize + 1;
    let spaces = WIDTH.saturating_sub(length);
    write!(out, "{:2$}{name}-{number}{:3$}", "", "", spaces / 2, spaces - spaces / 2)
}

/// Writes the columns before the duration.
fn write_context(out: &mut dyn Write, record: &Record<'_>, style: Style<'_>) -> fmt::Result {
    let options = style.options;
    if !options.is(Flag::ContextInfo) {
        return Ok(());
    }
    if options.is(Flag::GraphTime) {
        let microseconds = style.clock.nanoseconds(record.time) / 1000;
        write!(out, "{} |  ", text::Time(microseconds))?;
    }
    if options.is(Flag::GraphCpu) {
        write_cpu(out, record.cpu, style)?;
    }
    if options.is(Flag::GraphTask) {
        write_task(out, (record.task(), record.name))?;
        out.write_str(" | ")?;
    }
    Ok(())
}

/// Writes the line that says that an interrupt begins or ends.
fn write_interrupt(out: &mut dyn Write, record: &Record<'_>, arrow: &str, style: Style<'_>) -> fmt::Result {
    write_context(out, record, style)?;
    let has_column = style.options.is(Flag::ContextInfo) && style.options.is(Flag::GraphDuration);
    let (before, after) = if has_column { ("  ", " |") } else { ("", "") };
    writeln!(out, "{before}{arrow}{after}")
}

/// Returns the mark of a duration (`trace_find_mark`).
fn mark(nanoseconds: u64) -> char {
    const MARKS: [(u64, char); 6] =
        [(1_000_000_000, '$'), (100_000_000, '@'), (10_000_000, '*'), (1_000_000, '#'), (100_000, '!'), (10_000, '+')];
    MARKS.iter().find(|(above, _)| nanoseconds > *above).map_or(' ', |(_, mark)| *mark)
}

/// Writes the column of a duration in nanoseconds. It is blank without one: the call goes on, or it is unknown when it
/// began.
fn write_duration(out: &mut dyn Write, duration: Option<u64>, options: Options) -> fmt::Result {
    if !options.is(Flag::GraphDuration) || !options.is(Flag::ContextInfo) {
        return Ok(());
    }
    let Some(nanoseconds) = duration else { return out.write_str("              |  ") };
    let mark = if options.is(Flag::GraphOverhead) { mark(nanoseconds) } else { ' ' };
    write!(out, "{mark} {}|  ", Microseconds(nanoseconds))
}

/// Nanoseconds as Linux prints them in a column: microseconds, with as many digits after the point as there is room
/// for.
pub(super) struct Microseconds(pub u64);

impl fmt::Display for Microseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WIDTH: usize = 8;
        let (whole, rest) = (self.0 / 1000, self.0 % 1000);
        let digits = whole.checked_ilog10().unwrap_or(0) as usize + 1;
        write!(f, "{whole}")?;
        // There is room for seven digits and the point.
        let length = match (WIDTH - 1).checked_sub(digits).map(|room| room.min(3)) {
            None | Some(0) => digits,
            Some(decimals) => {
                write!(f, ".{:0decimals$}", rest / 10_u64.pow(3 - decimals as u32))?;
                digits + 1 + decimals
            }
        };
        write!(f, " us {:1$}", "", WIDTH.saturating_sub(length))
    }
}
