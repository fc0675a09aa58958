//! Records and counts as text, in the layout of the files of Linux's tracefs.
//!
//! The layout is exact, so that people and programs that read those files can read these.

use core::fmt::{self, Write};
use core::str;

use fallible::OutOfMemory;

use crate::clock::Clock;
use crate::format::{Base, Field, Format, Shape, Width};
use crate::options::{Flag, Options, TraceClock};
use crate::print::{self, write_lossy};
use crate::recorder::{
    FUNCTION_EVENT, Flags, PRINT_EVENT, PRINT_HEADER, RAW_EVENT, RAW_HEADER, STACK_EVENT, STACK_HEADER,
};
use crate::ring::Record;
use crate::symbols::{Symbols, lookup_on_stack, write_name, write_offset, write_on_stack};
use crate::tracer::PARENT;

/// Why records or a histogram cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowError {
    /// There is no memory for a copy of the records or counts.
    OutOfMemory,
    /// The output returned an error.
    Write(fmt::Error),
}

impl From<fmt::Error> for ShowError {
    fn from(error: fmt::Error) -> Self {
        Self::Write(error)
    }
}

impl From<OutOfMemory> for ShowError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

const COLUMNS: &str = "\
#                                _-----=> irqs-off/BH-disabled
#                               / _----=> need-resched
#                              | / _---=> hardirq/softirq
#                              || / _--=> preempt-depth
#                              ||| / _-=> migrate-disable
#                              |||| /     delay
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
";

/// The column headings without the state of the CPU.
const FEW_COLUMNS: &str = "\
#           TASK-PID     CPU#     TIMESTAMP  FUNCTION
#              | |         |         |         |
";

/// The longest name of a task that is shown, in bytes.
const TASK_NAME_MAX: usize = 15;

/// Writes the column headings of `trace` for any tracer but `function_graph`.
pub(crate) fn write_columns(out: &mut dyn Write, options: Options) -> fmt::Result {
    out.write_str(if options.is(Flag::IrqInfo) { COLUMNS } else { FEW_COLUMNS })
}

/// Writes the line that says that `count` records of `cpu` are missing.
pub fn write_lost(out: &mut dyn Write, cpu: usize, count: u64) -> fmt::Result {
    writeln!(out, "CPU:{cpu} [LOST {count} EVENTS]")
}

/// Writes the line that says that the records of `cpu` begin.
pub(crate) fn write_start(out: &mut dyn Write, cpu: usize) -> fmt::Result {
    writeln!(out, "##### CPU {cpu} buffer started ####")
}

/// The name and the format of an event, unless it is gone.
pub(crate) type Described<'a> = Option<(&'a str, &'a Format)>;

/// Writes the line of `record` in `trace`, after a line with the number of records lost before it, if any. `event` is
/// the name and the format of the event; `None` if the event was removed.
///
/// # Errors
///
/// Returns the error of `out`.
pub fn write_record(
    out: &mut dyn Write,
    record: &Record<'_>,
    event: Described<'_>,
    symbols: &dyn Symbols,
    clock: Clock,
    options: Options,
) -> fmt::Result {
    if record.lost > 0 {
        write_lost(out, record.cpu, record.lost)?;
    }
    if options.is(Flag::ContextInfo) {
        let name = record.name;
        write!(out, "{:>16}-{:<7} [{:03}] ", task_name(&name), record.task(), record.cpu)?;
        if options.is(Flag::IrqInfo) {
            write!(out, "{}", FlagsText(record.flags()))?;
        }
        match options.clock {
            TraceClock::Counter => write!(out, " {:>12}: ", record.count)?,
            _ => write!(out, " {}: ", Time(clock.microseconds(record.time)))?,
        }
    }
    match record.event() {
        STACK_EVENT => write_stack(out, record, symbols, options),
        PRINT_EVENT => write_print(out, record, symbols, options),
        RAW_EVENT => write_raw(out, record),
        FUNCTION_EVENT => write_call(out, record, symbols, options),
        _ => write_event(out, record, event, symbols, options),
    }
}

/// Writes the contents of `record`, without task, CPU and time; for a message, only its text.
pub(crate) fn write_message(
    out: &mut dyn Write,
    record: &Record<'_>,
    event: Described<'_>,
    symbols: &dyn Symbols,
    options: Options,
) -> fmt::Result {
    match record.event() {
        PRINT_EVENT => write_lossy(out, print_text(record)),
        RAW_EVENT => write_raw(out, record),
        _ => write_event(out, record, event, symbols, options),
    }
}

/// Writes a call of the tracer `function`: the function, and who called it.
fn write_call(out: &mut dyn Write, record: &Record<'_>, symbols: &dyn Symbols, options: Options) -> fmt::Result {
    let parent = record.word(PARENT);
    write_function(out, record.word(8), false, symbols, options)?;
    out.write_str(" <-")?;
    if symbols.is_trampoline(parent) {
        out.write_str("[unknown/kretprobe'd]")?;
        write_address(out, parent, options)?;
    } else {
        write_function(out, parent, true, symbols, options)?;
    }
    out.write_char('\n')
}

/// Writes a record of an event, without task, CPU and time.
fn write_event(
    out: &mut dyn Write,
    record: &Record<'_>,
    event: Described<'_>,
    symbols: &dyn Symbols,
    options: Options,
) -> fmt::Result {
    let Some((name, format)) = event else {
        return writeln!(out, "Unknown type {}", record.event());
    };
    if format.shape == Shape::Synthetic {
        return write_synthetic(out, record, name, format, symbols);
    }
    if format.shape == Shape::Static {
        write!(out, "{name}: ")?;
        print::write(out, format, record.bytes, symbols)?;
        return out.write_char('\n');
    }
    write!(out, "{name}: (")?;
    match format.shape {
        _ if let Some(base_event) = &format.base_event => out.write_str(base_event)?,
        Shape::Synthetic | Shape::Static => {}
        Shape::Probe => {
            write_offset(out, record.word(8), symbols)?;
            write_address(out, record.word(8), options)?;
        }
        Shape::Return => {
            write_offset(out, record.word(16), symbols)?;
            write_address(out, record.word(16), options)?;
            out.write_str(" <- ")?;
            write_name(out, record.word(8), symbols)?;
            write_address(out, record.word(8), options)?;
        }
    }
    out.write_char(')')?;
    for (number, field) in format.arguments().iter().enumerate() {
        write!(out, " {}=", field.name)?;
        let is_in_part =
            field.kind.count > 0 && (1..field.kind.values() as u32).contains(&field.unread(record.bytes).count_ones());
        if record.is_fault(number) && !is_in_part {
            out.write_str("(fault)")?;
        } else {
            write_values(out, field, record.bytes, symbols)?;
        }
    }
    out.write_char('\n')
}

/// Writes the record of a synthetic event. As in Linux, numbers with less than 32 bits are printed without a sign.
fn write_synthetic(
    out: &mut dyn Write,
    record: &Record<'_>,
    name: &str,
    format: &Format,
    symbols: &dyn Symbols,
) -> fmt::Result {
    write!(out, "{name}: ")?;
    for (number, field) in format.arguments().iter().enumerate() {
        let space = if number + 1 < format.arguments().len() { " " } else { "" };
        write!(out, "{}=", field.name)?;
        if field.is_stack() {
            write_value(out, field, record.bytes, 0, symbols)?;
            continue;
        }
        let value = field.value(record.bytes, 0).unwrap_or(0);
        match field.kind.base {
            Base::Signed(Width::W64 | Width::W32) => write!(out, "{}", value as i64)?,
            Base::Signed(width) => write!(out, "{}", value & !(u64::MAX << width.bits()))?,
            Base::Hexadecimal(_) => {
                // Linux prints names of flags in the parentheses; here flags have no names. As in Linux, the blank that
                // separates fields precedes the parentheses.
                write!(out, "{value:x}{space} (")?;
                if value > 0 {
                    write!(out, "{value:#x}")?;
                }
                out.write_char(')')?;
                continue;
            }
            Base::Characters => write_lossy(out, field.characters(record.bytes))?,
            Base::String => write_lossy(out, field.bytes(record.bytes, 0).unwrap_or(b"(fault)"))?,
            _ => write!(out, "{value}")?,
        }
        out.write_str(space)?;
    }
    out.write_char('\n')
}

/// Writes a message with its origin: the function that wrote it, or `tracing_mark_write` for `trace_marker`.
fn write_print(out: &mut dyn Write, record: &Record<'_>, symbols: &dyn Symbols, options: Options) -> fmt::Result {
    match record.word(8) {
        0 => out.write_str("tracing_mark_write")?,
        place => write_function(out, place, false, symbols, options)?,
    }
    out.write_str(": ")?;
    write_lossy(out, print_text(record))
}

/// Writes a record of [`RAW_EVENT`] as Linux does: the number, and the data byte by byte.
fn write_raw(out: &mut dyn Write, record: &Record<'_>) -> fmt::Result {
    write!(out, "# {:x} buf:", record.word(COMMON) as u32)?;
    let data = record.bytes.get(RAW_HEADER..).unwrap_or_default();
    data.iter().try_for_each(|byte| write!(out, " {byte:02x}"))?;
    out.write_char('\n')
}

/// Bytes of a record before the number of [`RAW_EVENT`].
const COMMON: usize = 8;

/// Makes the contents of a file `format` from the parts before and after the common fields.
macro_rules! format_file {
    ($head:literal, $rest:literal) => {
        concat!(
            $head,
            "\
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

",
            $rest
        )
    };
}

/// The contents of the file `format` for [`RAW_EVENT`].
pub const RAW_FORMAT: &str = format_file!(
    "\
name: raw_data
ID: 18
",
    "\
\tfield:unsigned int id;\toffset:8;\tsize:4;\tsigned:0;
\tfield:char buf[];\toffset:12;\tsize:0;\tsigned:0;

print fmt: \"id:%04x %08x\", REC->id, (int)REC->buf[0]
"
);

/// The text of a record of [`PRINT_EVENT`].
fn print_text<'a>(record: &Record<'a>) -> &'a [u8] {
    let text = record.bytes.get(PRINT_HEADER..).unwrap_or_default();
    text.strip_suffix(&[0]).unwrap_or(text)
}

/// The contents of the file `format` for [`PRINT_EVENT`].
pub const PRINT_FORMAT: &str = format_file!(
    "\
name: print
ID: 5
",
    "\
\tfield:unsigned long ip;\toffset:8;\tsize:8;\tsigned:0;
\tfield:char buf[];\toffset:16;\tsize:0;\tsigned:0;

print fmt: \"%ps: %s\", (void *)REC->ip, REC->buf
"
);

/// Writes the function that an address on a stack belongs to, with its offset and its address if the options say so. A
/// return address belongs to the calling function.
fn write_function(
    out: &mut dyn Write,
    address: u64,
    is_return: bool,
    symbols: &dyn Symbols,
    options: Options,
) -> fmt::Result {
    if options.is(Flag::SymOffset) {
        write_on_stack(out, address, is_return, symbols)?;
    } else if let Some(function) = lookup_on_stack(address, is_return, symbols) {
        out.write_str(function.name)?;
    } else {
        write!(out, "{address:#x}")?;
    }
    write_address(out, address, options)
}

/// Writes the address after the name of a function, if the option `sym-addr` is on.
fn write_address(out: &mut dyn Write, address: u64, options: Options) -> fmt::Result {
    if options.is(Flag::SymAddr) { write!(out, " <{address:016x}>") } else { Ok(()) }
}

/// A time in microseconds, displayed as Linux prints the time of a record.
pub(crate) struct Time(pub u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, fraction) = (self.0 / 1_000_000, self.0 % 1_000_000);
        write!(f, "{seconds:>5}.{fraction:06}")
    }
}

fn write_stack(out: &mut dyn Write, record: &Record<'_>, symbols: &dyn Symbols, options: Options) -> fmt::Result {
    out.write_str("<stack trace>\n")?;
    for at in (STACK_HEADER..record.bytes.len()).step_by(8) {
        out.write_str(" => ")?;
        write_function(out, record.word(at), at > STACK_HEADER, symbols, options)?;
        out.write_char('\n')?;
    }
    Ok(())
}

/// Writes the values of `field` in `record`; the values of an array are in braces.
fn write_values(out: &mut dyn Write, field: &Field, record: &[u8], symbols: &dyn Symbols) -> fmt::Result {
    if field.kind.count == 0 {
        return write_value(out, field, record, 0, symbols);
    }
    let unread = field.unread(record);
    for index in 0..field.kind.values() {
        out.write_char(if index == 0 { '{' } else { ',' })?;
        match unread >> index & 1 {
            0 => write_value(out, field, record, index, symbols)?,
            _ => out.write_str("(fault)")?,
        }
    }
    out.write_char('}')
}

fn write_value(out: &mut dyn Write, field: &Field, record: &[u8], index: usize, symbols: &dyn Symbols) -> fmt::Result {
    let value = field.value(record, index).unwrap_or(0);
    match field.kind.base {
        Base::Unsigned(_) => write!(out, "{value}"),
        Base::Signed(_) => write!(out, "{}", value as i64),
        Base::Hexadecimal(_) => write!(out, "{value:#x}"),
        Base::Char => write!(out, "'{}'", char::from(value as u8)),
        Base::Characters => write_lossy(out, field.characters(record)),
        Base::Symbol => write_offset(out, value, symbols),
        Base::Stack => {
            out.write_str("STACK:\n")?;
            field.stack(record).enumerate().try_for_each(|(number, address)| {
                out.write_str("=> ")?;
                write_on_stack(out, address, number > 0, symbols)?;
                out.write_char('\n')
            })
        }
        Base::String | Base::SymbolString => {
            let Some(bytes) = field.bytes(record, index) else { return out.write_str("(fault)") };
            out.write_char('"')?;
            write_lossy(out, bytes)?;
            out.write_char('"')
        }
    }
}

/// Writes the line of an event in `kprobe_profile`.
pub fn write_profile(out: &mut dyn Write, event: &str, hits: u64, missed: u64) -> fmt::Result {
    writeln!(out, "  {event:<44} {hits:>15} {missed:>15}")
}

/// Writes the first lines of `trace_stat/events`, in the form of Linux's other files in `trace_stat`.
pub(crate) fn write_static_profile_header(out: &mut dyn Write) -> fmt::Result {
    for [event, hits, missed] in [["Event", "Hit", "Missed"], ["-----", "---", "------"]] {
        writeln!(out, "  {event:<44} {hits:>15} {missed:>15}")?;
    }
    Ok(())
}

/// Writes the line of an event in `trace_stat/events`.
pub(crate) fn write_static_profile(
    out: &mut dyn Write,
    group: &str,
    event: &str,
    hits: u64,
    missed: u64,
) -> fmt::Result {
    // `GROUP:EVENT` in 44 columns.
    let width = 43_usize.saturating_sub(group.len());
    writeln!(out, "  {group}:{event:<width$} {hits:>15} {missed:>15}")
}

/// Returns the name of a task: the part before the first zero that is valid UTF-8, at most 15 bytes.
#[must_use]
pub fn task_name(name: &[u8]) -> &str {
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    let name = name.get(..length.min(TASK_NAME_MAX)).unwrap_or(name);
    match str::from_utf8(name) {
        Ok(name) => name,
        Err(error) => str::from_utf8(&name[..error.valid_up_to()]).unwrap_or(""),
    }
}

/// The flags as five characters: a letter for a flag that is set, otherwise a dot. The second, fourth and fifth are
/// about preemption and migration in Linux, and always dots here.
struct FlagsText(Flags);

impl fmt::Display for FlagsText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Flags(bits) = self.0;
        let letter = |flag: u8, letter: char| if bits & flag != 0 { letter } else { '.' };
        write!(f, "{}.{}..", letter(Flags::IRQS_OFF, 'd'), letter(Flags::INTERRUPT, 'h'))
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
